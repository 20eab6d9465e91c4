"""The kinds of agent: built in, the user's, and the project's.

    found = find_definitions(list_definition_folders(home, tree if trusted else None))

A later folder goes before an earlier one: built in, `<home>/agents`, `<tree>/.claude/agents`,
`<tree>/.sevenfold/agents`. Nothing of a workspace that is not trusted may be loaded: what a definition says
becomes the first words of an agent that has tools. So its folders are not handed in at all.

A definition is a markdown file: its first lines say what the agent is, the rest is its prompt.
"""

from __future__ import annotations

import difflib
import os
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import Mistake
from sevenfold.core.messages import strip_half_characters
from sevenfold.memory.folder.agent_folders import AgentScope
from sevenfold.memory.instructions.reader import decode_text, read_content

if TYPE_CHECKING:
    from sevenfold.memory.frontmatter import Frontmatter, FrontmatterEntry

Isolation: TypeAlias = Literal["worktree"]

LARGEST: Final = 64 * 1024  # Longest definition, in bytes: every request carries it
DESCRIPTION: Final = 600
"""Characters of a description that are kept: all of them stand in the description of one tool."""
MOST_TURNS: Final = 10_000
RESERVED: Final = frozenset({"fork"})  # Kinds of agent that no file can define
KEYS: Final = "name, description, tools, disallowedTools, model, memory, background, isolation, maxTurns"
_KNOWN: Final = frozenset(key.strip().lower() for key in KEYS.split(","))
_FOREIGN: Final = frozenset({"color", "effort", "initialprompt", "mcpservers", "skills"})
"""Keys of other programs that ask for something this one does not have, which does no harm."""
_UNAPPLIED: Final = ("hooks", "permissionmode")  # Keys of theirs that users may rely on for their safety
_LONGEST_NAME: Final = 64
_NAME: Final = r"[^\W_]+(?:[-_.: ][^\W_]+)*"
_TOOL: Final = r"[A-Za-z][\w.:-]*\*?"
_SEPARATOR: Final = r",(?![^()]*\))"
_STAR: Final = r"(?m)^([ \t]*tools[ \t]*:[ \t]*)\*[ \t]*$"
_YES: Final = {"true": True, "yes": True, "on": True, "1": True}
_NO: Final = {"false": False, "no": False, "off": False, "0": False, "": False}


class AgentDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of one kind of agent."""

    name: str
    description: str = ""  # The use of this agent; the model chooses by it
    prompt: str
    tools: tuple[str, ...] | None = None  # The names of its tools; None: all there are
    without: tuple[str, ...] = ()  # Tools that it never has
    model: str | None = None  # None: the model of the conversation that starts it
    memory: AgentScope | None = None
    background: bool = False
    isolation: Isolation | None = None
    only_looks: bool = False  # True if it may change nothing, whatever the rules say
    max_turns: int = 0  # 0: as many as the session allows
    path: Path | None = None  # Its file; None for those that are built in


class DefinitionFile(msgspec.Struct, frozen=True):
    """The definition in one file, or the problem with it."""

    definition: AgentDefinition | None = None
    problems: tuple[str, ...] = ()  # Each names the file
    unknown: tuple[str, ...] = ()  # Keys that mean nothing here
    unapplied: tuple[str, ...] = ()  # Keys that would hold the agent back elsewhere, and do not here


def read_definition(path: Path, folder: Path) -> DefinitionFile:
    """The definition in a file of this folder, with what is wrong with it; never raises."""
    real = _real(path)
    if real is None:
        return _left_out(path, "it is a link that leads nowhere; remove it")
    if not real.is_relative_to(folder.resolve()):
        return _left_out(path, "it is a link that leads out of its folder; put the file itself there")
    content = read_content(real, LARGEST)
    if isinstance(content, str):
        return _left_out(path, content)
    text = decode_text(content.data)
    if isinstance(text, str):
        return _left_out(path, f"{text}; a definition is markdown in UTF-8")
    found = parse_definition(text.text, path)
    if not text.mended:
        return found
    mended = f"{format_path(path)}: some of its bytes are no characters; save it as UTF-8"
    return replace(found, problems=(*found.problems, mended))


def parse_definition(text: str, path: Path) -> DefinitionFile:
    """The definition in this text."""
    from sevenfold.memory.frontmatter import find_frontmatter
    from sevenfold.memory.topic_file import trim_body

    text = re.sub(_STAR, r'\1"*"', strip_half_characters(text))
    found = find_frontmatter(text)
    if found is None and path.stem.casefold() == "readme":
        return DefinitionFile()
    prompt = trim_body(text[found.body if found else 0 :]).strip()
    reading = _DefinitionReader(path, found)
    name = reading.name()
    if not prompt:
        return _left_out(path, "it has no text below its first lines; write there what the agent is to do")
    if not name:
        return reading.done(None)
    definition = AgentDefinition(
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


def explain_bad_name(name: str) -> str:
    """The reason why an agent cannot be called this; empty when it can."""
    if len(name) > _LONGEST_NAME:
        return f"it has more than {_LONGEST_NAME} characters"
    if not re.fullmatch(_NAME, name):
        return "a name is made of letters and digits, with '-', '_', '.', ':' or a space between them"
    if name.casefold() in RESERVED:
        return "that name is taken by Sevenfold itself"
    return ""


def _shorten(text: str, most: int) -> str:
    from sevenfold.memory.topic_file import shorten_text  # slow to import, and most projects define nothing

    return shorten_text(text, most)


class _DefinitionReader:
    """The values of one file, and what is said about them."""

    def __init__(self, path: Path, found: Frontmatter | None) -> None:
        self._path, self.problems = path, list[str]()
        self._entries: dict[str, FrontmatterEntry] = {}
        if found is None:
            self._say("it does not begin with '---' and lines for name and description; add them")
            return
        if found.why or not found.closed:
            why = found.why or "its closing '---' is missing"
            self._say(f"its first lines are not quite YAML ({why}); put values in quotes")
        self._entries = {re.sub(r"[-_ ]", "", one.key).lower(): one for one in found.entries}

    def done(self, definition: AgentDefinition | None) -> DefinitionFile:
        unknown, unapplied = list[str](), list[str]()
        for key, entry in self._entries.items():
            if key in _UNAPPLIED and not self._is_default(key):
                unapplied.append(mark_hidden_characters(entry.key))
            elif key not in _KNOWN and key not in _FOREIGN and key not in _UNAPPLIED:
                unknown.append(mark_hidden_characters(_shorten(entry.key, 40)))
        return DefinitionFile(definition, tuple(self.problems), tuple(unknown), tuple(unapplied))

    def _is_default(self, key: str) -> bool:
        """True if it says no more than it would if it were not there."""
        entry = self._entries[key]
        return not entry.inner and not entry.items and entry.value in (None, "", "default")

    def _say(self, what: str) -> None:
        self.problems.append(f"{format_path(self._path)}: {mark_hidden_characters(what)}")

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
        if given and not (why := explain_bad_name(given)):
            return given
        if not (wrong := explain_bad_name(stem)):
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
        return _shorten(text, DESCRIPTION)

    def tools(self) -> tuple[str, ...] | None:
        if "tools" not in self._entries:
            return None
        names = self.names("tools", star=True)
        if "*" in names:
            return None
        if not names:
            self._say("its list of tools is empty, so it has none; leave 'tools' out to give it all")
        return names

    def names(self, key: str, *, star: bool = False) -> tuple[str, ...]:
        """The tools in a list, or in a text with commas."""
        entry = self._entries.get(key)
        if entry is None:
            return ()
        if entry.inner:
            self._say(f"its {entry.key} are not a list of names; write 'Read, Grep'")
        given = entry.items or (entry.value or "").strip().removeprefix("[").removesuffix("]").split("\n")
        names = [part.strip(" \t\"'") for one in given for part in re.split(_SEPARATOR, one)]
        odd = [one for one in names if one and not re.fullmatch(_TOOL, one) and not (star and one == "*")]
        if odd:
            said = ", ".join(_shorten(one, 40) for one in odd[:5])
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
            self._say(f"{_shorten(text, 40)!r} is no value for {key}; use {' or '.join(known)}")
            return None
        return text

    def background(self) -> bool:
        text = self._text("background").lower()
        if text not in _YES and text not in _NO:
            self._say(f"{_shorten(text, 40)!r} is no value for background; use true or false")
        return _YES.get(text, False)

    def max_turns(self) -> int:
        text = self._text("maxturns")
        if not text:
            return 0
        if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= MOST_TURNS):
            self._say(
                f"{_shorten(text, 40)!r} is no value for maxTurns; use a number from 1 to {MOST_TURNS:,}"
            )
            return 0
        return int(text)


def _real(path: Path) -> Path | None:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def _left_out(path: Path, why: str) -> DefinitionFile:
    return DefinitionFile(None, (f"{format_path(path)} is left out: {why}",))


def mark_hidden_characters(text: str) -> str:
    """As it may stand in a message: in place of what is not seen stands a mark."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def format_path(path: Path) -> str:
    """A path as it may stand in a message: hidden characters are written out."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


FOLDER: Final = "agents"
MOST: Final = 200  # Definitions of one folder
NAMED: Final = 3  # Files, and keys, that one line about a folder names
GENERAL: Final = "general-purpose"
_ALL: Final = "'sevenfold agents list' shows all"
_INSTEAD: Final = "the rules and hooks of the session hold for every agent"
_LISTED: Final = 40  # Kinds that a mistake names
_FORMER: Final = {"task": "Agent"}  # Names of tools in other programs
_SIZES: Final = {"opus": "claude-opus-5-5", "sonnet": "claude-sonnet-5-5", "haiku": "claude-haiku-5-5"}
"""Names of models that only say how large, as other programs' files have them."""


