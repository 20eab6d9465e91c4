"""Matches paths with rules such as `./src/**`, `~/notes/*`, `//etc/**` or `*.pem`.

`//x` begins at the root of the file system, `~/x` at home, `/x`, `./x` and `a/b` at the project; a
pattern without any slash fits at every depth. A rule that allows is read strictly: links are
followed first, and the project's folder is the only thing it may rely on. A rule that denies or
asks is read loosely: it holds if the path fits as written or where it leads, in any case.

It also follows links, and knows files that hold secrets or settings that must not change unasked.
"""

from __future__ import annotations

import difflib
import os
import re
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.core.protocols import ToolFailed
from sevenfold.storage.walk import translate_glob

_SECRET_NAME: Final = r"""(?ix)
      \.env(?!\.(?:example|sample|template|dist|defaults)$)(?:\..*)?    # .env, .env.local
    | .*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)
    | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?!.*\.pub$).*
    | [._]netrc | \.pgpass | \.npmrc | \.pypirc | \.htpasswd | \.git-credentials | \.boto
    | (?:application_default_)?credentials(?:\.(?:json|ya?ml|toml|ini|db|csv|xml))?
    | secrets?\.(?:json|ya?ml|toml|ini|env)
    | service[-_]account.*\.json
    """
_SECRET_FOLDERS: Final = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".azure", ".docker", "gcloud"})
_PROTECTED_FOLDERS: Final = frozenset(
    {".git", ".hg", ".svn", ".sevenfold", ".claude", ".vscode", ".idea", ".husky", ".devcontainer"}
)
_PROTECTED_NAMES: Final = frozenset(
    {".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv"}
    | {".zprofile", ".zlogin", ".envrc", ".gitconfig", ".gitmodules", ".mcp.json", ".git"}
)
_MOST_NEIGHBOURS: Final = 5_000


def make_absolute(text: str, cwd: Path, home: Path) -> Path:
    """The path as asked for, made absolute; links and `..` are left for `resolve_path` to follow."""
    if "\0" in text:
        raise ToolFailed("a path cannot hold a NUL character; write it without")
    if not text.strip():
        raise ToolFailed("the path is empty; name a file or a folder")
    if text == "~" or text.startswith("~/"):
        return home / text[2:]
    return cwd / text


def resolve_path(path: Path) -> Path:
    """The path that this one leads to when every link is followed, whether anything is there or not."""
    return Path(os.path.realpath(path))


def normalise_path(path: Path) -> Path:
    """The path with `..` taken at its word, as a reader would understand it."""
    return Path(os.path.normpath(path))


def is_inside(path: Path, folder: Path) -> bool:
    """True if the path leads into the folder, compared by component after following links."""
    return resolve_path(path).is_relative_to(resolve_path(folder))


def is_secret_file(path: Path) -> bool:
    """True if a file of this name usually holds keys, passwords or tokens."""
    if any(part.lower() in _SECRET_FOLDERS for part in path.parts):
        return True
    return bool(re.fullmatch(_SECRET_NAME, path.name))


def is_protected(path: Path) -> bool:
    """True if changing this could make other programs run something later, or open a door to us."""
    if any(part.lower() in _PROTECTED_FOLDERS for part in path.parts):
        return True
    return path.name.lower() in _PROTECTED_NAMES or is_secret_file(path)


def suggest_similar(path: Path) -> str:
    """`; did you mean …?` with the names nearby that look like this one, or nothing."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_MOST_NEIGHBOURS), strict=False)]
    except OSError:
        return ""
    near = [name for name in names if name.lower() == path.name.lower()]
    near += [name for name in names if name not in near and Path(name).stem == path.stem]
    near += difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    found = list(dict.fromkeys(near))[:3]
    return f"; did you mean {' or '.join(found)}?" if found else ""


_WILD: Final = r"[*?\[\]{}\\]"
_SPECIAL: Final = r"([*?\[\]{}\\])"


class ResolvedPath(msgspec.Struct, frozen=True):
    """A path as it was asked for, and where it really leads."""

    asked: Path
    real: Path

    @classmethod
    def of(cls, path: Path) -> ResolvedPath:
        return cls(normalise_path(path), resolve_path(path))


def is_pattern_match(about: str, place: ResolvedPath, root: Path, home: Path, *, loose: bool) -> bool:
    """True if the rule's pattern means this place."""
    paths = (place.asked, place.real) if loose else (place.real,)
    patterns = _patterns(about, str(root), str(home), loose)
    return any(p.fullmatch(_normal(str(path), loose)) for path in paths for p in patterns)


@lru_cache(maxsize=1024)
def _patterns(about: str, root: str, home: str, loose: bool) -> tuple[re.Pattern[str], ...]:
    folder, glob, resolves = _anchored(about, Path(root), Path(home), loose)
    below = glob.endswith(("/**", "/")) or glob == "**" or not re.search(_WILD, glob.rpartition("/")[2])
    glob = "" if glob == "**" else glob.removesuffix("/**").rstrip("/")
    starts = {(resolve_path(folder), glob)}
    if resolves:
        starts = {_resolved(folder, glob)}
    if loose:
        starts.add((folder, glob))
    return tuple(_compiled(start, rest, below or loose, loose) for start, rest in starts)


def _anchored(about: str, root: Path, home: Path, loose: bool) -> tuple[Path, str, bool]:
    """The start of the pattern, the rest, and whether links in it are the user's own."""
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
    plain = next((i for i, part in enumerate(parts) if re.search(_WILD, part)), len(parts))
    return resolve_path(folder.joinpath(*parts[:plain])), "/".join(parts[plain:])


def _compiled(folder: Path, glob: str, below: bool, loose: bool) -> re.Pattern[str]:
    start = "" if folder == Path("/") else re.escape(_normal(str(folder), loose))
    rest = f"/{translate_glob(_normal(glob, loose))}" if glob else ""
    return re.compile(f"{start}{rest}{'(?:/.*)?' if below else ''}", re.DOTALL)


def _normal(text: str, loose: bool) -> str:
    """Some file systems take names for the same that differ in case or in how accents are written."""
    text = unicodedata.normalize("NFC", text)
    return text.casefold() if loose else text


def make_path_pattern(path: Path, root: Path, *, below: bool = False) -> str:
    """The text of a pattern that means exactly this path, or this folder and all below it."""
    if path == root:
        return "/**"
    tail = "/**" if below else ""
    start = "/" if path.is_relative_to(root) else "//"
    rest = os.path.relpath(path, root) if start == "/" else str(path).lstrip("/")
    return start + re.sub(_SPECIAL, r"\\\1", rest) + tail
