"""Memory of its own for a kind of agent: where it lies, and what a project hands it to begin with."""
