"""Writes git pack files: many objects in one file, each as what differs from the one before it.

libgit2 can write packs too, but only through a repository object that reads the user's git
configuration. The pack is written to a temporary file, synced and renamed, its index last: a reader
finds all of it or none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sevenfold.storage.files import (
    BINARY,
    CLOEXEC,
    NOFOLLOW,
    PRIVATE_FILE,
    TEMPORARY,
    sync_folder,
    write_atomic,
)

DEPTH: Final = 50
"""How many differences may stand on each other; git's own number."""
BASE_LIMIT: Final = 4_000_000
"""An object larger than this is not kept in memory to be compared with the next."""
_ANCHOR: Final = 32
_WINDOW: Final = 8_192
_RUN: Final = 16
_COPY: Final = 0xFFFFFF
_CHUNK: Final = 1 << 20
_OFS_DELTA: Final = 6
_LARGE: Final = 1 << 31


class PackWriter:
    """Takes in objects one by one, and makes a pack of them when it is finished."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / f"{TEMPORARY}{secrets.token_hex(8)}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC | BINARY
        self.file = os.fdopen(os.open(self.temporary, flags, PRIVATE_FILE), "w+b")
        self.file.write(b"PACK" + struct.pack(">II", 2, 0))
        self.at = 12
        self.written: dict[bytes, tuple[int, int]] = {}
        """For each object where it begins and its checksum."""
        self.last: dict[bytes, tuple[int, bytes, int]] = {}
        """For each place the object written last: where it begins, its bytes, its depth."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.file.close()
        with contextlib.suppress(OSError):
            self.temporary.unlink()  # not there any more once it is finished

    def __contains__(self, id: bytes) -> bool:
        return id in self.written

    def add(self, kind: int, id: bytes, data: bytes, place: bytes | None = None) -> None:
        """Write an object; one that stood at the same place before is what it is compared with."""
        if id in self.written:
            return
        begin, depth, head, body = self.at, 0, b"", data
        near = self.last.get(place) if place is not None else None
        if near and near[2] < DEPTH and (short := delta(near[1], data)) is not None:
            kind, body, depth = _OFS_DELTA, short, near[2] + 1
            head = _distance(begin - near[0])
        packed = _header(kind, len(body)) + head + zlib.compress(body)
        self.file.write(packed)
        self.at += len(packed)
        self.written[id] = (begin, zlib.crc32(packed))
        if place is not None and len(data) <= BASE_LIMIT:
            self.last[place] = (begin, data, depth)

    def finish(self) -> Path | None:
        """The pack in its place, on the disk; None when there is nothing in it."""
        if not self.written:
            return None
        self.file.seek(8)
        self.file.write(struct.pack(">I", len(self.written)))
        self.file.seek(0)
        whole = hashlib.sha1(usedforsecurity=False)
        while part := self.file.read(_CHUNK):
            whole.update(part)
        self.file.write(whole.digest())
        self.file.flush()
        os.fsync(self.file.fileno())
        pack = self.folder / f"pack-{whole.hexdigest()}.pack"
        self.temporary.replace(pack)
        write_atomic(pack.with_suffix(".idx"), _index(self.written, whole.digest()))
        sync_folder(self.folder)
        return pack


def _header(kind: int, size: int) -> bytes:
    out = bytearray()
    byte, size = kind << 4 | size & 15, size >> 4
    while size:
        out.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    out.append(byte)
    return bytes(out)


def _distance(back: int) -> bytes:
    out = [back & 0x7F]
    while back := back >> 7:
        back -= 1
        out.append(0x80 | back & 0x7F)
    return bytes(reversed(out))


def _index(written: dict[bytes, tuple[int, int]], pack: bytes) -> bytes:
    ids = sorted(written)
    counts = [0] * 256
    for id in ids:
        counts[id[0]] += 1
    total, fan = 0, bytearray()
    for count in counts:
        total += count
        fan += struct.pack(">I", total)
    small, large = bytearray(), bytearray()
    for id in ids:
        offset = written[id][0]
        if offset >= _LARGE:
            small += struct.pack(">I", _LARGE | len(large) // 8)
            large += struct.pack(">Q", offset)
        else:
            small += struct.pack(">I", offset)
    sums = b"".join(struct.pack(">I", written[id][1]) for id in ids)
    body = b"\377tOc" + struct.pack(">I", 2) + fan + b"".join(ids) + sums + small + large + pack
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def ids_in(index: Path) -> frozenset[bytes] | None:
    """The objects of a pack, from its index; None when it cannot be told."""
    try:
        data = index.read_bytes()
    except OSError:
        return None
    if data[:8] != b"\377tOc\0\0\0\2" or len(data) < 1032:
        return None
    (count,) = struct.unpack_from(">I", data, 1028)
    ids = frozenset(data[at : at + 20] for at in range(1032, 1032 + 20 * count, 20))
    return ids if len(ids) == count and len(data) >= 1032 + 28 * count else None


# --- what differs -----------------------------------------------------------------------------------


def delta(base: bytes, target: bytes) -> bytes | None:
    """How to make `target` from `base`, in git's form; None when that is hardly shorter.

    Runs along both until they part, then looks a little ahead for a place where they meet again: the
    time it takes is that of reading both once, however large they are, for a few changes.
    """
    out = bytearray(_size(len(base)) + _size(len(target)))
    budget = len(target) * 3 // 4
    i = j = 0
    while j < len(target):
        length = _run(base, i, target, j)
        if length >= _RUN:
            _copy(out, i, length)
            i, j = i + length, j + length
            continue
        i, meet = _meeting(base, i, target, j)
        _insert(out, target[j:meet])
        j = meet
        if len(out) > budget:
            return None
    return bytes(out) if len(out) <= budget else None


def _meeting(base: bytes, i: int, target: bytes, j: int) -> tuple[int, int]:
    """The next place where both go on alike; the end of `target` when none is near."""
    for at in range(j, min(j + _WINDOW, len(target) - _ANCHOR) + 1, 8):
        found = base.find(target[at : at + _ANCHOR], i, i + _WINDOW)
        if found >= 0:
            while found > i and at > j and base[found - 1] == target[at - 1]:
                found, at = found - 1, at - 1
            return found, at
    return i, len(target)


def _run(a: bytes, i: int, b: bytes, j: int) -> int:
    """How many bytes are the same from here on: steps that grow while they agree, then shrink."""
    most = min(len(a) - i, len(b) - j)
    length, step = 0, 64
    while length + step <= most and _alike(a, i + length, b, j + length, step):
        length, step = length + step, step * 2
    while step := step // 2:
        if length + step <= most and _alike(a, i + length, b, j + length, step):
            length += step
    return length


def _alike(a: bytes, i: int, b: bytes, j: int, length: int) -> bool:
    return a[i : i + length] == b[j : j + length]


def _size(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _copy(out: bytearray, at: int, length: int) -> None:
    while length > 0:
        part = min(length, _COPY)
        code, said = 0x80, bytearray()
        for bit, byte in _bytes(at, part):
            if byte:
                code |= bit
                said.append(byte)
        out.append(code)
        out += said
        at, length = at + part, length - part


def _bytes(at: int, length: int) -> Iterator[tuple[int, int]]:
    for n in range(4):
        yield 1 << n, at >> 8 * n & 0xFF
    for n in range(3):
        yield 16 << n, length >> 8 * n & 0xFF


def _insert(out: bytearray, data: bytes) -> None:
    for at in range(0, len(data), 127):
        part = data[at : at + 127]
        out.append(len(part))
        out += part
