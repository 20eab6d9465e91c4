"""What of a remote's tree can be files of the team, judged by name, kind and size before any is read.

Whatever is not taken stays in the remote as it is: it is named with the reason, and its place there is
taken for whatever is pushed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sevenfold.memory.folder.files import HEAD
from sevenfold.memory.folder.naming import INDEX_NAME
from sevenfold.memory.guard.secrets import find_secrets
from sevenfold.memory.team.naming import Names, suspicious_name, wrong_name
from sevenfold.memory.team.trees import Entry, Tree
from sevenfold.memory.team.values import Refusal

MOST: Final = 2_000
"""Files of a team memory."""
TOTAL: Final = 64 << 20
"""Bytes of all of them."""
_KINDS: Final = {b"120000": "it is a symbolic link", b"160000": "it is a submodule"}
_FILES: Final = (b"100644", b"100664", b"100755")


@dataclass(slots=True)
class Incoming:
    """The remote as the folder could be: each file with the id of its text."""

    files: dict[str, str] = field(default_factory=dict)
    untaken: dict[str, str] = field(default_factory=dict)
    """What is there and is not taken, with the reason."""
    names: Names = field(default_factory=Names)
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
    def refused(self) -> list[Refusal]:
        found = [Refusal(file, why, "remote") for file, why in self.untaken.items()]
        return [*found, Refusal("the repository", self.cut, "remote")] if self.cut else found


def looked_over(
    tree: Tree,
    sizes: Callable[[Sequence[str]], Mapping[str, int]],
    known: Mapping[str, str],
    released: Callable[[bytes], bool],
    most: int = MOST,
    go_on: Callable[[], None] = lambda: None,
) -> Incoming:
    """What of a tree may be taken; `known` are the files that were the same on both sides, with the
    ids of their texts: no limit is a reason to lose them. `go_on` may raise."""
    found = Incoming(cut=tree.cut, unread=tree.unread)
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


def _wrong_entry(entry: Entry, file: str) -> str:
    if entry.mode in _KINDS:
        return _KINDS[entry.mode]
    if entry.mode not in _FILES:
        return "it is no plain file"
    if not file.isprintable():  # surrogates, too: bytes that are no UTF-8
        return "its name holds characters that are no text"
    return wrong_name(file)


def _unwelcome(file: str, most: int, released: bool) -> str:
    """Why a newcomer is not taken; `most` is the number of files that are there already, if that is
    all there may be."""
    if most:
        return f"there are more than {most:,} files"
    if released or file == INDEX_NAME:
        return ""
    return "its name looks like a secret" if find_secrets(file) else suspicious_name(file)


def _weigh(
    found: Incoming, candidates: dict[str, str], sizes: Mapping[str, int], known: Mapping[str, str]
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
