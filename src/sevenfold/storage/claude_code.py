"""Reads the session files of Claude Code (`.jsonl`, also gzipped), and never gives up on one.

Each line is a record that names its parent, so that a file is a tree; the end of the last branch is
where the user was. A line that cannot be understood is a problem to report, by its number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from sevenfold.storage.claude_chain import Chain
from sevenfold.storage.claude_records import Record, api_error_of, decode
from sevenfold.storage.lines import lines_of
from sevenfold.storage.recorded import ApiError, Recorded, Said, SessionReader
from sevenfold.storage.retold import to_transcript
from sevenfold.transcript import Problem

__all__ = ["ClaudeCode", "read_session", "to_transcript"]

FORMAT: Final = "claude-code"
Mend: TypeAlias = Callable[[bytes], tuple[bytes, list[str]]]
"""Takes a line that cannot be read: gives one that can, and says what it left out; else `ValueError`."""
_KINDS: Final = frozenset(
    ["user", "assistant", "system", "summary", "progress", "file-history-snapshot", "attachment"]
)


class ClaudeCode:
    """The reader, for those who take any."""

    format = FORMAT

    def recognises(self, head: bytes) -> bool:
        for line in head.split(b"\n")[:20]:
            try:
                record = decode(line)
            except ValueError:
                continue
            if record.type in _KINDS and (record.sessionId or record.leafUuid or record.uuid):
                return True
        return False

    def read(self, source: Path | bytes) -> Recorded:
        return read_session(source)


_fits: type[SessionReader] = ClaudeCode


def read_session(source: Path | bytes, mend: Mend | None = None) -> Recorded:
    """A recorded session; what could not be understood is in its `problems`, by line."""
    reading = _Reading(mend)
    for number, line in lines_of(source, reading.problems):
        try:
            reading.take(number, reading.record(number, line))
        except ValueError as error:
            reading.problems.append(Problem(number, str(error)))
    return reading.recorded()


class _Reading:
    """All records of one file, taken in one by one."""

    def __init__(self, mend: Mend | None = None) -> None:
        self.mend = mend
        self.problems: list[Problem] = []
        self.skipped: Counter[str] = Counter()
        self.api_errors: list[ApiError] = []
        self.titles: dict[str, str] = {}
        self.chosen_title = ""
        self.first = Record()
        self.main, self.sides = Chain(self.problems), dict[str, Chain]()
        self.seen: set[str] = set()

    def record(self, number: int, line: bytes) -> Record:
        try:
            return decode(line)
        except ValueError:
            if self.mend is None:
                raise
            line, told = self.mend(line)
            self.problems += [Problem(number, why) for why in told]
            return decode(line)

    def take(self, line: int, record: Record) -> None:
        if record.customTitle or record.aiTitle:
            self.chosen_title = record.customTitle or record.aiTitle or ""
        if record.type == "summary" and record.summary:
            self.titles[record.leafUuid or ""] = record.summary
        if record.uuid is None:
            self.skipped[record.kind or "unknown"] += 1
            return
        if record.uuid in self.seen:
            self.skipped["repeated"] += 1
            return
        self.seen.add(record.uuid)
        if not self.first.uuid:
            self.first = record
        chain = self.main
        if record.isSidechain:
            chain = self.sides.setdefault(record.agentId or "", Chain(self.problems))
        if not chain.take(line, record):
            self.skipped[record.kind] += 1
        if record.subtype == "api_error":
            self.api_errors.append(api_error_of(record, line))

    def recorded(self) -> Recorded:
        main, agent = self.main, ""
        entries = main.finish(frozenset())
        others = frozenset(self.seen) if entries else frozenset[str]()
        sides = _by_conversation({id: chain.finish(others) for id, chain in self.sides.items()})
        if not entries and len(sides) == 1:  # the file of one sub-agent
            [(agent, entries)], sides = sides.items(), {}
            main = next(chain for chain in self.sides.values() if chain.order)
        return Recorded(
            FORMAT,
            session=self.first.sessionId or "",
            version=self.first.version or "",
            folder=self.first.cwd or "",
            git_branch=self.first.gitBranch or "",
            title=self._title(),
            agent=agent,
            continues=main.continues,
            entries=entries,
            tip=main.tip(),
            sidechains=sides,
            results={
                **main.facts,
                **{k: v for c in self.sides.values() for k, v in c.facts.items()},
            },
            api_errors=tuple(self.api_errors),
            skipped=dict(self.skipped),
            problems=tuple(sorted(self.problems, key=lambda p: p.line)),
        )

    def _title(self) -> str:
        """The last one; one given to a leaf of this file goes before those of other sessions."""
        here = [title for leaf, title in self.titles.items() if leaf in self.seen]
        return self.chosen_title or (here or list(self.titles.values()) or [""])[-1]


def _by_conversation(sides: dict[str, tuple[Said, ...]]) -> dict[str, tuple[Said, ...]]:
    """Sub-agents by id; where the file gives none, by the first thing said."""
    out = {agent: said for agent, said in sides.items() if agent and said}
    roots: dict[str, str] = {}
    for said in sides.get("", ()):
        root = roots[said.uuid] = roots.get(said.parent or "", said.uuid)
        out[root] = (*out.get(root, ()), said)
    return out
