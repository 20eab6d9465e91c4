"""Agents of an earlier run of the session, as their transcripts tell of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.entries import check_format, decode_entry
from sevenfold.errors import FromTheFuture, StorageFailure
from sevenfold.layers.l7_agents.members import Member, Status
from sevenfold.messages import Message
from sevenfold.protocols import AgentSpec
from sevenfold.storage.jsonl import read_log
from sevenfold.transcript import Entry, Mark, Reply

MARK: Final = "session"
"""The mark that begins a transcript; an agent's says under `agent` what it is."""
LARGEST: Final = 256 << 20
HEAD: Final = 8
"""Lines within which that mark stands."""


class Record(msgspec.Struct, frozen=True):
    """What the mark says."""

    name: str
    kind: str
    depth: int = 1
    tools: tuple[str, ...] | None = None
    max_steps: int = 0
    folder: str | None = None
    memory: str | None = None
    for_memory: tuple[str, ...] = ()
    only_looks: bool = False


def read_members(folder: Path) -> list[Member]:
    """Those whose transcripts lie in this folder, the oldest first. What is damaged is left out."""
    try:
        with os.scandir(folder) as entries:
            found = [
                (entry.stat(follow_symlinks=False).st_mtime, entry.name)
                for entry in entries
                if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
    members = (_member(folder / name) for _, name in sorted(found))
    return [member for member in members if member is not None]


def _member(path: Path) -> Member | None:
    try:
        lines = read_log(path, LARGEST).split(b"\n")
        record = next(_records(lines[:HEAD]), None)
    except (StorageFailure, FromTheFuture):
        return None
    if record is None:
        return None
    spec = AgentSpec(
        id=path.stem,
        name=record.name,
        kind=record.kind,
        depth=record.depth,
        tools=record.tools,
        max_steps=record.max_steps,
        folder=Path(record.folder) if record.folder else None,
        memory=Path(record.memory) if record.memory else None,
        for_memory=record.for_memory,
        only_looks=record.only_looks,
        asks=False,
    )
    status, said = _last(lines)
    member = Member(spec, background=True, status=status, said=said, path=path)
    if status == "stopped":
        member.why = "it was still at work when the session ended"
    member.resting.set()
    member.gone.set()
    return member


def _records(lines: list[bytes]) -> Iterator[Record]:
    for entry in _entries(lines):
        check_format(entry)
        match entry.what:
            case Mark(name, dict() as value) if name == MARK and "agent" in value:
                yield from _converted(value["agent"])


def _converted(value: Any) -> Iterator[Record]:
    try:
        yield msgspec.convert(value, Record)
    except msgspec.ValidationError:
        return


def _last(lines: list[bytes]) -> tuple[Status, str]:
    """How it ended: a reply that calls nothing is the end of its work."""
    for entry in _entries(reversed(lines)):
        match entry.what:
            case Reply(message, stop=stop):
                done = not message.tool_uses and stop != "cut"
                return ("done" if done else "stopped"), message.text.strip()
            case Message():
                return "stopped", ""
    return "stopped", ""


def _entries(lines: Any) -> Iterator[Entry]:
    for line in lines:
        if line.strip():
            try:
                yield decode_entry(line, 0)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
