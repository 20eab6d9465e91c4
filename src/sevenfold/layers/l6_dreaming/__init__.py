"""Layer 6: dreaming, which tidies the memory folder when enough has happened since the last time."""
