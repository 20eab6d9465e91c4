"""Decides whether a tool may run: allowed, denied, or to be asked about. Deny beats ask beats allow.

Without any rule: reading inside the project and commands that only read pass, everything else is
asked about. Files that usually hold secrets are asked about wherever they are, and a rule opens them
only if it speaks of them: `Read(./**)` does not open `.env`, `Read(.env)` does.

Permission rules as people write them: `Bash(git status:*)`, `Edit(./src/**)`, `mcp__server__*`.
What a tool call would touch: the places it names, the commands it runs, and what is unclear.
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
from sevenfold.tools import paths as path_rules
from sevenfold.tools.command_rules import find_reach, parse_cd, parts_of
from sevenfold.tools.paths import (
    ResolvedPath,
    is_inside,
    is_protected,
    is_secret_file,
    make_absolute,
    make_path_pattern,
)
from sevenfold.tools.readonly_commands import READ_ONLY_COMMANDS
from sevenfold.tools.shell import CommandVerdict, classify_command, classify_within
from sevenfold.tools.workspace import Workspace

READERS: Final = frozenset({"Read", "Grep", "Glob"})
EDITORS: Final = frozenset({"Edit", "Write"})
_FORM: Final = r"(?s)(?P<tool>[A-Za-z][\w-]*(?:\.[\w-]+)*\*?)(?:\((?P<about>.*)\))?"


class PermissionRule(msgspec.Struct, frozen=True):
    """One rule: a tool, and what it is about; `None` means everything."""

    text: str
    tool: str
    about: str | None = None

    @classmethod
    def parse(cls, text: str) -> PermissionRule:
        found = re.fullmatch(_FORM, text.strip())
        if found is None:
            raise _wrong(text, "write Tool or Tool(what), for instance Bash(npm test)")
        tool, about = found["tool"], found["about"]
        if "*" in tool and not tool.startswith("mcp__"):
            raise _wrong(text, "only the names of mcp__ tools may end in *")
        if about is not None and not about.strip():
            raise _wrong(text, f"the brackets are empty; write {tool} for every use of it")
        if about is not None:
            _check_about(text, tool, about)
        return cls(text.strip(), tool, None if about in (None, "*", "**") else about)

    @classmethod
    def exactly(cls, command: str) -> PermissionRule:
        return cls.parse(f"Bash({command_rules.make_exact_pattern(command)})")

    @property
    def names_secret(self) -> bool:
        """Whether the rule speaks of files that hold secrets, and does not merely include them."""
        return self.about is not None and is_secret_file(Path(self.about.removesuffix("/**")))

    @property
    def names_protected(self) -> bool:
        return self.about is not None and is_protected(Path(self.about.removesuffix("/**")))

    def is_for(self, name: str, *, loose: bool) -> bool:
        """Whether the rule speaks of this tool at all."""
        if self.tool == name:
            return True
        if self.tool.startswith("mcp__"):
            whole_server = self.tool.count("__") == 1 and not self.tool.endswith("*")
            start = f"{self.tool}__" if whole_server else self.tool.removesuffix("*")
            return name.startswith(start) and start != self.tool
        if self.tool == "Read":
            return name in READERS
        return name in EDITORS and (self.tool == "Edit" or (loose and self.tool == "Write"))

    def fits(
        self, use: ToolUse, place: ResolvedPath | None, root: Path, home: Path, *, loose: bool
    ) -> bool:
        """Whether the rule means this use of any tool but Bash."""
        if not self.is_for(use.name, loose=loose):
            return False
        if self.about is None:
            return True
        if self.tool == "WebFetch":
            return _host_fits(self.about, str(use.input.get("url", "")))
        return place is not None and path_rules.is_pattern_match(self.about, place, root, home, loose=loose)


def _check_about(text: str, tool: str, about: str) -> None:
    if tool == "Bash":
        if about not in ("*", "**") and (wrong := command_rules.check_pattern(about)):
            raise _wrong(text, wrong)
    elif tool == "WebFetch":
        if not re.fullmatch(r"domain:[\w.*-]+", about):
            raise _wrong(text, "write WebFetch(domain:example.com)")
    elif tool in READERS | EDITORS:
        if "\0" in about:
            raise _wrong(text, "a path cannot hold a NUL character")
        braces, stars = about.count("{"), re.findall(r"\*+/?", about)
        deep = sum(star.startswith("**") for star in stars)
        if braces > 4 or deep > 4 or stars.count("**") > 2 or (braces and len(stars) > 3):
            raise _wrong(text, "it has too many patterns; write several rules")
    else:
        raise _wrong(text, f"{tool} takes no brackets; write {tool} alone")


def _wrong(text: str, why: str) -> SettingsError:
    return SettingsError(f"the permission rule {text!r} cannot be understood: {why}")


def _host_fits(about: str, url: str) -> bool:
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
    """One use of a tool, taken apart for the rules."""

    use: ToolUse
    kind: Kind
    places: tuple[ResolvedPath, ...] = ()
    """The file of a file tool, or the words of a command that could be paths."""
    command: str = ""
    parts: tuple[str, ...] | None = ()
    read_only: bool = False
    why: str = ""
    """Why a command is not read-only."""
    unclear: str = ""
    """Why a command may reach more than `places`."""
    redirected: bool = False


def parse_call(use: ToolUse, workspace: Workspace) -> PermissionCall:
    """Raises `ToolFailed` when the call names a path that cannot be one."""
    if use.name == "Bash":
        return _command(use, workspace)
    if use.name in EDITORS or use.name == "Read":
        place = _place(workspace, use.input.get("file_path"))
        return PermissionCall(use, "edit" if use.name in EDITORS else "read", (place,))
    if use.name in READERS:
        return PermissionCall(use, "read", (_place(workspace, use.input.get("path", ".")),))
    return PermissionCall(use, "other")


def is_read_only(part: str) -> bool:
    return _classify(part).read_only


def is_git_read(part: str) -> bool:
    """Whether a command only reads, but by git, which does what the repository's own files say."""
    return is_read_only(part) and not _classify_without_git(part).read_only


