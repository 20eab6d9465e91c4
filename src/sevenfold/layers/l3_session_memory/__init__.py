"""Layer 3: session memory. Notes are kept while the conversation grows; when it is full they stand in."""
