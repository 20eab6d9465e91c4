"""A conversation in the terminal: asked once, or line by line with slash commands."""
