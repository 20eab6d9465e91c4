"""Finds text that tries to steer the agent: injected orders, poses as the system, poisoned answers.

Memories are made of rules, so a rule is no alarm. Signs of an attack are weighed by the table in
`signals.toml`; a text is held back when they stand close together, or one is strong enough alone.
"""

from __future__ import annotations

from sevenfold.memory.guard.found import Found


def find_instructions(text: str, source: str = "") -> list[Found]:
    """The signs in the passage that gives a text away; empty when it may be saved.

    `source` says whose words they are ("user", "web", "team"): the user is trusted further.
    """
    # The patterns are compiled when the first text is looked at, not when something imports this.
    from sevenfold.memory.guard.weighing import signs

    return signs(text, source)
