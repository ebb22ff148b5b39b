"""Tier 2 of `compile`: which calls of a compiled function need not run their Python again.

A call whose program was run before is run once more, dry: an interpreter of CPython's bytecode
executes the function on the real arguments, while operators are recorded and never run. It notes
everything that it reads from outside of the frame. When it meets nothing that it does not
understand, and the recorded stream is one that tier 1 ran before, the notes become guards and later
calls run the stream's Plan directly (`native/frame`). Everything else stays in tier 1.
"""
