"""Which layer acts when in a long scripted session on the wire."""
