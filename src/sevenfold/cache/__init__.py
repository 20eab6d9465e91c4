"""The provider's prompt cache, seen from our side: where to mark, what it did, what it costs."""
