"""How fast a fleet on PostgreSQL is."""
