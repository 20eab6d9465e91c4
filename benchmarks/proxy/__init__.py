"""What the proxy saves and what it costs: the same sessions with and without it."""
