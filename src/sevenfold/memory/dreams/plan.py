"""Works out what a commit will write: all checks in their order, before the first byte changes.

What others wrote meanwhile comes first, then the guard, then the loss report, then links and the index.
A check that says no drops the dream's change of that file; the loss report then puts back what was moved
there. Only an index that cannot be made to fit refuses the whole.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.memory.backend import HEAD, ConcurrentWrite, is_topic
from sevenfold.memory.dreams.losses import (
    Explanations,
    FilesAfterDream,
    LossAccount,
    StatementIndex,
    collect_statements,
)
from sevenfold.memory.dreams.merge import DreamConflict, Files, merge_dream
from sevenfold.memory.dreams.statements import (
    SHORT,
    ComparedFact,
    MemoryFact,
    make_meaning,
    normalise_words,
    read_facts,
)
from sevenfold.memory.folder.folder import (
    ARCHIVE,
    INDEXES,
    RECORDED,
    FolderTransaction,
    digest_bytes,
    is_listed,
)
from sevenfold.memory.folder.names import INDEX_NAME, TEAM, explain_bad_file, make_file_key, make_slug
from sevenfold.memory.frontmatter import detect_line_break
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index import (
    IndexRow,
    drop_pointers,
    list_exceeded_limits,
    parse_pointers,
    split_rows,
    split_unlisted,
)
from sevenfold.memory.index_update import (
    complete_index,
    decode_index,
    drop_removed,
    encode_index,
    retell_index,
)
from sevenfold.memory.merge import choose_side, merge_lines
from sevenfold.memory.text.links import find_wiki_links, list_link_names, make_link_key, rewrite_wiki_links
from sevenfold.memory.topic_file import Topic, explain_not_text, read_topic

if TYPE_CHECKING:
    from sevenfold.memory.guard.user_words import SpokenWords


class MergedFile(msgspec.Struct, frozen=True):
    """A file that is gone because another one has what it said."""

    file: str
    into: str


class KeptStatement(msgspec.Struct, frozen=True):
    """A statement that the dream let go without an account, and where it is now."""

    fact: MemoryFact
    into: str


class AlteredFile(msgspec.Struct, frozen=True):
    """The change that a commit makes to one file."""

    file: str
    action: Literal["created", "changed", "removed"]


class DreamOutcome(msgspec.Struct, frozen=True):
    """The result of a dream."""

    files: tuple[AlteredFile, ...] = ()
    merged: tuple[MergedFile, ...] = ()
    superseded: tuple[LossAccount, ...] = ()
    archived: tuple[MergedFile, ...] = ()
    kept: tuple[KeptStatement, ...] = ()
    lost: tuple[MemoryFact, ...] = ()
    """Always empty in what was committed: what is not accounted for is kept."""
    conflicts: tuple[DreamConflict, ...] = ()
    revision: str = ""  # Empty when nothing changed, or the history could not be written
    files_before: int = 0
    files_after: int = 0
    diff: str = ""


@dataclass(slots=True)
class CommitDraft:
    """The commit while it is being worked out."""

    now: dict[str, bytes]
    """Every file that the dream knew or wrote and that is in the folder, as it is there."""
    changes: dict[str, bytes | None]
    explained: Explanations
    known: frozenset[str]  # The files and sessions that may be named as evidence
    others: Callable[[], StatementIndex]  # The statements of the files that the dream does not change
    conflicts: list[DreamConflict] = field(default_factory=list)
    kept: list[KeptStatement] = field(default_factory=list)
    accounts: list[LossAccount] = field(default_factory=list)
    touched: frozenset[str] = frozenset()
    """The files that were to be changed at first; `others` has all but these."""

    def afterwards(self) -> FilesAfterDream:
        """The folder as it will be."""
        files = {*self.touched, *self.changes}
        after = {file: data for file in files if (data := self.after(file)) is not None}
        return FilesAfterDream(after, self.others, self.known, self.now)

    def after(self, file: str) -> bytes | None:
        """A file as it will be; None: not there."""
        return self.changes[file] if file in self.changes else self.now.get(file)

    def drop(self, file: str, why: str) -> None:
        """The dream's change of this file is not made."""
        if self.changes.pop(file, self) is not self:
            self.conflicts.append(DreamConflict(file, why))


def is_changeable(file: str) -> bool:
    """True if a dream may change this file: the logs and what belongs to the team are read only."""
    return is_topic(file) and not file.startswith(TEAM)


