"""`sevenfold sessions`, and a bounded search in the transcripts of a project, newest first."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import (
    ask_yes_or_no,
    fit_line,
    format_bytes,
    format_call,
    format_count,
    format_outcome,
    format_time,
    make_printable,
    print_message,
    print_result,
    to_one_line,
)
from sevenfold.cli.startup import read_command_context, read_transcript
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake, Refused, StorageFailure
from sevenfold.core.messages import Message, Text, Thinking, ToolResult, ToolUse, encode_block
from sevenfold.core.transcript import PlacedMessage
from sevenfold.storage.cleanup import CleanupReport, StorageLimits
from sevenfold.storage.cleanup import clean_project as clean_up
from sevenfold.storage.jsonl import read_log
from sevenfold.storage.places import ProjectPaths, SessionInfo, find_session, list_sessions, remove_session


class SessionRow(msgspec.Struct, frozen=True):
    """One line of the list."""

    id: str
    at: float
    messages: int
    first_words: str
    model: str
    bytes: int
    last_words: str = ""
    prompts: int = 0
    one_shot: bool = False  # It was asked by `-p`


class _ReplyMessage(msgspec.Struct, frozen=True):
    content: msgspec.Raw = msgspec.Raw(b"[]")


class _EntryPayload(msgspec.Struct, frozen=True):
    type: str = ""
    name: str = ""
    value: Any = None
    content: msgspec.Raw = msgspec.Raw(b"[]")
    message: _ReplyMessage = _ReplyMessage()


class _ListedEntry(msgspec.Struct, frozen=True):
    """As much of an entry as the list needs; the rest is not decoded."""

    what: _EntryPayload = _EntryPayload()
    by: str = ""


class _ListedBlock(msgspec.Struct):
    text: str = ""


_PIPED: Final = re.compile(r"\n\n<(stdin-*)>\n.*</\1>\s*\Z", re.DOTALL)  # `chat` adds it for piped text
_entry_decoder = msgspec.json.Decoder(_ListedEntry)
_block_decoder = msgspec.json.Decoder(list[_ListedBlock])


def summarise_session(info: SessionInfo) -> SessionRow:
    messages = prompts = 0
    first, title, model, one_shot = "", "", "", False
    said: list[msgspec.Raw] = []
    for line in _read_entries(info.path):
        what = line.what
        if what.type in ("message", "reply"):
            messages += 1
            if line.by == "user" and what.type == "message":
                prompts += 1
                said.append(what.content)
                first = first or _PIPED.sub("", _join_texts(what.content))
            elif what.type == "reply":
                said.append(what.message.content)
        elif what.type == "mark" and what.name == "title":
            title = str(what.value)
        elif what.type == "mark" and what.name == "frame" and isinstance(what.value, dict):
            model = str(what.value.get("model", ""))
        elif what.type == "mark" and what.name == "session" and isinstance(what.value, dict):
            one_shot = bool(what.value.get("oneShot", what.value.get("interactive") is False))
    return SessionRow(
        info.id,
        info.at,
        messages,
        to_one_line(title or first, 100),
        model,
        info.size,
        next((text for content in reversed(said) if (text := to_one_line(_join_texts(content)))), ""),
        prompts,
        one_shot,
    )


def _join_texts(content: msgspec.Raw) -> str:
    try:
        return " ".join(block.text for block in _block_decoder.decode(content))
    except (msgspec.MsgspecError, UnicodeDecodeError):  # a damaged line
        return ""


def _read_entries(path: Path) -> Iterator[_ListedEntry]:
    for line in read_log(path).split(b"\n"):
        try:
            yield _entry_decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):  # torn, or of a kind we do not know
            continue


def summarise_sessions(places: ProjectPaths) -> list[SessionRow]:
    """Newest first."""
    return [summarise_session(info) for info in list_sessions(places)]


MOST_LOOKED_AT: Final = 100  # Newest sessions of which the list of conversations is made


def list_conversations(places: ProjectPaths, *, besides: str = "") -> tuple[list[SessionRow], int]:
    """The newest sessions that a person talked in, and the number of one-shot runs among them."""
    infos = [info for info in list_sessions(places) if info.id != besides][:MOST_LOOKED_AT]
    rows: list[SessionRow] = []
    for info in infos:
        with contextlib.suppress(StorageFailure):  # removed just now, or not ours to read
            rows.append(summarise_session(info))
    talks = [row for row in rows if not row.one_shot or row.prompts > 1]
    return talks, len(rows) - len(talks)


def format_session_table(known: list[SessionRow], *, terminal: bool = False) -> str:
    """The list for people; at a terminal it has a header, and no line is broken."""
    ids = max((len(s.id) for s in known), default=0)
    models = max((len(s.model) for s in known), default=0)
    if terminal:
        ids, models = max(ids, len("session")), max(models, len("model"))
    rows = [
        f"{s.id:<{ids}}  {format_time(s.at)}  {s.messages:>8}  {s.model:<{models}}  {s.first_words}"
        for s in known
    ]
    if not terminal or not known:
        return "\n".join(rows)
    head = f"{'session':<{ids}}  {'last used':<16}  messages  {'model':<{models}}  first words"
    columns = shutil.get_terminal_size().columns
    return "\n".join(fit_line(row, columns) for row in (head, *rows))


def show_list(shared: SharedOptions) -> int:
    places = read_command_context(shared).find_session_places()
    known = summarise_sessions(places)
    if not known:
        print_message(shared, f"there is no session of {places.root} yet; 'sevenfold chat' starts one")
    text = format_session_table(known, terminal=sys.stdout.isatty())
    print_result(shared, text, {"project": str(places.root), "sessions": known})
    return 0


def show_session(shared: SharedOptions, session: str) -> int:
    path = find_session(read_command_context(shared).find_session_places(), session)
    transcript = read_transcript(path)
    for problem in transcript.problems:
        print_message(shared, f"{path.name}:{problem.line} cannot be read: {problem.why}")
    said = [
        {"id": p.id, "role": p.message.role, "by": p.by, "content": [*map(encode_block, p.message.content)]}
        for p in transcript.view
    ]
    text = "\n\n".join(filter(None, format_conversation(list(transcript.view))))
    print_result(shared, text, {"session": path.stem, "path": str(path), "messages": said})
    return 0


def collect_results(view: list[PlacedMessage]) -> dict[str, ToolResult]:
    return {r.tool_use_id: r for placed in view for r in placed.message.results}


def format_conversation(
    view: list[PlacedMessage], results: dict[str, ToolResult] | None = None
) -> Iterator[str]:
    """The conversation for people: text in full, each tool call in one line with its outcome."""
    results = collect_results(view) if results is None else results
    for placed in view:
        if placed.by == "user":
            yield "\n".join(f"> {line}" for line in make_printable(placed.message.text).splitlines())
        elif placed.message.role == "assistant":
            yield "\n".join(filter(None, _format_assistant(placed.message, results)))
        elif placed.message.text:
            yield f"({placed.by}) {to_one_line(placed.message.text, 200)}"


def _format_assistant(message: Message, results: dict[str, ToolResult]) -> Iterator[str]:
    for block in message.content:
        if isinstance(block, Text):
            yield make_printable(block.text.strip())
        elif isinstance(block, Thinking) and block.thinking:
            yield f"(thinking) {to_one_line(block.thinking, 200)}"
        elif isinstance(block, ToolUse):
            answered = results.get(block.id)
            yield f"→ {format_call(block)} · {format_outcome(answered) if answered else 'no answer'}"


def run_remove(shared: SharedOptions, session: str, yes: bool) -> int:
    places = read_command_context(shared).find_session_places()
    path = find_session(places, session)
    if not yes:
        _confirm_removal(summarise_session(next(one for one in list_sessions(places) if one.path == path)))
    remove_session(places, path.stem)
    print_message(shared, f"removed session {path.stem}")
    print_result(shared, "", {"session": path.stem, "removed": True})
    return 0


def _confirm_removal(one: SessionRow) -> None:
    if not sys.stdin.isatty():
        raise Mistake(f"removing {one.id} has to be confirmed: add --yes")
    about = f"{format_count(one.messages, 'message')}, {format_time(one.at)}: {one.first_words}"
    if not ask_yes_or_no(f"Delete session {one.id} ({about})? [y/N] "):
        raise Refused(f"session {one.id} was kept")


def run_clean(shared: SharedOptions, days: int | None, dry_run: bool) -> int:
    around = read_command_context(shared)
    places, settings = around.find_session_places(), around.load_settings().settings
    limits = StorageLimits(days or settings.cleanup_days, settings.tool_results.quota_megabytes)
    done = clean_up(places.project, SystemClock().now(), limits, dry_run=dry_run)
    for problem in done.problems:
        print_message(shared, problem)
    value = {"project": str(places.root), "days": limits.days, "dry_run": dry_run}
    text = "\n".join([*(done.removed if dry_run else ()), _describe_cleanup(done, dry_run)])
    print_result(shared, text, {**value, **msgspec.structs.asdict(done)})
    return 1 if done.problems else 0


def _describe_cleanup(done: CleanupReport, dry_run: bool) -> str:
    what = f"{format_count(done.files, 'file')}, {format_bytes(done.bytes)}"
    if done.sessions:
        what = f"{format_count(len(done.sessions), 'session')}; {what}"
    kept = f"; {done.in_use:,} more still in use and kept" if done.in_use else ""
    return f"{'would remove' if dry_run else 'removed'} {what}{kept}"
