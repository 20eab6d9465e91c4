"""Whether a folder on this machine can be a team's repository: one that could never be pushed to is not."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from sevenfold.errors import Mistake, StorageFailure
from sevenfold.memory.team.addresses import Address
from sevenfold.memory.team.repository import SHA256
from sevenfold.storage.files import read_if_there

_CONFIG: Final = 1 << 20
_NOT_BARE: Final = re.compile(r"^\s*bare\s*=\s*(false|no|off|0)\s*$", re.IGNORECASE | re.MULTILINE)
_SHA256: Final = re.compile(r"^\s*objectformat\s*=\s*sha256\s*$", re.IGNORECASE | re.MULTILINE)


def check_place(address: Address, project: Path | None) -> None:
    """`Mistake` with the way out."""
    if not address.path:
        return
    place, shown = Path(address.path), address.shown
    if project is not None and _inside(place, project):
        raise Mistake(
            f"{shown} lies inside the project, where it would become a part of it: use a folder outside"
        )
    config = _config(place)
    if (place / ".git").exists() or (config and _NOT_BARE.search(config)):
        work = place.parent if place.name == ".git" else place
        raise Mistake(
            f"{shown} has a working folder, and git accepts no push to such a repository: make a bare one "
            f"with 'git clone --bare {work} {work}.git' and use that"
        )
    if _SHA256.search(config):
        raise Mistake(SHA256.format(shown))


def _inside(place: Path, project: Path) -> bool:
    return Path(os.path.realpath(place)).is_relative_to(os.path.realpath(project))


def _config(place: Path) -> str:
    """What is set in the repository; empty when there is none."""
    if not (place / "HEAD").is_file():
        return ""
    try:
        data = read_if_there(place / "config", _CONFIG)
    except StorageFailure:
        data = None
    return (data or b"").decode("utf-8", "replace")
