"""The values a conversation is made of, and the seams between its parts."""
