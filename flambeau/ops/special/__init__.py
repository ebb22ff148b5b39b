"""Special functions, orthogonal polynomials and windows."""
