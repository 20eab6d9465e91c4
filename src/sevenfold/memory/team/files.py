"""What of a remote's tree can be files of the team, judged by name, kind and size before any is read.

Whatever is not taken stays in the remote as it is: it is named with the reason, and its place there is
taken for whatever is pushed.

Two changes of one text in one, and two indexes in one. What may leave this machine, and what may
come in: secrets, orders to the agent, what is about a person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from sevenfold.core.errors import Refused
from sevenfold.memory.backend import HEAD
from sevenfold.memory.dreams.merge import merge_lines
from sevenfold.memory.errors import Guarded
from sevenfold.memory.folder.folder import is_personal
from sevenfold.memory.folder.names import INDEX_NAME, TEAM
from sevenfold.memory.guard.gate import GuardGate
from sevenfold.memory.guard.guard import Guard
from sevenfold.memory.guard.injection import find_instructions
from sevenfold.memory.guard.secrets import find_secrets
from sevenfold.memory.guard.text import GuardFinding, GuardVerdict
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index import find_missing_pointers, reconcile_index
from sevenfold.memory.index_update import decode_index, encode_index, make_bare_topic
from sevenfold.memory.team.git import RefusedFile
from sevenfold.memory.team.repository import CommitTree, TreeEntry
from sevenfold.memory.team.state import FileNameSet, explain_bad_name, explain_suspicious_name, release_key
from sevenfold.memory.topic_file import read_topic

MOST: Final = 2_000
"""Files of a team memory."""
TOTAL: Final = 64 << 20
"""Bytes of all of them."""
_KINDS: Final = {b"120000": "it is a symbolic link", b"160000": "it is a submodule"}
_FILES: Final = (b"100644", b"100664", b"100755")


@dataclass(slots=True)
class IncomingFiles:
    """The remote as the folder could be: each file with the id of its text."""

    files: dict[str, str] = field(default_factory=dict)
    untaken: dict[str, str] = field(default_factory=dict)
    """What is there and is not taken, with the reason."""
    names: FileNameSet = field(default_factory=FileNameSet)
    """All names there, taken or not."""
    cut: str = ""
    """Why not all of it was looked at; empty when it was."""
    unread: frozenset[bytes] = frozenset()
    sizes: dict[str, int] = field(default_factory=dict)
    """The bytes of each file that is taken."""

    def unknown(self, file: str) -> bool:
        """Whether nobody can say what the remote has under this name."""
        if file in self.untaken or not self.unread:
            return file in self.untaken
        path = file.encode("utf-8", "surrogateescape")
        parts = path.split(b"/")
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
    """What of a tree may be taken; `known` are the files that were the same on both sides, with the
    ids of their texts: no limit is a reason to lose them. `go_on` may raise."""
    found = IncomingFiles(cut=tree.cut, unread=tree.unread)
    candidates: dict[str, str] = {}
    every = [(entry.path.decode("utf-8", "surrogateescape"), entry) for entry in tree.entries]
    # What is known comes first: no newcomer takes its name or its place.
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
    if not file.isprintable():  # surrogates, too: bytes that are no UTF-8
        return "its name holds characters that are no text"
    return explain_bad_name(file)


def _unwelcome(file: str, most: int, released: bool) -> str:
    """Why a newcomer is not taken; `most` is the number of files that are there already, if that is
    all there may be."""
    if most:
        return f"there are more than {most:,} files"
    if released or file == INDEX_NAME:
        return ""
    return "its name looks like a secret" if find_secrets(file) else explain_suspicious_name(file)


def _weigh(
    found: IncomingFiles, candidates: dict[str, str], sizes: Mapping[str, int], known: Mapping[str, str]
) -> None:
    same = [file for file, id in candidates.items() if known.get(file) == id]
    total = 0
    others = [file for file, id in candidates.items() if known.get(file) != id]
    for file in (*same, *others):
        id = candidates[file]
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


_PAIRS: Final = 100_000
"""Pairs of equal lines: comparing takes time with their number, and somebody else wrote the text."""


def merge_texts(before: bytes | None, ours: bytes, theirs: bytes) -> bytes | None:
    """Both changes of a text in one; None when they touch each other, or nobody knows what was before."""
    if before is None:
        return None
    texts = [text.splitlines(keepends=True) for text in (before, ours, theirs)]
    start = _same(texts)
    texts = [lines[start:] for lines in texts]
    end = _same([lines[::-1] for lines in texts])
    old, one, other = (lines[: len(lines) - end] for lines in texts)
    if max(_pairs(old, one), _pairs(old, other)) > _PAIRS:
        return None
    middle = merge_lines(b"".join(old), b"".join(one), b"".join(other))
    if middle is None:
        return None
    whole = ours.splitlines(keepends=True)
    text = b"".join([*whole[:start], middle, *whole[len(whole) - end :]])
    return text if len(text) <= HEAD else None


def _same(texts: list[list[bytes]]) -> int:
    """How many lines at the beginning are the same in all texts."""
    count = 0
    for lines in zip(*texts, strict=False):
        if any(line != lines[0] for line in lines):
            break
        count += 1
    return count


def _pairs(one: list[bytes], other: list[bytes]) -> int:
    counted = Counter(other)
    return sum(count * counted[line] for line, count in Counter(one).items())


def prune_index(text: str, names: Mapping[str, str]) -> str:
    """An index without pointers to files that are not there; `names` are the memories by file."""
    absent = set(find_missing_pointers(text, list(names), list(names.items())))
    there = [make_bare_topic(file, name) for file, name in names.items() if file not in absent]
    return reconcile_index(text, there, sorted(absent))


def merge_indexes(before: str, ours: str, theirs: str, names: Mapping[str, str]) -> str:
    """Two indexes in one, as the folder with these files needs it."""
    old, one, other = (prune_index(text, names) for text in (before, ours, theirs))
    if one == old:
        return other
    if other in (old, one):
        return one
    both = merge_texts(encode_index(old), encode_index(one), encode_index(other))
    return prune_index(decode_index(both) if both is not None else _union(other, one), names)


def make_shared_index(ours: str, theirs: str, here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """The index as the remote should have it: ours, with the lines for what is only there, and without
    those for what is only here. It is theirs when we have nothing to add."""
    seen = prune_index(theirs, here)
    if ours == seen:
        return theirs
    both = merge_texts(encode_index(seen), encode_index(ours), encode_index(theirs))
    return prune_index(decode_index(both) if both is not None else _union(ours, theirs), there)


def _union(one: str, other: str) -> str:
    """All lines of the one, then those of the other that it lacks."""
    known = set(one.splitlines())
    more = [line for line in other.splitlines() if line not in known]
    first = one if not one or one.endswith("\n") else f"{one}\n"
    return first + "".join(f"{line}\n" for line in more)


BY_TEAM: Final = Author("team")
SHARE: Final = 50
"""Texts of the team's that are kept in quarantine at most: it is the user's own, and has an end."""
_PERSONAL = "it is of type 'user': what is about a person is never shared; give it another type"


class TextJudgement(msgspec.Struct, frozen=True):
    """What became of a text that came in; without a reason it may be taken."""

    why: str = ""
    settled: bool = True
    """Whether that is the last word about this text; otherwise it is looked at again the next time."""
    secret: bool = False
    """It looks like a secret and the user released it: it goes into the folder, not into its history."""


class TeamScreen:
    """Looks through texts and names, each text once. `released` are digests of what the user lets pass."""

    def __init__(self, released: Collection[str]) -> None:
        self._released, self._guard = released, Guard(largest=HEAD)
        self._verdicts: dict[str, GuardVerdict] = {}
        self._quarantined: int | None = None

    def is_released(self, data: bytes) -> bool:
        return release_key(data) in self._released

    def verdict(self, data: bytes) -> GuardVerdict:
        """What the guard says. Asked for beforehand, nobody waits for it while the folder is locked."""
        digest = release_key(data)
        if digest not in self._verdicts:
            self._verdicts[digest] = self._guard.check(data, source="team")
        return self._verdicts[digest]

    def leaving(self, file: str, data: bytes) -> str:
        """Why this file may not be sent; empty when it may."""
        if why := _no_text(data) or self.secret(data):
            return why
        if find_secrets(file) and not self.is_released(file.encode("utf-8", "surrogateescape")):
            return "its name looks like a secret; rename it"
        return _PERSONAL if _about_a_person(file, data) else ""

    def secret(self, data: bytes) -> str:
        """Why a text may be in no repository; empty when it may."""
        verdict = self.verdict(data)
        if verdict.action != "refuse" or self.is_released(data):
            return ""
        return _told(verdict.findings)

    def joint(self, both: bytes, *parts: bytes) -> str:
        """Why two texts may not become this one: something is in it that is in neither; or empty."""
        known = {(each.kind, each.what) for part in parts for each in self.verdict(part).findings}
        new = [one for one in self.verdict(both).findings if (one.kind, one.what) not in known]
        if not new or self.is_released(both):
            return self.secret(both)
        what = "look like a secret" if new[0].kind == "secret" else "would give the agent orders"
        if new[0].kind == "size":
            what = "are too large"
        return f"your text and the team's, put together, {what} ({new[0].what}); change yours"

    def arriving(self, file: str, data: bytes, old: bytes, gate: GuardGate) -> TextJudgement:
        """What becomes of a text from the remote; `old` is what the file says here."""
        if why := _no_text(data) or self.secret(data):
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
        """How much of the quarantine is the team's already."""
        if self._quarantined is None:
            found = gate.quarantine.list()
            self._quarantined = sum(1 for one in found if one.source == BY_TEAM.kind)
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
