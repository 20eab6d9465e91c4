"""Decides whether a tool may run: allowed, denied, or to be asked about. Deny beats ask beats allow.

Without any rule: reading inside the project and commands that only read pass, everything else is
asked about. Files that usually hold secrets are asked about wherever they are, and a rule opens them
only if it speaks of them: `Read(./**)` does not open `.env`, `Read(.env)` does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import copy
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.messages import ToolUse
from sevenfold.protocols import ToolFailed
from sevenfold.tools import command_rules
from sevenfold.tools.calls import Call, only_looks, reads_only, runs_git, take_apart
from sevenfold.tools.path_rules import Place, naming
from sevenfold.tools.paths import absolute, inside, protected, secret
from sevenfold.tools.reach import moves_to
from sevenfold.tools.rules import EDITORS, Rule
from sevenfold.tools.workspace import Workspace

Mode: TypeAlias = Literal["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk"]
Behaviour: TypeAlias = Literal["allow", "ask", "deny"]
_NARROWING: Final = ("plan", "dontAsk")


class PermissionSettings(
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

    def restricting(self) -> PermissionSettings:
        """Only what takes away: all that a workspace nobody trusts may say."""
        mode = self.mode if self.mode in _NARROWING else None
        return PermissionSettings(mode, ask=self.ask, deny=self.deny)

    def over(self, lower: PermissionSettings) -> PermissionSettings:
        """Both together; the mode is this one's, where it has one."""
        return PermissionSettings(
            self.mode or lower.mode,
            self.allow + lower.allow,
            self.ask + lower.ask,
            self.deny + lower.deny,
            self.additional_directories + lower.additional_directories,
        )


class Decision(msgspec.Struct, frozen=True):
    """What is to happen, why, by which rule, and which rules would allow it."""

    behaviour: Behaviour
    reason: str
    rule: str = ""
    remedies: tuple[str, ...] = ()


class _Mode(msgspec.Struct):
    """Shared by a session and its agents: to switch it is to switch it for all."""

    now: Mode


class Permissions:
    """The rules of one session. The mode may be switched, and rules added, while it runs."""

    def __init__(
        self,
        settings: PermissionSettings,
        *,
        readable: Sequence[Path] = (),
        memory_dirs: Sequence[Path] = (),
        free: Collection[str] = (),
    ) -> None:
        """`readable`: folders open to reading. `memory_dirs`: `.md` files there may be changed.

        `free`: other tools that need no permission of their own.
        """
        self._mode = _Mode(settings.mode or "default")
        self._allow = [Rule.parse(text) for text in settings.allow]
        self._ask = [Rule.parse(text) for text in settings.ask]
        self._deny = [Rule.parse(text) for text in settings.deny]
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
        self._allow.append(Rule.parse(rule))

    def hides(self, path: Path, workspace: Workspace) -> bool:
        """Whether a search over a folder must leave this file out."""
        use = ToolUse("", "Read", {"file_path": str(path)})
        return self.decide(use, workspace).behaviour != "allow"

    def decide(self, use: ToolUse, workspace: Workspace) -> Decision:
        try:
            call = take_apart(use, workspace)
        except ToolFailed as error:
            return Decision("deny", str(error))
        if rule := self._held_back(self._deny, call, workspace):
            return Decision("deny", f"the rule {rule.text} denies it", rule.text)
        if self._looks and not (self._only_looks(call) or self._keeps_memory(call)):
            return Decision("deny", "this agent only looks: report what should be changed instead")
        if self.mode == "bypassPermissions":
            return Decision("allow", "the mode bypassPermissions allows everything")
        if self.mode == "plan" and not self._only_looks(call):
            return Decision("deny", "in plan mode nothing is changed; describe the change instead")
        decision = self._open(call, workspace)
        if decision.behaviour == "ask" and self.mode == "dontAsk":
            reason = f"{decision.reason}, and the mode dontAsk never asks"
            return msgspec.structs.replace(decision, behaviour="deny", reason=reason)
        return decision

    def _open(self, call: Call, workspace: Workspace) -> Decision:
        """The decision once nothing denies it outright."""
        if rule := self._held_back(self._ask, call, workspace):
            return self._asking(call, workspace, f"the rule {rule.text} wants it asked", rule.text)
        if call.kind == "run":
            return self._command(call, workspace)
        if rule := self._allowed_by(call, workspace):
            return Decision("allow", f"the rule {rule.text} allows it", rule.text)
        if call.kind == "read":
            doubt = self._doubt(call, workspace)
            return (
                self._asking(call, workspace, doubt) if doubt else _fine("it reads in the project")
            )
        if call.kind == "edit":
            return self._edit(call, workspace)
        if call.use.name in self._free:
            return _fine("it needs no permission of its own")
        return self._asking(call, workspace, f"{call.use.name} may do anything")

    def _held_back(self, rules: list[Rule], call: Call, workspace: Workspace) -> Rule | None:
        return next((rule for rule in rules if _holds(rule, call, workspace)), None)

    def _allowed_by(self, call: Call, workspace: Workspace) -> Rule | None:
        place = call.places[0] if call.places else None
        where = (workspace.root, workspace.home)
        for rule in self._allow:
            if not rule.fits(call.use, place, *where, loose=False):
                continue
            if place is None or _opens(rule, call.kind, place, workspace):
                return rule
        return None

    def _edit(self, call: Call, workspace: Workspace) -> Decision:
        place = call.places[0]
        if self._keeps_memory(call):
            return _fine("it keeps a memory")
        if not self._within(place, workspace):
            return self._asking(call, workspace, f"{place.real} is outside the project")
        if _is(protected, place, workspace):
            why = f"{workspace.shown(place.asked)} is a file that other programs act on or trust"
            return self._asking(call, workspace, why)
        if self.mode == "acceptEdits":
            return _fine("the mode acceptEdits allows changes in the project")
        return self._asking(call, workspace, f"it changes {workspace.shown(place.asked)}")

    def _keeps_memory(self, call: Call) -> bool:
        if call.kind != "edit" or call.places[0].real.suffix != ".md":
            return False
        return any(inside(call.places[0].real, folder) for folder in self._memory)

    def _command(self, call: Call, workspace: Workspace) -> Decision:
        missing = self._not_allowed(call, workspace)
        if not missing:
            return _fine("every command in it only reads or is allowed by a rule")
        reason = f"it may change something: {call.why}"
        if call.use.input.get("run_in_background", False):
            reason = "it goes on running in the background"
        elif all(reads_only(part) or moves_to(part) for part in missing):
            reason = call.unclear or self._doubt(call, workspace)
        return Decision("ask", reason, remedies=tuple(Rule.exactly(part).text for part in missing))

    def _not_allowed(self, call: Call, workspace: Workspace) -> list[str]:
        """The commands in it that neither a rule allows nor are harmless by themselves."""
        rules = [rule for rule in self._allow if rule.tool == "Bash"]
        if any(rule.about is None for rule in rules):
            return []
        abouts = [rule.about for rule in rules if rule.about is not None]
        if any(command_rules.allows_text(about, call.command) for about in abouts):
            return []
        clear = not call.unclear and not self._doubt(call, workspace)
        if call.parts is None or (call.redirected and not clear):
            return [call.command]
        background = call.use.input.get("run_in_background", False)
        return [
            part
            for part in call.parts
            if not any(command_rules.allows(about, part) for about in abouts)
            and not (clear and not background and (reads_only(part) or moves_to(part)))
        ]

    def _only_looks(self, call: Call) -> bool:
        if call.kind == "run":
            return only_looks(call.command) and not call.use.input.get("run_in_background", False)
        return call.kind == "read" or call.use.name in self._free

    def _doubt(self, call: Call, workspace: Workspace) -> str:
        """Why reading these is not a matter of course; empty: it is."""
        places = call.places
        if call.kind == "run":
            places += (Place.of(workspace.cwd),)
            if not workspace.trusted and any(runs_git(part) for part in call.parts or ()):
                return (
                    "git runs what this folder's own files say, and the folder is not trusted"
                    " ('sevenfold trust' does)"
                )
        for place in places:
            if _is(secret, place, workspace):
                return f"{workspace.shown(place.asked)} may hold secrets"
            if not self._within(place, workspace, reading=True):
                return f"{place.real} is outside the project"
        return ""

    def _within(self, place: Place, workspace: Workspace, *, reading: bool = False) -> bool:
        more = [absolute(text, workspace.root, workspace.home) for text in self._more]
        folders = [workspace.root, *more]
        if reading:
            folders += [*self._readable, workspace.outputs]
        return any(inside(place.real, folder) for folder in folders)

    def _asking(self, call: Call, workspace: Workspace, reason: str, rule: str = "") -> Decision:
        return Decision("ask", reason, rule, _remedies(call, workspace))


