"""Answers the hooks of other people's agents: recall, guard, revisions.

    hooks = ClientHooks("claude", environment, lambda event: memory)
    hooks.answer(read_event(b'{"hook_event_name": "UserPromptSubmit", "prompt": "…"}'))

`sevenfold hook EVENT` answers one event and ends; the tool `hook` of `sevenfold mcp --plugin` answers all
events of a session from one process. The memory is the one that the client has already.

Nothing is put before what the client has sent: memories come once, behind the user's message. What the
client writes into the memory folder is guarded before and becomes a revision after. The client's own rules
for its memory stay as they are, and it keeps its index itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sevenfold.clients.events import (
    NAMES,
    ClientEvent,
    answer_context,
    answer_denial,
    answer_message,
    list_proposed_texts,
)
from sevenfold.clients.notes import ClientNotes, find_notes_file, load_notes, sweep_notes
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake, Refused
from sevenfold.core.events import Emit, Event, Notice
from sevenfold.core.protocols import Clock
from sevenfold.core.tokens import estimate_tokens
from sevenfold.memory.errors import Guarded
from sevenfold.memory.folder.folder import A_SECRET
from sevenfold.memory.history.revisions import FOUND, Author
from sevenfold.memory.recall_results import Recalled
from sevenfold.memory.store import Memory, MemoryOff, ignore_event
from sevenfold.settings.environment import Environment

if TYPE_CHECKING:
    from sevenfold.clients.background import ClientBackground
    from sevenfold.memory.guard.gate import Hear

LIMIT: Final = 5  # Memories that are put behind one message
TOKENS: Final = 1_500  # Tokens that they take together, at most
_LINES: Final = 200
_EACH: Final = 2_048  # Bytes of one memory
_SUMMARY: Final = "<summary>"  # In the answer of the agent by which Claude Code compacts a conversation
_COMMAND: Final = "/"


def open_client_memory(
    event: ClientEvent, environment: Environment, project: Path | None = None, emit: Emit = ignore_event
) -> Memory:
    """The memory of the client's project. Raises `MemoryOff` or `Mistake` if there is none."""
    home = environment.shared or environment.home
    folder = project or find_project_folder(event, environment)
    return Memory.open(folder, home=home, environ=environment.variables, emit=emit)


def find_project_folder(event: ClientEvent, environment: Environment) -> Path:
    """The folder of the client's project: as Claude Code names it, or where the event was."""
    named = environment.variables.get("CLAUDE_PROJECT_DIR") or event.cwd
    folder = Path(named) if named else Path()
    if not folder.is_dir():
        raise Mistake(f"the project {folder} is not there")
    return folder


OpenMemory = Callable[[ClientEvent], Memory]


