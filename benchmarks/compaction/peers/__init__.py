"""What runs in the other packages' own environments."""
