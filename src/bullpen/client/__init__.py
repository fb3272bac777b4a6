"""The client's side of the hub's API: what everybody outside the hub uses to talk to it.

Nothing is imported here: the hot commands pass through this file.
"""
