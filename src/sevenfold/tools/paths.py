"""Where a path leads, and which files hold secrets or settings that must not change unasked."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Final

from sevenfold.protocols import ToolFailed

_SECRET_NAME: Final = re.compile(
    r"""
      \.env(?!\.(?:example|sample|template|dist|defaults)$)(?:\..*)?    # .env, .env.local
    | .*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)
    | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?!.*\.pub$).*
    | [._]netrc | \.pgpass | \.npmrc | \.pypirc | \.htpasswd | \.git-credentials | \.boto
    | (?:application_default_)?credentials(?:\.(?:json|ya?ml|toml|ini|db|csv|xml))?
    | secrets?\.(?:json|ya?ml|toml|ini|env)
    | service[-_]account.*\.json
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SECRET_FOLDERS: Final = frozenset(
    {".ssh", ".aws", ".gnupg", ".kube", ".azure", ".docker", "gcloud"}
)
_PROTECTED_FOLDERS: Final = frozenset(
    {".git", ".hg", ".svn", ".sevenfold", ".claude", ".vscode", ".idea", ".husky", ".devcontainer"}
)
_PROTECTED_NAMES: Final = frozenset(
    {".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv"}
    | {".zprofile", ".zlogin", ".envrc", ".gitconfig", ".gitmodules", ".mcp.json", ".git"}
)
_MOST_NEIGHBOURS: Final = 5_000


def absolute(text: str, cwd: Path, home: Path) -> Path:
    """The path as asked for, made absolute; links and `..` are left for `real` to follow."""
    if "\0" in text:
        raise ToolFailed("a path cannot hold a NUL character; write it without")
    if not text.strip():
        raise ToolFailed("the path is empty; name a file or a folder")
    if text == "~" or text.startswith("~/"):
        return home / text[2:]
    return cwd / text


def real(path: Path) -> Path:
    """Where the path leads when every link is followed, whether anything is there or not."""
    return Path(os.path.realpath(path))


def lexical(path: Path) -> Path:
    """The path with `..` taken at its word, as a reader would understand it."""
    return Path(os.path.normpath(path))


def inside(path: Path, folder: Path) -> bool:
    """Whether the path leads into the folder, compared by component after following links."""
    return real(path).is_relative_to(real(folder))


def secret(path: Path) -> bool:
    """Whether a file of this name usually holds keys, passwords or tokens."""
    if any(part.lower() in _SECRET_FOLDERS for part in path.parts):
        return True
    return bool(_SECRET_NAME.fullmatch(path.name))


def protected(path: Path) -> bool:
    """Whether changing this could make other programs run something later, or open a door to us."""
    if any(part.lower() in _PROTECTED_FOLDERS for part in path.parts):
        return True
    return path.name.lower() in _PROTECTED_NAMES or secret(path)


def similar(path: Path) -> str:
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
