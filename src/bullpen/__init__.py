"""Bullpen: runs a team of AI coding agents on your code.

The version is defined here only. Nothing is imported: every command loads this file, and the hot
ones have a few milliseconds.
"""

__version__ = "0.1.0"
