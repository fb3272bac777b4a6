"""The nouns of Bullpen as immutable values, and the rules on them as pure functions.

Used by every room above. Imports the primitives only.
Must not read a file, a clock, a socket or the environment.
"""
