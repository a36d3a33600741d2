"""TODO: one line and what a caller must know."""
