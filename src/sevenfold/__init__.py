"""Seven layers of memory for LLM agents."""