def is_look_only(command: str) -> bool:
    """Whether all of it reads or goes to another folder."""
    parts = parts_of(command)
    return parts is not None and all(is_read_only(part) or parse_cd(part) for part in parts)


def _place(workspace: Workspace, asked: object) -> ResolvedPath:
    if not isinstance(asked, str):
        raise ToolFailed("the path is missing")
    return ResolvedPath.of(workspace.locate(asked))


def _command(use: ToolUse, workspace: Workspace) -> PermissionCall:
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
    )


Mode: TypeAlias = Literal["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk"]
Behaviour: TypeAlias = Literal["allow", "ask", "deny"]
_NARROWING: Final = ("plan", "dontAsk")


class PermissionRules(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"mode": "defaultMode", "additional_directories": "additionalDirectories"},
):
    """The `permissions` part of a settings file."""

    mode: Mode | None = None
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    additional_directories: tuple[str, ...] = ()
    """Folders that count as if they were in the project."""

    def restricting(self) -> PermissionRules:
        """Only what takes away: all that a workspace nobody trusts may say."""
        mode = self.mode if self.mode in _NARROWING else None
        return PermissionRules(mode, ask=self.ask, deny=self.deny)

    def over(self, lower: PermissionRules) -> PermissionRules:
        """Both together; the mode is this one's, where it has one."""
        return PermissionRules(
            self.mode or lower.mode,
            self.allow + lower.allow,
            self.ask + lower.ask,
            self.deny + lower.deny,
            self.additional_directories + lower.additional_directories,
        )


class PermissionDecision(msgspec.Struct, frozen=True):
    """What is to happen, why, by which rule, and which rules would allow it."""

    behaviour: Behaviour
    reason: str
    rule: str = ""
    remedies: tuple[str, ...] = ()


