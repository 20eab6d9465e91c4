"""What was added between two requests of a recorded session, and how many tokens that really was."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.core.messages import Block, Message, Text, Thinking, ToolResult, ToolUse
from sevenfold.core.tokens import MessageSize
from sevenfold.core.transcript import Replace, Reply, Results, View
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import convert_recording

Kind: TypeAlias = Literal["text", "code", "json", "cjk"]
KINDS: Final[tuple[Kind, ...]] = ("text", "code", "json", "cjk")
Measure: TypeAlias = Literal["between requests", "since the reply"]

_CJK: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]")
_CODE_LINE: Final = re.compile(
    r"^\s*\d+(→|\t|[:-])"  # a file or a match, shown with its line numbers
    r"|[{};,(\[]\s*$|^\s*[}\])]"
    r"|^\s*(def|class|func|import|from|return|if|for|else|var|const|let|type|package|//|#include)\b"
    r"|^[+-]\s*\S|:=|=>|==|\w\(.*\)"
)


class Pair(msgspec.Struct, frozen=True):
    """One request, and the one before it in the same session on the same model."""

    session: str
    model: str
    measure: Measure
    size: MessageSize
    """What we can see of what was added."""
    reported: int
    """What the provider counted for it."""
    prompt: int
    """What the provider counted for the whole request."""
    kind: Kind


class _Before(msgspec.Struct):
    reply: Reply
    counted: bool
    length: int
    size: MessageSize


def pairs_of(path: Path) -> Iterator[Pair]:
    """Every pair of requests between which nothing was removed from the view."""
    recorded = read_session(path)
    counted = {said.request_id: said.counted for said in recorded.requests}
    view, before = View(), None
    for entry in convert_recording(recorded).entries:
        what = entry.what
        if isinstance(what, Reply) and what.usage.prompt:
            if before and before.reply.model == what.model:
                yield from _pairs(path.name.split(".")[0], view, before, what)
            known = counted.get(what.diagnostics.get("request_id", ""), False)
            before = _Before(what, known, len(view), view.size)
        elif isinstance(what, Replace | Results):
            before = None
        view = view.after(entry)


def _pairs(session: str, view: View, before: _Before, reply: Reply) -> Iterator[Pair]:
    last, prompt = before.reply.usage, reply.usage.prompt
    added = [view[i].message for i in range(before.length, len(view))]
    size = view.size - before.size
    kind = kind_of(added)
    new = prompt - last.prompt
    yield Pair(session, reply.model, "between requests", size, new, prompt, kind)
    if before.counted and view.reported:
        came = view.size - view.reported.size
        kind = kind_of(added[1:])
        yield Pair(session, reply.model, "since the reply", came, prompt - last.total, prompt, kind)


def kind_of(messages: Sequence[Message]) -> Kind:
    """The kind that most bytes of these messages are of."""
    weights: Counter[Kind] = Counter()
    for message in messages:
        for block in message.content:
            for kind, text in _texts(block):
                weights[kind] += len(text.encode("utf-8", "replace"))
    return max(KINDS, key=lambda kind: weights[kind])


def _texts(block: Block) -> Iterator[tuple[Kind, str]]:
    match block:
        case ToolUse(_, _, args):
            text = json.dumps(args, ensure_ascii=False)
            yield ("cjk" if _is_cjk(text) else "json"), text
        case Text(text) | Thinking(text):
            yield _kind_of_text(text), text
        case ToolResult():
            yield _kind_of_text(block.text), block.text


def _kind_of_text(text: str) -> Kind:
    if _is_cjk(text):
        return "cjk"
    if text[:1] in ("{", "["):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return "json"
    lines = [line for line in text.splitlines() if line.strip()]
    code = sum(bool(_CODE_LINE.search(line)) for line in lines)
    return "code" if len(lines) >= 3 and code >= 0.5 * len(lines) else "text"


def _is_cjk(text: str) -> bool:
    return not text.isascii() and len(_CJK.findall(text)) > 0.15 * len(text)
