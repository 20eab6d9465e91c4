"""Other people's conversations: their messages, in their format, recognised when they come again."""
