"""The context of a command: home, project, trust and settings, before any session is open."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from sevenfold.cli.options import SharedOptions
from sevenfold.core.errors import SessionNotFound
from sevenfold.core.transcript import Transcript
from sevenfold.settings import LoadedSettings, load_settings
from sevenfold.settings.environment import Environment
from sevenfold.settings.place import TrustedFolders
from sevenfold.storage.jsonl import read_log
from sevenfold.storage.places import ProjectPaths, find_places, find_session, list_sessions


class CommandContext(msgspec.Struct, frozen=True):
    environment: Environment
    start: Path
    """The folder that --project names, or the current one."""
    places: ProjectPaths
    trust: TrustedFolders
    trusted: bool

    @property
    def home(self) -> Path:
        return self.environment.home

    def find_session_places(self) -> ProjectPaths:
        """The places where sessions are kept: the settings may name another scope."""
        scope = self.load_settings().settings.scope
        if scope == self.places.scope:
            return self.places
        return find_places(self.start, self.home, scope)

    def load_settings(self, overrides: Mapping[str, Any] | None = None) -> LoadedSettings:
        return load_settings(self.places.tree, self.environment, overrides or {}, trusted=self.trusted)


def read_environment(shared: SharedOptions) -> Environment:
    """The environment, with --home and --bare of the command line."""
    read = Environment.read()
    if shared.bare:
        read = replace(read, bare=True, variables={**read.variables, "SEVENFOLD_BARE": "1"})
    return read if shared.home is None else read.based(shared.home)


def read_command_context(shared: SharedOptions) -> CommandContext:
    environment = read_environment(shared)
    places = find_places(shared.project, environment.home)
    trust = TrustedFolders(environment.home)
    return CommandContext(environment, shared.project, places, trust, trust.is_trusted(places.root))


def find_chosen_session(places: ProjectPaths, session: str | None) -> Path:
    """The path of the transcript of this session, or of the newest."""
    if session is not None:
        return find_session(places, session)
    known = list_sessions(places)
    if not known:
        raise SessionNotFound(f"there is no session of {places.root} yet; 'sevenfold chat' starts one")
    return known[0].path


def read_transcript(path: Path) -> Transcript:
    """The transcript as it is on disk, also while another process writes it."""
    return Transcript.load(read_log(path), lambda: 0.0)
