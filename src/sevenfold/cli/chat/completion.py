"""Completion in the chat: commands and their arguments after `/`, files of the project after `@`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from sevenfold.cli.output import make_printable, to_one_line
from sevenfold.core.errors import SevenfoldError
from sevenfold.core.messages import ToolUse
from sevenfold.storage.walk import find_relative_path, walk_files

if TYPE_CHECKING:
    from sevenfold.session.session import Session
    from sevenfold.tools.workspace import Workspace

MOST_FILES: Final = 50_000  # Files of a project that are looked at
MOST_OFFERED: Final = 40
FRESH: Final = 5.0  # Seconds for which a list of files is used again
_MENTION: Final = re.compile(r'(?<!\S)@("?)((?:\\.|[^\s"])*|(?<=")[^"\n]*)$')


class CompletionRow(NamedTuple):
    """Something that may be inserted, and a few words about it."""

    text: str
    about: str = ""


ArgumentSource: TypeAlias = "Callable[[Session, Sequence[str]], Iterable[CompletionRow]]"


# --- matching -------------------------------------------------------------------------------------------


def rank_candidates(query: str, candidates: Iterable[CompletionRow]) -> list[CompletionRow]:
    """Those that hold the letters of the query in their order; the best first."""
    wanted, found = query.casefold(), []
    for at, one in enumerate(candidates):
        score = score_match(wanted, one.text.casefold())
        if score is None and one.about and len(wanted) > 1 and wanted in one.about.casefold():
            score = 900
        if score is not None:
            found.append((score, at, one))
    return [one for _, _, one in sorted(found, key=lambda each: each[:2])]


def score_match(wanted: str, text: str) -> int | None:
    """A low number for a good match; None where a letter is missing. Both are in lower case."""
    if not wanted:
        return 0
    name = text.rstrip("/").rpartition("/")[2]
    if text.startswith(wanted):
        return len(text) - len(wanted) if text == wanted else 1
    if name.startswith(wanted):
        return 100 + min(len(text), 90)
    if wanted in name:
        return 200 + min(len(text), 90)
    if wanted in text:
        return 300 + min(len(text), 90)
    return _score_letters(wanted, text)


def _score_letters(wanted: str, text: str) -> int | None:
    """By the gaps between the letters; a letter that begins a word is no gap."""
    at, gaps = -1, 0
    for letter in wanted:
        if (found := text.find(letter, at + 1)) < 0:
            return None
        if found != at + 1 and (found == 0 or text[found - 1] not in "/_-. "):
            gaps += 1
        at = found
    return 400 + min(gaps * 20 + len(text) // 4, 490)


# --- files ----------------------------------------------------------------------------------------------


class ProjectFiles:
    """The files and folders of a project that git does not ignore, as they were a moment ago."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._known: tuple[str, float, list[CompletionRow]] | None = None

    def list(self, root: str, cwd: str) -> list[CompletionRow]:
        """Paths as they are written from `cwd`; folders end in a slash."""
        place = f"{root}\0{cwd}"
        if self._known and self._known[0] == place and self._now() - self._known[1] < FRESH:
            return self._known[2]
        files = [find_relative_path(e.path, root) for e in islice(walk_files(root), MOST_FILES)]
        folders = sorted({folder for path in files for folder in _list_parents(path)})
        paths = [*files, *(f"{folder}/" for folder in folders)]
        if root != cwd:
            paths = [_write_from(cwd, root, path) for path in paths]
        found = [CompletionRow(path) for path in paths if path.isprintable()]
        self._known = (place, self._now(), found)
        return found


def _list_parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _write_from(cwd: str, root: str, path: str) -> str:
    """The path as it is written in another folder, the slash of a folder kept."""
    return os.path.relpath(f"{root}/{path}", cwd) + ("/" if path.endswith("/") else "")


def list_folder(workspace: Workspace, typed: str) -> list[CompletionRow]:
    """What begins so in a folder that need not belong to the project: `/`, `~/` and `../`."""
    start, _, name = typed.rpartition("/")
    try:
        with os.scandir(workspace.locate(f"{start}/")) as entries:
            found = sorted(
                f"{start}/{one.name}{'/' if one.is_dir() else ''}"
                for one in islice(entries, MOST_FILES)
                if one.name.startswith(name) and (name.startswith(".") or not one.name.startswith("."))
            )
    except (OSError, SevenfoldError):
        return []
    return [CompletionRow(path) for path in found if path.isprintable()]


# --- arguments of commands ------------------------------------------------------------------------------


def _list_models(session: Session, before: Sequence[str]) -> Iterator[CompletionRow]:
    from sevenfold.models.capabilities import list_model_names

    if not before:
        yield from map(CompletionRow, list_model_names(price.model for price in session.ledger.prices))


def _list_sessions(session: Session, before: Sequence[str]) -> Iterator[CompletionRow]:
    from sevenfold.cli.commands.sessions import list_conversations

    if not before:
        rows, _ = list_conversations(session.places, besides=session.id)
        yield from (CompletionRow(row.id, row.first_words) for row in rows)


