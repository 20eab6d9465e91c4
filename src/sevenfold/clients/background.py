"""Extraction and dreams beside a client: each in a process of its own, and only if the user switched it on.

The client does not wait, and the process outlives it. What it may spend in a day is `dailyBackgroundLimit`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.clients.events import ClientEvent
from sevenfold.clients.notes import ClientNotes
from sevenfold.core.protocols import Clock
from sevenfold.memory.store import Memory, ignore_event
from sevenfold.session.project import Project
from sevenfold.settings.environment import Environment

_MOST: Final = 4 << 20  # Bytes of a transcript that are looked at to decide
_ROLES: Final = (b'"role":"user"', b'"role":"assistant"')


class ClientBackground:
    """What may begin when the client is at rest."""

    def __init__(self, project: Path, environment: Environment, clock: Clock) -> None:
        self._folder, self._environment, self._clock = project, environment, clock
        self._settings = Project.open(project, environment, {}, ignore_event).settings

    @property
    def is_on(self) -> bool:
        return self._settings.clients.extraction or self._settings.clients.dreams

    def begin(self, event: ClientEvent, memory: Memory, notes: ClientNotes) -> None:
        """Start what is due."""
        transcript = Path(event.transcript_path or "")
        if not transcript.is_file():
            return
        if self._settings.clients.extraction and self._has_new_words(event, transcript, notes):
            notes.note_learned(transcript.stat().st_size)
            self._start("memory", "learn", str(transcript))
        if (
            self._settings.clients.dreams
            and memory.exists()
            and self._is_dream_due(event, memory, transcript)
        ):
            self._start("dream", "run", "--now")

    def _has_new_words(self, event: ClientEvent, transcript: Path, notes: ClientNotes) -> bool:
        from sevenfold.layers.l5_durable_memory.extraction import is_lasting, is_worth_a_look

        with transcript.open("rb") as file:
            file.seek(notes.learned_bytes)
            lines = file.read(_MOST).split(b"\n")
        said = list(_read_typed(line for line in lines if _ROLES[0] in line))
        requests = sum(_ROLES[1] in line for line in lines)
        # Nothing writes down that these words wait, and some clients never say that a session ends.
        last = event.moment == "end" or any(map(is_lasting, said))
        return is_worth_a_look(said, requests, self._settings.extraction, free=False, last=last)

    def _is_dream_due(self, event: ClientEvent, memory: Memory, transcript: Path) -> bool:
        """By the gates of dreams, with the client's sessions counted in place of ours."""
        from sevenfold.layers.l6_dreaming.dreaming import DreamRunner

        runner = DreamRunner(
            memory,
            transcript.parent,
            self._clock,
            ignore_event,
            self._settings.dream,
            session=event.session_id,
        )
        return runner.gates.check() is None

    def _start(self, *words: str) -> None:
        around = self._environment
        places = ("--home", str(around.shared or around.home), "--project", str(self._folder), "--quiet")
        start_detached([sys.executable, "-m", "sevenfold", *words, *places], around)


def start_detached(command: Sequence[str], environment: Environment) -> None:
    """Start a process that outlives us. It gets no variable of the client, which holds a token."""
    kept = {
        name: text
        for name, text in environment.variables.items()
        if not name.startswith("CLAUDE") or name == "CLAUDE_CONFIG_DIR"
    }
    with subprocess.Popen(
        [
            "/bin/sh",
            "-c",
            '"$@" &',
            "sh",
            *command,
        ],  # the shell ends at once, and the process is nobody's child
        env=kept,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ):
        pass


def _read_typed(lines: Iterator[bytes]) -> Iterator[str]:
    """What the user typed, in the lines of a transcript of Claude Code or Codex."""
    for line in lines:
        try:
            record = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        found: Any = record.get("message") or record.get("payload") or {}
        content = found.get("content") if isinstance(found, dict) else None
        parts = content if isinstance(content, list) else [{"text": content}]
        text = "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text"))
        if text.strip() and not record.get("isMeta"):
            yield text
