"""A conversation that lasts: its project, its log, its memory, its agents, its money."""
