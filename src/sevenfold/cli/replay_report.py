"""Where the report of a replay goes: never onto a session, nor onto anything that is no page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sevenfold.cli.options import Shared
from sevenfold.cli.output import say
from sevenfold.errors import Mistake
from sevenfold.replay.policies import Policy
from sevenfold.replay.running import Replayed

PAGES: Final = (b"<!doctype html", b"<html")
"""How a file begins that may be written over."""

DEVICES: Final = Path("/dev")
"""Names there stand for something else, and nothing may take their place."""


def check_report(path: Path, sessions: Sequence[str]) -> None:
    """A replay may take long: whether there is a place for its report is known before."""
    real = path.expanduser()
    if real.is_dir():
        raise Mistake(f"{path}: that is a folder; name the file to write the report to")
    if not real.parent.is_dir():
        raise Mistake(f"{path}: there is no such folder to write the report to")
    among_devices = any(DEVICES in one.parents for one in (real.absolute(), real.resolve()))
    if not real.exists() and not among_devices:
        return
    if among_devices or not real.is_file():
        raise Mistake(f"{path}: that is no regular file; name a file to write the report to")
    if any(_same(real, Path(session)) for session in sessions):
        raise Mistake(f"{path}: that is one of the sessions; name another file for the report")
    if not _is_page(real):
        raise Mistake(
            f"{path}: there is a file that is no HTML page, and it is left as it is; "
            "name another one for the report"
        )


def _same(path: Path, session: Path) -> bool:
    try:
        return path.samefile(session)
    except OSError:
        return False


def _is_page(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(1_024).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    except OSError:
        return False
    return not head or head.startswith(PAGES)


def write_report(
    shared: Shared,
    path: Path,
    done: Sequence[Replayed],
    policies: Sequence[Policy],
    notes: Mapping[str, str],
) -> None:
    from sevenfold.clock import SystemClock
    from sevenfold.replay.report.page import page
    from sevenfold.storage.files import write_atomic

    write_atomic(path, page(done, policies, SystemClock().now(), notes).encode("utf-8"))
    say(shared, f"wrote {path}")
