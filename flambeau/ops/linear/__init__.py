"""Matrix products, factorisations, solvers, and what is built on them."""