class _SharedMode(msgspec.Struct):
    """Shared by a session and its agents: to switch it is to switch it for all."""

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
        """`readable`: folders open to reading. `memory_dirs`: `.md` files there may be changed.

        `free`: other tools that need no permission of their own.
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

    def beside(
        self, memory_dirs: Sequence[Path] | None, *, apart: bool = False, looks: bool = False
    ) -> Permissions:
        """For an agent: the same rules and the same mode, also as they change; its own memory, if any.

        `apart`: it works in another folder, and what it is allowed there holds nowhere else. `looks`: it
        changes nothing, whatever rules would let it.
        """
        other = copy(self)
        if memory_dirs is not None:
            other._readable, other._memory = (*self._readable, *memory_dirs), tuple(memory_dirs)
        other._allow = [*self._allow] if apart else self._allow
        other._looks = self._looks or looks
        return other

    def allow(self, rule: str) -> None:
        """From now on, in this session."""
        self._allow.append(PermissionRule.parse(rule))

    def hides(self, path: Path, workspace: Workspace) -> bool:
        """Whether a search over a folder must leave this file out."""
        use = ToolUse("", "Read", {"file_path": str(path)})
        return self.decide(use, workspace).behaviour != "allow"

    def decide(self, use: ToolUse, workspace: Workspace) -> PermissionDecision:
        try:
            call = parse_call(use, workspace)
        except ToolFailed as error:
            return PermissionDecision("deny", str(error))
        if rule := self._held_back(self._deny, call, workspace):
            return PermissionDecision("deny", f"the rule {rule.text} denies it", rule.text)
        if self._looks and not (self._only_looks(call) or self._keeps_memory(call)):
            return PermissionDecision(
                "deny", "this agent only looks: report what should be changed instead"
            )
        if self.mode == "bypassPermissions":
            return PermissionDecision("allow", "the mode bypassPermissions allows everything")
        if self.mode == "plan" and not self._only_looks(call):
            return PermissionDecision(
                "deny", "in plan mode nothing is changed; describe the change instead"
            )
        decision = self._open(call, workspace)
        if decision.behaviour == "ask" and self.mode == "dontAsk":
            reason = f"{decision.reason}, and the mode dontAsk never asks"
            return msgspec.structs.replace(decision, behaviour="deny", reason=reason)
        return decision

    def _open(self, call: PermissionCall, workspace: Workspace) -> PermissionDecision:
        """The decision once nothing denies it outright."""
        if rule := self._held_back(self._ask, call, workspace):
            return self._asking(call, workspace, f"the rule {rule.text} wants it asked", rule.text)
        if call.kind == "run":
            return self._command(call, workspace)
        if rule := self._allowed_by(call, workspace):
            return PermissionDecision("allow", f"the rule {rule.text} allows it", rule.text)
        if call.kind == "read":
            doubt = self._doubt(call, workspace)
            return self._asking(call, workspace, doubt) if doubt else _fine("it reads in the project")
        if call.kind == "edit":
            return self._edit(call, workspace)
        if call.use.name in self._free:
            return _fine("it needs no permission of its own")
        return self._asking(call, workspace, f"{call.use.name} may do anything")

    def _held_back(
        self, rules: list[PermissionRule], call: PermissionCall, workspace: Workspace
    ) -> PermissionRule | None:
        return next((rule for rule in rules if _holds(rule, call, workspace)), None)

    def _allowed_by(self, call: PermissionCall, workspace: Workspace) -> PermissionRule | None:
        place = call.places[0] if call.places else None
        where = (workspace.root, workspace.home)
        for rule in self._allow:
            if not rule.fits(call.use, place, *where, loose=False):
                continue
            if place is None or _opens(rule, call.kind, place, workspace):
                return rule
        return None

    def _edit(self, call: PermissionCall, workspace: Workspace) -> PermissionDecision:
        place = call.places[0]
        if self._keeps_memory(call):
            return _fine("it keeps a memory")
        if not self._within(place, workspace):
            return self._asking(call, workspace, f"{place.real} is outside the project")
        if _is(is_protected, place, workspace):
            why = f"{workspace.shown(place.asked)} is a file that other programs act on or trust"
            return self._asking(call, workspace, why)
        if self.mode == "acceptEdits":
            return _fine("the mode acceptEdits allows changes in the project")
        return self._asking(call, workspace, f"it changes {workspace.shown(place.asked)}")

    def _keeps_memory(self, call: PermissionCall) -> bool:
        if call.kind != "edit" or call.places[0].real.suffix != ".md":
            return False
        return any(is_inside(call.places[0].real, folder) for folder in self._memory)

    def _command(self, call: PermissionCall, workspace: Workspace) -> PermissionDecision:
        missing = self._not_allowed(call, workspace)
        if not missing:
            return _fine("every command in it only reads or is allowed by a rule")
        reason = f"it may change something: {call.why}"
        if call.use.input.get("run_in_background", False):
            reason = "it goes on running in the background"
        elif all(is_read_only(part) or parse_cd(part) for part in missing):
            reason = call.unclear or self._doubt(call, workspace)
        return PermissionDecision(
            "ask", reason, remedies=tuple(PermissionRule.exactly(part).text for part in missing)
        )

    def _not_allowed(self, call: PermissionCall, workspace: Workspace) -> list[str]:
        """The commands in it that neither a rule allows nor are harmless by themselves."""
        rules = [rule for rule in self._allow if rule.tool == "Bash"]
        if any(rule.about is None for rule in rules):
            return []
        abouts = [rule.about for rule in rules if rule.about is not None]
        if any(command_rules.is_exact_command(about, call.command) for about in abouts):
            return []
        clear = not call.unclear and not self._doubt(call, workspace)
        if call.parts is None or (call.redirected and not clear):
            return [call.command]
        background = call.use.input.get("run_in_background", False)
        return [
            part
            for part in call.parts
            if not any(command_rules.is_command_allowed(about, part) for about in abouts)
            and not (clear and not background and (is_read_only(part) or parse_cd(part)))
        ]

    def _only_looks(self, call: PermissionCall) -> bool:
        if call.kind == "run":
            return is_look_only(call.command) and not call.use.input.get("run_in_background", False)
        return call.kind == "read" or call.use.name in self._free

    def _doubt(self, call: PermissionCall, workspace: Workspace) -> str:
        """Why reading these is not a matter of course; empty: it is."""
        places = call.places
        if call.kind == "run":
            places += (ResolvedPath.of(workspace.cwd),)
            if not workspace.trusted and any(is_git_read(part) for part in call.parts or ()):
                return (
                    "git runs what this folder's own files say, and the folder is not trusted"
                    " ('sevenfold trust' does)"
                )
        for place in places:
            if _is(is_secret_file, place, workspace):
                return f"{workspace.shown(place.asked)} may hold secrets"
            if not self._within(place, workspace, reading=True):
                return f"{place.real} is outside the project"
        return ""

    def _within(self, place: ResolvedPath, workspace: Workspace, *, reading: bool = False) -> bool:
        more = [make_absolute(text, workspace.root, workspace.home) for text in self._more]
        folders = [workspace.root, *more]
        if reading:
            folders += [*self._readable, workspace.outputs]
        return any(is_inside(place.real, folder) for folder in folders)

    def _asking(
        self, call: PermissionCall, workspace: Workspace, reason: str, rule: str = ""
    ) -> PermissionDecision:
        return PermissionDecision("ask", reason, rule, _remedies(call, workspace))


def _fine(reason: str) -> PermissionDecision:
    return PermissionDecision("allow", reason)


def _is(check: Callable[[Path], bool], place: ResolvedPath, workspace: Workspace) -> bool:
    """Whether the place is of this sort, as written or where it leads; the project's own is not."""
    return any(
        check(path.relative_to(workspace.root) if path.is_relative_to(workspace.root) else path)
        for path in (place.asked, place.real)
    )


