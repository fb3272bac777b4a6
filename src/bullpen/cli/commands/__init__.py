"""One file per verb, which exports `command`.

Called by the table of `cli/main`: a file is loaded when its verb is called. Must not import the
hub; what several verbs share is in `cli`.
"""
