"""The Model Context Protocol: a server for the memory, and a client for the servers that a chat uses."""

from __future__ import annotations

import os


def keep_output() -> int:
    """A descriptor of our own for standard output; whatever else is printed goes to standard error."""
    own = os.dup(1)
    try:
        os.dup2(2, 1)
    except OSError:  # standard error is closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return own
