"""Reads the record of a conversation that is shown as text: who said what, the calls, and their results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sevenfold.core.messages import Block, Json, Message, Text, ToolResult, ToolUse

_SECTION: Final = re.compile(r"^<(user|assistant|tools)>\n(.*?)\n</\1>$", re.MULTILINE | re.DOTALL)
_BLOCK: Final = re.compile(r"^\[(?=calls |result: |error: )", re.MULTILINE)
_CALL: Final = re.compile(r"calls (\w+): (.*)\]\s*", re.DOTALL)
_RESULT: Final = re.compile(r"(result|error): (.*)\]\s*", re.DOTALL)
_ARGUMENT: Final = re.compile(r'"(\w+)":("(?:[^"\\]|\\.)*")')


def parse_record(text: str) -> tuple[Message, ...]:
    """The messages of a record, as far as they can be told apart."""
    messages, waiting = list[Message](), list[str]()
    for n, (role, body) in enumerate(_SECTION.findall(text)):
        if role == "assistant":
            blocks = tuple(_parse_reply(body, n))
            waiting = [block.id for block in blocks if isinstance(block, ToolUse)]
        else:
            blocks = tuple(_parse_answers(body, waiting))
        if blocks:
            messages.append(Message("assistant" if role == "assistant" else "user", blocks))
    return tuple(messages)


def _parse_reply(body: str, n: int) -> Iterator[Block]:
    said, *calls = _BLOCK.split(body)
    if said.strip():
        yield Text(said.strip())
    for i, call in enumerate(calls):
        if found := _CALL.fullmatch(call):
            yield ToolUse(f"record-{n}-{i}", found[1], _parse_arguments(found[2]))


def _parse_answers(body: str, waiting: list[str]) -> Iterator[Block]:
    said, *results = _BLOCK.split(body)
    for id, result in zip(waiting, results, strict=False):
        if found := _RESULT.fullmatch(result):
            yield ToolResult(id, found[2], is_error=found[1] == "error")
    if said.strip():
        yield Text(said.strip())


def _parse_arguments(text: str) -> Json:
    """The arguments of a call; of one that was cut, those that are whole."""
    value = _decode(text)
    if isinstance(value, dict):
        return value
    whole = ((name, _decode(one)) for name, one in _ARGUMENT.findall(text))
    return {name: one for name, one in whole if one is not None}


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
