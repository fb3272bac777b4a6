"""The HTTP API: one file per noun. Each route turns a request into one call of a part.

Called by clients over the socket and the loopback port. Answers by the types of `model/`; text for
people comes from `render/`. Must not decide anything that a part could decide.
"""
