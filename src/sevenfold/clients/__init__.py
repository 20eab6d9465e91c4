"""Sevenfold beside other people's agents: answers to their hooks, their settings files, the status line."""
