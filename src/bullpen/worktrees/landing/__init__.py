"""Landing: an agent's work is built on a target branch, and the branch moves there.

Called by `hub/landing`, in threads. Works on objects and refs; of a person's checkout it changes
nothing but what a fast-forward of its branch changes (`move`). Must not know agents or queues.
"""
