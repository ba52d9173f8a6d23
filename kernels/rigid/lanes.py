"""Eight worlds side by side: one number of each in the lanes of a vector register.

A mechanism's rows are too short to fill vector registers, so each loop over them runs for eight worlds at once. Thread
``world`` of a kernel takes the worlds from there on if it is a multiple of eight, on a processor; on a GPU, and where
the stack has no room, the general code does its part. What a lane computes does not depend on what the others hold.
``native/lanes.h`` has what such code shares.
"""

LANES = 8
"""Worlds side by side."""
