"""Layer 7: agents. Forks ask the model something beside the conversation, on the prefix it has cached."""
