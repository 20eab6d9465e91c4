"""What an agent needed after real compactions, and how much of it different replacements still have."""
