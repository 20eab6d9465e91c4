"""Permission rules: decide if a tool may run, may not, or the user is asked. Deny beats ask beats allow.

Without any rule, reading inside the project and commands that only read are allowed, and everything else
is asked about. Files that usually hold secrets are asked about everywhere, and only a rule that names them
opens them: `Read(./**)` does not open `.env`, `Read(.env)` does.

Rules look like this: `Bash(git status:*)`, `Edit(./src/**)`, `mcp__server__*`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from copy import copy
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from sevenfold.core.errors import SettingsError
from sevenfold.core.messages import ToolUse
from sevenfold.core.protocols import ToolFailed
from sevenfold.tools import command_rules
from sevenfold.tools import workspace as path_rules
from sevenfold.tools.command_rules import find_reach, parse_cd, parts_of
from sevenfold.tools.permission_settings import Mode, PermissionRules
from sevenfold.tools.readonly_commands import READ_ONLY_COMMANDS
from sevenfold.tools.shell import CommandVerdict, classify_command, classify_within
from sevenfold.tools.workspace import (
    ResolvedPath,
    Workspace,
    is_inside,
    is_protected,
    is_secret_file,
    make_absolute,
    make_path_pattern,
)

READERS: Final = frozenset({"Read", "Grep", "Glob"})
EDITORS: Final = frozenset({"Edit", "Write"})
_FORM: Final = r"(?s)(?P<tool>[A-Za-z][\w-]*(?:\.[\w-]+)*\*?)(?:\((?P<about>.*)\))?"


class PermissionRule(msgspec.Struct, frozen=True):
    """One rule: a tool, and the pattern in its brackets; `None` means everything."""

    text: str
    tool: str
    about: str | None = None

    @classmethod
    def parse(cls, text: str) -> PermissionRule:
        found = re.fullmatch(_FORM, text.strip())
        if found is None:
            raise _make_error(text, "write Tool or Tool(what), for instance Bash(npm test)")
        tool, about = found["tool"], found["about"]
        if "*" in tool and not tool.startswith("mcp__"):
            raise _make_error(text, "only the names of mcp__ tools may end in *")
        if about is not None and not about.strip():
            raise _make_error(text, f"the brackets are empty; write {tool} for every use of it")
        if about is not None:
            _check_about(text, tool, about)
        return cls(text.strip(), tool, None if about in (None, "*", "**") else about)

    @classmethod
    def make_exact(cls, command: str) -> PermissionRule:
        return cls.parse(f"Bash({command_rules.make_exact_pattern(command)})")

    @property
    def names_secret(self) -> bool:
        """True if the rule names files that hold secrets, and does not merely include them."""
        return self.about is not None and is_secret_file(Path(self.about.removesuffix("/**")))

    @property
    def names_protected(self) -> bool:
        return self.about is not None and is_protected(Path(self.about.removesuffix("/**")))

    def is_for(self, name: str, *, loose: bool) -> bool:
        """True if the rule is about this tool."""
        if self.tool == name:
            return True
        if self.tool.startswith("mcp__"):
            whole_server = self.tool.count("__") == 1 and not self.tool.endswith("*")
            start = f"{self.tool}__" if whole_server else self.tool.removesuffix("*")
            return name.startswith(start) and start != self.tool
        if self.tool == "Read":
            return name in READERS
        return name in EDITORS and (self.tool == "Edit" or (loose and self.tool == "Write"))

    def is_match(
        self, use: ToolUse, place: ResolvedPath | None, root: Path, home: Path, *, loose: bool
    ) -> bool:
        """True if the rule matches this use of any tool but Bash."""
        if not self.is_for(use.name, loose=loose):
            return False
        if self.about is None:
            return True
        if self.tool == "WebFetch":
            return _is_host_match(self.about, str(use.input.get("url", "")))
        return place is not None and path_rules.is_pattern_match(self.about, place, root, home, loose=loose)


def _check_about(text: str, tool: str, about: str) -> None:
    if tool == "Bash":
        if about not in ("*", "**") and (wrong := command_rules.check_pattern(about)):
            raise _make_error(text, wrong)
    elif tool == "WebFetch":
        if not re.fullmatch(r"domain:[\w.*-]+", about):
            raise _make_error(text, "write WebFetch(domain:example.com)")
    elif tool in READERS | EDITORS:
        if "\0" in about:
            raise _make_error(text, "a path cannot hold a NUL character")
        braces, stars = about.count("{"), re.findall(r"\*+/?", about)
        deep = sum(star.startswith("**") for star in stars)
        if braces > 4 or deep > 4 or stars.count("**") > 2 or (braces and len(stars) > 3):
            raise _make_error(text, "it has too many patterns; write several rules")
    else:
        raise _make_error(text, f"{tool} takes no brackets; write {tool} alone")


def _make_error(text: str, why: str) -> SettingsError:
    return SettingsError(f"the permission rule {text!r} cannot be understood: {why}")


def _is_host_match(about: str, url: str) -> bool:
    try:
        host = (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return False
    wanted = about.removeprefix("domain:").lower()
    if wanted.startswith("*."):
        return host.endswith(wanted[1:])
    return host == wanted


Kind: TypeAlias = Literal["read", "edit", "run", "other"]
_classify: Final = lru_cache(maxsize=256)(classify_command)
_WITHOUT_GIT: Final = READ_ONLY_COMMANDS - {"git"}


@lru_cache(maxsize=256)
def _classify_without_git(part: str) -> CommandVerdict:
    return classify_within(part, _WITHOUT_GIT)


class PermissionCall(msgspec.Struct, frozen=True):
    """One use of a tool, parsed for the rules."""

    use: ToolUse
    kind: Kind
    places: tuple[ResolvedPath, ...] = ()
    """The file of a file tool, or the words of a command that could be paths."""
    command: str = ""
    parts: tuple[str, ...] | None = ()
    read_only: bool = False
    why: str = ""  # The reason why a command is not read-only
    unclear: str = ""  # The reason why a command may reach more than `places`
    redirected: bool = False
    detour: bool = False  # True if a path of it leads where only the running command can tell


def parse_call(use: ToolUse, workspace: Workspace) -> PermissionCall:
    """Parse a call; raises `ToolFailed` if it names an impossible path."""
    if use.name == "Bash":
        return _decide_command(use, workspace)
    if use.name in EDITORS or use.name == "Read":
        place = _find_place(workspace, use.input.get("file_path"))
        return PermissionCall(use, "edit" if use.name in EDITORS else "read", (place,))
    if use.name in READERS:
        return PermissionCall(use, "read", (_find_place(workspace, use.input.get("path", ".")),))
    return PermissionCall(use, "other")


def is_read_only(part: str) -> bool:
    return _classify(part).read_only


def is_git_read(part: str) -> bool:
    """True if a command only reads, but with git, which runs what the repository's files say."""
    return is_read_only(part) and not _classify_without_git(part).read_only


