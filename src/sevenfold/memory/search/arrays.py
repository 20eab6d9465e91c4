"""Named arrays in one file that says of itself whether it is whole.

A file is a magic line, a header (what the arrays are called, their shapes, and a few words beside them),
the arrays, and a checksum over all of it. It is written once, under another name until it is finished,
and never changed. It is not synced to the disk: a file that a power cut left half written is found out
by its checksum, and whatever is in it can be made again.

Small files are read, large ones mapped: what is mapped is shared between processes and costs no memory of
ours, but a disk that fails under a map ends the process, and small files need not run that risk.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from sevenfold.storage.files import BINARY, CLOEXEC, NOFOLLOW, PRIVATE_FILE, TEMPORARY

Array: TypeAlias = npt.NDArray[Any]

_MAGIC: Final = b"7fold search 1\n\0"
_ALIGN: Final = 64
_CHECK: Final = 4
_MAPPED: Final = 64 << 20
"""Bytes from which on a file is mapped."""
_LONGEST: Final = 1 << 30
"""A header is never longer; a damaged length must not ask for all the memory there is."""


class Damaged(Exception):
    """The file is not what was written."""


class _Header(msgspec.Struct, frozen=True, array_like=True):
    about: bytes
    arrays: list[tuple[str, str, list[int], int]]
    """Name, type, shape, and where it begins behind the header."""


def write_arrays(path: Path, about: bytes, arrays: Mapping[str, Array]) -> None:
    """All or nothing under this name, for this user alone. Raises `OSError`."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NOFOLLOW | CLOEXEC | BINARY
    try:
        with open(os.open(temporary, flags, PRIVATE_FILE), "wb") as file:  # noqa: PTH123
            check = 0
            for part in _parts(about, arrays):
                check = zlib.crc32(part, check)
                file.write(part)
            file.write(check.to_bytes(_CHECK, "little"))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_arrays(path: Path) -> tuple[bytes, dict[str, Array]]:
    """What was written; the arrays cannot be written to. Raises `Damaged`, or `OSError`."""
    fd = os.open(path, os.O_RDONLY | NOFOLLOW | CLOEXEC | BINARY)
    try:
        size = os.fstat(fd).st_size
        if size <= len(_MAGIC) + 8 + _CHECK:
            raise Damaged(f"{path} is too short")
        whole = memoryview(_bytes(fd, size))
    finally:
        os.close(fd)
    if bytes(whole[: len(_MAGIC)]) != _MAGIC:
        raise Damaged(f"{path} is of another kind")
    if zlib.crc32(whole[:-_CHECK]) != int.from_bytes(whole[-_CHECK:], "little"):
        raise Damaged(f"{path} does not have its checksum")
    try:
        return _unpacked(whole[:-_CHECK])
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise Damaged(f"{path} has a header that cannot be read") from error


def _bytes(fd: int, size: int) -> bytes | mmap.mmap:
    if size >= _MAPPED:
        return mmap.mmap(fd, size, access=mmap.ACCESS_READ)
    with open(fd, "rb", closefd=False) as file:
        return file.read()


def _parts(about: bytes, arrays: Mapping[str, Array]) -> Iterator[Any]:
    described: list[tuple[str, str, list[int], int]] = []
    at = 0
    solid = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    for name, array in solid.items():
        described.append((name, array.dtype.str, list(array.shape), at))
        at += array.nbytes + _gap(array.nbytes)
    header = msgspec.msgpack.encode(_Header(about, described))
    start = len(_MAGIC) + 8 + len(header)
    yield _MAGIC + len(header).to_bytes(8, "little") + header + bytes(_gap(start))
    for array in solid.values():
        if array.size:
            yield array.reshape(-1).view(np.uint8).data
        yield bytes(_gap(array.nbytes))


def _gap(length: int) -> int:
    return -length % _ALIGN


def _unpacked(whole: memoryview) -> tuple[bytes, dict[str, Array]]:
    begin = len(_MAGIC) + 8
    length = int.from_bytes(whole[len(_MAGIC) : begin], "little")
    if length > min(_LONGEST, len(whole)):
        raise ValueError("the header is longer than the file")
    header = msgspec.msgpack.decode(whole[begin : begin + length], type=_Header)
    start = begin + length + _gap(begin + length)
    arrays: dict[str, Array] = {}
    for name, kind, shape, at in header.arrays:
        count = int(np.prod(shape, dtype=np.int64))
        flat = np.frombuffer(whole, np.dtype(kind), count, start + at) if count else _empty(kind)
        arrays[name] = flat.reshape(shape)
    return header.about, arrays


def _empty(kind: str) -> Array:
    return np.empty(0, np.dtype(kind))
