"""Every change of a memory folder, kept in a SQLite file beside it."""