def is_look_only(command: str) -> bool:
    """True if every part of it only reads or changes the folder."""
    parts = parts_of(command)
    return parts is not None and all(is_read_only(part) or parse_cd(part) for part in parts)


def _find_place(workspace: Workspace, asked: object) -> ResolvedPath:
    if not isinstance(asked, str):
        raise ToolFailed("the path is missing")
    return ResolvedPath.of(workspace.locate(asked))


def _decide_command(use: ToolUse, workspace: Workspace) -> PermissionCall:
    command = use.input.get("command")
    if not isinstance(command, str) or not command.strip() or "\0" in command:
        raise ToolFailed("the command is missing, or holds a NUL character")
    parts, verdict = parts_of(command), _classify(command)
    reached = find_reach(command, parts, workspace.cwd, workspace.home)
    read_only = verdict.read_only and not use.input.get("run_in_background", False)
    return PermissionCall(
        use,
        "run",
        reached.places,
        command,
        parts,
        read_only,
        verdict.why,
        reached.unclear,
        reached.redirected,
        reached.detour,
    )


Behaviour: TypeAlias = Literal["allow", "ask", "deny"]


class PermissionDecision(msgspec.Struct, frozen=True):
    """The decision, its reason, the rule it comes from, and the rules that would allow the call."""

    behaviour: Behaviour
    reason: str
    rule: str = ""
    remedies: tuple[str, ...] = ()
    unasked: bool = False  # True if no rule and no user allowed a command: it runs in the sandbox


class _SharedMode(msgspec.Struct):
    """The mode that a session shares with its agents."""

    now: Mode


