"""Finding memories by their words and by what they mean."""
