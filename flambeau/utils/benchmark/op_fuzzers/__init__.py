"""Random inputs for benchmarks of kinds of operators."""