class Permissions:
    """The rules of one session. The mode may be switched, and rules added, while it runs."""

    def __init__(
        self,
        settings: PermissionRules,
        *,
        readable: Sequence[Path] = (),
        memory_dirs: Sequence[Path] = (),
        free: Collection[str] = (),
    ) -> None:
        """`readable`: folders that may be read. `memory_dirs`: `.md` files there may be changed.

        `free`: other tools that need no permission.
        """
        self._mode = _SharedMode(settings.mode or "default")
        self._allow = [PermissionRule.parse(text) for text in settings.allow]
        self._ask = [PermissionRule.parse(text) for text in settings.ask]
        self._deny = [PermissionRule.parse(text) for text in settings.deny]
        self._more = settings.additional_directories
        self._readable, self._memory = (*readable, *memory_dirs), tuple(memory_dirs)
        self._free = frozenset(free)
        self._looks = False

    @property
    def mode(self) -> Mode:
        return self._mode.now

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode.now = mode

    def make_agent_permissions(
        self, memory_dirs: Sequence[Path] | None, *, apart: bool = False, looks: bool = False
    ) -> Permissions:
        """The permissions of an agent: the same rules and mode, also as they change; its own memory.

        `apart`: it works in another folder, and rules added there hold nowhere else. `looks`: it may only
        read, whatever the rules allow.
        """
        other = copy(self)
        if memory_dirs is not None:
            other._readable, other._memory = (*self._readable, *memory_dirs), tuple(memory_dirs)
        other._allow = [*self._allow] if apart else self._allow
        other._looks = self._looks or looks
        return other

    def allow(self, rule: str) -> None:
        """Add a rule for this session."""
        self.add_rule("allow", rule)

    def add_rule(self, behaviour: Behaviour, rule: str) -> None:
        """Add a rule of one kind for this session."""
        self._get_rules(behaviour).append(PermissionRule.parse(rule))

    def list_rules(self, behaviour: Behaviour) -> tuple[str, ...]:
        """The rules of one kind, in the order in which they are asked."""
        return tuple(rule.text for rule in self._get_rules(behaviour))

    def _get_rules(self, behaviour: Behaviour) -> list[PermissionRule]:
        return {"allow": self._allow, "ask": self._ask, "deny": self._deny}[behaviour]

    def is_hidden(self, path: Path, workspace: Workspace) -> bool:
        """True if a search over a folder must leave this file out."""
        use = ToolUse("", "Read", {"file_path": str(path)})
        return self.decide(use, workspace).behaviour != "allow"

    def decide(self, use: ToolUse, workspace: Workspace) -> PermissionDecision:
        try:
            call = parse_call(use, workspace)
        except ToolFailed as error:
            return PermissionDecision("deny", str(error))
        if rule := self._find_restriction(self._deny, call, workspace):
            return PermissionDecision("deny", f"the rule {rule.text} denies it", rule.text)
        if self._looks and not (self._is_reading(call) or self._is_memory_edit(call)):
            return PermissionDecision(
                "deny", "this agent only looks: report what should be changed instead"
            )
        if self.mode == "bypassPermissions":
            return PermissionDecision("allow", "the mode bypassPermissions allows everything")
        if self.mode == "plan" and not self._is_reading(call):
            return PermissionDecision(
                "deny", "in plan mode nothing is changed; describe the change instead"
            )
        decision = self._decide_open(call, workspace)
        if decision.behaviour == "ask" and self.mode == "dontAsk":
            reason = f"{decision.reason}, and the mode dontAsk never asks"
            return msgspec.structs.replace(decision, behaviour="deny", reason=reason)
        return decision

    def _decide_open(self, call: PermissionCall, workspace: Workspace) -> PermissionDecision:
        """The decision about a call that no deny rule matches."""
        if rule := self._find_restriction(self._ask, call, workspace):
            return self._make_question(call, workspace, f"the rule {rule.text} wants it asked", rule.text)
        if call.kind == "run":
            return self._decide_command(call, workspace)
        if rule := self._find_permission(call, workspace):
            return PermissionDecision("allow", f"the rule {rule.text} allows it", rule.text)
        if call.kind == "read":
            doubt = self._find_doubt(call, workspace)
            return (
                self._make_question(call, workspace, doubt)
                if doubt
                else _make_approval("it reads in the project")
            )
        if call.kind == "edit":
            return self._decide_edit(call, workspace)
        if call.use.name in self._free:
            return _make_approval("it needs no permission of its own")
        return self._make_question(call, workspace, f"{call.use.name} may do anything")

    def _find_restriction(
        self, rules: list[PermissionRule], call: PermissionCall, workspace: Workspace
    ) -> PermissionRule | None:
        """The first of these rules, which deny or ask, that matches the call or might."""
        roots = workspace.roots
        return next(
            (r for r in rules if any(_is_restricted_at(at, r, call, workspace) for at in roots)), None
        )

    def _find_permission(self, call: PermissionCall, workspace: Workspace) -> PermissionRule | None:
        place = call.places[0] if call.places else None
        for rule in self._allow:
            if not rule.is_match(call.use, place, workspace.root, workspace.home, loose=False):
                continue
            if place is None or _is_opened_by(rule, call.kind, place, workspace):
                return rule
        return None

    def _decide_edit(self, call: PermissionCall, workspace: Workspace) -> PermissionDecision:
        place = call.places[0]
        if self._is_memory_edit(call):
            return _make_approval("it keeps a memory")
        if not self._is_within(place, workspace):
            return self._make_question(call, workspace, f"{place.real} is outside the project")
        if _is_kind(is_protected, place, workspace):
            why = f"{workspace.format_path(place.asked)} is a file that other programs act on or trust"
            return self._make_question(call, workspace, why)
        if self.mode == "acceptEdits":
            return _make_approval("the mode acceptEdits allows changes in the project")
        return self._make_question(call, workspace, f"it changes {workspace.format_path(place.asked)}")

    def _is_memory_edit(self, call: PermissionCall) -> bool:
        if call.kind != "edit" or call.places[0].real.suffix != ".md":
            return False
        return any(is_inside(call.places[0].real, folder) for folder in self._memory)

    def _decide_command(self, call: PermissionCall, workspace: Workspace) -> PermissionDecision:
        missing = self._find_unallowed(call, workspace)
        if not missing:
            reason = "every command in it only reads or is allowed by a rule"
            ruled = self._is_named_by_rule(call) or all(map(self._is_part_ruled, call.parts or ()))
            return PermissionDecision("allow", reason, unasked=not ruled)
        reason = f"it may change something: {call.why}"
        if call.use.input.get("run_in_background", False):
            reason = "it goes on running in the background"
        elif all(is_read_only(part) or parse_cd(part) for part in missing):
            reason = call.unclear or self._find_doubt(call, workspace)
        return PermissionDecision(
            "ask", reason, remedies=tuple(PermissionRule.make_exact(part).text for part in missing)
        )

    def _is_named_by_rule(self, call: PermissionCall) -> bool:
        """True if a rule allows every command, or this very one."""
        abouts = [rule.about for rule in self._allow if rule.tool == "Bash"]
        return any(about is None or command_rules.is_exact_command(about, call.command) for about in abouts)

    def _is_part_ruled(self, part: str) -> bool:
        abouts = (rule.about for rule in self._allow if rule.tool == "Bash")
        return any(about is not None and command_rules.is_command_allowed(about, part) for about in abouts)

    def _find_unallowed(self, call: PermissionCall, workspace: Workspace) -> list[str]:
        """The commands in it that are not harmless and that no rule allows."""
        if self._is_named_by_rule(call):
            return []
        clear = not call.unclear and not self._find_doubt(call, workspace)
        if call.parts is None or (call.redirected and not clear):
            return [call.command]
        background = call.use.input.get("run_in_background", False)
        return [
            part
            for part in call.parts
            if not self._is_part_ruled(part)
            and not (clear and not background and (is_read_only(part) or parse_cd(part)))
        ]

    def list_folders(self, workspace: Workspace) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """The folders outside the project that may be read, and those that count as part of it."""
        more = tuple(make_absolute(text, workspace.root, workspace.home) for text in self._more)
        return (*self._readable, workspace.outputs), more

    def _is_reading(self, call: PermissionCall) -> bool:
        if call.kind == "run":
            return is_look_only(call.command) and not call.use.input.get("run_in_background", False)
        return call.kind == "read" or call.use.name in self._free

    def _find_doubt(self, call: PermissionCall, workspace: Workspace) -> str:
        """The reason to ask before reading these places; empty: there is none."""
        places = call.places
        if call.kind == "run":
            places += (ResolvedPath.of(workspace.cwd),)
            if not workspace.trusted and any(is_git_read(part) for part in call.parts or ()):
                return (
                    "git runs what this folder's own files say, and the folder is not trusted"
                    " ('sevenfold trust' does)"
                )
        for place in places:
            if _is_kind(is_secret_file, place, workspace):
                return f"{workspace.format_path(place.asked)} may hold secrets"
            if not self._is_within(place, workspace, reading=True):
                return f"{place.real} is outside the project"
        return ""

    def _is_within(self, place: ResolvedPath, workspace: Workspace, *, reading: bool = False) -> bool:
        readable, more = self.list_folders(workspace)
        folders = (workspace.root, *more, *(readable if reading else ()))
        return any(is_inside(place.real, folder) for folder in folders)

    def _make_question(
        self, call: PermissionCall, workspace: Workspace, reason: str, rule: str = ""
    ) -> PermissionDecision:
        return PermissionDecision("ask", reason, rule, _find_remedies(call, workspace))


