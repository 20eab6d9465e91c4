"""Instruction files: what people write down once so that they need not say it in every conversation.

`CLAUDE.md`, `AGENTS.md` and rules of the machine, the user, the project and its folders; read once,
shown from the least to the most particular. `reader.py` says what may be read and what not.
"""
