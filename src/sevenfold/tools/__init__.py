"""What the model can do to the machine: read, write, search and run commands, each under rules."""