HEADING: Final = "## Kept"  # Above what was put back into a file that the dream changed
_ROUNDS: Final = 4  # After so many a file whose lines still do not hold is left as it was
_LAST: Final = 12


def archive_stale(draft: CommitDraft) -> None:
    """Move memories that the dream removed as out of date to the archive."""
    for file, told in draft.explained.items():
        gone = file in draft.changes and draft.changes[file] is None
        if told.reason != "stale" or not gone or file.startswith(ARCHIVE):
            continue
        place = f"{ARCHIVE}{file}"
        if not explain_bad_file(place) and draft.after(place) is None and place not in draft.known:
            draft.changes[place] = draft.now[file]


def keep_unaccounted_facts(draft: CommitDraft) -> None:
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
    draft.conflicts.append(DreamConflict("", "what the dream let go could not be kept: nothing changes"))


def _lost(draft: CommitDraft) -> dict[str, list[MemoryFact]]:
    """By file, what is gone and nobody can say why; what can be said is noted."""
    after = draft.afterwards()
    draft.accounts = []
    lost: dict[str, list[MemoryFact]] = {}
    for file in [file for file in draft.changes if file in draft.now and is_topic(file)]:
        for one in read_facts(draft.now[file], file):
            account = after.account(one, draft.explained)
            if account is None:
                lost.setdefault(file, []).append(one.fact)
            else:
                draft.accounts.append(account)
    return lost


def _put_back(draft: CommitDraft, file: str, facts: list[MemoryFact]) -> None:
    into = file if draft.changes.get(file) is not None else find_successor(draft, file)
    data = draft.changes.get(into) if into else None
    if into and data is not None:
        name = "" if into == file else read_topic(draft.now[file], file).name
        new = append_facts(data, facts, name)
        if len(new) <= RECORDED:
            draft.changes[into] = new
            draft.kept += [KeptStatement(fact, into) for fact in facts]
            return
    draft.changes.pop(file, None)
    draft.kept += [KeptStatement(fact, file) for fact in facts]


def find_successor(draft: CommitDraft, file: str) -> str | None:
    """The changed file that has most of what a removed one said, and at least half of it."""
    mine = [one for one in draft.accounts if one.fact.file == file]
    all_of_it = len(read_facts(draft.now[file], file))
    counted = Counter(one.by for one in mine if draft.changes.get(one.by) is not None)
    if not counted:
        return None
    best, count = counted.most_common(1)[0]
    return best if 2 * count >= all_of_it else None


def append_facts(data: bytes, facts: list[MemoryFact], source: str) -> bytes:
    """A file with these statements at its end, under a heading that says where they come from."""
    text = decode_index(data)
    nl = detect_line_break(text)
    heading = f"{HEADING} from {source}" if source else HEADING
    headings = [line.strip() for line in text.splitlines() if line.startswith("#")]
    lead = text.rstrip() + nl
    if not headings or headings[-1] != heading:
        lead += f"{nl}{heading}{nl}{nl}"
    lines = dict.fromkeys(f"- {_line_keeping(fact)}" for fact in facts)
    return (lead + nl.join(lines) + nl).encode("utf-8", "surrogateescape")


def _line_keeping(fact: MemoryFact) -> str:
    """A short statement takes its heading along: without it nobody knows what it is about."""
    text = " ".join(fact.text.split())
    short = len(make_meaning(text).everything) < SHORT
    return f"{fact.under}: {text}" if short and fact.under else text


def find_merged_files(draft: CommitDraft) -> list[tuple[str, str]]:
    """The removed files and where what they said is now."""
    gone = [file for file, data in draft.changes.items() if data is None and file in draft.now]
    places = {file: [one.by for one in draft.accounts if one.fact.file == file] for file in gone}
    return [(file, Counter(mine).most_common(1)[0][0]) for file, mine in places.items() if mine]


def drop_revived_facts(draft: CommitDraft, gone: list[ComparedFact]) -> None:
    """Drop changes that would bring back what was taken out of the folder during the dream."""
    if not gone:
        return
    for file, data in list(draft.changes.items()):
        if data is None or file not in draft.changes:
            continue
        old = {file: draft.now[file]} if file in draft.now else {}
        was, new = StatementIndex(old), StatementIndex({file: data}, old)
        if any(new.holder(one) and not was.holder(one) for one in gone):
            draft.drop(file, "it holds what was removed from the folder meanwhile")


