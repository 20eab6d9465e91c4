"""`sevenfold setup`: what each client is told about us, written and taken back.

    <home>/setup/<client>.json    the files that were written, with a digest of what was written
    <home>/setup/<client>/        copies of these files as they were

A file that nobody changed since gets its old bytes back. From one that changed only our entries are taken.
"""

from __future__ import annotations

import contextlib
import difflib
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.clients.settings_files import (
    SettingsFile,
    get_object,
    make_hooks_file,
    make_json_file,
    make_own_file,
    make_toml_file,
)
from sevenfold.core.errors import Mistake, SevenfoldError
from sevenfold.memory.folder.folder import digest_bytes
from sevenfold.settings.environment import Environment
from sevenfold.storage.files import make_private_dir, make_storage_failure, read_if_there, write_atomic

FOLDER: Final = "setup"
PLUGIN: Final = "sevenfold@sevenfold"
_LARGEST: Final = 10_000_000  # Bytes of a settings file
_PATIENCE: Final = 120  # Seconds that a program of the client may take


class InstalledProgram(msgspec.Struct, frozen=True):
    """Our own program, as clients will start it."""

    path: str
    version: str


class WrittenFile(msgspec.Struct, frozen=True):
    """A file that setup wrote: the copy of what was there before, and a digest of what it wrote."""

    path: str
    after: str
    copy: str | None = None  # None: there was no such file


class SetupRecord(msgspec.Struct, frozen=True):
    """All that setup did for one client."""

    version: str
    files: tuple[WrittenFile, ...] = ()
    folders: tuple[str, ...] = ()  # Folders that were made for them