def _make_approval(reason: str) -> PermissionDecision:
    return PermissionDecision("allow", reason)


def _is_kind(check: Callable[[Path], bool], place: ResolvedPath, workspace: Workspace) -> bool:
    """True if the check holds for the place, as written or resolved, relative to the project."""
    return any(
        check(path.relative_to(workspace.root) if path.is_relative_to(workspace.root) else path)
        for path in (place.asked, place.real)
    )


def _is_opened_by(rule: PermissionRule, kind: str, place: ResolvedPath, workspace: Workspace) -> bool:
    """True if the rule opens this place: a secret or protected file only if the rule names it."""
    if kind == "read":
        return rule.names_secret or not _is_kind(is_secret_file, place, workspace)
    return rule.names_protected or not _is_kind(is_protected, place, workspace)


def _is_restricted_at(root: Path, rule: PermissionRule, call: PermissionCall, workspace: Workspace) -> bool:
    if call.kind != "run":
        place = call.places[0] if call.places else None
        return rule.is_match(call.use, place, root, workspace.home, loose=True)
    if rule.tool == "Bash":
        about, command = rule.about, call.command
        return (
            about is None
            or command_rules.is_exact_command(about, command)
            or command_rules.can_contain(about, command)
        )
    if rule.about is None or rule.tool not in EDITORS | {"Read"}:
        return False
    if rule.tool in EDITORS and call.read_only:
        return False
    # A file that may not be read may not be read by `cat` either, nor changed by `sed -i`.
    like = ToolUse("", rule.tool, {})
    return call.detour or any(
        rule.is_match(like, place, root, workspace.home, loose=True) for place in call.places
    )