def join_index(draft: CommitDraft, before: bytes | None, dreamt: bytes | None) -> str:
    """The dream's index with what others wrote into it meanwhile."""
    old, new, now = before or b"", dreamt, draft.now.get(INDEX_NAME, b"")
    if new is None:
        return decode_index(now)
    if side := choose_side(old, now, new):
        return decode_index(now if side == "ours" else new)
    merged = merge_lines(old, new, now)
    if merged is None:
        why = "changed meanwhile in the same lines: the dream's change is dropped"
        draft.conflicts.append(DreamConflict(INDEX_NAME, why))
    return decode_index(now if merged is None else merged)


def keep_lines(draft: CommitDraft, text: str, now: str) -> str:
    """The index with the lines that only it had: what a topic file says is accounted for there.

    `now` is the index as it is, without lines for memories that were removed.
    """
    now, _ = split_unlisted(now)
    left = {row.text.strip() for row in split_rows(text)}
    gone = [row for row in split_rows(now) if row.text.strip() and row.text.strip() not in left]
    if not gone:
        return text
    said = StatementIndex({INDEX_NAME: text.encode("utf-8", "replace")})
    before = StatementIndex({file: data for file, data in draft.now.items() if file in draft.touched})
    after = draft.afterwards()
    for row in gone:
        for fact, into in _facts(draft, row):
            plain = normalise_words(fact.text)
            one = ComparedFact(fact, plain, make_meaning(fact.text), 0, frozenset(), frozenset())
            known = before.holder(one) or draft.others().holder(one) or said.holder(one)
            if not one.meaning.empty and not known and after.account(one, draft.explained) is None:
                text = _kept(draft, text, fact, row, into)
    return text


def _facts(draft: CommitDraft, row: IndexRow) -> list[tuple[MemoryFact, str | None]]:
    """The statements of a line, each with the memory it points to, if that is there."""
    if not row.pointing:
        return [(MemoryFact(INDEX_NAME, " ".join(row.text.split())), None)]
    files = {make_file_key(file): file for file in (*draft.now, *draft.changes)}
    found: list[tuple[MemoryFact, str | None]] = []
    for one in parse_pointers(row):
        file = files.get(make_file_key(one.file)) or files.get(make_file_key(f"{one.file}.md"))
        there = file if file and draft.after(file) is not None else None
        if one.hook:
            found.append((MemoryFact(INDEX_NAME, " ".join(one.hook.split()), one.title), there))
    return found


def _kept(draft: CommitDraft, text: str, fact: MemoryFact, row: IndexRow, into: str | None) -> str:
    data = draft.after(into) if into else None
    if into and data is not None:
        new = append_facts(data, [fact], "the index")
        if len(new) <= HEAD:
            draft.changes[into] = new
            draft.kept.append(KeptStatement(fact, into))
            return text
    line = row.text if not row.pointing else f"- {fact.under}: {fact.text}\n"
    draft.kept.append(KeptStatement(fact, INDEX_NAME))
    return f"{text.rstrip()}\n{line.rstrip()}\n".lstrip("\n")


def plan_index(desk: FolderTransaction, draft: CommitDraft, text: str) -> bytes | None:
    """The index to write, or None when it stays. One that cannot be made to fit is not taken."""
    now = decode_index(draft.now.get(INDEX_NAME, b""))
    new = _reconciled(desk, draft, text)
    if list_exceeded_limits(new):
        new = _reconciled(desk, draft, now)
    data = encode_index(new)
    return None if data == draft.now.get(INDEX_NAME, b"") else data


def _reconciled(desk: FolderTransaction, draft: CommitDraft, text: str) -> str:
    """Pointers for what will be there, as many of the missing ones as fit, the dream's own first."""
    retold = [
        (read_topic(draft.now[file], file), read_topic(data, file))
        for file, data in draft.changes.items()
        if data is not None and file in draft.now and file != INDEX_NAME
    ]
    files = {file for file in desk.ledger.rows if file != INDEX_NAME}
    files = {file for file in {*files, *draft.changes} if draft.changes.get(file, b"") is not None}
    listed = sorted(file for file in files if is_listed(file) and not file.startswith(ARCHIVE))

    recalled = desk.recalls.load()

    def recency(file: str) -> float:
        stamp = desk.stamp(file)
        changed = math.inf if file in draft.changes else stamp.modified / 1e9 if stamp else 0.0
        return max(changed, recalled.get(file, 0.0))

    names = {file: _name(desk, draft, file) for file in listed}
    also = sorted(files.difference(listed))
    removed = [file for file, data in draft.changes.items() if data is None and file in desk.ledger.rows]
    removed += [desk.ledger.rows[file].name for file in removed]
    text = drop_removed(desk, drop_pointers(text, removed), {**dict.fromkeys(also, ""), **names})
    text = retell_index(text, retold)
    return complete_index(text, names, also, recency=recency, read=lambda file: _topic(desk, draft, file))


