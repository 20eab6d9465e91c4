"""What the head of a GGUF file says, read without loading the model behind it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from sevenfold.errors import UnknownModel

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
LONGEST_TEXT: Final = 1 << 20
"""A name or a text longer than this is none: the file is damaged."""

_NUMBERS: Final = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""How a value of each type is packed."""
_TEXT: Final = 8
_LIST: Final = 9


def context_length(path: Path) -> int:
    """How many tokens the model in this file was made for. What it cannot be is said in one sentence."""
    if path.exists() and not path.is_file():  # a pipe would never end
        raise UnknownModel(f"{path} is not a file: name the .gguf file itself")
    try:
        with path.open("rb") as file:
            found = _context_length(file, path)
    except FileNotFoundError:
        raise UnknownModel(f"there is no file {path}: check the path after 'local:'") from None
    except OSError as error:
        raise UnknownModel(f"{path} cannot be read: {error.strerror or error}") from None
    except (struct.error, ValueError):
        raise UnknownModel(
            f"{path} ends or breaks within its head: download it once more"
        ) from None
    if found is None:
        raise UnknownModel(
            f"{path} holds no language model (it names no context length): name one that does"
        )
    return found


def _context_length(file: IO[bytes], path: Path) -> int | None:
    if file.read(4) != MAGIC:
        raise UnknownModel(f"{path} is not a GGUF file: name one, such as local:model.gguf")
    (version,) = _take(file, "I")
    if version not in VERSIONS:
        raise UnknownModel(f"{path} is a GGUF file of version {version}: only 2 and 3 are known")
    _, entries = _take(file, "QQ")
    for name, value in _entries(file, entries):
        # The key begins with the architecture: llama.context_length, qwen3.context_length, …
        if name.endswith(".context_length") and isinstance(value, int) and value > 0:
            return value
    return None


def _entries(file: IO[bytes], count: int) -> Iterator[tuple[str, object]]:
    for _ in range(count):
        name = _text(file)
        (kind,) = _take(file, "I")
        yield name, _value(file, kind)


def _value(file: IO[bytes], kind: int) -> object:
    if kind == _TEXT:
        return _text(file)
    if kind != _LIST:
        (number,) = _take(file, _number(kind))
        return number
    inner, length = _take(file, "IQ")
    if inner == _TEXT:
        for _ in range(length):
            _text(file)
    else:
        file.seek(struct.calcsize("<" + _number(inner)) * length, os.SEEK_CUR)
    return None  # lists are vocabularies: nobody asks for them here


def _number(kind: int) -> str:
    if kind not in _NUMBERS:
        raise ValueError(f"no value has the type {kind}")
    return _NUMBERS[kind]


def _text(file: IO[bytes]) -> str:
    (length,) = _take(file, "Q")
    if length > LONGEST_TEXT:
        raise ValueError(f"a text of {length} bytes")
    data = file.read(length)
    if len(data) != length:
        raise ValueError("the file ends within a text")
    return data.decode("utf-8", "replace")


def _take(file: IO[bytes], form: str) -> tuple[int, ...]:
    form = "<" + form
    return struct.unpack(form, file.read(struct.calcsize(form)))
