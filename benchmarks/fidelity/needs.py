"""What an agent demonstrably needed after a compaction, of what the compaction took away.

A thing was needed when one of the next calls, or the words around them, uses it, when it stood in what was
taken away, and when the user has not said it again since. Two ways are told apart:

    used        it had not come back through a tool by then: it came from the summary, or was guessed
    read again  a tool had shown it again before: the agent had to look for what it once had

What was used favours the summary that the agent really had; what was read again is what that summary
lacked. Both together is what was needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from sevenfold.core.messages import Message, ToolUse
from sevenfold.core.transcript import Entry, PlacedMessage, Reply
from sevenfold.layers.shared.facts import summarise_call
from sevenfold.layers.shared.fidelity import (
    ItemFinder,
    extract_user_text,
    find_names,
    find_paths,
    iterate_strings,
)

CALLS: Final = 30
"""How many calls after a compaction are looked at."""
RUN: Final = 4
"""So many words of an old message in the agent's own words show that it was taken up again."""
ORDINARY: Final = re.compile(
    r"(?:cat|cd|cp|echo|find|git|grep|head|ls|mkdir|mv|pwd|rg|rm|sed|sort|tail|touch|wc|which) "
)
"""Commands that any agent knows without having been told."""
_SEPARATORS: Final = re.compile(r"\s*(?:&&|\|\||[;\n])\s*")
_REDIRECTION: Final = re.compile(r"\s*\d?>{1,2}\s*(?:&\d|\S+)")
_WORD: Final = re.compile(r"\w+")


class Needs(msgspec.Struct, frozen=True):
    paths: frozenset[str] = frozenset()
    """Files that tools were pointed at again."""
    names_used: frozenset[str] = frozenset()
    names_read: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()
    instructions: tuple[str, ...] = ()
    """Messages of the user that were taken up again."""
    said: tuple[str, ...] = ()
    """All messages of the user that were taken away."""
    calls: int = 0


_Look = Callable[[ItemFinder, Needs], Mapping[str, float]]
KINDS: Final[tuple[tuple[str, _Look], ...]] = (
    ("paths", lambda there, needs: there.paths(needs.paths)),
    ("names, used", lambda there, needs: there.names(needs.names_used)),
    ("names, read again", lambda there, needs: there.names(needs.names_read)),
    ("commands run again", lambda there, needs: there.quoted(needs.commands)),
    ("user instructions taken up", lambda there, needs: there.quoted(needs.instructions)),
)


def needs_of(removed: Sequence[PlacedMessage], after: Iterable[Entry], calls: int = CALLS) -> Needs:
    """What the agent needed in its next calls of what had been removed."""
    needing = _Needing(removed)
    for entry in after:
        match entry.what:
            case Reply(message):
                needing.act(message)
            case Message() as message:
                needing.hear(message)
            case _:
                pass
        if needing.calls >= calls:
            break
    return needing.needs


def commands_in(use: ToolUse) -> set[str]:
    """The single commands of a command line, without redirections, pipes and what stands in quotes."""
    call = summarise_call(use)
    if call.kind != "command":
        return set()
    found: set[str] = set()
    for part in _SEPARATORS.split(call.about.partition("<<")[0]):
        command = _REDIRECTION.sub("", part.partition("|")[0]).strip()
        if " " in command and not ORDINARY.match(command) and not {*command} & {*"\"'"}:
            found.add(command)
    return found


class _Needing:
    def __init__(self, removed: Sequence[PlacedMessage]) -> None:
        text = "\n".join(part for placed in removed for part in _whole(placed.message))
        self._names, self._paths = find_names(text), _paths(removed)
        uses = [use for placed in removed for use in placed.message.tool_uses]
        self._commands = {command for use in uses for command in commands_in(use)}
        self._said = tuple(text for placed in removed if (text := extract_user_text(placed)))
        self._told: set[str] = set()
        self._shown: set[str] = set()
        self._own: list[str] = []
        self._needed: dict[str, set[str]] = {
            kind: set() for kind in ("paths", "names_used", "names_read", "commands")
        }
        self.calls = 0

    def hear(self, message: Message) -> None:
        """Of what a tool shows it may be that it was asked for; what the user says was not."""
        self._told |= _things(message.text)
        for result in message.results:
            self._shown |= _things(result.text)

    def act(self, message: Message) -> None:
        self.calls += len(message.tool_uses)
        own = [message.text, *(text for use in message.tool_uses for text in iterate_strings(use.input))]
        self._own += own
        names = find_names("\n".join(own))
        self._take_names({name for name in names & self._names if not name.startswith("--")})
        paths = {call.about for use in message.tool_uses if (call := summarise_call(use)).kind in _FILES}
        self._needed["paths"] |= (paths & self._paths) - self._told
        for use in message.tool_uses:
            self._needed["commands"] |= commands_in(use) & self._commands

    def _take_names(self, names: set[str]) -> None:
        """Each once, as what it was when it was first needed."""
        used, read = self._needed["names_used"], self._needed["names_read"]
        new = names - self._told - used - read
        read |= new & self._shown
        used |= new - self._shown

    @property
    def needs(self) -> Needs:
        own = "\n".join(self._own)
        runs, things = _runs(own), _things(own) - self._told
        taken_up = tuple(text for text in self._said if _runs(text) & runs or _things(text) & things)
        needed = {kind: frozenset(some) for kind, some in self._needed.items()}
        return Needs(**needed, instructions=taken_up, said=self._said, calls=self.calls)


_FILES: Final = ("read", "change")


def _paths(removed: Sequence[PlacedMessage]) -> set[str]:
    """The files that tools were pointed at, and those that words named by their whole path."""
    calls = (summarise_call(use) for placed in removed for use in placed.message.tool_uses)
    found = {call.about for call in calls if call.kind in _FILES}
    return found.union(*(find_paths("\n".join(_whole(placed.message))) for placed in removed))


def _whole(message: Message) -> Iterator[str]:
    yield message.text
    yield from (result.text for result in message.results)
    yield from (text for use in message.tool_uses for text in iterate_strings(use.input))


def _things(text: str) -> set[str]:
    return find_names(text) | find_paths(text)


def _runs(text: str) -> set[tuple[str, ...]]:
    words = [word.lower() for word in _WORD.findall(text)]
    return set(zip(*(words[i:] for i in range(RUN)), strict=False))
