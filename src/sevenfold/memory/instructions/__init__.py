"""Instruction files: what people write down once so that they need not say it in every conversation.

`CLAUDE.md`, `AGENTS.md` and rules of the machine, the user, the project and its folders; read once,
shown from the least to the most particular. `read.py` says what may be read and what not.
"""

from sevenfold.memory.instructions.load import InstructionFiles, load, rendered, rendered_later
from sevenfold.memory.instructions.read import (
    LONG,
    Instruction,
    Instructions,
    Limits,
    Loaded,
    Suspicion,
)

__all__ = [
    "LONG",
    "Instruction",
    "InstructionFiles",
    "Instructions",
    "Limits",
    "Loaded",
    "Suspicion",
    "load",
    "rendered",
    "rendered_later",
]
