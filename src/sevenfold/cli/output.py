"""Where words go: results to stdout, messages for people to stderr, JSON alone."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from sevenfold.cli.options import Shared
from sevenfold.cli.wording import printable


def write_json(value: Any, *, indent: int = 0) -> None:
    """One JSON document, on a line of its own, whatever the encoding of the terminal."""
    try:
        data = msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:  # the name of a file need not be text
        data = msgspec.json.encode(_whole(msgspec.to_builtins(value, enc_hook=str)))
    if indent:
        data = msgspec.json.format(data, indent=indent)
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def _whole(value: Any) -> Any:
    """The same without halves of characters, which no JSON can hold."""
    match value:
        case str():
            return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        case dict():
            return {_whole(key): _whole(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_whole(inner) for inner in value]
        case _:
            return value


def result(shared: Shared, text: str, value: Any) -> None:
    """What a command was asked for: text for people, or the same as JSON."""
    if shared.json:
        write_json(value, indent=2 if sys.stdout.isatty() else 0)
    elif text:
        print(printable(text), flush=True)


def say(shared: Shared, text: str) -> None:
    """A message for people."""
    if not shared.quiet:
        print(f"sevenfold: {printable(text)}", file=sys.stderr, flush=True)
