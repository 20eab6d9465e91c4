"""`sevenfold doctor`: checks the configuration and says how to fix it. Changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from sevenfold import __version__
from sevenfold.cache.prices import Prices
from sevenfold.cli.commands.clients import find_program
from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import format_count, format_time, print_result
from sevenfold.cli.startup import CommandContext, read_command_context
from sevenfold.clients.events import NAMES
from sevenfold.clients.setup import list_setup_problems
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake, SettingsError, SevenfoldError, StorageFailure
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.index import CHARACTERS, LINES
from sevenfold.memory.store import Memory
from sevenfold.models import connect_model
from sevenfold.models.capabilities import parse_host
from sevenfold.session.project import Project, find_unknown_tools
from sevenfold.settings import LoadedSettings
from sevenfold.settings.checks import NEVER
from sevenfold.settings.environment import CREDENTIALS, Environment
from sevenfold.settings.layers import Switches
from sevenfold.settings.place import MemoryPlace
from sevenfold.tools.permission_settings import SandboxUse
from sevenfold.tools.sandbox import find_landlock_version
from sevenfold.tools.toolbox import make_standard_tools
from sevenfold.tools.workspace import Workspace

CONNECT_SECONDS: Final = 2.0
PORTS: Final = {"https": 443, "http": 80}


class DoctorCheck(msgspec.Struct, frozen=True):
    """One thing that was checked."""

    name: str
    state: Literal["ok", "note", "problem"]
    found: str
    fix: str = ""


def run_doctor(shared: SharedOptions) -> int:
    """Exit 1 when something has to be fixed before a chat can work."""
    checks = list(run_checks(shared))
    wrong = [check for check in checks if check.state == "problem"]
    print_result(shared, _format_checks(checks), {"ok": not wrong, "checks": checks})
    return 1 if wrong else 0


def _format_checks(checks: list[DoctorCheck]) -> str:
    width = max(len(check.name) for check in checks)
    signs = {"ok": "ok  ", "note": "note", "problem": "FIX "}
    lines = []
    for check in checks:
        lines.append(f"{signs[check.state]}  {check.name:<{width}}  {check.found}")
        if check.fix:
            lines.append(f"{' ' * (width + 8)}→ {check.fix}")
    return "\n".join(lines)


def run_checks(shared: SharedOptions) -> Iterator[DoctorCheck]:
    yield DoctorCheck("python", "ok", f"{platform.python_version()} on {platform.system()}")
    yield DoctorCheck("sevenfold", "ok", __version__)
    try:
        around = read_command_context(shared)
    except Mistake as error:
        yield DoctorCheck("project", "problem", str(error), "correct it and run this again")
        return
    yield _check_home(around.home)
    yield DoctorCheck("project", "ok", f"{around.places.root} (kept as {around.places.slug})")
    if around.places.note:
        yield DoctorCheck("project", "note", around.places.note)
    yield _check_trust(around)
    try:
        loaded = around.load_settings()
        prices = Prices.load(loaded.settings.prices)
    except SettingsError as error:
        yield DoctorCheck("settings", "problem", str(error), "correct the file and run this again")
        return
    try:
        at = Project.open(shared.project, around.environment, {}, lambda event: None)
    except Mistake as error:
        yield DoctorCheck("memory", "problem", str(error), "correct it and run this again")
        return
    yield from _check_settings(around, loaded)
    nowhere = Workspace(at.places.tree, at.environment.home, {}, at.places.tree, SystemClock())
    for text in find_unknown_tools(at.settings.permissions, make_standard_tools(nowhere)):
        yield DoctorCheck("settings", "note", text)
    yield from _check_memory(at.memory)
    yield from _check_model(at)
    yield from _check_programs(around.environment)
    yield from _check_clients(around.environment)
    yield _check_sandbox(loaded.settings.sandbox)
    price = prices.of(at.default_model)
    dated = f"{at.default_model} as of {price.as_of}" if price else f"none is known for {at.default_model}"
    yield DoctorCheck("prices", "ok", f"{sum(1 for _ in prices)} models; {dated}")
    yield DoctorCheck("policy", "ok", loaded.settings.policy)
    yield _check_flags(loaded.settings.flags)


def _check_home(home: Path) -> DoctorCheck:
    if not home.exists():
        return DoctorCheck("home", "ok", f"{home} (made when first needed)")
    if not os.access(home, os.W_OK | os.X_OK):
        return DoctorCheck("home", "problem", f"{home} cannot be written", f"chmod u+rwx {home}")
    mode = stat.S_IMODE(home.stat().st_mode)
    if mode & 0o077 and os.name == "posix":
        return DoctorCheck("home", "note", f"{home} is open to others ({mode:o})", f"chmod 700 {home}")
    return DoctorCheck("home", "ok", str(home))


def _check_trust(around: CommandContext) -> DoctorCheck:
    if around.trust.problem:
        return DoctorCheck("trust", "problem", around.trust.problem)
    if around.trusted:
        return DoctorCheck(
            "trust", "ok", f"trusted, because {around.trust.covering(around.places.root)} is"
        )
    if changed := around.trust.describe_changes(around.places.root, around.places.tree):
        return DoctorCheck("trust", "note", changed, "look at the difference, then: sevenfold trust")
    return DoctorCheck("trust", "note", "not trusted: its settings can only restrict", "sevenfold trust")


def _check_settings(around: CommandContext, loaded: LoadedSettings) -> Iterator[DoctorCheck]:
    read = ", ".join(str(path) for path in loaded.files_read) or "no file: everything is the default"
    yield DoctorCheck("settings", "ok", read)
    for note in loaded.notes:
        yield DoctorCheck("settings", "ok", note)
    for warning in loaded.warnings:
        yield DoctorCheck("settings", "note", warning)
    for ignored in loaded.ignored:
        helps = not (around.trusted or ignored.endswith(NEVER))
        fix = "sevenfold trust, if you know where it comes from" if helps else ""
        yield DoctorCheck("settings", "note", f"ignored: {ignored}", fix)


_CHECKED: Final = 2_000  # Memories that are looked through while the user waits for all else


def _check_memory(place: MemoryPlace) -> Iterator[DoctorCheck]:
    """Check the place and the content of the memory; nothing is written."""
    if place.note:
        yield DoctorCheck("memory", "note", place.note)
    if place.off is not None:
        yield DoctorCheck("memory", "ok", f"off, because {place.off}; it would be in {place.folder}")
        return
    if not place.folder.is_dir():
        yield DoctorCheck("memory", "ok", f"{place.folder} (made when first needed)")
        return
    try:
        with Memory.at(place) as memory:
            index, count = memory.index_text(), len(memory.listing().topics)
            findings = memory.check() if count <= _CHECKED else []
            memories = format_count(count, "memory", "memories")
    except SevenfoldError as error:
        yield DoctorCheck("memory", "problem", str(error), "mend that and run this again")
        return
    size = f"index {index.count(chr(10)):,} of {LINES} lines, {len(index):,} of {CHARACTERS:,} characters"
    yield DoctorCheck("memory", "ok", f"{place.folder}: {memories}, {size}")
    if findings:
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in Counter(f.kind for f in findings).items())
        yield DoctorCheck("memory", "note", f"to look at: {kinds}", "sevenfold memory check")
    if count > _CHECKED:
        text = f"more than {_CHECKED:,} memories are not looked through here"
        yield DoctorCheck("memory", "note", text, "sevenfold memory check")
    yield _check_history(FolderBackend.at(place))


def _check_history(backend: FolderBackend) -> DoctorCheck:
    history = backend.revisions(lambda sentence: None)
    try:
        revisions = history.log(limit=1)
        if revisions:
            history.at(revisions[0].id)
    except StorageFailure as error:
        fix = "the next change sets it aside and begins a new one"
        return DoctorCheck("memory", "note", f"the history is damaged: {error}", fix)
    if not revisions:
        return DoctorCheck("memory", "ok", "the history is empty: it begins with the next change")
    return DoctorCheck("memory", "ok", f"the history is whole up to {format_time(revisions[0].at)}")


def _check_model(at: Project) -> Iterator[DoctorCheck]:
    name, why, access, environment = at.default_model, _explain_model(at), at.access, at.environment
    try:
        connect_model(name, access)
    except Mistake as error:
        yield DoctorCheck("model", "problem", f"{name}, because {why}", str(error))
    else:
        yield DoctorCheck("model", "ok", f"{name}, because {why}")
    for variable, key in (
        ("ANTHROPIC_API_KEY", environment.anthropic_key),
        ("ANTHROPIC_AUTH_TOKEN", environment.anthropic_token),
        ("OPENAI_API_KEY", environment.openai_key),
    ):
        where = "set" if variable in environment.variables else f"kept in {environment.home / CREDENTIALS}"
        yield DoctorCheck("key", "ok", f"{variable} is {where if key else 'not set'}")
    if name == "offline":
        fix = "set ANTHROPIC_API_KEY, or OPENAI_BASE_URL and --model openai:NAME"
        yield DoctorCheck("endpoint", "ok", "none: the offline engine answers by rules", fix)
        return
    if name.startswith("local:"):
        yield DoctorCheck("endpoint", "ok", "none: llama.cpp runs the file on this machine")
        return
    url = access.openai_base_url if name.startswith("openai:") else access.anthropic_base_url
    yield _check_endpoint(url, environment)


def _explain_model(at: Project) -> str:
    if at.settings.model:
        return "the settings say so"
    return "there is no key" if at.default_model == "offline" else "there is a key"


def _check_endpoint(url: str, environment: Environment) -> DoctorCheck:
    """Try to connect; nothing is sent."""
    where = parse_host(url)
    if any(environment.variables.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY")):
        return DoctorCheck("endpoint", "note", f"{where}, through a proxy; not tried")
    parts = urlsplit(url)
    try:
        port = parts.port or PORTS.get(parts.scheme, 443)
        socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        fix = "check the address, the network and whether the server runs; --model offline needs none"
        return DoctorCheck("endpoint", "problem", f"{where} cannot be reached: {why}", fix)
    return DoctorCheck("endpoint", "ok", f"{where} can be reached")


def _check_programs(environment: Environment) -> Iterator[DoctorCheck]:
    needed: tuple[tuple[str, Literal["note", "problem"], str], ...] = (
        ("bash", "problem", "commands cannot be run: install bash"),
        ("git", "note", "install git; without it worktrees and history are not seen"),
        ("rg", "note", "optional: install ripgrep and searching large projects is faster"),
    )
    for name, state, fix in needed:
        found = shutil.which(name, path=environment.variables.get("PATH"))
        yield DoctorCheck(name, "ok", found) if found else DoctorCheck(name, state, "not found", fix)


def _check_clients(environment: Environment) -> Iterator[DoctorCheck]:
    """Check what `sevenfold setup` wrote for other agents."""
    found = 0
    for client in NAMES:
        try:
            state = list_setup_problems(client, environment, find_program(environment))
        except Mistake as error:
            yield DoctorCheck(client, "problem", str(error), "mend that and run this again")
            continue
        if state is None:
            continue
        found += 1
        record, problems = state
        files = ", ".join(one.path for one in record.files)
        if problems:
            yield DoctorCheck(client, "note", "; ".join(problems), f"sevenfold setup {client} --yes")
        else:
            yield DoctorCheck(client, "ok", f"set up in {files}")
    if not found:
        known = "|".join(NAMES)
        yield DoctorCheck("agents", "ok", "beside no other agent", f"optional: sevenfold setup {known}")


def _check_sandbox(use: SandboxUse) -> DoctorCheck:
    version = find_landlock_version()
    if not version:
        why = "none: this system has no Landlock (Linux 5.13 or newer has)"
        return DoctorCheck("sandbox", "note", f"{why}; paths through /proc and /dev are asked about")
    told = {
        "unasked": "commands that run unasked read the project and system programs alone",
        "all": "every command; what you allow writes inside the project only",
        "off": "switched off by the setting sandbox; paths through /proc and /dev are asked about",
    }
    return DoctorCheck("sandbox", "note" if use == "off" else "ok", f"Landlock {version}: {told[use]}")


def _check_flags(flags: Switches) -> DoctorCheck:
    changed = [
        f"{name} {'on' if getattr(flags, name) else 'off'}"
        for name in Switches.__struct_fields__
        if getattr(flags, name) != getattr(Switches(), name)
    ]
    return DoctorCheck("flags", "ok", ", ".join(changed) or "all as they come")
