"""Claude Code's settings files: hooks, permissions and environment hold here; the rest is named."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import SettingsError
from sevenfold.core.messages import Json
from sevenfold.hooks.events import HookEvents
from sevenfold.models.registry import PROVIDERS
from sevenfold.settings.files import HONOURED, SettingsDocument, format_value
from sevenfold.tools.permissions import EDITORS, READERS, PermissionRule

_RULES: Final = ("allow", "ask", "deny")
_PERMISSIONS: Final = frozenset({*_RULES, "additionalDirectories", "defaultMode"})
_TOOLS: Final = READERS | EDITORS | {"Bash", "WebFetch", "WebSearch", "Agent", "SendMessage"}
_RENAMED_TOOLS: Final = {"Task": "Agent", "MultiEdit": "Edit"}
_CONDITIONS: Final = ("if", "async", "shell")
"""Fields that decide when or how a hook runs: without them it would do something else."""
_OUR_HOOKS: Final = "sevenfold hook"
"""Beginning of the commands that serve our memory to Claude Code; here the memory is at hand."""


class PickedSettings(msgspec.Struct):
    """The part of a file that holds here, and the names of the rest."""

    document: SettingsDocument
    rest: list[str] = []
    """Keys that nobody misses here."""
    missed: list[str] = []
    """Hooks and rules that a user may rely on."""

    def describe(self, when: str = "") -> str:
        held: list[str] = [key for key in HONOURED if key in self.document.values]
        verb = "holds" if held == ["env"] else "hold"
        text = f"{_join(held)} {verb} here{when}" if held else "nothing in it holds here"
        rest = f"; not honoured: {', '.join(sorted(self.rest, key=_group))}" if self.rest else ""
        return f"{self.document.path}: Claude Code's settings: {text}{rest}"

    def warn(self) -> Iterator[str]:
        if self.missed:
            yield f"{self.document.path}: this does not hold here: {', '.join(self.missed)}"


def pick_settings(document: SettingsDocument, keys: Collection[str] = HONOURED) -> PickedSettings:
    """Take what holds here out of a file of Claude Code. Values of a wrong type are left to the checks."""
    values = {key: document.values[key] for key in HONOURED if key in keys and key in document.values}
    picked = PickedSettings(document)
    picked.rest += [key for key in document.values if key not in values and key != "$schema"]
    if isinstance(hooks := values.get("hooks"), dict):
        values["hooks"] = dict(_pick_hooks(hooks, picked))
    if isinstance(permissions := values.get("permissions"), dict):
        values["permissions"] = dict(_pick_permissions(permissions, picked))
    if isinstance(env := values.get("env"), dict):
        secret = PROVIDERS.list_keys()  # tools are never given a key by a file of the project
        picked.rest += [f"env.{name}" for name in env if name in secret]
        values["env"] = {name: text for name, text in env.items() if name not in secret}
    picked.document = replace(document, values={key: value for key, value in values.items() if value != {}})
    return picked


def _pick_hooks(hooks: Json, picked: PickedSettings) -> Iterator[tuple[str, Any]]:
    for event, matchers in hooks.items():
        if event not in HookEvents.__struct_encode_fields__:
            picked.missed.append(f"hooks.{event}")
        elif isinstance(matchers, list):
            kept = [_pick_matcher(event, one, picked) for one in matchers]
            if kept := [one for one in kept if one != {}]:
                yield event, kept
        else:
            yield event, matchers


def _pick_matcher(event: str, matcher: Any, picked: PickedSettings) -> Any:
    """The matcher with the commands that run here; an empty object if none does."""
    if not isinstance(matcher, dict) or not isinstance(matcher.get("hooks"), list):
        return matcher
    hooks = [hook for one in matcher["hooks"] for hook in _pick_commands(event, one, picked)]
    about = {"matcher": matcher["matcher"]} if "matcher" in matcher else {}
    return {**about, "hooks": hooks} if hooks else {}


def _pick_commands(event: str, hook: Any, picked: PickedSettings) -> Iterator[Any]:
    if not isinstance(hook, dict):
        yield hook
        return
    kind, command, words = hook.get("type", "command"), hook.get("command"), hook.get("args")
    condition = next((name for name in _CONDITIONS if hook.get(name)), None)
    if kind != "command":
        picked.missed.append(f"hooks.{event} (a hook of the type {kind})")
    elif condition is not None:
        picked.missed.append(f"hooks.{event} (a hook with {condition})")
    elif not str(command).startswith(_OUR_HOOKS):
        if isinstance(words, list):
            command = shlex.join([str(command), *map(str, words)])
        yield {"command": command, **{key: hook[key] for key in ("timeout",) if key in hook}}


def _pick_permissions(permissions: Json, picked: PickedSettings) -> Iterator[tuple[str, Any]]:
    for key, value in permissions.items():
        if key not in _PERMISSIONS:
            picked.rest.append(f"permissions.{key}")
        elif key in _RULES and isinstance(value, list):
            yield key, [rule for text in value for rule in _pick_rule(key, text, picked)]
        else:
            yield key, value


def _pick_rule(key: str, text: Any, picked: PickedSettings) -> Iterator[Any]:
    if not isinstance(text, str):
        yield text
        return
    tool, bracket, about = text.partition("(")
    tool = _RENAMED_TOOLS.get(tool, tool)
    name = f"permissions.{key} {format_value(text)[1:-1]}"
    if tool not in _TOOLS and not tool.startswith("mcp__"):
        picked.rest.append(name)
        return
    try:
        yield PermissionRule.parse(f"{tool}{bracket}{about}").text
    except SettingsError:
        (picked.rest if key == "allow" else picked.missed).append(name)


def _join(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _group(name: str) -> str:
    """The key of the file that a name is about, to list them in order."""
    return name.partition(" ")[0]
