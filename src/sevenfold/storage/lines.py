"""The lines of a file that somebody else wrote: plain or gzip, of any size, cut off anywhere."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sevenfold.storage.files import failure
from sevenfold.transcript import Problem

LONGEST_LINE: Final = 64 << 20
"""A longer line is skipped: no record is that large, and memory is bounded."""
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"


def lines_of(source: Path | bytes, problems: list[Problem]) -> Iterator[tuple[int, bytes]]:
    """Each line that is not blank, with its number; what cannot be read is added to `problems`."""
    number = 0
    try:
        with _opened(source) as file:
            while line := file.readline(LONGEST_LINE):
                number += 1
                if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                    _skip_line(file)
                    problems.append(Problem(number, f"longer than {LONGEST_LINE:,} bytes: skipped"))
                    continue
                if number == 1:
                    line = line.removeprefix(_BOM)
                if line := line.strip(b" \t\r\n\0"):
                    yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        problems.append(
            Problem(number + 1, f"the compressed file is damaged from here on: {error}")
        )
    except OSError as error:
        raise failure(error, source if isinstance(source, Path) else "the data", "read") from error


def head_of(source: Path | bytes, limit: int = 1 << 16) -> bytes:
    """The beginning of a file, unpacked."""
    try:
        with _opened(source) as file:
            return file.read(limit)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return b""
    except OSError as error:
        raise failure(error, source if isinstance(source, Path) else "the data", "read") from error


@contextlib.contextmanager
def _opened(source: Path | bytes) -> Iterator[io.BufferedIOBase]:
    raw = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb", buffering=0)
    with io.BufferedReader(raw) as plain:
        if plain.peek(2).startswith(_GZIP):
            with gzip.GzipFile(fileobj=plain, mode="rb") as unpacked:
                yield unpacked
        else:
            yield plain


def _skip_line(file: io.BufferedIOBase) -> None:
    while (part := file.readline(1 << 20)) and not part.endswith(b"\n"):
        pass
