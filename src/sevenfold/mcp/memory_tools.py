"""The tools of the server at work on the memory of a project.

What a client saves is an agent's word: the wall of provenance holds rules and facts about the user back
until the user releases them. What it reads is marked as data.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from sevenfold.clients.events import find_client_environment
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake, Refused, SevenfoldError, StorageFailure
from sevenfold.core.events import Event, Notice
from sevenfold.mcp.client_calls import ClientCall
from sevenfold.mcp.protocol import Json
from sevenfold.mcp.server import ServerOptions
from sevenfold.mcp.tools import (
    DreamArguments,
    ForgetArguments,
    HistoryArguments,
    ReadArguments,
    RecallArguments,
    RememberArguments,
    SearchArguments,
    ToolArguments,
    UndoArguments,
)
from sevenfold.memory.folder.folder import SHARED
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.recall_results import Recalled, count_days_ago, format_age, format_caveat
from sevenfold.memory.store import Memory
from sevenfold.settings import load_settings
from sevenfold.settings.environment import Environment
from sevenfold.settings.place import TrustedFolders
from sevenfold.storage.places import ProjectPaths, find_places

if TYPE_CHECKING:
    from sevenfold.clients.hook import ClientHooks

LINES: Final = 200  # Most lines of a recalled memory, and most bytes, that one answer has
BYTES: Final = 6_000
FOUND: Final = 20  # Most memories and most lines of sessions that a search gives
LARGEST_LOG: Final = 1 << 20
LOG: Final = "mcp.log"


class ToolAnswer(msgspec.Struct, frozen=True):
    """The answer of a tool: a text for the model, and the same as a value."""

    text: str
    value: Json | None = None
    notices: tuple[str, ...] = ()  # About the memory itself; each is told once


class ServedMemory:
    """The memory of the server's project, opened at the first call. One thread uses it at a time."""

    def __init__(self, options: ServerOptions) -> None:
        self.options, self.clock = options, SystemClock()
        self.lock = threading.RLock()
        self._memory: Memory | None = None
        self._project: Path | None = None
        self._notices: list[str] = []
        self._hooks: ClientHooks | None = None

    @property
    def environment(self) -> Environment:
        """The environment of the server, with --home. For the plugin the memory is that of Claude Code."""
        home, client = self.options.home, "claude" if self.options.plugin else ""
        return find_client_environment(Environment.read(), client, Path(home) if home else None)

    @property
    def places(self) -> ProjectPaths:
        """The places of the project, by its settings."""
        environment, start = self.environment, self._find_project(None)
        places = find_places(start, environment.home)
        trusted = TrustedFolders(environment.home).is_trusted(places.root, places.tree)
        scope = load_settings(places.tree, environment, {}, trusted).settings.scope
        return places if scope == places.scope else find_places(start, environment.home, scope)

    def open(self, call: ClientCall | None = None) -> Memory:
        """The memory. Raises `MemoryOff` if it is off, `Mistake` if there is no such project."""
        with self.lock:
            if self._memory is None:
                start, around = self._find_project(call), self.environment
                home = around.shared or around.home
                self._memory = Memory.open(start, home=home, environ=around.variables, emit=self._hear)
                self._memory.author = self.name_author("")
            return self._memory

    def warm_up(self) -> None:
        """Open the memory and its search index, unless the client has to be asked for its roots first."""
        with self.lock:
            try:
                if self._find_known_project() is not None:
                    self.open().search("warm up", 1)
            except Exception as error:
                self._memory = None  # the first call says what is wrong
                if not isinstance(error, SevenfoldError):
                    raise

    def close(self) -> None:
        with self.lock:
            if self._memory is not None:
                self._memory.close()

    def name_author(self, client: str) -> Author:
        """The author of a change over MCP: an agent, never the user."""
        session = self.environment.variables.get("CLAUDE_CODE_SESSION_ID", "")
        return Author("agent", session, f"over MCP, by {client}" if client else "over MCP")

    def answer_hook(self, event: Json) -> str:
        """The answer to an event of the client's hooks. A failure is a line for the user.

        The model can call the tool as well, so a transcript counts only if the client itself writes it.
        """
        from sevenfold.clients.events import answer_message, is_own_transcript, read_event
        from sevenfold.clients.hook import ClientHooks

        with self.lock:
            try:
                if self._hooks is None:
                    self._hooks = ClientHooks("claude", self.environment, lambda event: self.open())
                found = read_event(msgspec.json.encode(event), str(event.get("event", "")))
                if not is_own_transcript(found.transcript_path or "", self.environment):
                    found = msgspec.structs.replace(found, transcript_path=None)
                answer = self._hooks.answer(found)
            except SevenfoldError as error:
                answer = answer_message(str(error))
        return msgspec.json.encode(answer).decode()

    def run(self, given: ToolArguments, call: ClientCall) -> ToolAnswer:
        """Run the tool of these arguments."""
        if isinstance(given, DreamArguments):
            from sevenfold.mcp.dream_jobs import run_dream_job

            return self._with_notices(run_dream_job(self, given, call))
        if isinstance(given, ForgetArguments) and given.purge:
            self._confirm_purge(given.name, call)
        with self.lock:
            memory = self.open(call)
            match given:
                case RecallArguments():
                    answer = self._recall(memory, given)
                case RememberArguments():
                    answer = self._remember(memory, given, call.client)
                case ForgetArguments():
                    answer = self._forget(memory, given, call.client)
                case ReadArguments():
                    answer = self.read(memory, given)
                case SearchArguments():
                    answer = self._search(memory, given)
                case HistoryArguments():
                    answer = self._list_history(memory, given)
                case UndoArguments():
                    answer = self._undo(memory, given, call.client)
                case _:
                    raise Mistake(f"there is no tool for {type(given).__name__}")
        return self._with_notices(answer)

    # --- reading --------------------------------------------------------------------------------------

    def _recall(self, memory: Memory, given: RecallArguments) -> ToolAnswer:
        if not given.query.strip():
            raise Mistake("there is nothing to recall: ask something")
        skip = frozenset[str]()
        if given.scope != "all":
            team = given.scope == "team"
            skip = frozenset(file for file in memory.listing().topics if SHARED.holds(file) != team)
        found = memory.recall(given.query, given.limit, skip, wait=0.0)
        now = self.clock.now()
        rows = [
            {
                "name": one.name,
                "type": one.type,
                "description": one.description,
                "age_days": count_days_ago(one.modified, now),
                "text": format_recalled(one, now),
            }
            for one in found
        ]
        texts = [str(row["text"]) for row in rows] or ["nothing that is remembered answers that"]
        return ToolAnswer("\n\n".join(texts), {"memories": rows})

    def read(self, memory: Memory, given: ReadArguments) -> ToolAnswer:
        """One memory in full, or the index."""
        if bool(given.name) == given.index:
            raise Mistake("read takes the name of a memory, or index: true")
        if given.index:
            parts = [memory.loaded_index(), memory.loaded_index(team=True) if memory.has_team else ""]
            text = "\n\n".join(filter(None, parts)) or "nothing is remembered yet"
            return ToolAnswer(text, {"index": text})
        topic, now = memory.get(given.name), self.clock.now()
        modified = memory.modified().get(topic.file, now)
        caveat = format_caveat(modified, now)
        value: Json = {
            "name": topic.name,
            "type": topic.type,
            "description": topic.description,
            "text": topic.data.decode("utf-8", "replace"),
            "origin": msgspec.to_builtins(topic.origin),
            "links": list(topic.links),
            "age_days": count_days_ago(modified, now),
            "caveat": caveat,
            "problems": list(topic.problems),
        }
        head = f"{topic.name} · {topic.type or 'untyped'} · changed {format_age(modified, now)}"
        return ToolAnswer("\n\n".join(filter(None, [head, caveat, value["text"]])), value)

    def _search(self, memory: Memory, given: SearchArguments) -> ToolAnswer:
        from sevenfold.memory.search.word_search import search_memories
        from sevenfold.storage.transcript_search import grep_transcripts, parse_search_words

        wanted = parse_search_words(given.words)
        if wanted is None:
            raise Mistake("there is nothing to search for: give a word or a part of one")
        rows = search_memories(memory, given.words, wanted, FOUND)
        memories = [
            {"name": one.name, "type": one.type, "description": one.description, "line": one.line}
            for one in rows
        ]
        lines = [f"{one.name}: {one.line or one.description}" for one in rows]
        value: Json = {"memories": memories}
        if given.sessions:
            hits = list(grep_transcripts(self.places, wanted, FOUND))
            value["sessions"] = [
                {"session": hit.session, "at": hit.at, "by": hit.by, "text": hit.text} for hit in hits
            ]
            lines += [
                f"session {hit.session}, {format_age(hit.at, self.clock.now())}: {hit.text}" for hit in hits
            ]
        return ToolAnswer("\n".join(lines) or f"{given.words!r} was not found", value)

    def _list_history(self, memory: Memory, given: HistoryArguments) -> ToolAnswer:
        if not self.options.read_only:
            memory.take_in()
        name = given.name or None
        if given.diff:
            text = memory.diff(name)
            return ToolAnswer(text.rstrip("\n") or "nothing has changed", {"diff": text})
        revisions = memory.history(name, given.limit)
        rows = [
            {
                "revision": one.id,
                "at": one.at,
                "author": one.author.kind,
                "summary": one.summary,
                "files": [change.file for change in one.files],
            }
            for one in revisions
        ]
        now = self.clock.now()
        lines = [
            f"{one.id}  {format_age(one.at, now)}  {one.author.kind}  {one.summary}" for one in revisions
        ]
        return ToolAnswer("\n".join(lines) or "the history is empty", {"revisions": rows})

    # --- changing -------------------------------------------------------------------------------------

    def _remember(self, memory: Memory, given: RememberArguments, client: str) -> ToolAnswer:
        if not given.description.strip():
            raise Mistake("a memory needs a description: recall judges by it")
        saved = memory.add(
            type=given.type,
            name=given.name,
            description=given.description.strip(),
            body=given.body,
            team=given.team,
            author=self.name_author(client),
            source=f"the agent {client}" if client else "an agent",
        )
        value: Json = {"name": saved.name, "action": saved.action, "revision": saved.revision}
        if saved.action == "merged":
            value["merged_with"] = saved.name
            known = "" if saved.revision else ", which says so already"
            return ToolAnswer(f"merged with {saved.name}{known}", value)
        return ToolAnswer(f"{saved.action} {saved.name}", value)

    def _confirm_purge(self, name: str, call: ClientCall) -> None:
        """Ask the user. Nothing is locked meanwhile: others may go on."""
        with self.lock:
            revisions = len(self.open(call).history(name, limit=1_000))  # raises if there is no such memory
        about = f"with its {revisions:,} revisions" if revisions != 1 else "with its one revision"
        answer = call.confirm(f"Purge the memory {name} for good, {about}? It cannot be undone.")
        if answer is None:
            raise Refused(
                f"{name} was kept: purging cannot be undone, and nobody can be asked here; "
                f"the user can run: sevenfold memory purge {name}"
            )
        if not answer:
            raise Refused(f"{name} was kept: the user said no")

    def _forget(self, memory: Memory, given: ForgetArguments, client: str) -> ToolAnswer:
        if given.purge:
            saved = memory.purge(given.name)
            text = f"purged {saved.name}: it is gone from files, index, history and search"
            return ToolAnswer(text, {"name": saved.name, "action": "purged"})
        saved = memory.remove(given.name, author=self.name_author(client))
        value = {"name": saved.name, "action": saved.action, "undo": f'undo {{"name": "{saved.name}"}}'}
        return ToolAnswer(f"removed {saved.name}; undo with its name brings it back", value)

    def _undo(self, memory: Memory, given: UndoArguments, client: str) -> ToolAnswer:
        saved = memory.undo(given.name or None, given.to or None, author=self.name_author(client))
        done = memory.history(limit=1)[0]
        changes = [{"name": one.name, "action": one.action} for one in saved]
        lines = [done.summary, *(f"{one.name}: {one.action}" for one in saved)]
        return ToolAnswer("\n".join(lines), {"revision": done.id, "changes": changes})

    # --- the place ------------------------------------------------------------------------------------

    def _find_known_project(self) -> Path | None:
        if self._project is None:
            told = self.options.project or self.environment.variables.get("CLAUDE_PROJECT_DIR", "")
            self._project = Path(told).expanduser() if told else None
        return self._project

    def _find_project(self, call: ClientCall | None) -> Path:
        """--project, the client's variable, its first root, or where we are."""
        known = self._find_known_project()
        if known is None and call is not None:
            roots = _list_roots(call)
            self._project = known = roots[0] if roots else Path()
        return known or Path()

    def _hear(self, event: Event) -> None:
        """Print what the user should know; what is said while the memory is opened is answered, too."""
        if isinstance(event, Notice):
            print(f"sevenfold: {event.text}", file=sys.stderr, flush=True)
            if self._memory is None:
                self._notices.append(event.text)

    def _with_notices(self, answer: ToolAnswer) -> ToolAnswer:
        with self.lock:
            notices, self._notices = tuple(dict.fromkeys(self._notices)), []
        return msgspec.structs.replace(answer, notices=notices) if notices else answer


