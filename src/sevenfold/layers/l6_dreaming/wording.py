"""What the model is asked in a dream, and how its last words account for what is gone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import msgspec

from sevenfold.clock import date_of
from sevenfold.memory.dreams.staging import Staged
from sevenfold.memory.folder.listing import is_topic
from sevenfold.memory.logs import day_of
from sevenfold.memory.topic import read_topic
from sevenfold.messages import whole_characters
from sevenfold.models.jsontext import NotJson, decode_object

if TYPE_CHECKING:
    from sevenfold.memory.dreams.losses import Explained

MOST_FILES: Final = 200
"""Memories that are listed in the directive, the newest first."""
MOST_FINDINGS: Final = 40
MOST_SESSIONS: Final = 20
MOST_LOGS: Final = 31
_DESCRIBED: Final = 160
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")
_FENCED: Final = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What a dream is told about the folder and its surroundings."""

    transcripts: Path
    now: float
    last: float | None = None
    steps: int = 30
    sessions: tuple[str, ...] = ()
    """Those since the last dream, the newest first."""
    findings: tuple[str, ...] = ()
    """What a check of the folder found, a sentence each."""


def asking(staged: Staged, known: Known) -> str:
    """The words of the directive. Every path in it that may be written to is one of the copy."""
    values = {
        "staged": str(staged.folder),
        "transcripts": str(known.transcripts),
        "today": date_of(known.now),
        "last": f"on {date_of(known.last)}"
        if known.last is not None
        else "never: this is the first",
        "steps": str(known.steps),
        "files": _files(staged),
        "findings": _findings(known.findings),
        "logs": _logs(staged),
        "sessions": _sessions(known.sessions),
    }
    return whole_characters(_PLACE.sub(lambda found: values[found[1]], _rules()))


@cache
def _rules() -> str:
    return Path(__file__).with_name("dream.md").read_text(encoding="utf-8").strip()


def _files(staged: Staged) -> str:
    """`- [type] file (day): description`, the newest first."""
    dated = sorted(
        ((staged.folder / file).stat().st_mtime, file) for file in staged.files if is_topic(file)
    )
    rows = [_row(staged.folder, file, at) for at, file in reversed(dated[-MOST_FILES:])]
    if not rows:
        return "(no memories yet)"
    if (more := len(dated) - MOST_FILES) > 0:
        rows.append(f"(and {more:,} older ones: list the folder)")
    return "\n".join(rows)


def _row(folder: Path, file: str, at: float) -> str:
    topic = read_topic((folder / file).read_bytes(), file)
    about = " ".join(topic.description.split())[:_DESCRIBED]
    return f"- [{topic.type or 'untyped'}] {file} ({date_of(at)}): {_escaped(about)}"


def _findings(findings: Sequence[str]) -> str:
    if not findings:
        return ""
    rows = [f"- {_escaped(' '.join(one.split()))}" for one in findings[:MOST_FINDINGS]]
    return "\nA check of the folder found:\n" + "\n".join(rows) + "\n"


def _escaped(text: str) -> str:
    """Nothing that stands in a memory can end the list or the directive."""
    return text.replace("<", "&lt;")


def _logs(staged: Staged) -> str:
    days = [day for file in staged.files if (day := day_of(file))]
    if not days:
        return ", of which there are none"
    return f", the newest: {', '.join(sorted(days)[-MOST_LOGS:])}"


def _sessions(sessions: Sequence[str]) -> str:
    if not sessions:
        return ""
    return f"; since the last dream: {', '.join(sessions[:MOST_SESSIONS])}"


# --- its last words -------------------------------------------------------------------------------------


def accounted(text: str) -> Mapping[str, Explained]:
    """What the model says became of what is gone; whatever cannot be understood is left out."""
    from sevenfold.memory.dreams.losses import Explained, Reason

    reasons = get_args(Reason)
    found: dict[str, Explained] = {}
    for row in _rows(text):
        if not isinstance(row, dict):
            continue
        what, why, by, evidence = (_text(row.get(key)) for key in ("what", "why", "by", "evidence"))
        if what and why in reasons:
            reason = msgspec.convert(why, Reason)
            found[what] = Explained(reason, evidence or by, by)
    return found


def _rows(text: str) -> Sequence[object]:
    begin, end = text.find("{"), text.rfind("}")
    for candidate in (
        *reversed(_FENCED.findall(text)),
        text[begin : end + 1] if begin >= 0 else "",
    ):
        try:
            gone = decode_object(candidate).get("gone")
        except NotJson:
            continue
        if isinstance(gone, list):
            return gone
    return ()


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""
