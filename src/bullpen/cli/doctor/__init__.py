"""What `bullpen doctor` looks at, a module per kind of thing.

A check is a function that returns a `Check`, or None if there is nothing to check here; it never
raises for what it found, and leaves nothing behind. `cli/commands/doctor.py` has them in order.
"""
