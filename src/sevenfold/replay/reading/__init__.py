"""Readers of recorded sessions: Sevenfold's own, Claude Code's, Codex's, and plain lists of messages."""
