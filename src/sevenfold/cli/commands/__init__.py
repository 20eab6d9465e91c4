"""What the commands do; each is imported when it is run."""
