"""The status line: a command of the user's settings, given the session as JSON, prints the footer."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec

from sevenfold import __version__
from sevenfold.cli.output import make_printable, to_one_line

if TYPE_CHECKING:
    from sevenfold.session.session import Session

PAUSE: Final = 0.3  # Seconds between two runs
PATIENCE: Final = 5.0  # Seconds that the command may take
MOST_LINES: Final = 3
LONGEST: Final = 400  # Characters of a line
_COLOUR: Final = re.compile(r"(\x1b\[[0-9;]*m)")


def describe_session(session: Session) -> dict[str, Any]:
    """The object that the command reads, with the names that Claude Code's has."""
    pressure, total = session.turn.pressure(), session.ledger.total
    used, cwd, tree = total.usage, str(session.tools.workspace.cwd), str(session.places.tree)
    last = session.ledger.lines[-1].usage if session.ledger.lines else None
    return {
        "hook_event_name": "Status",
        "session_id": session.id,
        "transcript_path": str(session.path),
        "cwd": cwd,
        "model": {"id": session.model.name, "display_name": session.model.name},
        "workspace": {"current_dir": cwd, "project_dir": tree},
        "version": __version__,
        "output_style": {"name": "default"},
        "permission_mode": session.tools.permissions.mode,
        "cost": {"total_cost_usd": total.cost},
        "context_window": {
            "total_input_tokens": used.prompt,
            "total_output_tokens": used.output,
            "context_window_size": pressure.window,
            "used_percentage": round(100 * pressure.share),
            "remaining_percentage": max(0, 100 - round(100 * pressure.share)),
            "current_usage": last
            and {
                "input_tokens": last.input,
                "output_tokens": last.output,
                "cache_creation_input_tokens": last.cache_write,
                "cache_read_input_tokens": last.cache_read,
            },
        },
        "exceeds_200k_tokens": pressure.tokens > 200_000,
    }


def clean_status_text(text: str, *, plain: bool) -> str:
    """The first lines of an output; of its escape codes only colours are left, or none."""
    lines = []
    for line in text.strip("\n").split("\n")[:MOST_LINES]:
        parts = _COLOUR.split(line[:LONGEST])
        kept = [
            ("" if plain else part) if _COLOUR.fullmatch(part) else make_printable(part) for part in parts
        ]
        lines.append("".join(kept))
    return "\n".join(lines)


class StatusCommand:
    """Runs the command of the setting `statusLine` and keeps what it printed last."""

    def __init__(self, session: Session, *, plain: bool) -> None:
        self._session, self._plain = session, plain
        self._setting = session.settings.status_line
        self._problem, self._told = "", False
        self._wanted = anyio.Event()
        self.text = ""

    def want(self) -> None:
        """The session has changed: the line should be printed anew."""
        self._wanted.set()

    async def keep_fresh(self) -> None:
        """Run the command whenever it is wanted, at most three times a second."""
        while self.is_set:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            await self.refresh()
            await anyio.sleep(PAUSE)

    @property
    def is_set(self) -> bool:
        return bool(self._setting.command.strip())

    def take_problem(self) -> str:
        """The reason why there is no line; only the first is told."""
        problem, self._problem = self._problem, ""
        self._told = self._told or bool(problem)
        return problem

    async def refresh(self) -> None:
        """Run the command; where that fails the line of before stays."""
        payload = msgspec.json.encode(describe_session(self._session))
        names = ("CLAUDE_PROJECT_DIR", "SEVENFOLD_PROJECT_DIR")
        project = dict.fromkeys(names, str(self._session.places.tree))
        try:
            with anyio.CancelScope(shield=True):  # else a process could be left that nobody ends
                process = await anyio.open_process(
                    ["/bin/sh", "-c", self._setting.command],
                    stderr=subprocess.DEVNULL,
                    cwd=self._session.tools.workspace.cwd,
                    env={**self._session.tools.workspace.environment, **project},
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            self._fail(f"could not be started: {error}")
            return
        said = bytearray()
        try:
            with anyio.move_on_after(PATIENCE) as limit:
                with contextlib.suppress(OSError, anyio.BrokenResourceError):
                    assert process.stdin is not None
                    await process.stdin.send(payload)
                    await process.stdin.aclose()
                assert process.stdout is not None
                async for part in process.stdout:
                    said += part[: 10_000 - len(said)]
                await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await process.aclose()
        if limit.cancelled_caught:
            self._fail(f"took longer than {PATIENCE:g} seconds")
        elif process.returncode:
            self._fail(f"ended with exit code {process.returncode}")
        else:
            shown = clean_status_text(said.decode("utf-8", "replace"), plain=self._plain)
            pad = " " * self._setting.padding
            self.text = "\n".join(f"{pad}{line}" for line in shown.split("\n")) if shown.strip() else ""

    def _fail(self, why: str) -> None:
        if not self.text and not self._told:
            self._problem = f"the statusLine command {to_one_line(self._setting.command, 60)} {why}"