def _list_memories(session: Session, before: Sequence[str]) -> Iterator[CompletionRow]:
    if not before:
        yield from map(CompletionRow, ("show", "undo", "path"))
    elif before in (["show"], ["undo"]) and session.knowledge.store is not None:
        topics = session.knowledge.store.topics()
        yield from (CompletionRow(one.name, one.description) for one in topics)


def _list_agents(session: Session, before: Sequence[str]) -> Iterator[CompletionRow]:
    if not before:
        yield from map(CompletionRow, ("show", "stop"))
    elif len(before) == 1:
        yield from _name_agents(session)


def _list_receivers(session: Session, before: Sequence[str]) -> Iterator[CompletionRow]:
    if not before:
        yield from (*_name_agents(session), CompletionRow("*", "all teammates"))


def _list_tasks(session: Session, before: Sequence[str]) -> Iterator[CompletionRow]:
    if not before:
        yield CompletionRow("kill", "stop the dream or an agent")
    elif before == ["kill"]:
        yield from (CompletionRow("dream"), *_name_agents(session))


def _name_agents(session: Session) -> Iterator[CompletionRow]:
    return (CompletionRow(one.name, one.description) for one in session.agents.agents)


def _list_turns(session: Session, before: Sequence[str]) -> Iterator[CompletionRow]:
    from sevenfold.session.commands import list_past_turns

    if not before:
        turns = list_past_turns(session.turn.transcript)
        yield from (CompletionRow(str(one.number), one.said) for one in reversed(turns))


def _list_settings(session: Session, before: Sequence[str]) -> Iterator[CompletionRow]:
    from sevenfold.settings.checks import describe_settings

    if not before:
        yield from (CompletionRow(key, meaning) for key, _, _, meaning in describe_settings())


def _list_rules(session: Session, before: Sequence[str]) -> Iterator[CompletionRow]:
    if not before:
        yield from map(CompletionRow, ("mode", "allow", "ask", "deny"))
    elif before == ["mode"]:
        yield from map(CompletionRow, ("default", "acceptEdits", "plan", "dontAsk"))


def _make_words(*words: str) -> ArgumentSource:
    return lambda session, before: () if before else map(CompletionRow, words)


ARGUMENTS: Final[dict[str, ArgumentSource]] = {
    "/agents": _list_agents,
    "/compact": _make_words("from", "up_to"),
    "/config": _list_settings,
    "/dream": _make_words("status", "review", "accept", "reject", "undo", "kill"),
    "/init": _make_words("AGENTS.md", "CLAUDE.md"),
    "/memory": _list_memories,
    "/model": _list_models,
    "/permissions": _list_rules,
    "/resume": _list_sessions,
    "/rewind": _list_turns,
    "/send": _list_receivers,
    "/tasks": _list_tasks,
}


class ChatCompleter(Completer):
    """Completes what stands before the cursor; it runs in a thread of its own."""

    def __init__(self, session_of: Callable[[], Session | None]) -> None:
        self._session_of, self._files = session_of, ProjectFiles()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        session, text = self._session_of(), document.text_before_cursor
        if session is None:
            return
        if found := _MENTION.search(text):
            yield from self._complete_file(session, found[1] + found[2])
        elif text.startswith("/") and "\n" not in text:
            yield from _complete_command(session, text)

    def _complete_file(self, session: Session, typed: str) -> Iterator[Completion]:
        workspace, query = session.tools.workspace, typed.removeprefix('"')
        if query.startswith(("/", "~/", "../")):
            found = list_folder(workspace, query)
        else:
            paths = self._files.list(str(workspace.root), str(workspace.cwd))
            found = rank_candidates(query, paths)
        for one in found[:MOST_OFFERED]:
            use = ToolUse("", "Read", {"file_path": one.text})
            if session.tools.permissions.decide(use, workspace).behaviour != "deny":
                path = f'"{one.text}"' if " " in one.text else one.text
                yield Completion(path, -len(typed), display=one.text)


def _complete_command(session: Session, text: str) -> Iterator[Completion]:
    from sevenfold.cli.chat.slash import COMMANDS

    name, space, rest = text.partition(" ")
    if not space:
        commands = (CompletionRow(name, about) for name, (_, _, about) in COMMANDS.items())
        yield from _make_completions(name, commands)
        return
    *before, typed = rest.split(" ")
    try:
        offered = (
            [*ARGUMENTS[name](session, [word for word in before if word])] if name in ARGUMENTS else []
        )
    except (SevenfoldError, OSError):  # a folder that cannot be read offers nothing
        return
    yield from _make_completions(typed, offered)


def _make_completions(typed: str, offered: Iterable[CompletionRow]) -> Iterator[Completion]:
    for one in rank_candidates(typed, offered)[:MOST_OFFERED]:
        about = to_one_line(one.about, 70) if one.about else ""
        yield Completion(make_printable(one.text), -len(typed), display_meta=about)
