"""The memory directory: plain markdown that people can read, found in milliseconds, safe to share."""
