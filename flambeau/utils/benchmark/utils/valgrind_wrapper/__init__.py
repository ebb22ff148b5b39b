"""Counts of instructions by function, as valgrind's callgrind writes them."""
