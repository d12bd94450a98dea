"""Detection of impure calls in functions that must be pure, and of the code that caused them."""
