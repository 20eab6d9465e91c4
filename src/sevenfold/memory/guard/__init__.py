"""What may be written into memory: no secrets, and nothing that tries to instruct the agent."""
