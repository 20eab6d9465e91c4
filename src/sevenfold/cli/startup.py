"""The start of a command: its context, its session (imported when one is opened), `sevenfold trust`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from sevenfold.cli.options import ChatOptions, SharedOptions
from sevenfold.cli.output import format_count, make_printable, print_message, print_result, to_one_line
from sevenfold.core.errors import Mistake, SessionNotFound, SettingsError
from sevenfold.core.transcript import Transcript
from sevenfold.settings import LoadedSettings, load_settings
from sevenfold.settings.checks import FOLDER, SERVERS_FILE, format_key
from sevenfold.settings.environment import Environment
from sevenfold.settings.files import KeyPath, SettingsDocument, is_outside, read_document
from sevenfold.settings.place import TrustedFolders
from sevenfold.storage.jsonl import read_log
from sevenfold.storage.places import ProjectPaths, find_places, find_session, list_sessions

if TYPE_CHECKING:
    from sevenfold.core.protocols import Clock, Tool
    from sevenfold.mcp.chat_servers import ChatServers
    from sevenfold.session.session import Session
    from sevenfold.tools.toolbox import AskPermission


class CommandContext(msgspec.Struct, frozen=True):
    environment: Environment
    start: Path  # The folder that --project names, or the current one
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
    trusted = trust.is_trusted(places.root, places.tree)
    return CommandContext(environment, shared.project, places, trust, trusted)


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


def describe_unknown_model(session: Session) -> str:
    """A message about a model that neither our tables nor the settings know; empty for the others."""
    from sevenfold.models.capabilities import LOCAL, OFFLINE, find_family

    name = session.model.name
    own = session.at.access.limits_of(name)
    if find_family(name) or own.window or session.settings.window or name.startswith(LOCAL):
        return ""
    if name == OFFLINE or session.ledger.prices.of(name) is not None:
        return ""
    window = session.model.capabilities.window
    return (
        f"nothing is known of {name}: its window is taken to be {window:,} tokens, and what it costs is "
        "not counted; 'window' and 'prices' in the settings say what they are"
    )


def open_session(
    options: ChatOptions,
    around: CommandContext | None = None,
    ask: AskPermission | None = None,
    started_by: str = "startup",
    clock: Clock | None = None,
    *,
    interactive: bool = False,
    one_shot: bool = False,
    kind: type[Session] | None = None,
    tools: Sequence[Tool] = (),
) -> Session:
    """The session, not entered yet. Its id may be given by its beginning, or be the newest."""
    around = around or read_command_context(options.shared)
    resume = None
    if options.resume is not None:
        resume = find_session(around.find_session_places(), options.resume).stem
    elif options.newest:
        resume = find_chosen_session(around.find_session_places(), None).stem
    from sevenfold.session.session import Session

    return (kind or Session)(
        options.model,
        options.shared.project,
        resume=resume,
        ask=ask,
        home=around.environment.shared or around.home,
        settings=options.settings,
        environ=around.environment.variables,
        started_by=started_by,
        clock=clock,
        interactive=interactive,
        one_shot=one_shot,
        tools=tools,
    )


class NoServers:
    """The MCP servers of a chat that has none."""

    tools: tuple[Tool, ...] = ()

    def follow(self, session: Session) -> None:
        """Does nothing: there is nothing to take up."""


def open_servers(
    around: CommandContext, say: Callable[[str], None]
) -> AbstractAsyncContextManager[ChatServers | NoServers]:
    """The MCP servers of the user's settings and of the project, to be started and ended."""
    settings, tree = around.load_settings().settings, around.places.tree
    if not settings.mcp_servers and not (around.trusted and (tree / SERVERS_FILE).exists()):
        return nullcontext(NoServers())
    from sevenfold.mcp.chat_servers import ChatServers
    from sevenfold.mcp.server_entries import find_servers

    found = find_servers(tree, settings.mcp_servers, trusted=around.trusted)
    environment = around.environment.tool_environment(settings.env)
    if found.entries:
        say(f"starting {format_count(len(found.entries), 'MCP server')}: {', '.join(found.entries)}")
    return ChatServers(found, environment, tree, around.home)