def _find_remedies(call: PermissionCall, workspace: Workspace) -> tuple[str, ...]:
    """The rules that would allow this call."""
    if call.kind == "run":
        found = call.parts or (call.command,)
        return tuple(PermissionRule.make_exact(part).text for part in found)
    if not call.places:
        return (call.use.name,)
    place = call.places[0].real
    if call.kind == "edit":
        if place.is_relative_to(workspace.root) and not _is_kind(is_protected, call.places[0], workspace):
            return ("Edit(/**)",)
        return (f"Edit({make_path_pattern(place, workspace.root)})",)
    if _is_kind(is_secret_file, call.places[0], workspace):
        return (f"Read({make_path_pattern(place, workspace.root)})",)
    folder = place if place.is_dir() else place.parent
    return (f"Read({make_path_pattern(folder, workspace.root, below=True)})",)


def find_refusal_rules(use: ToolUse, workspace: Workspace) -> tuple[str, ...]:
    """The rules that would deny this very call."""
    try:
        call = parse_call(use, workspace)
    except ToolFailed:
        return ()
    if call.kind == "run":
        parts = call.parts or ()
        return (PermissionRule.make_exact(parts[0] if len(parts) == 1 else call.command).text,)
    if not call.places:
        return (use.name,)
    tool = "Edit" if call.kind == "edit" else "Read"
    return (f"{tool}({make_path_pattern(call.places[0].real, workspace.root)})",)
