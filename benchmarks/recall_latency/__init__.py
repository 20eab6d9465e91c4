"""How long recall takes, and what its index costs to make, to keep and to change."""
