"""Dtypes, schemas, op definitions and the slow path of an op call: the Python side of the core."""