def _fine(reason: str) -> Decision:
    return Decision("allow", reason)


def _is(check: Callable[[Path], bool], place: Place, workspace: Workspace) -> bool:
    """Whether the place is of this sort, as written or where it leads; the project's own is not."""
    return any(
        check(path.relative_to(workspace.root) if path.is_relative_to(workspace.root) else path)
        for path in (place.asked, place.real)
    )


def _opens(rule: Rule, kind: str, place: Place, workspace: Workspace) -> bool:
    """A wide rule does not open what is kept apart; a rule that speaks of it does."""
    if kind == "read":
        return rule.names_secret or not _is(secret, place, workspace)
    return rule.names_protected or not _is(protected, place, workspace)


def _holds(rule: Rule, call: Call, workspace: Workspace) -> bool:
    """Whether a rule that denies or asks means this call, or might."""
    return any(_holds_at(root, rule, call, workspace) for root in workspace.roots)


def _holds_at(root: Path, rule: Rule, call: Call, workspace: Workspace) -> bool:
    where = (root, workspace.home)
    if call.kind != "run":
        place = call.places[0] if call.places else None
        return rule.fits(call.use, place, *where, loose=True)
    if rule.tool == "Bash":
        return rule.about is None or command_rules.holds(rule.about, call.command)
    if rule.about is None or rule.tool not in EDITORS | {"Read"}:
        return False
    if rule.tool in EDITORS and call.read_only:
        return False
    # A file that may not be read may not be read by `cat` either, nor changed by `sed -i`.
    like = ToolUse("", rule.tool, {})
    return any(rule.fits(like, place, *where, loose=True) for place in call.places)


def _remedies(call: Call, workspace: Workspace) -> tuple[str, ...]:
    """The rules that would let this call pass the next time."""
    if call.kind == "run":
        found = call.parts or (call.command,)
        return tuple(Rule.exactly(part).text for part in found)
    if not call.places:
        return (call.use.name,)
    place = call.places[0].real
    if call.kind == "edit":
        if place.is_relative_to(workspace.root) and not _is(protected, call.places[0], workspace):
            return ("Edit(/**)",)
        return (f"Edit({naming(place, workspace.root)})",)
    if _is(secret, call.places[0], workspace):
        return (f"Read({naming(place, workspace.root)})",)
    folder = place if place.is_dir() else place.parent
    return (f"Read({naming(folder, workspace.root, below=True)})",)
