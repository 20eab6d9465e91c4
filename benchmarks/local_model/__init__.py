"""What a small real model answers to the prompts of the background work."""
