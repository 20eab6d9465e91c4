"""The guard of memory: refuses secrets, and holds back texts that give orders to the agent."""