def _prompt(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


BUILT_IN: Final[Mapping[str, AgentDefinition]] = {
    GENERAL: AgentDefinition(
        name=GENERAL,
        description="Takes on any task of several steps and reports: search, change, check. Has all tools.",
        prompt=_prompt("general_purpose.md"),
    ),
    "explore": AgentDefinition(
        name="explore",
        description="Finds out how something works or where something is, and changes nothing. "
        "For questions that take many searches.",
        prompt=_prompt("explore.md"),
        tools=("Read", "Grep", "Glob", "Bash"),
        only_looks=True,
    ),
}


class AgentDefinitions(msgspec.Struct, frozen=True):
    """The definitions by name, and what is to be said about their files."""

    definitions: dict[str, AgentDefinition]
    problems: tuple[str, ...] = ()  # Problems to mend, in a few lines for each folder
    every: tuple[str, ...] = ()  # The same for each file by itself, however many there are
    notes: tuple[str, ...] = ()  # Definitions that replace others; that may be just what was wanted


def list_definition_folders(home: Path, tree: Path | None) -> tuple[Path, ...]:
    """The folders with definitions; the last one goes before all others.

    `home` is the user's folder, or the one that is shared with another program. `tree` is the project's,
    and None where the workspace is not trusted.
    """
    folders = [home / FOLDER]
    if tree is not None:
        folders += [tree / ".claude" / FOLDER, tree / ".sevenfold" / FOLDER]
    return tuple(folders)


def find_definitions(folders: Sequence[Path]) -> AgentDefinitions:
    """All definitions, those of later folders first. Never raises: what is wrong is said."""
    definitions = {_key(name): one for name, one in BUILT_IN.items()}
    problems, every, notes, looked = list[str](), list[str](), list[str](), set[str]()
    for folder in folders:
        if (real := os.path.realpath(folder)) in looked:  # the user's folder and the project's may be one
            continue
        looked.add(real)
        found = _DefinitionFolder(folder)
        problems += found.in_short()
        every += found.in_full()
        notes += found.in_place_of(definitions)
        definitions |= found.own
    by_name = {one.name: one for one in definitions.values()}
    return AgentDefinitions(by_name, tuple(problems), tuple(every), tuple(notes))


class _DefinitionFolder:
    """The definitions of one folder, and what there is to say about them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.own: dict[str, AgentDefinition] = {}
        self._problems: list[str] = []
        self._unapplied: dict[Path, tuple[str, ...]] = {}
        self._unknown: dict[Path, tuple[str, ...]] = {}  # Files, and the keys in them that mean nothing
        for path in _files(folder, self._problems):
            read = read_definition(path, folder)
            self._problems += read.problems
            for keys, into in ((read.unapplied, self._unapplied), (read.unknown, self._unknown)):
                if keys:
                    into[path] = keys
            if read.definition is not None:
                self._take(path, read.definition)

    def _take(self, path: Path, one: AgentDefinition) -> None:
        if (first := self.own.setdefault(_key(one.name), one)) is not one:
            self._problems.append(
                f"{format_path(path)} is left out: {first.path} has the name {first.name!r} already; "
                "rename one"
            )

    def in_full(self) -> Iterator[str]:
        for path, keys in self._unapplied.items():
            yield f"{format_path(path)}: not applied: {', '.join(keys)}; {_INSTEAD}"
        yield from self._problems
        for path, keys in self._unknown.items():
            said = ", ".join(keys[:10])
            yield f"{format_path(path)}: nothing is done with {said}; the keys are {KEYS}"

    def in_short(self) -> Iterator[str]:
        """A few lines, however many files there are."""
        where = format_path(self._folder)
        if self._unapplied:
            yield f"{where}: not applied: {_keys_in(self._unapplied)}; {_INSTEAD}; {_ALL}"
        yield from self._problems[:NAMED]
        if (more := len(self._problems) - NAMED) > 0:
            yield f"{where}: {more:,} more to be mended; {_ALL}"
        if self._unknown:
            yield f"{where}: nothing is done with {_keys_in(self._unknown)}; {_ALL}"

    def in_place_of(self, known: Mapping[str, AgentDefinition]) -> Iterator[str]:
        """Sentences that name the known definitions which this folder replaces."""
        replaced = [(one, known[key]) for key, one in self.own.items() if key in known]
        for one, hidden in replaced[:NAMED]:
            what = hidden.path or f"the built-in agent {hidden.name!r}"
            yield f"{one.path} stands in place of {what}: the agent {one.name!r}"
        if (more := len(replaced) - NAMED) > 0:
            yield f"{format_path(self._folder)}: {more:,} more stand in place of others of the same name"


def _keys_in(files: Mapping[Path, Sequence[str]]) -> str:
    keys = [*dict.fromkeys(key for keys in files.values() for key in keys)]
    return f"{_some(keys)} in {_some([mark_hidden_characters(path.name) for path in files])}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def choose_definition(
    definitions: Mapping[str, AgentDefinition], name: str, also: Sequence[str] = ()
) -> AgentDefinition:
    """The definition of this name, in whatever case; `Mistake` names what there is, and `also` these."""
    if name in definitions:
        return definitions[name]
    keys = {_key(known): one for known, one in definitions.items()}
    if (found := keys.get(_key(name))) is not None:
        return found
    names = {_key(known): known for known in (*definitions, *also)}
    near = difflib.get_close_matches(_key(name), names, 1)
    hint = f"did you mean {names[near[0]]!r}? Those" if near else "those"
    asked = strip_half_characters(" ".join(name.split()))[:60]
    listed = [*names.values()]
    more = f" and {len(listed) - _LISTED:,} more" if len(listed) > _LISTED else ""
    raise Mistake(
        f"there is no agent of the kind {asked!r}; {hint} there are: {', '.join(listed[:_LISTED])}{more}"
    )


def fit_definition(
    definition: AgentDefinition, tools: Collection[str], model: str
) -> tuple[AgentDefinition, tuple[str, ...]]:
    """The definition with the tools that there are, and what is to be said about it.

    `tools` are the names of all tools that an agent could have, `model` is that of its parent. A
    tool that is not there is said and left out, never replaced by all of them.
    """
    where = definition.path or f"the agent {definition.name!r}"
    said = list[str]()
    missing = list[str]()
    kept = definition.tools
    if kept is not None:
        kept = tuple(dict.fromkeys(_resolved(kept, tools, missing)))
    if missing:
        hint = _meant(missing, tools) or "take it out, if it is not to come"
        said.append(f"{where}: no tool here is called {', '.join(missing[:10])}; {hint}")
    if definition.without:
        absent = list[str]()
        never = {*_resolved(definition.without, tools, absent)}
        kept = tuple(name for name in (tools if kept is None else kept) if name not in never)
        if absent:
            hint = _meant(absent, tools) or "take it out, if it is not to come"
            said.append(
                f"{where}: {', '.join(absent[:10])} in its disallowedTools denies nothing, for no tool "
                f"here is called so; {hint}"
            )
    wanted = definition.model
    if wanted is not None and wanted.lower() in _SIZES:
        at_home = model.removeprefix("anthropic:").startswith("claude-")
        wanted = _SIZES[wanted.lower()] if at_home else None
        if not at_home:
            said.append(
                f"{where}: {definition.model!r} says only how large its model is, and {model} is none of "
                "that family; it gets the same model, name one to change that"
            )
    return replace(definition, tools=kept, model=wanted), tuple(said)


def _meant(missing: Sequence[str], tools: Collection[str]) -> str:
    near = difflib.get_close_matches(missing[0], tools, 1)
    return f"did you mean {near[0]}?" if near else ""


def _resolved(names: Sequence[str], tools: Collection[str], missing: list[str]) -> Iterator[str]:
    """The tools that are meant, in whatever case; `mcp__x` and `mcp__x__*` mean all of one server."""
    known = {tool.lower(): tool for tool in tools}
    for name in names:
        lower = _FORMER.get(name.lower(), name).lower()
        pattern = f"{lower}__*" if lower.startswith("mcp__") and "__" not in lower[5:] else lower
        found = [tool for key, tool in known.items() if key == lower or fnmatchcase(key, pattern)]
        if not found:
            missing.append(name)
        yield from found


def _files(folder: Path, problems: list[str]) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        problems.append(f"{folder} could not be read: {why}; its agents are left out")
        return []
    names = [name for name in names if name.lower().endswith(".md") and name[0] != "."]
    if len(names) > MOST:
        problems.append(
            f"{folder} holds {len(names):,} definitions and only the first {MOST} count; remove some"
        )
    return [folder / name for name in names[:MOST]]


def _key(name: str) -> str:
    return name.casefold()
