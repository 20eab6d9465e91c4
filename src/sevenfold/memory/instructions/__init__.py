"""Instruction files: what people write down once so that they need not say it in every conversation.

`CLAUDE.md`, `AGENTS.md` and rules of the machine, the user, the project and its folders; read once,
shown from the least to the most particular. `reader.py` says what may be read and what not.
"""

from sevenfold.memory.instructions.loader import (
    InstructionFiles,
    load_instructions,
    render_instructions,
    render_touched,
)
from sevenfold.memory.instructions.reader import (
    LONG,
    Instruction,
    InstructionLimits,
    Instructions,
    SuspiciousText,
    TouchedInstructions,
)

__all__ = [
    "LONG",
    "Instruction",
    "InstructionFiles",
    "InstructionLimits",
    "Instructions",
    "SuspiciousText",
    "TouchedInstructions",
    "load_instructions",
    "render_instructions",
    "render_touched",
]
