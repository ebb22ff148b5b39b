"""Further spellings of operators: PyTorch's internal names and older signatures."""
