"""Programs from programs: derivatives, batches and replays of graphs over primitives.

Knows the tensor graph and the records of primitives; nothing of tensors, tapes or users' calls.
"""
