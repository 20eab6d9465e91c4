"""The command line: the commands, the interactive chat, and their output."""