class SetupChange(msgspec.Struct, frozen=True):
    """A file as it is and as it will be; None: it is not there."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def action(self) -> str:
        return "create" if self.before is None else "remove" if self.after is None else "change"

    def format_diff(self) -> str:
        """The difference, line by line."""
        old, new = (
            (data or b"").decode("utf-8", "replace").splitlines() for data in (self.before, self.after)
        )
        return "\n".join(list(difflib.unified_diff(old, new, lineterm="", n=1))[2:])


class ClientPlan(msgspec.Struct, frozen=True):
    """What one client is told: by its own program, and in its files."""

    client: str
    version: str  # Of Sevenfold
    files: tuple[SettingsFile, ...]
    commands: tuple[tuple[str, ...], ...] = ()
    commands_back: tuple[tuple[str, ...], ...] = ()
    installed: bool = False  # The commands have run already
    notes: tuple[str, ...] = ()


def make_plan(
    client: str, environment: Environment, program: InstalledProgram, home: Path | None = None
) -> ClientPlan:
    """The plan for a client. A `home`, or SEVENFOLD_HOME, goes into the commands that it will run."""
    told = home or environment.variables.get("SEVENFOLD_HOME")  # a client may hide variables from servers
    extra = ("--home", str(Path(told).expanduser().absolute())) if told else ()
    user = Path(environment.variables.get("HOME") or Path.home())
    match client:
        case "claude":
            return _plan_claude(environment, program)
        case "codex":
            folder = Path(environment.variables.get("CODEX_HOME") or user / ".codex")
            return _plan_codex(folder, program, extra)
        case "gemini":
            return _plan_gemini(user / ".gemini" / "extensions" / "sevenfold", program, extra)
        case _:
            config = Path(environment.variables.get("XDG_CONFIG_HOME") or user / ".config")
            return _plan_opencode(config / "opencode", program, extra)


# --- the clients ----------------------------------------------------------------------------------------


def find_marketplace() -> Path:
    """The folder with the plugin for Claude Code: in the package, or in a copy of the repository."""
    packed = Path(__file__).parent / "marketplace"
    return packed if packed.is_dir() else Path(__file__).parents[3]


def _plan_claude(environment: Environment, program: InstalledProgram) -> ClientPlan:
    line = {"type": "command", "command": "sevenfold statusline"}

    def put(value: dict[str, Any]) -> None:
        value.setdefault("statusLine", line)

    def take(value: dict[str, Any]) -> None:
        if value.get("statusLine") == line:
            del value["statusLine"]

    path = environment.claude_folder / "settings.json"
    return ClientPlan(
        "claude",
        program.version,
        (make_json_file(path, put, take),),
        (
            ("claude", "plugin", "marketplace", "add", str(find_marketplace())),
            ("claude", "plugin", "install", PLUGIN),
        ),
        (
            ("claude", "plugin", "uninstall", PLUGIN),
            ("claude", "plugin", "marketplace", "remove", PLUGIN.partition("@")[2]),
        ),
        _is_enabled(path),
        ("a status line of your own is left as it is",),
    )


class _PluginSettings(msgspec.Struct):
    plugins: dict[str, Any] = msgspec.field(name="enabledPlugins", default_factory=dict)


def _is_enabled(path: Path) -> bool:
    """True if Claude Code has our plugin, and it is not switched off."""
    try:
        return msgspec.json.decode(_read(path) or b"{}", type=_PluginSettings).plugins.get(PLUGIN) is True
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _plan_codex(folder: Path, program: InstalledProgram, extra: Sequence[str]) -> ClientPlan:
    encode = msgspec.json.encode  # a string or a list of strings is the same in TOML
    block = (
        f"[mcp_servers.sevenfold]\ncommand = {encode(program.path).decode()}\n"
        f"args = {encode(['mcp', *extra]).decode()}\nstartup_timeout_sec = 20\n"
    )
    hooks = {
        event: _make_group(program, event, "codex", extra, matcher)
        for event, matcher in {
            "SessionStart": "",
            "UserPromptSubmit": "",
            "PreToolUse": "apply_patch|Edit|Write",
            "PostToolUse": "apply_patch|Edit|Write",
            "Stop": "",
        }.items()
    }
    return ClientPlan(
        "codex",
        program.version,
        (make_toml_file(folder / "config.toml", block), make_hooks_file(folder / "hooks.json", hooks)),
        notes=("Codex runs new hooks only after you have trusted them: type /hooks there",),
    )


def _plan_gemini(folder: Path, program: InstalledProgram, extra: Sequence[str]) -> ClientPlan:
    about = {
        "name": "sevenfold",
        "version": program.version,
        "description": "Recall, history, undo and a guard for memory.",
        "mcpServers": {"sevenfold": {"command": program.path, "args": ["mcp", *extra]}},
    }
    hooks = {
        event: [_make_group(program, event, "gemini", extra, matcher)]
        for event, matcher in {
            "SessionStart": "",
            "BeforeAgent": "",
            "BeforeTool": "write_file|replace",
            "AfterTool": "write_file|replace",
            "SessionEnd": "",
        }.items()
    }
    return ClientPlan(
        "gemini",
        program.version,
        (
            make_own_file(folder / "gemini-extension.json", _format_json(about)),
            make_own_file(folder / "hooks" / "hooks.json", _format_json({"hooks": hooks})),
        ),
        notes=("written after the documentation of Gemini CLI 0.61; it was not tried with the program",),
    )


def _plan_opencode(folder: Path, program: InstalledProgram, extra: Sequence[str]) -> ClientPlan:
    path = folder / "opencode.json"
    server = {"type": "local", "command": [program.path, "mcp", *extra], "enabled": True}

    def put(value: dict[str, Any]) -> None:
        get_object(path, value, "mcp")["sevenfold"] = server

    def take(value: dict[str, Any]) -> None:
        servers = value.get("mcp")
        if isinstance(servers, dict) and servers.pop("sevenfold", None) is not None and not servers:
            del value["mcp"]

    text = Path(__file__).with_name("opencode_plugin.ts").read_text(encoding="utf-8")
    command = msgspec.json.encode([program.path, "hook", "--client", "opencode", *extra]).decode()
    return ClientPlan(
        "opencode",
        program.version,
        (
            make_json_file(path, put, take),
            make_own_file(
                folder / "plugins" / "sevenfold.ts", text.replace('["sevenfold", "hook"]', command)
            ),
        ),
        notes=("written after the documentation of opencode 1.18; it was not tried with the program",),
    )


def _make_group(
    program: InstalledProgram, event: str, client: str, extra: Sequence[str], matcher: str
) -> dict[str, Any]:
    command = shlex.join([program.path, "hook", event, "--client", client, *extra])
    return ({"matcher": matcher} if matcher else {}) | {"hooks": [{"type": "command", "command": command}]}


def _format_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


# --- looking ---------------------------------------------------------------------------------------------


def list_setup_problems(
    client: str, environment: Environment, program: InstalledProgram
) -> tuple[SetupRecord, list[str]] | None:
    """The record of a client and what is not as setup left it; None if it was not set up."""
    record = SetupStore(environment.home, client).read()
    if record is None:
        return None
    plan, problems = make_plan(client, environment, program), list[str]()
    for file in plan.files:
        now = _read(file.path) or b""
        if file.take_out(now) == now != file.put_in(now):
            problems.append(f"{file.path} has nothing of ours any more")
    if plan.commands and not plan.installed:
        problems.append(f"its plugin {PLUGIN} is not enabled")
    if plan.commands and shutil.which("sevenfold", path=environment.variables.get("PATH")) is None:
        problems.append("'sevenfold' is not on your PATH, where the plugin looks for it")
    if record.version != plan.version:
        problems.append(f"it was set up by version {record.version}")
    return record, problems


# --- writing and taking back ----------------------------------------------------------------------------


def list_changes(plan: ClientPlan) -> list[SetupChange]:
    """The files that setup would change. Raises `Mistake` if one of them is not valid."""
    found = [(file, _read(file.path)) for file in plan.files]
    changes = [SetupChange(file.path, now, file.put_in(now or b"")) for file, now in found]
    return [change for change in changes if change.before != change.after]


def apply_plan(plan: ClientPlan, environment: Environment) -> list[SetupChange]:
    """Write it all, or nothing: what was begun is taken back when a step fails."""
    store = SetupStore(environment.home, plan.client)
    known, originals = store.read(), {file.path: _read(file.path) for file in plan.files}
    list_changes(plan)  # a file that is not valid ends it here
    copies = store.keep_copies(plan, known, originals)
    try:
        for command in () if plan.installed else plan.commands:
            _run(command, environment)
        done = list_changes(plan)  # a program of the client may have written them meanwhile
        folders = [folder for change in done for folder in _make_parents(change.path)]
        for change in done:
            _write(change.path, change.after)
    except SevenfoldError:
        for path, before in originals.items():
            if _read(path) != before:
                _write(path, before)
        for command in () if plan.installed else plan.commands_back:
            with contextlib.suppress(SevenfoldError):
                _run(command, environment)
        if known is None:
            store.remove()
        raise
    store.write(plan, known, copies, folders)
    return [
        SetupChange(path, before, now)
        for path, before in originals.items()
        if (now := _read(path)) != before
    ]


def remove_plan(
    plan: ClientPlan, environment: Environment, *, only_look: bool = False
) -> list[SetupChange]:
    """Take back what setup wrote. With `only_look` nothing is done."""
    store = SetupStore(environment.home, plan.client)
    record, originals = store.read(), {file.path: _read(file.path) for file in plan.files}
    changes = _list_removals(plan, store, record, originals)
    if only_look:
        return changes
    for command in plan.commands_back if plan.installed else ():
        _run(command, environment)
    changes = _list_removals(plan, store, record, originals)  # the client may have written them meanwhile
    for change in changes:
        _write(change.path, change.after)
    for folder in sorted(record.folders if record else (), reverse=True):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    store.remove()
    return changes


def _list_removals(
    plan: ClientPlan, store: SetupStore, record: SetupRecord | None, originals: dict[Path, bytes | None]
) -> list[SetupChange]:
    """The files to change. `originals` are their bytes before anything of ours was taken back."""
    changes = list[SetupChange]()
    for file in plan.files:
        now, original = _read(file.path), originals[file.path]
        written = store.find(record, file.path)
        copy = store.read_copy(written) if written is not None else None
        if written is not None and original is not None and written.after == digest_bytes(original):
            changes.append(SetupChange(file.path, now, copy))
        elif now is not None:
            back = copy if file.is_ours else None  # the user may have deleted what the copy of another has
            changes.append(SetupChange(file.path, now, file.take_out(now) or back))
    return [change for change in changes if change.before != change.after]


class SetupStore:
    """The record of one client, and the copies of its files."""

    def __init__(self, home: Path, client: str) -> None:
        self._file, self._copies = home / FOLDER / f"{client}.json", home / FOLDER / client

    def read(self) -> SetupRecord | None:
        data = read_if_there(self._file, _LARGEST)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=SetupRecord)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Mistake(f"{self._file} is damaged ({error}): remove it, then run this again") from error

    def find(self, record: SetupRecord | None, path: Path) -> WrittenFile | None:
        files = record.files if record else ()
        return next((one for one in files if one.path == str(path)), None)

    def read_copy(self, written: WrittenFile) -> bytes | None:
        return None if written.copy is None else _read(self._copies / written.copy)

    def keep_copies(
        self, plan: ClientPlan, known: SetupRecord | None, originals: dict[Path, bytes | None]
    ) -> dict[Path, str]:
        """Keep a copy of each file as it was before the first setup; returns their names."""
        make_private_dir(self._copies)
        copies: dict[Path, str] = {}
        for number, file in enumerate(plan.files):
            before, earlier = originals[file.path], self.find(known, file.path)
            if earlier is not None and before is not None:
                same = earlier.after == digest_bytes(before)
                before = self.read_copy(earlier) if same else file.take_out(before) or None
            if before is not None:
                copies[file.path] = f"{number}-{file.path.name}"
                write_atomic(self._copies / copies[file.path], before)
        return copies

    def write(
        self, plan: ClientPlan, known: SetupRecord | None, copies: dict[Path, str], folders: Sequence[str]
    ) -> None:
        """Note how the files are now."""
        paths = [file.path for file in plan.files]
        files = [WrittenFile(str(p), digest_bytes(_read(p) or b""), copies.get(p)) for p in paths]
        made = dict.fromkeys([*(known.folders if known else ()), *folders])
        record = SetupRecord(plan.version, tuple(files), tuple(made))
        write_atomic(self._file, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)
        shutil.rmtree(self._copies, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._file.parent.rmdir()


def _read(path: Path) -> bytes | None:
    return read_if_there(path, _LARGEST)


def _write(path: Path, data: bytes | None) -> None:
    if data is None:
        path.unlink(missing_ok=True)
    else:
        write_atomic(path, data, mode=None)


def _make_parents(path: Path) -> Iterator[str]:
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise make_storage_failure(error, folder) from error
        yield str(folder)


def _run(command: Sequence[str], environment: Environment) -> None:
    """Run a program of the client. Raises `Mistake` with its own words if it fails."""
    variables = environment.tool_environment()
    program = shutil.which(command[0], path=variables.get("PATH"))
    if program is None:
        raise Mistake(
            f"the program {command[0]!r} is not on your PATH, so nothing was changed; install it first"
        )
    try:
        ended = subprocess.run(
            [program, *command[1:]],
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Mistake(f"'{shlex.join(command)}' could not be run: {error}") from error
    if ended.returncode:
        said = " ".join((ended.stderr or ended.stdout).split())[:400]
        raise Mistake(f"'{shlex.join(command)}' failed: {said}")
