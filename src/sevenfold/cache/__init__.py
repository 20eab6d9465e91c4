"""The provider's prompt cache, seen from our side: breakpoints, breaks, prices."""
