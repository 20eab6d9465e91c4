"""`sevenfold doctor`: what is configured, what is missing, and how to fix it. Changes nothing."""

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
from sevenfold.cli.options import Shared
from sevenfold.cli.output import count, moment, result
from sevenfold.cli.surroundings import Surroundings, look
from sevenfold.clock import SystemClock
from sevenfold.context.memory import Memory
from sevenfold.errors import Mistake, SettingsError, SevenfoldError, StorageFailure
from sevenfold.layers.settings import Switches
from sevenfold.memory.index import CHARACTERS, LINES
from sevenfold.memory.store import HISTORY
from sevenfold.models import connect
from sevenfold.models.capabilities import host_of
from sevenfold.session.place import MemoryPlace
from sevenfold.session.project import Workplace, unknown_tools
from sevenfold.settings import Loaded
from sevenfold.settings.checks import NEVER
from sevenfold.settings.environment import Environment
from sevenfold.tools.toolbox import standard_tools
from sevenfold.tools.workspace import Workspace

CONNECT_SECONDS: Final = 2.0
PORTS: Final = {"https": 443, "http": 80}


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "note", "problem"]
    found: str
    fix: str = ""


def doctor(shared: Shared) -> int:
    """Exit 1 when something has to be fixed before a chat can work."""
    checks = list(examine(shared))
    wrong = [check for check in checks if check.state == "problem"]
    result(shared, _drawn(checks), {"ok": not wrong, "checks": checks})
    return 1 if wrong else 0


def _drawn(checks: list[Check]) -> str:
    width = max(len(check.name) for check in checks)
    signs = {"ok": "ok  ", "note": "note", "problem": "FIX "}
    lines = []
    for check in checks:
        lines.append(f"{signs[check.state]}  {check.name:<{width}}  {check.found}")
        if check.fix:
            lines.append(f"{' ' * (width + 8)}→ {check.fix}")
    return "\n".join(lines)


def examine(shared: Shared) -> Iterator[Check]:
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()}")
    yield Check("sevenfold", "ok", __version__)
    try:
        around = look(shared)
    except Mistake as error:
        yield Check("project", "problem", str(error), "correct it and run this again")
        return
    yield _home(around.home)
    yield Check("project", "ok", f"{around.places.root} (kept as {around.places.slug})")
    if around.places.note:
        yield Check("project", "note", around.places.note)
    yield _trust(around)
    try:
        loaded = around.settings()
        prices = Prices.load(loaded.settings.prices)
    except SettingsError as error:
        yield Check("settings", "problem", str(error), "correct the file and run this again")
        return
    try:
        at = Workplace.open(shared.project, around.environment, {}, lambda event: None)
    except Mistake as error:
        yield Check("memory", "problem", str(error), "correct it and run this again")
        return
    yield from _settings(around, loaded)
    yield from _rules(at)
    yield from _memory(at.memory)
    yield from _model(at)
    yield from _programs(around.environment)
    yield _prices(prices, at.default_model)
    yield _flags(loaded.settings.flags)


def _home(home: Path) -> Check:
    if not home.exists():
        return Check("home", "ok", f"{home} (made when first needed)")
    if not os.access(home, os.W_OK | os.X_OK):
        return Check("home", "problem", f"{home} cannot be written", f"chmod u+rwx {home}")
    mode = stat.S_IMODE(home.stat().st_mode)
    if mode & 0o077 and os.name == "posix":
        return Check("home", "note", f"{home} is open to others ({mode:o})", f"chmod 700 {home}")
    return Check("home", "ok", str(home))


def _trust(around: Surroundings) -> Check:
    if around.trust.problem:
        return Check("trust", "problem", around.trust.problem)
    if around.trusted:
        return Check(
            "trust", "ok", f"trusted, because {around.trust.covering(around.places.root)} is"
        )
    return Check("trust", "note", "not trusted: its settings can only restrict", "sevenfold trust")


def _settings(around: Surroundings, loaded: Loaded) -> Iterator[Check]:
    read = (
        ", ".join(str(path) for path in loaded.files_read) or "no file: everything is the default"
    )
    yield Check("settings", "ok", read)
    for warning in loaded.warnings:
        yield Check("settings", "note", warning)
    for ignored in loaded.ignored:
        helps = not (around.trusted or ignored.endswith(NEVER))
        fix = "sevenfold trust, if you know where it comes from" if helps else ""
        yield Check("settings", "note", f"ignored: {ignored}", fix)


def _rules(at: Workplace) -> Iterator[Check]:
    """Rules about tools that are not there; the workspace is never worked in."""
    nowhere = Workspace(at.places.tree, at.environment.home, {}, at.places.tree, SystemClock())
    for text in unknown_tools(at.settings.permissions, standard_tools(nowhere)):
        yield Check("settings", "note", text)


# --- memory -----------------------------------------------------------------------------------------


