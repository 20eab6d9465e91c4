"""Every change of a memory folder, kept as plain git objects."""
