"""One agent definition: a markdown file whose first lines say what the agent is; the rest is its prompt.

People bring these files from other programs, so they are read with good will: lists or texts with commas,
`maxTurns`, `max-turns` or `max_turns`. What is not understood is said in words that name the file and the
mending, and never gives an agent more than its file clearly says.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from sevenfold.memory.agents.scopes import AgentScope
from sevenfold.memory.instructions.reading import decode, read
from sevenfold.memory.topics.entries import Entry
from sevenfold.memory.topics.frontmatter import Frontmatter, find_frontmatter
from sevenfold.memory.topics.reading import shortened, trimmed
from sevenfold.messages import whole_characters

Isolation: TypeAlias = Literal["worktree"]

LARGEST: Final = 64 * 1024
"""Bytes of a definition; nobody needs a longer prompt, and every request would carry it."""
DESCRIPTION: Final = 600
"""Characters of a description that are kept: all of them stand in the description of one tool."""
MOST_TURNS: Final = 10_000
RESERVED: Final = frozenset({"fork"})
"""Kinds of agent that no file can define."""
KEYS: Final = (
    "name, description, tools, disallowedTools, model, memory, background, isolation, maxTurns"
)
_KNOWN: Final = frozenset(key.strip().lower() for key in KEYS.split(","))
_FOREIGN: Final = frozenset({"color", "effort", "initialprompt", "mcpservers", "skills"})
"""Keys of other programs that ask for something this one does not have, and harm nobody by that."""
_UNAPPLIED: Final = ("hooks", "permissionmode")
"""Keys of theirs that somebody may rely on for their safety."""
_LONGEST_NAME: Final = 64
_NAME: Final = re.compile(r"[^\W_]+(?:[-_.: ][^\W_]+)*")
_TOOL: Final = re.compile(r"[A-Za-z][\w.:-]*\*?")
_SEPARATOR: Final = re.compile(r",(?![^()]*\))")
_STAR: Final = re.compile(r"(?m)^([ \t]*tools[ \t]*:[ \t]*)\*[ \t]*$")
_YES: Final = {"true": True, "yes": True, "on": True, "1": True}
_NO: Final = {"false": False, "no": False, "off": False, "0": False, "": False}


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent of one kind is."""

    name: str
    description: str = ""
    """When it is of use: what the model chooses by."""
    prompt: str
    tools: tuple[str, ...] | None = None
    """The names of its tools; None: all there are."""
    without: tuple[str, ...] = ()
    """Tools that it never has."""
    model: str | None = None
    """None: the model of whoever starts it."""
    memory: AgentScope | None = None
    background: bool = False
    isolation: Isolation | None = None
    only_looks: bool = False
    """Whether it may change nothing, whatever the rules say."""
    max_turns: int = 0
    """0: as many as the session allows."""
    path: Path | None = None
    """Its file; None for those that are built in."""


class Read(msgspec.Struct, frozen=True):
    """What came of one file."""

    definition: Definition | None = None
    problems: tuple[str, ...] = ()
    """Each names the file."""
    unknown: tuple[str, ...] = ()
    """Keys that mean nothing here."""
    unapplied: tuple[str, ...] = ()
    """Keys that would hold the agent back elsewhere, and do not here."""


def read_definition(path: Path, folder: Path) -> Read:
    """The definition in a file of this folder, with what is wrong with it; never raises."""
    real = _real(path)
    if real is None:
        return _left_out(path, "it is a link that leads nowhere; remove it")
    if not real.is_relative_to(folder.resolve()):
        return _left_out(
            path, "it is a link that leads out of its folder; put the file itself there"
        )
    content = read(real, LARGEST)
    if isinstance(content, str):
        return _left_out(path, content)
    text = decode(content.data)
    if isinstance(text, str):
        return _left_out(path, f"{text}; a definition is markdown in UTF-8")
    found = parsed(text.text, path)
    if not text.mended:
        return found
    mended = f"{shown(path)}: some of its bytes are no characters; save it as UTF-8"
    return replace(found, problems=(*found.problems, mended))


def parsed(text: str, path: Path) -> Read:
    """The definition in this text."""
    text = _STAR.sub(r'\1"*"', whole_characters(text))
    found = find_frontmatter(text)
    if found is None and path.stem.casefold() == "readme":
        return Read()
    prompt = trimmed(text[found.body if found else 0 :]).strip()
    reading = _Reading(path, found)
    name = reading.name()
    if not prompt:
        return _left_out(
            path, "it has no text below its first lines; write there what the agent is to do"
        )
    if not name:
        return reading.done(None)
    definition = Definition(
        name=name,
        description=reading.description(),
        prompt=prompt,
        tools=reading.tools(),
        without=reading.names("disallowedtools"),
        model=reading.model(),
        memory=reading.one_of("memory", get_args(AgentScope)),
        background=reading.background(),
        isolation=reading.one_of("isolation", get_args(Isolation)),
        max_turns=reading.max_turns(),
        path=path,
    )
    return reading.done(definition)


def wrong_name(name: str) -> str:
    """Why an agent cannot be called this; empty when it can."""
    if len(name) > _LONGEST_NAME:
        return f"it has more than {_LONGEST_NAME} characters"
    if not _NAME.fullmatch(name):
        return (
            "a name is made of letters and digits, with '-', '_', '.', ':' or a space between them"
        )
    if name.casefold() in RESERVED:
        return "that name is taken by Sevenfold itself"
    return ""


