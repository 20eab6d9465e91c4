"""Puts back what a dream let go without an account: lines where their file lives on, else whole files."""

from __future__ import annotations

from collections import Counter
from typing import Final

from sevenfold.memory.dreams.draft import Draft, Kept
from sevenfold.memory.dreams.facts import SHORT, Fact, Stated, meaning, stated
from sevenfold.memory.dreams.losses import Account
from sevenfold.memory.dreams.merging import Conflict
from sevenfold.memory.dreams.shelf import Shelf
from sevenfold.memory.folder.desk import RECORDED
from sevenfold.memory.folder.listing import is_topic
from sevenfold.memory.folder.naming import wrong_with_file
from sevenfold.memory.indexing import ARCHIVE
from sevenfold.memory.topic import read_topic
from sevenfold.memory.topics.frontmatter import line_break

HEADING: Final = "## Kept"
"""Above what was put back into a file that the dream changed."""
_ROUNDS: Final = 4
"""After so many a file whose lines still do not hold is left as it was."""
_LAST: Final = 12


def archive_stale(draft: Draft) -> None:
    """What the dream removed because it is out of date moves to the archive."""
    for file, told in draft.explained.items():
        gone = file in draft.changes and draft.changes[file] is None
        if told.reason != "stale" or not gone or file.startswith(ARCHIVE):
            continue
        place = f"{ARCHIVE}{file}"
        if not wrong_with_file(place) and draft.after(place) is None and place not in draft.known:
            draft.changes[place] = draft.now[file]


def keep_what_is_not_accounted_for(draft: Draft) -> None:
    """Afterwards every statement that was in the folder is there or accounted for."""
    for turn in range(_LAST):
        if not (lost := _lost(draft)):
            return
        for file, facts in lost.items():
            if turn >= _ROUNDS:
                draft.drop(file, "what it says could not be kept otherwise: it stays as it was")
            else:
                _put_back(draft, file, facts)
    draft.changes.clear()
    draft.conflicts.append(Conflict("", "what the dream let go could not be kept: nothing changes"))


def _lost(draft: Draft) -> dict[str, list[Fact]]:
    """By file, what is gone and nobody can say why; what can be said is noted."""
    after = draft.afterwards()
    draft.accounts = []
    lost: dict[str, list[Fact]] = {}
    for file in [file for file in draft.changes if file in draft.now and is_topic(file)]:
        for one in stated(draft.now[file], file):
            account = after.account(one, draft.explained)
            if account is None:
                lost.setdefault(file, []).append(one.fact)
            else:
                draft.accounts.append(account)
    return lost


def _put_back(draft: Draft, file: str, facts: list[Fact]) -> None:
    into = file if draft.changes.get(file) is not None else successor(draft, file)
    data = draft.changes.get(into) if into else None
    if into and data is not None:
        name = "" if into == file else read_topic(draft.now[file], file).name
        new = with_facts(data, facts, name)
        if len(new) <= RECORDED:
            draft.changes[into] = new
            draft.kept += [Kept(fact, into) for fact in facts]
            return
    draft.changes.pop(file, None)
    draft.kept += [Kept(fact, file) for fact in facts]


def successor(draft: Draft, file: str) -> str | None:
    """The changed file that has most of what a removed one said, and at least half of it."""
    mine = [one for one in draft.accounts if one.fact.file == file]
    all_of_it = len(stated(draft.now[file], file))
    counted = Counter(one.by for one in mine if draft.changes.get(one.by) is not None)
    if not counted:
        return None
    best, count = counted.most_common(1)[0]
    return best if 2 * count >= all_of_it else None


def with_facts(data: bytes, facts: list[Fact], source: str) -> bytes:
    """A file with these statements at its end, under a heading that says where they come from."""
    text = data.decode("utf-8", "surrogateescape")
    nl = line_break(text)
    heading = f"{HEADING} from {source}" if source else HEADING
    headings = [line.strip() for line in text.splitlines() if line.startswith("#")]
    lead = text.rstrip() + nl
    if not headings or headings[-1] != heading:
        lead += f"{nl}{heading}{nl}{nl}"
    lines = dict.fromkeys(f"- {_line(fact, source)}" for fact in facts)
    return (lead + nl.join(lines) + nl).encode("utf-8", "surrogateescape")


def _line(fact: Fact, source: str) -> str:
    """A short statement takes its heading along: without it nobody knows what it is about."""
    text = " ".join(fact.text.split())
    short = len(meaning(text).everything) < SHORT
    return f"{fact.under}: {text}" if short and fact.under else text


def merged_files(draft: Draft) -> list[tuple[str, str]]:
    """The removed files and where what they said is now."""
    found = []
    for file, data in draft.changes.items():
        if data is None and file in draft.now:
            mine = [one.by for one in draft.accounts if one.fact.file == file]
            if mine:
                found.append((file, Counter(mine).most_common(1)[0][0]))
    return found


def superseded(draft: Draft) -> list[Account]:
    """What gave way to something newer, with the evidence."""
    return [one for one in draft.accounts if one.how in ("superseded", "contradicted")]


def drop_what_came_back(draft: Draft, gone: list[Stated]) -> None:
    """What somebody took out of the folder during the dream is not brought back by it."""
    if not gone:
        return
    for file, data in list(draft.changes.items()):
        if data is None or file not in draft.changes:
            continue
        old = {file: draft.now[file]} if file in draft.now else {}
        was, new = Shelf(old), Shelf({file: data}, old)
        back = [one for one in gone if new.holder(one) and not was.holder(one)]
        if back:
            draft.drop(file, "it holds what was removed from the folder meanwhile")
