"""The director of `type: claude`: takes goals, and has an agent of the manager's role lead others.

Started as every director. Decides nothing of the work itself: the model at the hub does. Must not
give its agent more than its role says.
"""
