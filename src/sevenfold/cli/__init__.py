"""What people type: the commands, the interactive chat, and how things are shown."""
