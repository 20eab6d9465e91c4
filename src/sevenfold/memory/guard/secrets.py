"""Finds secrets in a text: keys, tokens, passwords and private keys, also in disguise.

Known examples (`AKIAIOSFODNN7EXAMPLE`), placeholders, names of variables, hashes and paths are no secrets.
The findings never hold what was found.
"""

from __future__ import annotations

from sevenfold.memory.guard.found import Found


def find_secrets(text: str) -> list[Found]:
    """Every secret in a text, in the order of its lines."""
    # The detectors are loaded when the first text is looked at, not when something imports this.
    from sevenfold.memory.guard.spotting import spotted

    return spotted(text)


def warm() -> None:
    """Does now what the first search would do: loads the detectors, for a thread that has the time."""
    find_secrets("nothing = 'to find here 0123456789'")