def _opens(rule: PermissionRule, kind: str, place: ResolvedPath, workspace: Workspace) -> bool:
    """A wide rule does not open what is kept apart; a rule that speaks of it does."""
    if kind == "read":
        return rule.names_secret or not _is(is_secret_file, place, workspace)
    return rule.names_protected or not _is(is_protected, place, workspace)


def _holds(rule: PermissionRule, call: PermissionCall, workspace: Workspace) -> bool:
    """Whether a rule that denies or asks means this call, or might."""
    return any(_holds_at(root, rule, call, workspace) for root in workspace.roots)


def _holds_at(root: Path, rule: PermissionRule, call: PermissionCall, workspace: Workspace) -> bool:
    where = (root, workspace.home)
    if call.kind != "run":
        place = call.places[0] if call.places else None
        return rule.fits(call.use, place, *where, loose=True)
    if rule.tool == "Bash":
        return rule.about is None or command_rules.can_contain(rule.about, call.command)
    if rule.about is None or rule.tool not in EDITORS | {"Read"}:
        return False
    if rule.tool in EDITORS and call.read_only:
        return False
    # A file that may not be read may not be read by `cat` either, nor changed by `sed -i`.
    like = ToolUse("", rule.tool, {})
    return any(rule.fits(like, place, *where, loose=True) for place in call.places)


def _remedies(call: PermissionCall, workspace: Workspace) -> tuple[str, ...]:
    """The rules that would let this call pass the next time."""
    if call.kind == "run":
        found = call.parts or (call.command,)
        return tuple(PermissionRule.exactly(part).text for part in found)
    if not call.places:
        return (call.use.name,)
    place = call.places[0].real
    if call.kind == "edit":
        if place.is_relative_to(workspace.root) and not _is(is_protected, call.places[0], workspace):
            return ("Edit(/**)",)
        return (f"Edit({make_path_pattern(place, workspace.root)})",)
    if _is(is_secret_file, call.places[0], workspace):
        return (f"Read({make_path_pattern(place, workspace.root)})",)
    folder = place if place.is_dir() else place.parent
    return (f"Read({make_path_pattern(folder, workspace.root, below=True)})",)
