"""What may be written into memory: no secrets, and nothing that tries to instruct the agent."""

from __future__ import annotations

from sevenfold.memory.guard.guard import Guard
from sevenfold.memory.guard.injection import find_instructions
from sevenfold.memory.guard.secrets import find_secrets
from sevenfold.memory.guard.text import GuardFinding, GuardVerdict

__all__ = ["Guard", "GuardFinding", "GuardVerdict", "find_instructions", "find_secrets"]