def format_recalled(memory: Recalled, now: float) -> str:
    """A memory between tags that mark it as data, as it stands in a conversation of ours."""
    from sevenfold.layers.l5_durable_memory.selection import Limits, format_memory

    return format_memory(memory, now, Limits(1, LINES, BYTES, BYTES))


def _list_roots(call: ClientCall) -> Sequence[Path]:
    """The client's roots that are folders on this machine."""
    if "roots" not in call.capabilities:
        return ()
    given = (call.request_input("roots", "roots/list", {}) or {}).get("roots")
    uris = [root.get("uri") for root in given if isinstance(root, dict)] if isinstance(given, list) else []
    parts = [urlsplit(uri) for uri in uris if isinstance(uri, str)]
    paths = [Path(unquote(one.path)) for one in parts if one.scheme == "file"]
    return [path for path in paths if path.is_dir()]


def record_error(options: ServerOptions, error: Exception) -> str:
    """Append an error with its trace to the log; returns the path, or nothing where that fails."""
    import traceback

    try:
        environment = Environment.read()
        home = environment.based(Path(options.home)).home if options.home else environment.home
        path = home / LOG
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = not path.exists() or path.stat().st_size > LARGEST_LOG
        with path.open("w" if fresh else "a", encoding="utf-8", errors="replace") as file:
            path.chmod(0o600)
            file.write("".join(traceback.format_exception(error)))
    except (OSError, SevenfoldError, StorageFailure):
        return ""
    return str(path)
