"""Text of memories: its Markdown, its links and its words."""
