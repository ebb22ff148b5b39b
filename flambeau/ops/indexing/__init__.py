"""Operators that read and write by index: subscripts, scatters, searches, sorting."""
