"""The text of kernels in C. Nothing here knows how kernels are scheduled or run."""