def _memory(place: MemoryPlace) -> Iterator[Check]:
    """Where it is, whether it is on, and what is wrong with it; nothing is written."""
    if place.note:
        yield Check("memory", "note", place.note)
    if place.off is not None:
        yield Check("memory", "ok", f"off, because {place.off}; it would be in {place.folder}")
        return
    if not place.folder.is_dir():
        yield Check("memory", "ok", f"{place.folder} (made when first needed)")
        return
    try:
        with Memory.at(place) as memory:
            index, findings = memory.index_text(), memory.check()
            memories = count(len(memory.listing().topics), "memory", "memories")
    except SevenfoldError as error:
        yield Check("memory", "problem", str(error), "mend that and run this again")
        return
    size = f"index {index.count(chr(10)):,} of {LINES} lines, {len(index):,} of {CHARACTERS:,} characters"
    yield Check("memory", "ok", f"{place.folder}: {memories}, {size}")
    if findings:
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in Counter(f.kind for f in findings).items())
        yield Check("memory", "note", f"to look at: {kinds}", "sevenfold memory check")
    yield _history(place.state / HISTORY)


def _history(repository: Path) -> Check:
    from sevenfold.memory.history.history import History

    history = History(repository)
    try:
        revisions = history.log(limit=1)
        if revisions:
            history.at(revisions[0].id)
    except StorageFailure as error:
        fix = "the next change sets it aside and begins a new one"
        return Check("memory", "note", f"the history is damaged: {error}", fix)
    if not revisions:
        return Check("memory", "ok", "the history is empty: it begins with the next change")
    return Check("memory", "ok", f"the history is whole up to {moment(revisions[0].at)}")


# --- the model ----------------------------------------------------------------------------------------


def _model(at: Workplace) -> Iterator[Check]:
    name, why, access, environment = at.default_model, _why(at), at.access, at.environment
    try:
        connect(name, access)
    except Mistake as error:
        yield Check("model", "problem", f"{name}, because {why}", str(error))
    else:
        yield Check("model", "ok", f"{name}, because {why}")
    for variable, key in (
        ("ANTHROPIC_API_KEY", environment.anthropic_key),
        ("ANTHROPIC_AUTH_TOKEN", environment.anthropic_token),
        ("OPENAI_API_KEY", environment.openai_key),
    ):
        yield Check("key", "ok", f"{variable} is {'set' if key else 'not set'}")
    if name == "offline":
        fix = "set ANTHROPIC_API_KEY, or OPENAI_BASE_URL and --model openai:NAME"
        yield Check("endpoint", "ok", "none: the offline engine answers by rules", fix)
        return
    if name.startswith("local:"):
        yield Check("endpoint", "ok", "none: llama.cpp runs the file on this machine")
        return
    url = access.openai_base_url if name.startswith("openai:") else access.anthropic_base_url
    yield _endpoint(url, environment)


def _why(at: Workplace) -> str:
    if at.settings.model:
        return "the settings say so"
    return "there is no key" if at.default_model == "offline" else "there is a key"


def _endpoint(url: str, environment: Environment) -> Check:
    """Only whether somebody listens there: nothing is sent."""
    where = host_of(url)
    if any(environment.variables.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY")):
        return Check("endpoint", "note", f"{where}, through a proxy; not tried")
    parts = urlsplit(url)
    try:
        port = parts.port or PORTS.get(parts.scheme, 443)
        socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        fix = (
            "check the address, the network and whether the server runs; --model offline needs none"
        )
        return Check("endpoint", "problem", f"{where} cannot be reached: {why}", fix)
    return Check("endpoint", "ok", f"{where} can be reached")


# --- the machine --------------------------------------------------------------------------------------


def _programs(environment: Environment) -> Iterator[Check]:
    needed = (
        ("bash", "problem", "commands cannot be run: install bash"),
        ("git", "note", "install git; without it worktrees and history are not seen"),
        ("rg", "note", "optional: install ripgrep and searching large projects is faster"),
    )
    path = environment.variables.get("PATH")
    for name, state, fix in needed:
        found = shutil.which(name, path=path)
        if found:
            yield Check(name, "ok", found)
        elif state == "problem":
            yield Check(name, "problem", "not found", fix)
        else:
            yield Check(name, "note", "not found", fix)


def _prices(prices: Prices, model: str) -> Check:
    known, price = sum(1 for _ in prices), prices.of(model)
    dated = f"{model} as of {price.as_of}" if price else f"none is known for {model}"
    return Check("prices", "ok", f"{known} models; {dated}")


def _flags(flags: Switches) -> Check:
    changed = [
        f"{name} {'on' if getattr(flags, name) else 'off'}"
        for name in Switches.__struct_fields__
        if getattr(flags, name) != getattr(Switches(), name)
    ]
    return Check("flags", "ok", ", ".join(changed) or "all as they come")
