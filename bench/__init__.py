"""Ratios against bare tools, taken in one interleaved run. `make bench` prints them.

Absolute times on a shared machine move by a factor of two from run to run; the
median of interleaved pairs does not. Nothing here asserts: it prints and tells
which goals are missed.
"""
