"""What the guard of memory catches, and what it should have let through."""
