"""Elementary functions in C: one implementation of each, for every vector width."""
