"""The end of a command: errors become one sentence and an exit code, signals stop what is running."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from typing import Final

import typer

from sevenfold.core.errors import Refused, SevenfoldError

INTERRUPTED: Final = 130
SHORTEST_SECRET: Final = 16  # A shorter word (characters) cannot be a secret
_ENDING: Final = ("SIGINT", "SIGTERM", "SIGHUP")


@dataclass(slots=True)
class CommandEnd:
    code: int = 0


@contextmanager
def report_errors(*, as_json: bool) -> Iterator[CommandEnd]:
    """Report what is raised inside, and set the exit code."""
    end = CommandEnd()
    _reopen_closed_streams()
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
        elif isinstance(error, KeyboardInterrupt) or _is_closed_terminal(error):
            end.code = INTERRUPTED
        elif isinstance(error, SevenfoldError | typer.TyperException | OSError):
            end.code = report_error(error, as_json=as_json)
        else:
            raise
    finally:
        _flush_streams()


def _reopen_closed_streams() -> None:
    """Open /dev/null for streams that were closed, in this order: each gets its usual file number."""
    for name, flags in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, flags, encoding="utf-8", errors="replace"))


def _is_closed_terminal(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EIO and not error.filename


def _flush_streams() -> None:
    """Flush, or give up: Python must not try again to write while it shuts down."""
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
    """Print the error on stderr, and with `as_json` on stdout as well; returns the exit code."""
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
    """The error in one printable line."""
    from sevenfold.cli.output import make_printable

    if isinstance(error, typer.TyperException):
        text = _hide_secrets(error.format_message())
        hint = getattr(getattr(error, "ctx", None), "command_path", "")
        end = "" if text.endswith((".", "?")) else "."
        text = f"{text}{end} See '{hint} --help'." if hint else text
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        text = f"{where}{error.strerror or error}"
    else:
        text = str(error)
    return make_printable(" ".join(text.split()))


def _hide_secrets(text: str) -> str:
    """A usage error quotes what was typed; a key in it must not end up in a log."""
    if not any(len(word) >= SHORTEST_SECRET for word in text.split()):
        return text
    from sevenfold.memory.guard.secrets import find_secrets

    words = re.split(r"(\s+)", text)
    return "".join("[hidden]" if word.strip() and find_secrets(word) else word for word in words)


def find_error_kind(error: BaseException) -> str:
    """The kind of an error as a fixed word that programs can compare: `no_key`."""
    if isinstance(error, typer.TyperException):
        return "usage"
    if isinstance(error, OSError):
        return "system"
    if isinstance(error, Refused) and hasattr(error, "findings"):
        return "refused" if getattr(error, "quarantined", None) is None else "quarantined"
    return error.kind if isinstance(error, SevenfoldError) else "error"


@asynccontextmanager
async def watch_signals(on_signal: Callable[[int], object]) -> AsyncIterator[None]:
    """Call `on_signal` for every signal that asks us to end, while the block runs."""
    if sys.platform == "win32":  # no such signals: Ctrl-C is a KeyboardInterrupt there
        yield
        return
    import anyio

    from sevenfold.layers.shared.background import open_task_group

    async def watch(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(*(getattr(signal, name) for name in _ENDING)) as signals:
            task_status.started()
            async for number in signals:
                on_signal(number)

    async with open_task_group() as tasks:
        await tasks.start(watch)
        yield


def exit_now() -> None:
    """Leave at once, when a second request to end came. All is on disk already."""
    sys.stderr.flush()
    os._exit(INTERRUPTED)