WIDEST: Final = 100
MOST_VALUES: Final = 20  # Most lines shown for one setting
_FILES: Final = ("settings.json", "settings.local.json")
_OLD_NAMES: Final[dict[KeyPath, KeyPath]] = {("permissions", "defaultMode"): ("permissions", "mode")}


def list_ignored_settings(ignored: Iterable[str], tree: Path) -> Iterator[str]:
    """Each ignored setting by its name in messages, and its value in the lines below."""
    known = {where: value for one in _read_documents(tree) for where, value in _list_settings(one)}
    for text in ignored:
        yield make_printable(text)
        found = [value for where, value in known.items() if text in (where, f"{where}{_find_remark(text)}")]
        lines = [to_one_line(line, WIDEST) for value in found for line in _format_value(value)]
        yield from (f"    {line}" for line in lines[:MOST_VALUES])
        if len(lines) > MOST_VALUES:
            yield f"    … and {format_count(len(lines) - MOST_VALUES, 'line')} more"


def _find_remark(text: str) -> str:
    """The remark in brackets that may follow the name of a setting."""
    _, opening, remark = text.rpartition(" (")
    return f"{opening}{remark}"


def _read_documents(tree: Path) -> Iterator[SettingsDocument]:
    root = tree.resolve()
    for path in (*(root / FOLDER / name for name in _FILES), root / SERVERS_FILE):
        if is_outside(path, root):
            continue
        try:
            document = read_document(path)
        except SettingsError:  # reported when the settings are loaded
            continue
        if document is not None:
            yield document


def _list_settings(document: SettingsDocument) -> Iterator[tuple[str, Any]]:
    """Every setting of a file under the name that it has in messages."""
    for key, value in document.values.items():
        inside = value if isinstance(value, dict) else {}
        for path, item in [((key,), value), *(((key, name), v) for name, v in inside.items())]:
            yield f"{document.where(path)}: {format_key(_OLD_NAMES.get(path, path))}", item


def _format_value(value: Any) -> Iterator[str]:
    """A value line by line: the commands of hooks, the items of lists, the pairs of objects."""
    match value:
        case {"hooks": list(hooks)}:
            when = f"{value['matcher']}: " if value.get("matcher") else ""
            yield from (f"{when}{line}" for hook in hooks for line in _format_value(hook))
        case {"command": str(command)} if not value.keys() & {"args", "env", "cwd"}:  # a hook, no server
            yield command
        case dict():
            yield from (f"{name}: {line}" for name, item in value.items() for line in _format_value(item))
        case list():
            for item in value:
                yield from _format_value(item)
        case str():
            yield value
        case _:
            yield msgspec.json.encode(value).decode("utf-8")


def list_changed_lines(changes: Iterable[str]) -> Iterator[str]:
    """The difference to what was trusted. Nothing is cut: the end of a line may be what changed."""
    yield from (f"  {make_printable(line)}" for line in changes)


def run_trust(shared: SharedOptions, path: Path | None, revoke: bool) -> int:
    """Trust or stop trusting the project that this folder belongs to."""
    if path is not None and not (path := path.expanduser()).is_dir():
        raise Mistake(f"{path} {'is not a folder' if path.exists() else 'does not exist'}")
    environment = read_environment(shared)
    known = TrustedFolders(environment.home)
    places = find_places(path or shared.project, environment.home)
    root, changes = places.root, known.list_changes(places.root, places.tree)
    if revoke:
        known.revoke(root)
        if (wider := known.covering(root)) is not None:
            raise Mistake(f"{root} is trusted because {wider} is; run: sevenfold trust --revoke {wider}")
        print_message(shared, f"{root} is not trusted; its settings can only restrict")
    else:
        from sevenfold.mcp.known_tools import KnownTools

        root = known.add(root, places.tree)
        KnownTools(environment.home, places.tree).forget()
        for line in list_changed_lines(changes):
            print_message(shared, line)
        print_message(
            shared, f"{root} is trusted; its settings may now bring hooks, permissions and addresses"
        )
    listed = known.list()
    value: dict[str, Any] = {"path": str(root), "trusted": not revoke}
    value |= {"all": [str(path) for path in listed]} | ({} if revoke else {"changes": changes})
    print_result(shared, "\n".join(str(path) for path in listed), value)
    return 0
