"""Instruction files: `CLAUDE.md`, `AGENTS.md` and rules of the machine, the user and the project."""
