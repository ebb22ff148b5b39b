"""Transformations of functions: batches, forward and reverse derivatives, in any nesting.

This package implements `flambeau.func`, `autograd.forward_ad` and `autograd.functional`;
docs/design.md § 10a describes the mechanism.
"""
