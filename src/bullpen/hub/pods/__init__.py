"""Pods: several agents launched together from a template, all of them or none.

Called by the API (`launch`); what a crash left half done, `agents/intent` takes back. Plans each
member by `agents/plan` and starts it by `agents/start`; must not know how a program is started.
"""
