"""Finished text for people: the tables and answers that the hub gives as plain text. Pure.

Called by `http/`. A column of `bullpen list` is one entry of `COLUMNS` in `agents`. In the hub and
not in the command line, because the hot commands have no time to lay out text. Must not look
anything up: it is given what it shows.
"""
