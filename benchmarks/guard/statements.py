"""Orders put as statements of a project, and harmless facts of the same form (`statements.toml`)."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec


class StatementSet(msgspec.Struct, frozen=True):
    """Statements that were written together."""

    name: str
    loosening: tuple[str, ...]
    harmless: tuple[str, ...]

    @property
    def fresh(self) -> bool:
        """True for those that nothing was tuned on."""
        return self.name.startswith("fresh")


def load_statements() -> tuple[StatementSet, ...]:
    """All sets, the oldest first."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text)["sets"], tuple[StatementSet, ...])
