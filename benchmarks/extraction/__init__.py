"""What the offline engine, or any model, saves of conversations for which the memories are known."""
