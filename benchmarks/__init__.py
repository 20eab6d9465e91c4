"""Benchmarks: each folder measures one thing, prints it, and says what it does not show."""
