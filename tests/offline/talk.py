"""A conversation that the offline engine is asked to retell, in process or as it is on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sevenfold.core.messages import (
    Json,
    Message,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    make_wire_message,
    user,
    write_directive,
)
from sevenfold.core.request import Frame, Request
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.l3_session_memory.notes import NotesLimits, NotesWording
from sevenfold.layers.l4_compaction.summary import format_directive, parse_summary
from sevenfold.offline import encode_reply
from sevenfold.offline.conversation import OfflineConversation
from sevenfold.offline.reply import make_reply
from sevenfold.tools.file_tools import EDIT_SCHEMA

NOTES = Path("/home/me/.sevenfold/projects/p/s/session-memory/summary.md")
WORDING = NotesWording.load(None, lambda event: None)
FORM = WORDING.form
LIMITS = NotesLimits(2_000, 12_000)
FRAME = Frame("m", ("static",), (EDIT_SCHEMA, {"name": "Bash", "input_schema": {}}))


class Talk:
    """What was said and done, one after the other."""

    def __init__(self) -> None:
        self.log = Transcript(lambda: 0.0)
        self._uses = 0

    def say(self, text: str, by: str = "user") -> None:
        self.log.add(user(text), by=by)

    def answer(self, text: str) -> None:
        self.log.add(Reply(assistant(Text(text))), by="model")

    def call(
        self, tool: str, gives: str = "ok", *, words: str = "", failed: bool = False, **args: Any
    ) -> None:
        self._uses += 1
        use = ToolUse(f"t{self._uses}", tool, args)
        self.log.add(Reply(assistant(*([Text(words)] if words else []), use)), by="model")
        self.log.add(Message("user", (ToolResult(use.id, gives, failed),)), by="tools")

    def run(self, command: str, gives: str = "ok", **how: Any) -> None:
        self.call("Bash", gives, command=command, **how)

    def read(self, path: str, gives: str = "text", **how: Any) -> None:
        self.call("Read", gives, file_path=path, **how)

    def edit(self, path: str, old: str, new: str, **how: Any) -> None:
        self.call("Edit", "done", file_path=path, old_string=old, new_string=new, **how)

    # --- asked --------------------------------------------------------------------------------------------

    def asked(self, kind: str, body: str, room: int = 0) -> Request:
        log = Transcript.on(self.log.view, lambda: 0.0)
        log.add(user(write_directive(kind, "d-1", body)), by="fork")
        return Request(FRAME, log.view, max_tokens=room)

    def noted(
        self,
        notes: str = FORM.template,
        *,
        limits: NotesLimits = LIMITS,
        wording: NotesWording = WORDING,
        room: int = 0,
    ) -> list[ToolUse]:
        """The edits that the engine makes."""
        asked = wording.asking(notes, NOTES, limits, edits=True)
        blocks = make_reply(OfflineConversation.of(self.asked("notes", asked, room)))
        return [block for block in blocks if isinstance(block, ToolUse)]

    def summary(self, scope: str = "", instructions: str = "", room: int = 0) -> str:
        asked = format_directive(scope or "Summarise all of the conversation above.", instructions)
        blocks = make_reply(OfflineConversation.of(self.asked("compact", asked, room)))
        return "".join(block.text for block in blocks if isinstance(block, Text))

    def sections(self, **how: Any) -> tuple[str | None, ...]:
        return parse_summary(self.summary(**how)).sections

    def on_the_wire(self, kind: str, body: str, **fields: Any) -> list[Json]:
        return encode_reply(wire(self.asked(kind, body), **fields))


def wire(request: Request, **fields: Any) -> Json:
    """The request as a body: on the wire nobody says who a message is by."""
    messages: list[Json] = []
    for placed in request.view:
        said = make_wire_message(placed.message)
        if messages and messages[-1]["role"] == said["role"]:
            messages[-1]["content"] += said["content"]
        else:
            messages.append(said)
    tools = [dict(tool) for tool in request.frame.tools]
    return {"messages": messages, "tools": tools, "max_tokens": 32_000, **fields}


def edited(notes: str, edits: Sequence[ToolUse]) -> str:
    """The notes with these edits, each of which must fit exactly once."""
    for edit in edits:
        assert edit.input["file_path"] == str(NOTES)
        assert notes.count(edit.input["old_string"]) == 1
        notes = notes.replace(edit.input["old_string"], edit.input["new_string"])
    return notes


def titled(notes: str) -> dict[str, str]:
    """What stands in each section; the form is checked on the way."""
    titles = [section.title for section in FORM.sections]
    return dict(zip(titles, FORM.bodies(notes), strict=True))


def working() -> Talk:
    """Something of everything."""
    talk = Talk()
    talk.say("Rewrite src/parser.py so that parse_rows takes a limit, and never touch LICENSE.")
    talk.read("src/parser.py", "def parse_rows(text):\n    return text\n\ndef unused_thing():\n    1")
    talk.run("make test", "Exit code 2\nNameError: name 'limit' is not defined", failed=True)
    words = "The limit has to be passed on. Let me do that."
    talk.edit("src/parser.py", "parse_rows(text)", "parse_rows(text, row_limit)", words=words)
    talk.run("make test", "12 passed")
    talk.answer("parse_rows now takes row_limit, and all 12 tests pass.")
    talk.say("No, the limit must be called most, instead of row_limit.")
    talk.run("grep -rn row_limit src", "src/parser.py:1: row_limit", words="I look for row_limit.")
    return talk
