"""Finished text for people, as the terminal shows it. Pure.

Here and not in the command line, because the hot commands have no time to lay out text.
"""
