"""Layer 1: large tool results go to disk when they arrive; the model sees the beginning and where it is."""