class _Reading:
    """The values of one file, and what is said about them."""

    def __init__(self, path: Path, found: Frontmatter | None) -> None:
        self._path, self.problems = path, list[str]()
        self._entries: dict[str, Entry] = {}
        if found is None:
            self._say("it does not begin with '---' and lines for name and description; add them")
            return
        if found.why or not found.closed:
            why = found.why or "its closing '---' is missing"
            self._say(f"its first lines are not quite YAML ({why}); put values in quotes")
        self._entries = {re.sub(r"[-_ ]", "", one.key).lower(): one for one in found.entries}

    def done(self, definition: Definition | None) -> Read:
        unknown, unapplied = list[str](), list[str]()
        for key, entry in self._entries.items():
            if key in _UNAPPLIED and not self._is_default(key):
                unapplied.append(plain(entry.key))
            elif key not in _KNOWN and key not in _FOREIGN and key not in _UNAPPLIED:
                unknown.append(plain(shortened(entry.key, 40)))
        return Read(definition, tuple(self.problems), tuple(unknown), tuple(unapplied))

    def _is_default(self, key: str) -> bool:
        """Whether it says no more than it would if it were not there."""
        entry = self._entries[key]
        return not entry.inner and not entry.items and entry.value in (None, "", "default")

    def _say(self, what: str) -> None:
        self.problems.append(f"{shown(self._path)}: {plain(what)}")

    def _text(self, key: str) -> str:
        entry = self._entries.get(key)
        if entry is None:
            return ""
        if entry.value is None and not entry.items:
            self._say(f"its {entry.key} is not a text; write it on one line")
        return " ".join((entry.value or ", ".join(entry.items)).split())

    def name(self) -> str:
        stem = unicodedata.normalize("NFC", self._path.stem)
        given = unicodedata.normalize("NFC", self._text("name"))
        if given and not (why := wrong_name(given)):
            return given
        if not (wrong := wrong_name(stem)):
            if given:
                self._say(
                    f"it cannot be called {given[:40]!r} ({why}); until that is changed it is {stem!r}"
                )
            return stem
        shown, why = (given[:40], why) if given else (stem[:40], wrong)
        self._say(f"it is left out, for it cannot be called {shown!r}: {why}; give it another name")
        return ""

    def description(self) -> str:
        text = self._text("description").replace("\\n", " ")
        if not text:
            self._say("it has no description, so that nobody knows when to use it; add one")
        return shortened(text, DESCRIPTION)

    def tools(self) -> tuple[str, ...] | None:
        if "tools" not in self._entries:
            return None
        names = self.names("tools", star=True)
        if "*" in names:
            return None
        if not names:
            self._say(
                "its list of tools is empty, so it has none; leave 'tools' out to give it all"
            )
        return names

    def names(self, key: str, *, star: bool = False) -> tuple[str, ...]:
        """The tools in a list, or in a text with commas."""
        entry = self._entries.get(key)
        if entry is None:
            return ()
        if entry.inner:
            self._say(f"its {entry.key} are not a list of names; write 'Read, Grep'")
        given = entry.items or (entry.value or "").strip().removeprefix("[").removesuffix(
            "]"
        ).split("\n")
        names = [part.strip(" \t\"'") for one in given for part in _SEPARATOR.split(one)]
        odd = [
            one for one in names if one and not _TOOL.fullmatch(one) and not (star and one == "*")
        ]
        if odd:
            said = ", ".join(shortened(one, 40) for one in odd[:5])
            self._say(
                f"{said} in its {entry.key} is not the name of a tool and does not count; name whole tools"
            )
        return tuple(dict.fromkeys(one for one in names if one and one not in odd))

    def model(self) -> str | None:
        text = self._text("model")
        return text if text and text.lower() not in ("inherit", "default") else None

    def one_of(self, key: str, known: Sequence[str]) -> Any:
        text = self._text(key).lower()
        if not text or text in ("none", "false", "no", "off"):
            return None
        if text not in known:
            self._say(f"{shortened(text, 40)!r} is no value for {key}; use {' or '.join(known)}")
            return None
        return text

    def background(self) -> bool:
        text = self._text("background").lower()
        if text not in _YES and text not in _NO:
            self._say(f"{shortened(text, 40)!r} is no value for background; use true or false")
        return _YES.get(text, False)

    def max_turns(self) -> int:
        text = self._text("maxturns")
        if not text:
            return 0
        if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= MOST_TURNS):
            self._say(
                f"{shortened(text, 40)!r} is no value for maxTurns; use a number from 1 to {MOST_TURNS:,}"
            )
            return 0
        return int(text)


def _real(path: Path) -> Path | None:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def _left_out(path: Path, why: str) -> Read:
    return Read(None, (f"{shown(path)} is left out: {why}",))


def plain(text: str) -> str:
    """As it may stand in a message: in place of what is not seen stands a mark."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def shown(path: Path) -> str:
    """A path as it may stand in a message: hidden characters are written out."""
    text = str(path)
    return text if text.isprintable() else ascii(text)
