"""Layer 5: what is known from earlier sessions, recalled beside the reply."""
