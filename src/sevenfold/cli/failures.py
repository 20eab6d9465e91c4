"""How a command ends: every error becomes one sentence and an exit code, never a traceback."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from typing import Final

import typer

from sevenfold.core.errors import Refused, SevenfoldError

INTERRUPTED: Final = 130
SHORTEST_SECRET: Final = 16
"""Characters of a word that may be a secret."""


@dataclass(slots=True)
class CommandEnd:
    code: int = 0


@contextmanager
def report_errors(*, as_json: bool) -> Iterator[CommandEnd]:
    """What is raised inside is reported; `code` is how it ended."""
    end = CommandEnd()
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows fewer characters than we do
    try:
        yield end
    except (KeyboardInterrupt, typer.Abort):
        end.code = INTERRUPTED
    except (SevenfoldError, typer.TyperException, OSError, BaseExceptionGroup) as raised:
        error = unwrap_error(raised)
        if isinstance(error, BrokenPipeError):
            end.code = 1
        elif isinstance(error, KeyboardInterrupt) or _is_gone(error):
            end.code = INTERRUPTED
        elif isinstance(error, SevenfoldError | typer.TyperException | OSError):
            end.code = report_error(error, as_json=as_json)
        else:
            raise
    finally:
        _let_go()


def _open_what_is_closed() -> None:
    """Python has None for a stream that was closed before it began: then it leads nowhere.

    In this order each gets the number it would have had, which no other file can take then.
    """
    for name, flags in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, flags, encoding="utf-8", errors="replace"))


def _is_gone(error: BaseException) -> bool:
    """Whether the terminal was closed under us."""
    return isinstance(error, OSError) and error.errno == errno.EIO and not error.filename


def _let_go() -> None:
    """What cannot be written any more must not be tried again while Python shuts down."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def unwrap_error(error: BaseException) -> BaseException:
    """The error that a task group has wrapped, if it is the only one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def report_error(error: BaseException, *, as_json: bool) -> int:
    """Say what went wrong, on stderr and, where JSON was asked for, on stdout as well."""
    from sevenfold.cli.output import write_json

    with contextlib.suppress(OSError):
        print(f"sevenfold: {describe_error(error)}", file=sys.stderr)
    if as_json:
        found = getattr(error, "findings", ())
        more = {"finding": found[0] if found else None} if isinstance(error, Refused) else {}
        with contextlib.suppress(OSError):  # it may be this very stream that cannot be written to
            write_json({"error": find_error_kind(error), "reason": describe_error(error), **more})
    return find_exit_code(error)


def find_exit_code(error: BaseException) -> int:
    code = getattr(error, "exit_code", 1)
    return code if isinstance(code, int) else 1


def describe_error(error: BaseException) -> str:
    """One line for people, without anything that could move the cursor."""
    from sevenfold.cli.output import make_printable

    if isinstance(error, typer.TyperException):
        text = _without_secrets(error.format_message())
        hint = getattr(getattr(error, "ctx", None), "command_path", "")
        end = "" if text.endswith((".", "?")) else "."
        text = f"{text}{end} See '{hint} --help'." if hint else text
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        text = f"{where}{error.strerror or error}"
    else:
        text = str(error)
    return make_printable(" ".join(text.split()))


def _without_secrets(text: str) -> str:
    """What was typed is quoted when it was not understood; a key in it must not end up in a log."""
    if not any(len(word) >= SHORTEST_SECRET for word in text.split()):
        return text
    from sevenfold.memory.guard.secrets import find_secrets

    words = re.split(r"(\s+)", text)
    return "".join("[hidden]" if word.strip() and find_secrets(word) else word for word in words)


def find_error_kind(error: BaseException) -> str:
    """The kind of error as a word that programs can compare: `NoKey` is `no_key`."""
    if isinstance(error, typer.TyperException):
        return "usage"
    if isinstance(error, OSError):
        return "system"
    if isinstance(error, Refused) and hasattr(error, "findings"):
        return "refused" if getattr(error, "quarantined", None) is None else "quarantined"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
