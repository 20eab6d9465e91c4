"""Screens the files of a team: which of a remote's tree are taken, and which texts may come in or go out.

A tree is judged by name, kind and size before a file is read. A file that is not taken stays in the remote,
and nothing is pushed under its name. Texts are checked for secrets, for instructions to the agent and for
personal facts. Two indexes are merged here too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from sevenfold.core.errors import Refused
from sevenfold.memory.backend import HEAD
from sevenfold.memory.errors import Guarded
from sevenfold.memory.folder.folder import is_personal
from sevenfold.memory.folder.names import INDEX_NAME, TEAM
from sevenfold.memory.guard.gate import GuardGate
from sevenfold.memory.guard.guard import Guard
from sevenfold.memory.guard.injection import find_instructions
from sevenfold.memory.guard.secrets import find_secrets
from sevenfold.memory.guard.text import GuardFinding, GuardVerdict
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index import drop_pointers, find_dead_pointers, split_unlisted
from sevenfold.memory.index_update import decode_index, encode_index, plan_text
from sevenfold.memory.merge import choose_side, merge_texts
from sevenfold.memory.team.git import RefusedFile
from sevenfold.memory.team.repository import CommitTree, TreeEntry
from sevenfold.memory.team.state import FileNameSet, explain_bad_name, explain_suspicious_name, release_key
from sevenfold.memory.topic_file import read_topic

MOST: Final = 2_000  # Most files of a team memory
TOTAL: Final = 64 << 20  # Most bytes of a team memory
_KINDS: Final = {b"120000": "it is a symbolic link", b"160000": "it is a submodule"}
_FILES: Final = (b"100644", b"100664", b"100755")


@dataclass(slots=True)
class IncomingFiles:
    """The files of the remote that may be taken, with the ids of their texts."""

    files: dict[str, str] = field(default_factory=dict)
    untaken: dict[str, str] = field(default_factory=dict)  # Files that are not taken, with the reason
    names: FileNameSet = field(default_factory=FileNameSet)  # All names in the remote, taken or not
    cut: str = ""  # The reason if not all of it was read; empty if it was
    unread: frozenset[bytes] = frozenset()
    sizes: dict[str, int] = field(default_factory=dict)  # The size of each file that is taken

    def unknown(self, file: str) -> bool:
        """True if the remote has, or may have, a file of this name that was not taken."""
        if file in self.untaken or not self.unread:
            return file in self.untaken
        parts = file.encode("utf-8", "surrogateescape").split(b"/")
        return any(b"/".join(parts[:at]) in self.unread for at in range(len(parts)))

    @property
    def refused(self) -> list[RefusedFile]:
        found = [RefusedFile(file, why, "remote") for file, why in self.untaken.items()]
        return [*found, RefusedFile("the repository", self.cut, "remote")] if self.cut else found


def screen_tree(
    tree: CommitTree,
    sizes: Callable[[Sequence[str]], Mapping[str, int]],
    known: Mapping[str, str],
    released: Callable[[bytes], bool],
    most: int = MOST,
    go_on: Callable[[], None] = lambda: None,
) -> IncomingFiles:
    """Choose the files of a tree that may be taken. `known` are the files that were the same on both sides,
    with the ids of their texts: they are taken whatever the limits are. `go_on` may raise."""
    found = IncomingFiles(cut=tree.cut, unread=tree.unread)
    candidates: dict[str, str] = {}
    every = [(entry.path.decode("utf-8", "surrogateescape"), entry) for entry in tree.entries]
    # Known files come first: no new file takes their names or their room.
    for file, entry in sorted(every, key=lambda one: (one[0] not in known, one[1].path)):
        go_on()
        why = _wrong_entry(entry, file)
        if not why and (other := found.names.clash(file)):
            why = f"some systems take its name for that of {other!r}"
        if not why and file in candidates:
            why = "there are two files of this name"
        if not why and file not in known:
            why = _unwelcome(file, len(candidates) >= most and most, released(entry.path))
        if why:
            found.untaken.setdefault(file, why)
        else:
            candidates[file] = entry.id
            found.names.add(file)
    _weigh(found, candidates, sizes(list(candidates.values())), known)
    for file in found.untaken:
        found.names.add(file)
    return found


def _wrong_entry(entry: TreeEntry, file: str) -> str:
    if entry.mode in _KINDS:
        return _KINDS[entry.mode]
    if entry.mode not in _FILES:
        return "it is no plain file"
    if not file.isprintable():  # also for bytes that are not UTF-8
        return "its name holds characters that are no text"
    return explain_bad_name(file)


def _unwelcome(file: str, most: int, released: bool) -> str:
    """The reason not to take a new file, or empty; `most` is the limit if it is reached, else 0."""
    if most:
        return f"there are more than {most:,} files"
    if released or file == INDEX_NAME:
        return ""
    return "its name looks like a secret" if find_secrets(file) else explain_suspicious_name(file)


def _weigh(
    found: IncomingFiles, candidates: dict[str, str], sizes: Mapping[str, int], known: Mapping[str, str]
) -> None:
    total = 0
    for file, id in sorted(candidates.items(), key=lambda one: known.get(one[0]) != one[1]):  # known first
        size = sizes.get(id, -1)
        if size < 0:
            found.untaken[file] = "its text is missing from the repository"
        elif size > HEAD:
            found.untaken[file] = f"it has {size:,} bytes, and a memory has at most {HEAD:,}"
        elif total + size > TOTAL and known.get(file) != id:
            found.untaken[file] = f"the team's memory has more than {TOTAL:,} bytes"
        else:
            total += size
            found.files[file], found.sizes[file] = id, size


def prune_index(text: str, names: Mapping[str, str]) -> str:
    """An index without pointers to files that are not there; `names` are the memories by file.

    It does not say how many are not listed: that differs from one member to the next.
    """
    return plan_text(drop_pointers(text, find_dead_pointers(text, names)), names, ())[0]


def merge_indexes(before: str, ours: str, theirs: str, names: Mapping[str, str]) -> str:
    """Merge two indexes for a folder with these files."""
    old, one, other = (prune_index(text, names) for text in (before, ours, theirs))
    if side := choose_side(old, one, other):
        return one if side == "ours" else other
    both = merge_texts(encode_index(old), encode_index(one), encode_index(other))
    return prune_index(decode_index(both) if both is not None else _union(other, one), names)


def make_shared_index(ours: str, theirs: str, here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """The index for the remote: ours, with the lines for files that are only there, and without those for
    files that are only here. It is theirs if we have nothing to add."""
    seen = prune_index(theirs, here)
    if (mine := split_unlisted(ours)[0]) == seen:
        return theirs
    both = merge_texts(encode_index(seen), encode_index(mine), encode_index(theirs))
    return prune_index(decode_index(both) if both is not None else _union(mine, theirs), there)


def _union(one: str, other: str) -> str:
    """The lines of one index, then those of the other that it lacks."""
    known = set(one.splitlines())
    more = [line for line in other.splitlines() if line not in known]
    first = one if not one or one.endswith("\n") else f"{one}\n"
    return first + "".join(f"{line}\n" for line in more)


BY_TEAM: Final = Author("team")
SHARE: Final = 50  # Most texts of the team in quarantine, which the user needs too
_PERSONAL = "it is of type 'user': what is about a person is never shared; give it another type"


class TextJudgement(msgspec.Struct, frozen=True):
    """The judgement of an incoming text; it may be taken if `why` is empty."""

    why: str = ""
    settled: bool = True  # False if the text is to be judged again at the next sync
    secret: bool = False  # A released secret: it is written to the folder, but not to its history


class TeamScreen:
    """Checks texts and names, each text once. `released` are digests of texts that the user lets pass."""

    def __init__(self, released: Collection[str]) -> None:
        self._released, self._guard = released, Guard(largest=HEAD)
        self._verdicts: dict[str, GuardVerdict] = {}
        self._quarantined: int | None = None

    def is_released(self, data: bytes) -> bool:
        return release_key(data) in self._released

    def verdict(self, data: bytes) -> GuardVerdict:
        """The verdict of the guard, cached: call it before the folder is locked."""
        digest = release_key(data)
        if digest not in self._verdicts:
            self._verdicts[digest] = self._guard.check(data, source="team")
        return self._verdicts[digest]

    def explain_unsent(self, file: str, data: bytes) -> str:
        """The reason not to send a file; empty if it may be sent."""
        if why := _no_text(data) or self.explain_secret(data):
            return why
        if find_secrets(file) and not self.is_released(file.encode("utf-8", "surrogateescape")):
            return "its name looks like a secret; rename it"
        return _PERSONAL if _about_a_person(file, data) else ""

    def explain_secret(self, data: bytes) -> str:
        """The reason not to put a text into a repository; empty if it may be."""
        verdict = self.verdict(data)
        refused = verdict.action == "refuse" and not self.is_released(data)
        return _told(verdict.findings) if refused else ""

    def explain_bad_merge(self, both: bytes, *parts: bytes) -> str:
        """The reason not to merge texts into `both`: a finding that none of them has; or empty."""
        known = {(each.kind, each.what) for part in parts for each in self.verdict(part).findings}
        new = [one for one in self.verdict(both).findings if (one.kind, one.what) not in known]
        if not new or self.is_released(both):
            return self.explain_secret(both)
        what = "look like a secret" if new[0].kind == "secret" else "would give the agent orders"
        if new[0].kind == "size":
            what = "are too large"
        return f"your text and the team's, put together, {what} ({new[0].what}); change yours"

    def judge_incoming(self, file: str, data: bytes, old: bytes, gate: GuardGate) -> TextJudgement:
        """Judge a text from the remote; `old` is the text of the file here."""
        if why := _no_text(data) or self.explain_secret(data):
            return TextJudgement(why)
        if _about_a_person(file, data):
            return TextJudgement("it is of type 'user': what is about a person is never shared")
        if self.verdict(data).action == "refuse":  # and released
            if find_instructions(data.decode("utf-8"), "team"):
                return TextJudgement("it looks like a secret and gives the agent orders")
            return TextJudgement(secret=True)
        if self.verdict(data).passed:
            return TextJudgement()
        if self._held(gate) >= SHARE and self.verdict(old).passed:
            why = f"it tries to give the agent orders, and {SHARE} texts of the team's are in quarantine"
            return TextJudgement(f"{why}: look through 'sevenfold memory quarantine'", settled=False)
        try:
            gate.let_pass(f"{TEAM}{file}", data, old, BY_TEAM)
        except Guarded as error:
            number = error.quarantined
            if number is None:
                return TextJudgement(error.explanation)
            self._quarantined = self._held(gate) + 1
            return TextJudgement(f"it tries to give the agent orders: number {number} in quarantine")
        except Refused as error:  # the quarantine is full
            return TextJudgement(str(error), settled=False)
        return TextJudgement()

    def _held(self, gate: GuardGate) -> int:
        """The number of the team's texts in quarantine."""
        if self._quarantined is None:
            self._quarantined = sum(one.source == BY_TEAM.kind for one in gate.quarantine.list())
        return self._quarantined


def _no_text(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "it is not text in UTF-8"
    return "it holds NUL characters" if "\0" in text else ""


def _about_a_person(file: str, data: bytes) -> bool:
    return is_personal(read_topic(data, f"{TEAM}{file}"))


def _told(findings: tuple[GuardFinding, ...]) -> str:
    if not findings:
        return "it looks like a secret"
    first = findings[0]
    if first.kind != "secret":
        return first.why
    return (
        f"it looks like a secret ({first.what}, {first.where}): take it out, or let exactly this text "
        "pass with 'sevenfold team release'"
    )