class ClientHooks:
    """The answers for one client. The memory is opened at the first event that needs it."""

    def __init__(
        self, client: str, environment: Environment, open_memory: OpenMemory, clock: Clock | None = None
    ) -> None:
        self._name, self._environment, self._open = NAMES[client], environment, open_memory
        self._clock = clock or SystemClock()
        self._memory: Memory | None = None
        self._notes: ClientNotes | None = None
        self._background: ClientBackground | None = None
        self._warnings: list[str] = []

    def hear(self, event: Event) -> None:
        """Keep a warning about the memory or its project, for the start of a session."""
        if isinstance(event, Notice):
            self._warnings.append(event.text)

    def answer(self, event: ClientEvent) -> dict[str, Any]:
        """The answer to an event, as an object; an empty one means: go on. Raises `Mistake`."""
        moment = event.moment
        if self._environment.plugin_off:
            return {}
        try:
            match moment:
                case "start":
                    return self._start(event)
                case "prompt":
                    return answer_context(event, self._recall(event))
                case "before_tool":
                    return self._guard(event)
                case _:
                    return self._take_in(event)
        except MemoryOff as error:
            return answer_message(str(error)) if moment == "start" else {}

    # --- the moments --------------------------------------------------------------------------------------

    def _start(self, event: ClientEvent) -> dict[str, Any]:
        """Say what needs the user's attention; after a compaction give back what the summary lost."""
        memory = self._open_memory(event)
        sweep_notes(memory.local, self._clock.now())
        if memory.has_news():
            memory.take_in(tidy=False)
        worries = "; ".join(_list_worries(memory))
        lines = [*self._warnings, f"{worries}{self._home_hint}" if worries else ""]
        said = answer_message("; ".join(filter(None, lines)))
        return said | answer_context(event, self._give_back(event) if event.source == "compact" else "")

    def _recall(self, event: ClientEvent) -> str:
        from sevenfold.layers.l5_durable_memory.recall import extract_asked_text, has_substance
        from sevenfold.memory.agent_writes import is_memory_ignored

        text = event.prompt.strip()
        if _is_command(text) or not has_substance(text):
            return ""
        memory, notes = self._open_memory(event), self._load_notes(event)
        ignored = is_memory_ignored([text, notes.ignored_by])
        notes.note_ignored((text if is_memory_ignored([text]) else notes.ignored_by) if ignored else "")
        text = extract_asked_text(text)
        if ignored or not has_substance(text) or not memory.exists():
            return ""
        skip = notes.list_shown(memory.modified())
        index = _flatten(memory.index_text())
        found = [one for one in memory.recall(text, LIMIT, skip) if not _is_in(index, one)]
        shown, said = self._format(found, notes.recalls + 1)
        notes.note_shown(shown)
        return said

    def _guard(self, event: ClientEvent) -> dict[str, Any]:
        """Deny a write into the memory folder that the guard would not let pass, or the wall, as far as
        the client's transcript says what the user said."""
        memory = self._open_memory(event)
        for one in list_proposed_texts(event):
            if (path := _find_inside(one.path, memory.path_of())) is None:
                continue
            grounds = self._read_grounds(event)
            author = FOUND if grounds is None else Author("agent", event.session_id, self._name)
            try:
                text = one.text.encode("utf-8", "replace")
                memory.before_write(path, text, author=author, grounds=grounds, whole=grounds is not None)
            except Guarded as error:
                if error.quarantined is None:
                    return answer_denial(event, str(error))
                waits = f"{path.name} waits for your word: '{error.release_command}'{self._home_hint}"
                return answer_denial(event, f"{error}{self._home_hint}") | answer_message(waits)
            except Refused as error:  # no memory by our rules; by the client's it may be one
                from sevenfold.memory.guard.secrets import find_secrets

                if find_secrets(one.text):
                    return answer_denial(event, f"{one.path} {A_SECRET.removeprefix('it ')}; {error}")
        return {}

    def _read_grounds(self, event: ClientEvent) -> Hear | None:
        if not event.transcript_path:
            return None
        from sevenfold.clients.recorded_words import read_grounds

        return read_grounds(Path(event.transcript_path))

    @property
    def _home_hint(self) -> str:
        """The option that our commands need to work on this memory."""
        shared = self._environment.shared
        return f" (with --home {shared})" if shared is not None else ""

    def _take_in(self, event: ClientEvent) -> dict[str, Any]:
        """Make a revision of what was written in the memory folder; keep the summary of a compaction."""
        memory, said = self._open_memory(event), event.last_assistant_message or ""
        if event.hook_event_name == "SubagentStop" and _SUMMARY in said:
            self._load_notes(event).note_summary(said)
        author = Author("agent", event.session_id, self._name)
        for one in list_proposed_texts(event):
            if (path := _find_inside(one.path, memory.path_of())) is not None:
                memory.take_in(author, memory.file_of(path), tidy=False)
        if event.moment != "after_tool" and memory.has_news():
            memory.take_in(tidy=False)
        if event.moment in ("rest", "end") and event.transcript_path:
            self._begin_background(event)
        return {}

    def _begin_background(self, event: ClientEvent) -> None:
        if self._background is None:
            from sevenfold.clients.background import ClientBackground

            folder = find_project_folder(event, self._environment)
            self._background = ClientBackground(folder, self._environment, self._clock)
        if self._background.is_on:
            self._background.begin(event, self._open_memory(event), self._load_notes(event))

    def _give_back(self, event: ClientEvent) -> str:
        """The memories of this session that are not in the summary; all of them if it is not known."""
        memory, notes = self._open_memory(event), self._load_notes(event)
        summary = _flatten(notes.summary)
        known = {topic.file: topic for topic in memory.topics() if topic.file in notes.memories}
        times = memory.modified()
        lost = [
            Recalled(
                one.name, file, memory.path_of(file), one.type, one.description, times[file], 0.0, one.body
            )
            for file in reversed(notes.memories)
            if (one := known.get(file)) is not None and file in times
        ]
        lost = [one for one in lost if not _is_in(summary, one)]
        return self._format(lost[:LIMIT], notes.recalls + 1)[1]

    # --- inside -------------------------------------------------------------------------------------------

    def _open_memory(self, event: ClientEvent) -> Memory:
        if self._memory is None:
            self._memory = self._open(event)
        return self._memory

    def _load_notes(self, event: ClientEvent) -> ClientNotes:
        memory = self._open_memory(event)
        if self._notes is None or self._notes.session != event.session_id:
            self._notes = load_notes(find_notes_file(memory.local, event.session_id), event.session_id)
        return self._notes

    def _format(self, found: Sequence[Recalled], number: int) -> tuple[list[Recalled], str]:
        """As many of these as fit, and the text that shows them."""
        from sevenfold.layers.l5_durable_memory.selection import Limits, make_attachment

        chosen = list(found)
        while chosen:
            limits = Limits(LIMIT, _LINES, _EACH, 4 * TOKENS)
            made = make_attachment(chosen, number, self._clock.now(), limits)
            if made is not None and estimate_tokens(made.message.text) <= TOKENS:
                return list(made.shown), made.message.text
            chosen.pop()
        return [], ""


def _is_command(text: str) -> bool:
    """True for a command of the client, such as `/sevenfold:undo`; a path is none."""
    word = text.split(maxsplit=1)[0] if text else ""
    return word.startswith(_COMMAND) and _COMMAND not in word[1:]


def _flatten(text: str) -> str:
    return " ".join(text.split()).casefold()


def _is_in(text: str, memory: Recalled) -> bool:
    """True if a text holds all that this memory says."""
    body = _flatten(memory.text)
    return bool(body) and body in text


def _find_inside(path: Path, folder: Path) -> Path | None:
    """The path below the folder, whatever links lead there; None for one outside."""
    real = Path(os.path.realpath(path))
    root = Path(os.path.realpath(folder))
    return folder / real.relative_to(root) if real != root and real.is_relative_to(root) else None


def _list_worries(memory: Memory) -> Iterator[str]:
    """What the user should look at, each in a few words with the command for it."""
    from sevenfold.memory.dreams.stage import list_waiting_stages

    if secrets := memory.list_secrets():
        more = f" and {len(secrets) - 1} more" if len(secrets) > 1 else ""
        yield f"{memory.path_of(secrets[0])}{more} holds a secret; remove it ('sevenfold memory check')"
    if memory.has_quarantine and (held := len(memory.quarantine.list())):
        yield f"{held} in quarantine ('sevenfold memory quarantine')"
    if list_waiting_stages(memory.local):
        yield "a dream waits for your look ('sevenfold dream --review')"
