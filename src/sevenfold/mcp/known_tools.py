"""The descriptions of tools that the user has seen: one that changes later waits until it is trusted again.

A description is read by the model. A server that was harmless when the user trusted it could give orders in
it afterwards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.core.errors import StorageFailure
from sevenfold.core.messages import Json
from sevenfold.storage.files import make_private_dir, read_if_there, write_atomic
from sevenfold.storage.locks import hold_file_lock

FILE: Final = "mcp-tools.json"
LARGEST: Final = 4 << 20


class KnownTools:
    """`<home>/mcp-tools.json`: by project and server, a digest of each tool as it was first offered."""

    def __init__(self, home: Path, root: Path) -> None:
        self._file, self._root = home / FILE, str(root)

    def list_changed(self, server: str, tools: Sequence[Json]) -> tuple[str, ...]:
        """The names of tools that are not as they were; tools that are new are noted."""
        digests = {str(tool["name"]): _digest(tool) for tool in tools}
        with hold_file_lock(self._file):
            known = self._read()
            seen = known.setdefault(self._root, {}).setdefault(server, {})
            changed = tuple(name for name, digest in digests.items() if seen.get(name, digest) != digest)
            new = {name: digest for name, digest in digests.items() if name not in seen}
            if new:
                seen |= new
                make_private_dir(self._file.parent)
                write_atomic(self._file, msgspec.json.encode(known))
        return changed

    def forget(self) -> None:
        """Forget this project's tools: the user trusts them as they will be offered next."""
        if not self._file.exists():
            return
        with hold_file_lock(self._file):
            known = self._read()
            if known.pop(self._root, None) is not None:
                write_atomic(self._file, msgspec.json.encode(known))

    def _read(self) -> dict[str, dict[str, dict[str, str]]]:
        try:
            data = read_if_there(self._file, LARGEST) or b"{}"
            return msgspec.json.decode(data, type=dict[str, dict[str, dict[str, str]]])
        except (StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
            return {}


def _digest(tool: Json) -> str:
    return hashlib.sha256(msgspec.json.encode(tool, order="sorted")).hexdigest()[:32]
