"""The project of a session: its folders, its settings, and the tools it may use."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from sevenfold.cache.prices import read_user_limits
from sevenfold.core.errors import StorageFailure
from sevenfold.core.events import Emit, Ended, Event, Notice
from sevenfold.core.messages import ToolUse
from sevenfold.core.protocols import Clock, Tool, Work
from sevenfold.hooks.hooks import HookedTools, Hooks
from sevenfold.models.capabilities import ModelAccess
from sevenfold.settings import LoadedSettings, load_settings
from sevenfold.settings.checks import NEVER
from sevenfold.settings.environment import Environment
from sevenfold.settings.layers import Flags
from sevenfold.settings.place import MemoryPlace, TrustedFolders, find_memory_place
from sevenfold.settings.schema import Settings
from sevenfold.storage.cleanup import StorageLimits
from sevenfold.storage.files import read_bounded
from sevenfold.storage.places import ProjectPaths, find_places
from sevenfold.tools.permissions import PermissionRule, PermissionRules, Permissions
from sevenfold.tools.toolbox import AskPermission, PermissionAnswer, Toolbox, ToolGate, make_standard_tools
from sevenfold.tools.workspace import FileKeeper, Workspace, resolve_path

DEFAULT_MODEL: Final = "claude-sonnet-5-5"  # With a key and nothing else said
FREE: Final = ("Agent", "SendMessage")
"""Tools that need no permission: what an agent does has to pass the same rules."""
ELSEWHERE: Final = ("WebFetch", "WebSearch", *FREE)
"""Tools that rules may speak of although not every session has them."""
LARGEST_RESTORED: Final = 256 << 10  # Bytes of a file that is given back after a compaction
MOST_STORED: Final = 16 << 20  # Bytes of a command's output that are kept where layer 1 stores long results

Start: TypeAlias = Callable[[str, Work], object]  # Starts work beside the conversation
Listener: TypeAlias = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class Project:
    """A project as it is found on disk: places, settings, trust."""

    cwd: Path
    environment: Environment
    places: ProjectPaths
    trusted: bool
    loaded: LoadedSettings
    flags: Flags
    memory: MemoryPlace

    @classmethod
    def open(cls, cwd: Path, environment: Environment, overrides: Mapping[str, Any], emit: Emit) -> Project:
        """Find the project and read its settings. What the user should know is said here, once."""
        places, trust = find_places(cwd, environment.home), TrustedFolders(environment.home)
        trusted = trust.is_trusted(places.root, places.tree)
        loaded = load_settings(places.tree, environment, overrides, trusted)
        if loaded.settings.scope != places.scope:
            places = find_places(cwd, environment.home, loaded.settings.scope)
        memory = find_memory_place(places, environment, loaded.settings)
        changed = "" if trusted else trust.describe_changes(places.root, places.tree)
        for text in (places.note, trust.problem, changed, memory.note, *loaded.warnings):
            if text:
                emit(Notice(text, "warning"))
        if loaded.ignored:
            emit(Notice(_not_trusted(loaded.ignored), "warning"))
        flags = Flags.latch(loaded.settings.flags, emit=emit)
        return cls(cwd, environment, places, trusted, loaded, flags, memory)

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def default_model(self) -> str:
        known = self.environment.anthropic_key or self.environment.anthropic_token
        return self.settings.model or (DEFAULT_MODEL if known else "offline")

    @property
    def retention(self) -> tuple[StorageLimits, StorageLimits]:
        """The storage limits of this project, and of all others."""
        here, all = self.settings, self.loaded.everywhere
        return (
            StorageLimits(here.cleanup_days, here.tool_results.quota_megabytes),
            StorageLimits(all.cleanup_days, all.tool_results.quota_megabytes),
        )

    @property
    def access(self) -> ModelAccess:
        e, s = self.environment, self.settings
        return ModelAccess(
            anthropic_key=e.anthropic_key,
            anthropic_token=e.anthropic_token,
            anthropic_base_url=s.anthropic_base_url,
            openai_key=e.openai_key,
            openai_base_url=s.openai_base_url,
            betas=s.betas,
            window=s.window,
            limits_of=read_user_limits(s.prices),
            thinking_budget=s.thinking_budget,
            effort=s.effort,
            drop_thinking=s.drop_thinking,
            edits_cache=s.edits_cache,
            threads=self.flags.threads,
            variables=e.variables,
        )


def _not_trusted(ignored: Sequence[str]) -> str:
    """Trust is offered for what it would change: some things no file of a project may set."""
    never = [text for text in ignored if text.endswith(NEVER)]
    waiting = [text for text in ignored if not text.endswith(NEVER)]
    said = "this folder is not trusted, so its settings may only restrict; ignored: "
    if not waiting:
        return said + ", ".join(never)
    more = f". Ignored in any case: {', '.join(never)}" if never else ""
    how = "If you know where they come from: 'sevenfold trust'"
    return f"{said}{', '.join(waiting)}. {how}{more}"


def find_unknown_tools(rules: PermissionRules, tools: Sequence[Tool]) -> Iterator[str]:
    """Rules about tools that are not there: a typo in one that denies would deny nothing."""
    known = {*(tool.name for tool in tools), *ELSEWHERE}
    for text in (*rules.allow, *rules.ask, *rules.deny):
        name = PermissionRule.parse(text).tool
        if name not in known and not name.startswith("mcp__"):
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield f"the permission rule {text} means nothing: no tool is called {name}{hint}"


def _workspace(
    at: Project, home: Path, environment: Mapping[str, str], shells: Path, clock: Clock
) -> Workspace:
    tree = at.places.tree
    made = Workspace(
        tree, home, environment, shells, clock, trusted=at.trusted, sandbox=at.settings.sandbox
    )
    made.cwd = at.cwd
    return made


class Toolset:
    """The tools of one session, with the rules, the questions and the hooks around them."""

    def __init__(
        self,
        at: Project,
        flags: Flags,
        transcript: Path,
        own: Sequence[Tool],
        ask: AskPermission | None,
        clock: Clock,
        emit: Emit,
        stop: Callable[[str], object],
        keeper: FileKeeper | None = None,
    ) -> None:
        folder, settings = transcript.with_suffix(""), at.settings
        environment = at.environment.tool_environment(settings.env)
        home = Path(environment.get("HOME") or Path.home())
        shells = folder / "shells"
        self.workspace = _workspace(at, home, environment, shells, clock)
        if keeper is not None:
            self.workspace.keeper = keeper
        if flags.tool_results:
            self.workspace.most_output = MOST_STORED
        # A summary and the rules of memory send the model to transcripts: it may look there unasked.
        memory = (at.memory.folder,) if at.memory.off is None else ()
        places = (folder, transcript, at.places.project)
        self.permissions = Permissions(settings.permissions, readable=places, memory_dirs=memory, free=FREE)
        self._start: Start | None = None
        asking = partial(self._asking, ask) if ask else None
        self.gate = gate = ToolGate(self.permissions, self.workspace, asking)
        self.own = tuple(own)
        self.all: list[Tool] = [*make_standard_tools(self.workspace), *own]
        self.hooks = Hooks(
            settings.hooks,
            transcript.stem,
            transcript,
            at.places.tree,
            lambda: self.workspace.cwd,
            environment,
            emit,
            lambda: self.permissions.mode,
        )
        for text in find_unknown_tools(settings.permissions, self.all):
            emit(Notice(text, "warning"))
        toolbox = Toolbox(self.all, gate, emit)
        self.hooked = HookedTools(toolbox, self.hooks, gate.approve, gate.confirm, stop, gate.forget)

    def notify(self, overhear: Callable[[Listener], object], start: Start, talks: bool) -> None:
        """From now on run the hooks that tell the user when they are wanted.

        `talks`: a person sits in front of it, who is wanted when a turn ends.
        """
        if not self.hooks.has_hooks("Notification"):
            return
        self._start = start
        if talks:
            overhear(self._heard)

    def _heard(self, event: Event) -> None:
        if isinstance(event, Ended):
            self._tell("idle_prompt", "the turn has ended, and it waits for you")

    async def _asking(
        self, ask: AskPermission, use: ToolUse, why: str, rules: tuple[str, ...]
    ) -> PermissionAnswer:
        self._tell("permission_prompt", f"it wants to use {use.name} and asks you: {why}")
        return await ask(use, why, rules)

    def _tell(self, kind: str, text: str) -> None:
        if self._start is not None:
            self._start("notification", partial(self.hooks.notify, kind, text))

    def read_again(self, path: str) -> str | None:
        """A file as it is now, if it is text and may be read without asking.

        A relative path was meant from the folder of then: only a file that was seen there is the one.
        """
        located = self.workspace.locate(path)
        if not Path(path).expanduser().is_absolute() and resolve_path(located) not in self.workspace.seen:
            return None
        use = ToolUse("", "Read", {"file_path": path})
        if self.permissions.decide(use, self.workspace).behaviour != "allow":
            return None
        try:
            return read_bounded(located, LARGEST_RESTORED).decode("utf-8")
        except (StorageFailure, UnicodeDecodeError):
            return None