def _name(desk: FolderTransaction, draft: CommitDraft, file: str) -> str:
    if (data := draft.changes.get(file)) is not None:
        return read_topic(data, file).name
    row = desk.ledger.rows.get(file)
    return (row.name if row else "") or file


def _topic(desk: FolderTransaction, draft: CommitDraft, file: str) -> Topic | None:
    if (data := draft.after(file)) is not None:
        return read_topic(data, file)
    try:
        return read_topic(desk.at.read(file, HEAD)[0], file)
    except (StorageFailure, Refused):
        return None


def mend_links(draft: CommitDraft, names: Mapping[str, str], merged: Mapping[str, str]) -> None:
    """Links to a file that was merged lead to where it went; others that would lead nowhere are text.

    `names` has the names of all memories of the folder by file, as they are now.
    """
    after = _names_after(draft, names)
    there = frozenset(one for file, name in after.items() for one in list_link_names(file, name))
    gone = {
        one: merged.get(file, "")
        for file, data in draft.changes.items()
        if data is None and file in draft.now
        for one in list_link_names(file, read_topic(draft.now[file], file).name)
        if one not in there
    }
    old = {make_link_key(one) for data in draft.now.values() for one in find_wiki_links(decode_index(data))}
    for file in sorted({*draft.now, *draft.changes}):
        data = draft.after(file)
        if data is None or b"[[" not in data or not is_changeable(file) or explain_not_text(data):
            continue
        if not gone and file not in draft.changes:
            continue
        leads = {name: "" if into == file else into for name, into in gone.items()}
        new = _mended(draft, decode_index(data), leads, there, old, file in draft.changes)
        if (mended := encode_index(new)) != data:
            draft.changes[file] = mended


def _mended(
    draft: CommitDraft, text: str, gone: Mapping[str, str], there: frozenset[str], old: set[str], ours: bool
) -> str:
    def rewrite(name: str, rest: str, found: re.Match[str]) -> str | None:
        key, slug = make_link_key(name), make_slug(name)
        into = gone.get(key, gone.get(slug))
        if key in there or slug in there or (into is None and (not ours or key in old)):
            return None  # it leads somewhere, or led nowhere before
        shown = rest[1:].strip() if rest.startswith("|") else name
        if into and (data := draft.after(into)) is not None:
            return f"[[{read_topic(data, into).name}{f'|{shown}' if rest.startswith('|') else ''}]]"
        return shown or name

    return rewrite_wiki_links(text, rewrite)


def _names_after(draft: CommitDraft, names: Mapping[str, str]) -> dict[str, str]:
    after = dict(names)
    for file, data in draft.changes.items():
        if data is None:
            after.pop(file, None)
        else:
            after[file] = read_topic(data, file).name
    return after


class DreamInput(msgspec.Struct, frozen=True):
    """The files and explanations that a dream hands in."""

    before: dict[str, bytes]
    dreamt: dict[str, bytes]
    author: Author
    explained: Explanations
    sessions: frozenset[str] = frozenset()  # The sessions that may be named as evidence
    times: dict[str, int] = {}  # Times that the dream gave to files itself
    said: Callable[[], SpokenWords] | None = None  # The user's own words in these sessions


class CommitPlan(msgspec.Struct, frozen=True):
    """The files to write, in this order; None: the file goes."""

    old: dict[str, bytes | None]
    new: dict[str, bytes | None]
    outcome: DreamOutcome
    times: dict[str, int] = {}  # The times of files that say nothing new: a dream makes no memory younger


