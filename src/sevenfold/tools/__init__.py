"""The tools of the model: read, write, search and run commands, each under permission rules."""
