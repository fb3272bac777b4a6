"""The files of one home directory: paths, settings, roles, pods, projects, credentials, trust.

Reads, checks and writes these files. Called by the hub, by commands and by components. Must not
talk to a hub or start an agent. Imports no engine, but knows what its own files say of them: how
each is logged in (`credentials`), and which settings files a directory may bring (`trust`). Opens
no connection, but `forge_user` does: it asks GitHub or GitLab who a token belongs to.
"""
