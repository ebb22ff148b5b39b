"""The driver of cache misses: traces a call, differentiates it and builds its Plan."""
