"""Helpers of data pipes: files, columns, decoders."""
