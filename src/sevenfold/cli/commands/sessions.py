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
from sevenfold.storage.files import make_storage_failure
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


BLOCK: Final = 4 << 20
LONGEST: Final = 64 << 20  # A longer entry (bytes) is not searched
AROUND: Final = 100  # Characters that are shown on each side of the first match
IN_ONE: Final = 3  # Most hits from one entry
_ASIDE: Final = frozenset({"type", "id", "tool_use_id", "signature", "data", "media_type", "name"})
"""Fields of a block that are not text."""


class GrepHit(msgspec.Struct, frozen=True):
    """One line in a transcript that has the words."""

    session: str
    at: float
    by: str
    text: str  # The line, or as much of it as stands around the first match
    path: Path
    entry: int


class SearchWords(msgspec.Struct, frozen=True):
    """Words to look for, in any case; quoted ones belong together."""

    words: tuple[str, ...]

    def all_in(self, text: str) -> bool:
        folded = text.lower()
        return all(word in folded for word in self.words)

    def any_in(self, text: str) -> bool:
        folded = text.lower()
        return any(word in folded for word in self.words)

    def cut_around(self, line: str) -> str:
        """The part of a line around the first match."""
        found = [at for word in self.words if (at := line.lower().find(word)) >= 0]
        at = min(found, default=0)
        start, end = max(0, at - AROUND), at + AROUND + len(self.words[0])
        shown = " ".join(line[start:end].split())
        return f"{'…' if start else ''}{shown}{'…' if end < len(line) else ''}"

    @property
    def on_disk(self) -> bytes:
        """Bytes that every matching entry contains, once it is in lower case."""
        longest = max([part for word in self.words for part in _split_caseless(word)], key=len, default="")
        return msgspec.json.encode(longest)[1:-1].lower()


def parse_search_words(text: str) -> SearchWords | None:
    """The words of a search; None when there are none."""
    found = re.findall(r'"([^"]+)"|(\S+)', text)
    words = tuple(" ".join((quoted or plain).lower().split()) for quoted, plain in found)
    words = tuple(dict.fromkeys(word for word in words if word))
    return SearchWords(words) if words else None


def _split_caseless(word: str) -> list[str]:
    """The parts of a word whose bytes are the same in every spelling, but for the case of ASCII."""
    same = [c if c.isascii() or (c.upper() == c and c.lower() == c) else "\0" for c in word]
    return [part for part in "".join(same).split("\0") if part]


def grep_transcripts(places: ProjectPaths, wanted: SearchWords, limit: int) -> Iterator[GrepHit]:
    """The hits, those of the newest session first; reading stops at the limit."""
    needle, given = wanted.on_disk, 0
    if not needle:
        raise Mistake("transcripts cannot be searched for that: give a word with plain letters")
    for session in list_sessions(places):
        for line in find_lines_with(session.path, needle):
            for said in _find_hits(line, wanted, session.path):
                yield said
                given += 1
                if given == limit:
                    return


def find_lines_with(path: Path, needle: bytes) -> Iterator[bytes]:
    """The lines of a file that hold these bytes, which are in lower case."""
    rest = b""
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                data = rest + block
                end = data.rfind(b"\n") + 1
                yield from _find_in_block(data[:end], needle)
                rest = data[end:] if len(data) - end <= LONGEST else b""
    except OSError as error:
        raise make_storage_failure(error, path, "read") from error
    yield from _find_in_block(rest, needle)


def _find_in_block(data: bytes, needle: bytes) -> Iterator[bytes]:
    lowered, at = data.lower(), 0
    while (found := lowered.find(needle, at)) >= 0:
        start = lowered.rfind(b"\n", 0, found) + 1
        stop = lowered.find(b"\n", found)
        stop = len(data) if stop < 0 else stop
        yield data[start:stop]
        at = stop + 1


class _SearchedEntry(msgspec.Struct, frozen=True):
    id: int = 0
    at: float = 0.0
    by: str = ""
    what: dict[str, Any] = {}


_search_decoder = msgspec.json.Decoder(_SearchedEntry)


def _find_hits(line: bytes, wanted: SearchWords, path: Path) -> Iterator[GrepHit]:
    try:
        entry = _search_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # torn, or of a kind we do not know
    if entry.what.get("type") not in ("message", "reply"):
        return  # a note of a layer, not part of the conversation
    given = 0
    for text in _iterate_texts(entry.what.get("message", entry.what.get("content"))):
        for each in text.split("\n") if wanted.all_in(text) else ():
            if wanted.all_in(each):
                yield GrepHit(path.stem, entry.at, entry.by, wanted.cut_around(each), path, entry.id)
                given += 1
                if given == IN_ONE:
                    return


def _iterate_texts(value: Any) -> Iterator[str]:
    """The texts in a message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _iterate_texts(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in _ASIDE:
                yield from _iterate_texts(each)
