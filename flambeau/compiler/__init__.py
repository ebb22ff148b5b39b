"""From a traced graph to a plan: stages, scheduling, code generation, cache."""
