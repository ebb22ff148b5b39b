"""Transformations of functions: batches, forward and reverse derivatives, in any nesting.

What the public names of `flambeau.func`, `autograd.forward_ad` and `autograd.functional` do;
docs/design.md § 10a describes the mechanism.
"""
