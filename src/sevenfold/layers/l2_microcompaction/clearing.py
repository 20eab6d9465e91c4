"""Takes results out of the view: all of a batch go into one file first, and what is left says where.

One file, because making a file is by far the most expensive part; plain text with a heading before each
result, so that people can read what was cleared, and line numbers, so that a model can read one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sevenfold.errors import StorageFailure
from sevenfold.events import Emit, Failed
from sevenfold.layers.l2_microcompaction.candidates import CLEARED, Candidate
from sevenfold.messages import ToolUse
from sevenfold.storage.results import ResultStore
from sevenfold.transcript import View

LONGEST_NAME: Final = 120


def cleared(
    candidates: Sequence[Candidate], view: View, store: ResultStore, emit: Emit
) -> dict[str, str]:
    """What to show instead, by tool-use id; nothing when the disk refuses, and an event says why."""
    lines: list[str] = []
    places: list[tuple[Candidate, int, int]] = []
    for one in candidates:
        results = view[one.at].message.results
        text = next(r.text for r in results if r.tool_use_id == one.use.id)
        lines.append(" ".join(f"=== {named(one.use)} ({one.use.id})".split()))
        whole = text.split("\n")
        places.append((one, len(lines) + 1, len(whole)))
        lines += whole
    try:  # the transcript has it all too, so that nobody has to wait for the disk
        path = store.keep(f"cleared-{candidates[-1].call}", "\n".join(lines), lasting=False)
    except StorageFailure as error:
        emit(Failed("microcompaction", f"nothing was cleared: {error}"))
        return {}
    weigh, whole_path = view.calibration.tokens, str(path)
    return {
        one.use.id: marker(
            weigh(one.size), whole_path if one is candidates[-1] else path.name, first, count
        )
        for one, first, count in places
    }


def marker(tokens: int, file: str, first: int, lines: int) -> str:
    """What stands in place of a result from now on. Every word of it is paid for at every request, so
    only the newest of a batch has the whole path: it is the one that leaves the view last. What was asked
    for stands in the call above it.
    """
    return f"{CLEARED}{tokens:,} tokens, kept in {file} lines {first}-{first + lines - 1})"


def named(use: ToolUse) -> str:
    """A call in a few words: the tool, and what it was about."""
    about = next((v for v in use.input.values() if isinstance(v, str) and v.strip()), "")
    flat = " ".join(about.split())
    short = flat if len(flat) <= LONGEST_NAME else flat[: LONGEST_NAME - 1] + "…"
    return f"{use.name} {short}".rstrip()
