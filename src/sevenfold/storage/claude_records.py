"""One line of a Claude Code session file, understood on its own.

Only what is needed is decoded: a record repeats whole files in fields that no model saw, and those are
passed over. Lines with halves of characters, which strict JSON readers refuse, are mended.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import Any, Final

import msgspec

from sevenfold.messages import Message, Role, Text, ToolResult, parse_message
from sevenfold.storage.recorded import ApiError, Clearing, Compaction, ToolFacts
from sevenfold.tokens import Usage

SYNTHETIC: Final = "<synthetic>"
CLEARED: Final = "[Old tool result content cleared]"
_PERSISTED: Final = re.compile(r"<persisted-output>.{0,200}?saved to:[ \t]*([^\n]+)", re.DOTALL)
_HALVES: Final = re.compile("[\ud800-\udfff]")


class _CacheWrites(msgspec.Struct):
    ephemeral_1h_input_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation: _CacheWrites | None = None


class _Message(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"null")
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    stop_reason: str | None = None


class _Kept(msgspec.Struct):
    headUuid: str | None = None


class _Boundary(msgspec.Struct):
    trigger: str | None = None
    preTokens: int | None = None
    tokensSaved: int | None = None
    compactedToolIds: list[str] = []
    preservedSegment: _Kept | None = None


class Record(msgspec.Struct):
    """The fields of a line that mean something to us, by their names in the file."""

    type: str = ""
    subtype: str | None = None
    uuid: str | None = None
    parentUuid: str | None = None
    logicalParentUuid: str | None = None
    timestamp: str | None = None
    sessionId: str | None = None
    version: str | None = None
    cwd: str | None = None
    gitBranch: str | None = None
    agentId: str | None = None
    isSidechain: bool | None = None
    isMeta: bool | None = None
    isCompactSummary: bool | None = None
    isApiErrorMessage: bool | None = None
    requestId: str | None = None
    message: _Message | None = None
    sourceToolAssistantUUID: str | None = None
    toolUseResult: msgspec.Raw = msgspec.Raw(b"")
    compactMetadata: _Boundary | None = None
    microcompactMetadata: _Boundary | None = None
    summary: str | None = None
    customTitle: str | None = None
    aiTitle: str | None = None
    leafUuid: str | None = None
    error: Any = None
    retryAttempt: float | None = None

    def forget(self) -> None:
        """Let go of the line that the raw fields would keep in memory."""
        self.toolUseResult = msgspec.Raw(b"")
        if self.message:
            self.message.content = msgspec.Raw(b"null")

    @property
    def kind(self) -> str:
        return f"{self.type}/{self.subtype}" if self.type == "system" else self.type

    @property
    def at(self) -> float:
        try:
            moment = datetime.datetime.fromisoformat(self.timestamp or "")
        except ValueError:
            return 0.0
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return moment.timestamp()


_decode = msgspec.json.Decoder(Record).decode


def decode(line: bytes) -> Record:
    """The record of a line; `ValueError` with the reason when it is none."""
    if not line.isascii():
        line = line.decode("utf-8", "replace").encode("utf-8")
    try:
        return _decode(line)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError:
        raise ValueError("nested too deeply") from None
    try:  # perhaps only a half character is in the way
        return _decode(_mended(line))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _mended(line: bytes) -> bytes:
    whole = json.dumps(json.loads(line), ensure_ascii=False)
    return _HALVES.sub("\ufffd", whole).encode("utf-8")


class _Anything(msgspec.Struct):
    """Any object, whatever is in it."""


def message_of(record: Record, role: Role) -> Message:
    """What was said; `ValueError` when it has no shape that a message can have."""
    content = bytes(record.message.content) if record.message else b"null"
    try:
        if content[:1] == b"[":
            msgspec.json.decode(content, type=list[_Anything])
            return parse_message(role, content)
        said = msgspec.json.decode(content, type=str | None)
    except msgspec.DecodeError as error:
        raise ValueError(f"the message cannot be read: {error}") from None
    return Message(role, (Text(said),) if said else ())


def usage_of(record: Record) -> Usage:
    found = record.message.usage if record.message else None
    if found is None:
        return Usage()
    hour = found.cache_creation.ephemeral_1h_input_tokens if found.cache_creation else 0
    return Usage(
        input=found.input_tokens or 0,
        cache_write=found.cache_creation_input_tokens or 0,
        cache_read=found.cache_read_input_tokens or 0,
        output=found.output_tokens or 0,
        cache_write_1h=hour or 0,
    )


def compaction_of(record: Record) -> Compaction:
    facts = record.compactMetadata or _Boundary()
    kept = facts.preservedSegment.headUuid if facts.preservedSegment else None
    return Compaction(facts.trigger or "", facts.preTokens or 0, None, kept or "")


def clearing_of(record: Record) -> Clearing:
    facts = record.microcompactMetadata or _Boundary()
    return Clearing(
        tuple(facts.compactedToolIds),
        facts.trigger or "",
        facts.preTokens or 0,
        facts.tokensSaved or 0,
    )


def api_error_of(record: Record, line: int) -> ApiError:
    error = record.error if isinstance(record.error, dict) else {}
    status = error.get("status")
    return ApiError(
        line,
        record.at,
        status if isinstance(status, int) else 0,
        _innermost(record.error),
        int(record.retryAttempt or 0),
    )


def _innermost(error: object, depth: int = 5) -> str:
    """Errors come wrapped in errors; the innermost one says what happened."""
    if not isinstance(error, dict):
        return error if isinstance(error, str) else ""
    inner = _innermost(error.get("error"), depth - 1) if depth else ""
    return inner or str(error.get("message") or error.get("code") or "")


class _File(msgspec.Struct):
    filePath: str | None = None


class Notes(msgspec.Struct):
    """What the tool noted for itself beside a result."""

    filePath: str | None = None
    file: _File | None = None
    interrupted: bool | None = None
    agentId: str | None = None
    totalTokens: int | None = None
    persistedOutputPath: str | None = None


_decode_notes = msgspec.json.Decoder(Notes).decode


def facts_of(result: ToolResult, tool: str, notes: Notes, line: int) -> ToolFacts:
    """What is known about a tool result, from itself and from the notes beside it."""
    text = result.text
    pointer = _PERSISTED.match(text)
    return ToolFacts(
        tool,
        line,
        is_error=result.is_error,
        interrupted=bool(notes.interrupted),
        path=notes.filePath or (notes.file.filePath if notes.file else "") or "",
        persisted=notes.persistedOutputPath or (pointer[1].strip() if pointer else ""),
        cleared=text == CLEARED,
        agent=notes.agentId or "",
        agent_tokens=notes.totalTokens or 0,
    )


def notes_of(record: Record) -> Notes:
    """They are an object, a text or a list of blocks, as the tool pleased; only objects say more."""
    raw = bytes(record.toolUseResult)
    if raw[:1] != b"{":
        return Notes()
    try:
        return _decode_notes(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Notes()
