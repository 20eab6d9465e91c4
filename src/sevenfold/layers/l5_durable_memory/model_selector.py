"""A model chooses memories by their descriptions: one small question beside the conversation.

It is asked plainly, not on the conversation's prefix: a manifest, what the user said, one tool that must
be called. Of the answer only names count that stand in the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from sevenfold.clock import date_of
from sevenfold.layers.l5_durable_memory.selecting import Choose, NotChosen, Wanted
from sevenfold.layers.l5_durable_memory.settings import RecallSettings
from sevenfold.memory.recalled import Recalled
from sevenfold.messages import Json, Message, user, whole_characters
from sevenfold.models.directives import write_directive
from sevenfold.protocols import Forker
from sevenfold.request import Frame, Request
from sevenfold.transcript import View

KIND: Final = "recall-plain"
"""A column of its own in the ledger: it shares no prefix with the conversation."""
TOOL: Final = "choose_memories"
ANSWER: Final = 256
"""Tokens of the answer."""
HEAD: Final = 30
"""Lines of a memory that are looked at where it has no description."""
DESCRIPTION: Final = 300
SHOWN: Final = 50
"""Files in view already that are named to the model."""


class ModelSelector:
    """Asks, and takes of the answer what is in the manifest."""

    def __init__(self, fork: Forker, model: Callable[[], str], settings: RecallSettings) -> None:
        self._fork, self._model, self._settings = fork, model, settings

    async def __call__(
        self, wanted: Wanted, candidates: Sequence[Recalled], *, standing: bool
    ) -> tuple[Recalled, ...]:
        listed = manifest(candidates)
        system = (_prompt(), listed) if standing else (_prompt(),)
        request = Request(Frame(self._model(), system, (_tool(wanted.limit),), _FORCED), View())
        body = _asking(wanted, "" if standing else listed)
        directive = user(write_directive(KIND, "r-1", body))
        seconds = self._settings.timeout_seconds
        try:
            with anyio.fail_after(seconds):
                said = await self._fork(request, directive, kind=KIND, max_tokens=ANSWER)
        except TimeoutError:
            raise NotChosen(f"no answer within {seconds:g} s") from None
        by_file = {one.file: one for one in candidates}
        names = dict.fromkeys(name for name in chosen_in(said.reply.message) if name in by_file)
        return tuple(by_file[name] for name in names)


def manifest(memories: Sequence[Recalled]) -> str:
    """One line each: `- [type] file (day): description`. Nothing in it can end it."""
    lines = [
        f"- [{one.type or 'untyped'}] {one.file} ({_day(one)}): {_described(one)}"
        for one in memories
    ]
    inside = "\n".join(lines).replace("</manifest", "&lt;/manifest")
    return whole_characters(f"<manifest>\n{inside}\n</manifest>")


def _day(memory: Recalled) -> str:
    try:
        return date_of(memory.modified)
    except (OverflowError, OSError, ValueError):  # a year that no calendar knows
        return "no date"


def _described(memory: Recalled) -> str:
    text = memory.description or " ".join(memory.text[: 10 * DESCRIPTION].split("\n")[:HEAD])
    flat = " ".join(text.split())
    return flat if len(flat) <= DESCRIPTION else f"{flat[: DESCRIPTION - 1]}…"


def chosen_in(reply: Message) -> list[str]:
    """The files that an answer names, as a call of the tool or as JSON in words."""
    for use in reply.tool_uses:
        if use.name == TOOL:
            return _files(use.input)
    text = reply.text
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        try:
            return _files(msgspec.json.decode(text[start : end + 1].encode("utf-8", "replace")))
        except msgspec.DecodeError:
            pass
    raise NotChosen("the model's answer is not a list of files")


def _files(given: Any) -> list[str]:
    files = given.get("files") if isinstance(given, dict) else None
    if not isinstance(files, list):
        raise NotChosen("the model's answer is not a list of files")
    return [file for file in files if isinstance(file, str)]


def _asking(wanted: Wanted, listed: str) -> str:
    said = wanted.text.replace("</said", "&lt;/said")
    parts = [listed, f"What the user has just said:\n<said>\n{said}\n</said>"]
    if wanted.skip:
        names = ", ".join(sorted(wanted.skip)[:SHOWN])
        parts.append(f"In view already, so leave them out: {names}")
    parts.append(f"Choose at most {wanted.limit} with {TOOL}, or none.")
    return "\n\n".join(filter(None, parts))


def _tool(limit: int) -> Json:
    files = {
        "type": "array",
        "items": {"type": "string"},
        "maxItems": limit,
        "description": "File names exactly as in the manifest, the most useful first.",
    }
    return {
        "name": TOOL,
        "description": "Names the memories that will help with what the user has just said.",
        "input_schema": {"type": "object", "properties": {"files": files}, "required": ["files"]},
    }


_FORCED: Final[Json] = {"tool_choice": {"type": "tool", "name": TOOL}}


@cache
def _prompt() -> str:
    return Path(__file__).with_name("select.md").read_text(encoding="utf-8").strip()


_check: type[Choose] = ModelSelector
