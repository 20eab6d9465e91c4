"""The same layers around a loop that is not ours, and the memory by itself."""
