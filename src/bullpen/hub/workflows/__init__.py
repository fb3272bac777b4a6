"""How the members of a pod follow each other: all at once, or one after the other.

Called by the route that starts pods. Uses pods and tasks; nothing below knows of it. Must not land
by itself: it asks a person first, and `landing` does it.
"""
