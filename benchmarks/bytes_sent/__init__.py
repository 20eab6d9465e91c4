"""Bytes sent in a session of 60 tool calls, with and without message threads."""
