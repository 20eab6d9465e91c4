"""JSON that somebody else wrote, cut off anywhere: what can be read of it, and what is wrong."""

from __future__ import annotations

import datetime
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.messages import Json
from sevenfold.storage.files import failure
from sevenfold.transcript import Problem

LARGEST_DOCUMENT: Final = 512 << 20
"""A file that is one JSON document is read whole, so there is a limit; lines have none together."""
_CHUNK: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"
_HALVES: Final = re.compile("[\ud800-\udfff]")
_BETWEEN: Final = re.compile(r"[\s,]*")
_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.S)
MOST_NESTED: Final = 200
"""Levels; what is nested deeper is left out where it cannot be taken apart."""
_MILLISECONDS: Final = 1e11
"""A number of seconds as large as this would be after the year 5000, so it counts milliseconds."""


def decoded(data: bytes, lost: list[str] | None = None) -> Any:
    """What a piece of JSON says, half characters mended; `ValueError` with the reason when it is none.

    With `lost`, single values that cannot be are nothing, and what they were is added to it.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError:
        if lost is None:
            raise ValueError("nested too deeply") from None
        lost.append(f"what is nested over {MOST_NESTED} deep")
        data = shallow(data)
    none = None if lost is None else (lambda name: lost.append(name))
    try:
        found = json.loads(data.decode("utf-8", "replace"), parse_constant=none)
        whole = json.dumps(found, ensure_ascii=False)
        return msgspec.json.decode(_HALVES.sub("\ufffd", whole))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(_first_line(error)) from None


def shallow(data: bytes | bytearray) -> bytes:
    """The same JSON with nothing in place of what is nested too deeply to be taken apart."""
    parts, kept, start, depth = list[bytes](), 0, 0, 0
    for token in _TOKENS.finditer(data):
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == MOST_NESTED + 1:
                    start = token.start()
            case b"}" | b"]":
                if depth == MOST_NESTED + 1:
                    parts += [bytes(data[kept:start]), b"null"]
                    kept = token.end()
                depth -= 1
    return b"".join((*parts, bytes(data[kept:])))


def object_of(line: bytes, lost: list[str] | None = None) -> Json:
    """The object on a line; `ValueError` when it is something else. `lost` as for `decoded`."""
    found = decoded(line, lost)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - it is the file that is wrong
    return found


def document(source: Path | bytes, problems: list[Problem]) -> bytearray:
    """A whole file, unpacked; what is damaged is left out and said. It is large: do not copy it."""
    held = bytearray()
    for part in _parts(source, problems):
        held += part
        if len(held) > LARGEST_DOCUMENT:
            raise ValueError(f"a JSON document of over {LARGEST_DOCUMENT:,} bytes")
    if held.startswith(_BOM):
        del held[: len(_BOM)]
    return held


def beginning(source: Path | bytes, limit: int = 1 << 16) -> bytes:
    """The first bytes of a file, unpacked, as far as they are whole."""
    held = bytearray()
    for part in _parts(source, [], 1 << 12):
        held += part
        if len(held) >= limit:
            break
    return bytes(held[:limit])


def _parts(source: Path | bytes, problems: list[Problem], size: int = _CHUNK) -> Iterator[bytes]:
    try:
        with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as plain:
            packed = plain.read(2) == _GZIP
            plain.seek(0)
            file = gzip.GzipFile(fileobj=plain, mode="rb") if packed else plain
            while part := file.read1(size):
                yield part
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        problems.append(Problem(1, f"the compressed file is damaged: {error}"))
    except OSError as error:
        raise failure(error, source if isinstance(source, Path) else "the data", "read") from error


class _Holding(msgspec.Struct):
    messages: list[msgspec.Raw]


def items_of(data: bytearray, start: int, problems: list[Problem]) -> Iterator[Any]:
    """The items of a list, or of the `messages` of an object; `start` is where the list begins.

    They come one by one, as far as they can be read.
    """
    try:
        if start:
            raws = msgspec.json.decode(data, type=_Holding).messages
        else:
            raws = msgspec.json.decode(data, type=list[msgspec.Raw])
    except RecursionError:
        problems.append(Problem(1, left_out(f"what is nested over {MOST_NESTED} deep")))
        yield from _salvaged(bytearray(shallow(data[start:])), problems)
        return
    except (msgspec.DecodeError, UnicodeDecodeError):
        yield from _salvaged(data[start:], problems)
        return
    for raw in raws:
        yield decoded(bytes(raw))


def left_out(field: str) -> str:
    return f"{field} is not what it should be: it is left out, the rest of the line is kept"


def _salvaged(data: bytearray, problems: list[Problem]) -> Iterator[Any]:
    """The items before the place where a list is torn or ends."""
    text = data.decode("utf-8", "replace")
    lost: list[str] = []
    scan = json.JSONDecoder(parse_constant=lost.append).raw_decode
    at = text.index("[") + 1
    while True:
        match = _BETWEEN.match(text, at)
        at = match.end() if match else at
        if text.startswith("]", at):
            return
        try:
            item, at = scan(text, at)
            item = decoded(json.dumps(item).encode("utf-8"))
        except (ValueError, RecursionError):
            line = text.count("\n", 0, at) + 1
            problems.append(Problem(line, "the list cannot be read from here on"))
            return
        if lost:
            line = text.count("\n", 0, at) + 1
            problems.append(Problem(line, left_out(lost[0])))
            lost.clear()
        yield item


def moment(value: object) -> float:
    """A time in seconds, of an ISO text or a number of seconds or milliseconds; 0 when there is none."""
    if isinstance(value, bool):
        return 0.0
    try:
        if isinstance(value, int | float):
            return value / 1000 if abs(value) >= _MILLISECONDS else float(value)
        if not isinstance(value, str):
            return 0.0
        at = datetime.datetime.fromisoformat(value)
        if at.tzinfo is None:
            at = at.replace(tzinfo=datetime.UTC)
        return at.timestamp()
    except (ValueError, OverflowError):
        return 0.0


def unreadable(times: int) -> str:
    number = "1 time" if times == 1 else f"{times:,} times"
    return f"{number} cannot be read: each counts as the one before it"


def text(value: object) -> str:
    """A string, or nothing when it is none."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """A number of tokens; whatever is no number, or a negative one, counts nothing."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _first_line(error: ValueError) -> str:
    return str(error).splitlines()[0] if str(error) else "not JSON"