def plan_commit(desk: FolderTransaction, wanted: DreamInput, *, keep_orders: bool = True) -> CommitPlan:
    """Plan the commit of this dream in the folder as it is now.

    With `keep_orders` a text that the guard holds back is put into the quarantine.
    """
    draft = _drafted(desk, wanted)
    _guard(desk, draft, wanted, keep_orders)
    _wall(desk, draft, wanted, keep_orders)
    drop_revived_facts(draft, _taken_out(wanted.before, draft))
    archive_stale(draft)
    index = join_index(draft, wanted.before.get(INDEX_NAME), wanted.dreamt.get(INDEX_NAME))
    index = keep_lines(draft, _harmless(desk, draft, wanted, index), _drop_removed(desk, draft))
    keep_unaccounted_facts(draft)
    merged = find_merged_files(draft)
    names = {file: row.name for file, row in desk.ledger.rows.items() if is_topic(file)}
    mend_links(draft, names, dict(merged))
    plan = _plan(desk, draft, plan_index(desk, draft, index), merged)
    return msgspec.structs.replace(plan, times=_times(desk, draft, plan, wanted))


def _drop_removed(desk: FolderTransaction, draft: CommitDraft) -> str:
    """The index as it is, without lines for memories that others removed."""
    rows = desk.ledger.rows
    names = {file: row.name for file, row in rows.items() if file not in INDEXES}
    return drop_removed(desk, decode_index(draft.now.get(INDEX_NAME, b"")), names)


def _drafted(desk: FolderTransaction, wanted: DreamInput) -> CommitDraft:
    now = dict(_as_it_is(desk, wanted))
    found = merge_dream(wanted.before, wanted.dreamt, now, desk.listing.taken)
    rows = desk.ledger.rows
    draft = CommitDraft(
        now=now,
        changes=found.changes,
        explained=wanted.explained,
        known=frozenset({*wanted.before, *rows, *wanted.sessions}),
        others=cache(lambda: StatementIndex(_untouched(desk, draft))),
        conflicts=list(found.conflicts),
    )
    for file in list(draft.changes):
        if not is_changeable(file):
            draft.drop(file, "a dream changes neither daily logs nor what belongs to the team")
        elif file in rows and rows[file].held:
            draft.drop(file, f"it is left alone: {rows[file].held}")
    draft.touched = frozenset(draft.changes)
    return draft


def _as_it_is(desk: FolderTransaction, wanted: DreamInput) -> Iterator[tuple[str, bytes]]:
    """The files that the dream knew or wrote, and the index, as they are in the folder."""
    for file in {*wanted.before, *wanted.dreamt, INDEX_NAME}:
        row = desk.ledger.rows.get(file)
        if row is None or row.held:
            continue
        old = wanted.before.get(file)
        if old is not None and row.digest == digest_bytes(old):
            yield file, old
            continue
        data, stamp = desk.at.read(file, RECORDED)
        if stamp != row.stamp:
            raise ConcurrentWrite
        yield file, data


def _untouched(desk: FolderTransaction, draft: CommitDraft) -> Files:
    """Every memory that the dream does not change; read when something is looked for there."""
    found: dict[str, bytes] = {}
    for file in desk.ledger.rows:
        if not is_topic(file) or file in draft.touched:
            continue
        if file in draft.now:
            found[file] = draft.now[file]
            continue
        try:
            found[file] = desk.at.read(file, RECORDED)[0]
        except (StorageFailure, Refused):
            continue
    return found


def _taken_out(before: Files, draft: CommitDraft) -> list[ComparedFact]:
    """The statements that others removed from the folder while the dream went on."""
    changed = [file for file in before if is_topic(file) and draft.now.get(file) != before[file]]
    if not changed:
        return []
    there = StatementIndex({file: data for file, data in draft.now.items() if is_topic(file)})
    known = (there, draft.others())
    return [one for one in collect_statements(before, changed) if not any(at.holder(one) for at in known)]


def _guard(desk: FolderTransaction, draft: CommitDraft, wanted: DreamInput, keep_orders: bool) -> None:
    """Drop changes that the guard holds back; a text that was in the folder before is no finding."""
    lines: set[str] | None = None
    for file, data in list(draft.changes.items()):
        if data is None or desk.gate.check(data, wanted.author.kind).passed:
            continue
        lines = _lines(wanted.before, draft.now) if lines is None else lines
        fresh = [one for one in data.splitlines(keepends=True) if _plain(one) not in lines]
        verdict = desk.gate.check(b"".join(fresh), wanted.author.kind)
        if len(data) <= RECORDED and verdict.passed:
            continue
        why = verdict.explanation or "it is too large"
        if keep_orders:
            try:
                desk.gate.let_pass(file, data, b"", wanted.author)
            except Refused as error:
                why = str(error)
        draft.drop(file, why)


