"""What an extraction is asked: the instruction, then what a program can read as well.

<session id="…" date="2026-11-15"/>
<manifest folder="…">
- [feedback] no-db-mocks.md (2026-11-03): SQL is tested against a real database
</manifest>
<since entry="12"/>         only what comes after so many messages is to be looked at; 0: all
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

from sevenfold.clock import date_of
from sevenfold.layers.l5_durable_memory.model_selector import manifest
from sevenfold.memory.recalled import Recalled
from sevenfold.messages import whole_characters

NEWEST: Final = 200
"""Memories that the manifest lists."""
_STEPS: Final = "{steps}"
_SINCE: Final = "The first {} messages have been looked at before; look at what came after them."
_MANIFEST: Final = "<manifest>"


def asking(
    memories: Sequence[Recalled],
    folder: Path,
    session: str,
    now: float,
    since: int,
    steps: int,
    *,
    team: bool = False,
) -> str:
    """The body of the directive. `since`: how many messages have been looked at before."""
    listed = manifest(memories).removeprefix(_MANIFEST)
    parts = [
        _text("extract.md").replace(_STEPS, str(steps)),
        _text("extract_team.md") if team else "",
        _SINCE.format(f"{since:,}") if since else "",
        f'<session id="{escape(session)}" date="{date_of(now)}"/>',
        f'<manifest folder="{escape(str(folder))}">{listed}',
        f'<since entry="{since}"/>',
    ]
    return whole_characters("\n\n".join(filter(None, parts)))


@cache
def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()
