"""The MCP servers that a chat may use: `.mcp.json` of the project, and `mcpServers` of the user's settings.

    {"mcpServers": {"files": {"command": "files-server", "args": ["--root", "${HOME}/notes"]},
                    "wiki": {"type": "http", "url": "https://wiki.example/mcp", "headers": {…}}}}

Servers of a project start only in a folder that the user trusts as it is; the settings say that they wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from sevenfold.core.errors import SettingsError
from sevenfold.models.capabilities import is_loopback
from sevenfold.settings.files import SERVERS_FILE, is_outside, read_document

KEY: Final = "mcpServers"
_NAME: Final = re.compile(r"(?!_|.*__|.*_$)[A-Za-z0-9_-]{1,40}")
"""Without `_` at its ends, so that `mcp__server__tool` names one server: a rule for it allows no other."""
_CLEAR: Final = "over http:// others can read and change what is sent; use https://"
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One server as a file describes it; its variables are not expanded yet."""

    type: Literal["stdio", "http"] = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    timeout: int | None = None  # Milliseconds that one call may take


class FoundServers(msgspec.Struct, frozen=True):
    """The servers that may start, and what is wrong with others."""

    entries: dict[str, ServerEntry] = {}
    problems: tuple[str, ...] = ()


def find_servers(tree: Path, settings: Mapping[str, Any], *, trusted: bool) -> FoundServers:
    """Read both places. A server of the user's counts before one of the project with the same name."""
    problems: list[str] = []
    own = _parse_entries(settings, "settings", problems)
    if not trusted:
        return FoundServers(own, tuple(problems))
    try:
        path = tree / SERVERS_FILE
        document = None if is_outside(path, tree.resolve()) else read_document(path)
        values = document.values.get(KEY, {}) if document else {}
    except SettingsError as error:
        problems.append(str(error))
        values = {}
    if not isinstance(values, dict):
        problems.append(f"{tree / SERVERS_FILE}: {KEY} is no object of servers")
        values = {}
    return FoundServers(_parse_entries(values, SERVERS_FILE, problems) | own, tuple(problems))


def _parse_entries(values: Mapping[str, Any], where: str, problems: list[str]) -> dict[str, ServerEntry]:
    found: dict[str, ServerEntry] = {}
    for name, value in values.items():
        if why := _find_problem(name, value):
            problems.append(f"{where}: the MCP server {name!r} is left out: {why}")
        else:
            found[name] = msgspec.convert(value, ServerEntry)
    return found


def _find_problem(name: str, value: Any) -> str:
    if not _NAME.fullmatch(name):
        return "a name has letters, digits, '-' and between them single '_', at most 40"
    try:
        entry = msgspec.convert(value, ServerEntry)
    except msgspec.ValidationError as error:
        return str(error)
    if entry.type == "http" and not entry.url.startswith(("http://", "https://")):
        return "a server over http has a url"
    if not _VARIABLE.search(entry.url) and _is_clear(entry.url):
        return _CLEAR
    if entry.type == "stdio" and not entry.command.strip():
        return "a server has a command, or type http and a url"
    return ""


def expand_entry(entry: ServerEntry, variables: Mapping[str, str]) -> ServerEntry:
    """The entry with `${VAR}` and `${VAR:-default}` filled in.

    Raises `SettingsError` for a variable that is not set, and if the address would be in the clear.
    """
    expanded = msgspec.structs.replace(
        entry,
        command=_expand(entry.command, variables),
        args=tuple(_expand(one, variables) for one in entry.args),
        env={name: _expand(text, variables) for name, text in entry.env.items()},
        cwd=_expand(entry.cwd, variables),
        url=_expand(entry.url, variables),
        headers={name: _expand(text, variables) for name, text in entry.headers.items()},
    )
    if _is_clear(expanded.url):
        raise SettingsError(_CLEAR)
    return expanded


def _is_clear(url: str) -> bool:
    return url.startswith("http://") and not is_loopback(url)


def _expand(text: str, variables: Mapping[str, str]) -> str:
    missing = [name for name, default in _list_variables(text) if name not in variables and default is None]
    if missing:
        raise SettingsError(f"${{{missing[0]}}} is not set; set it, or write ${{{missing[0]}:-a default}}")
    return _VARIABLE.sub(lambda found: variables.get(found[1], found[2] or ""), text)


def _list_variables(text: str) -> Iterator[tuple[str, str | None]]:
    yield from ((found[1], found[2]) for found in _VARIABLE.finditer(text))