def _wall(desk: FolderTransaction, draft: CommitDraft, wanted: DreamInput, keep_orders: bool) -> None:
    """Drop files with rules that neither a rule of the folder nor a word of the user founds."""
    from sevenfold.memory.guard.wall import judge_dreamt, make_held_verdict

    known = {**wanted.before, **draft.now}
    for file, data in list(draft.changes.items()):
        if data is None or not is_topic(file):
            continue
        judged = judge_dreamt(file, data, known, wanted.said)
        if not judged.findings:
            continue
        verdict = make_held_verdict(judged.findings)
        why = verdict.explanation
        if keep_orders:
            try:
                desk.gate.hold(file, data, wanted.author, verdict)
            except Refused as error:
                why = str(error)
        draft.drop(file, why)


def _harmless(desk: FolderTransaction, draft: CommitDraft, wanted: DreamInput, index: str) -> str:
    """The index that the dream wrote, or the one that is there when the guard says no."""
    data, now = encode_index(index), draft.now.get(INDEX_NAME, b"")
    if data == now or desk.gate.check(data, wanted.author.kind).passed:
        return index
    lines = _lines(wanted.before, draft.now)
    fresh = [one for one in data.splitlines(keepends=True) if _plain(one) not in lines]
    verdict = desk.gate.check(b"".join(fresh), wanted.author.kind)
    if verdict.passed:
        return index
    draft.conflicts.append(DreamConflict(INDEX_NAME, verdict.explanation))
    return decode_index(now)


def _lines(*all_files: Files) -> set[str]:
    return {_plain(one) for files in all_files for data in files.values() for one in data.splitlines()}


def _plain(line: bytes) -> str:
    return normalise_words(line.decode("utf-8", "replace"))


def _plan(
    desk: FolderTransaction, draft: CommitDraft, index: bytes | None, merged: Collection[tuple[str, str]]
) -> CommitPlan:
    changes = {file: data for file, data in draft.changes.items() if data != draft.now.get(file)}
    written = {file: data for file, data in sorted(changes.items()) if data is not None}
    new: dict[str, bytes | None] = dict(written)
    if index is not None:
        new[INDEX_NAME] = index
    new |= dict.fromkeys(sorted(changes.keys() - written.keys()))
    old = {file: draft.now.get(file) for file in new}
    topics = {file for file in desk.ledger.rows if is_topic(file)}
    after = {file for file in {*topics, *written} if new.get(file, b"") is not None}
    outcome = DreamOutcome(
        files=tuple(
            AlteredFile(file, "created" if old[file] is None else "removed" if data is None else "changed")
            for file, data in new.items()
        ),
        merged=tuple(MergedFile(file, into) for file, into in merged if not into.startswith(ARCHIVE)),
        superseded=tuple(one for one in draft.accounts if one.how in ("superseded", "contradicted")),
        archived=tuple(MergedFile(file, into) for file, into in merged if into.startswith(ARCHIVE)),
        kept=tuple(draft.kept),
        conflicts=tuple(dict.fromkeys(draft.conflicts)),
        files_before=len(topics),
        files_after=len(after),
    )
    return CommitPlan(old, new, outcome)


def _times(
    desk: FolderTransaction, draft: CommitDraft, plan: CommitPlan, wanted: DreamInput
) -> dict[str, int]:
    """Of the files that only say what was known, the time of the newest that said it."""
    before = StatementIndex({file: data for file, data in draft.now.items() if file in draft.touched})
    times: dict[str, int] = {}
    for file, data in plan.new.items():
        if data is None or file == INDEX_NAME:
            continue
        if file in wanted.times and wanted.dreamt.get(file) == data:
            times[file] = wanted.times[file]
            continue
        said = [msgspec.structs.replace(one, subject=frozenset()) for one in read_facts(data, file)]
        found = [before.holder(one) or draft.others().holder(one) for one in said]
        stamps = [desk.stamp(one) for one in {*found, file} if one is not None]
        known = [stamp.modified for stamp in stamps if stamp is not None]
        if known and None not in found:
            times[file] = max(known)
    return times
