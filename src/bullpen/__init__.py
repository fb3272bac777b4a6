"""Bullpen: a team of AI coding agents on your code.

The version lives here and nowhere else. Nothing is imported: every command
passes through this file, and the hot ones have a few milliseconds.
"""

__version__ = "0.1.0"
