"""Whether a path is meant by a rule such as `./src/**`, `~/notes/*`, `//etc/**` or `*.pem`.

`//x` begins at the root of the file system, `~/x` at home, `/x`, `./x` and `a/b` at the project; a
pattern without any slash fits at every depth. A rule that allows is read strictly: links are
followed first, and the project's folder is the only thing it may rely on. A rule that denies or
asks is read loosely: it holds if the path fits as written or where it leads, in any case.
"""

from __future__ import annotations

import os
import re
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.tools.paths import lexical, real
from sevenfold.tools.walk import translate

_WILD: Final = re.compile(r"[*?\[\]{}\\]")
_SPECIAL: Final = re.compile(r"([*?\[\]{}\\])")


class Place(msgspec.Struct, frozen=True):
    """A path as it was asked for, and where it really leads."""

    asked: Path
    real: Path

    @classmethod
    def of(cls, path: Path) -> Place:
        return cls(lexical(path), real(path))


def fits(about: str, place: Place, root: Path, home: Path, *, loose: bool) -> bool:
    """Whether the rule's pattern means this place."""
    paths = (place.asked, place.real) if loose else (place.real,)
    patterns = _patterns(about, str(root), str(home), loose)
    return any(p.fullmatch(_normal(str(path), loose)) for path in paths for p in patterns)


@lru_cache(maxsize=1024)
def _patterns(about: str, root: str, home: str, loose: bool) -> tuple[re.Pattern[str], ...]:
    folder, glob, resolves = _anchored(about, Path(root), Path(home), loose)
    below = glob.endswith(("/**", "/")) or glob == "**" or not _WILD.search(glob.rpartition("/")[2])
    glob = "" if glob == "**" else glob.removesuffix("/**").rstrip("/")
    starts = {(real(folder), glob)}
    if resolves:
        starts = {_resolved(folder, glob)}
    if loose:
        starts.add((folder, glob))
    return tuple(_compiled(start, rest, below or loose, loose) for start, rest in starts)


def _anchored(about: str, root: Path, home: Path, loose: bool) -> tuple[Path, str, bool]:
    """Where the pattern begins, what follows, and whether links in it are the user's own."""
    if about.startswith("//"):
        return Path("/"), about.lstrip("/"), True
    if about == "~" or about.startswith("~/"):
        return home, about[2:], True
    if about.startswith(("/", "./", "../")):
        folder, glob = root, about.removeprefix("./").removeprefix("/")
        while glob.startswith("../"):
            folder, glob = folder.parent, glob[3:]
        return folder, glob, False
    if "/" in about.rstrip("/"):
        return root, about, False
    return (Path("/") if loose else root), f"**/{about}", False


def _resolved(folder: Path, glob: str) -> tuple[Path, str]:
    """The same with links followed as far as the pattern is plain."""
    parts = glob.split("/")
    plain = next((i for i, part in enumerate(parts) if _WILD.search(part)), len(parts))
    return real(folder.joinpath(*parts[:plain])), "/".join(parts[plain:])


def _compiled(folder: Path, glob: str, below: bool, loose: bool) -> re.Pattern[str]:
    start = "" if folder == Path("/") else re.escape(_normal(str(folder), loose))
    rest = f"/{translate(_normal(glob, loose))}" if glob else ""
    return re.compile(f"{start}{rest}{'(?:/.*)?' if below else ''}", re.DOTALL)


def _normal(text: str, loose: bool) -> str:
    """Some file systems take names for the same that differ in case or in how accents are written."""
    text = unicodedata.normalize("NFC", text)
    return text.casefold() if loose else text


def naming(path: Path, root: Path, *, below: bool = False) -> str:
    """The text of a pattern that means exactly this path, or this folder and all below it."""
    if path == root:
        return "/**"
    tail = "/**" if below else ""
    start = "/" if path.is_relative_to(root) else "//"
    rest = os.path.relpath(path, root) if start == "/" else str(path).lstrip("/")
    return start + _SPECIAL.sub(r"\\\1", rest) + tail
