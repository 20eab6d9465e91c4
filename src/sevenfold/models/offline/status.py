"""What a conversation is doing now, in three to five words, for somebody who looks at it from outside."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from sevenfold.messages import Block, Text, ToolUse, whole_characters
from sevenfold.models.directives import Directive
from sevenfold.models.offline.view import Conversation, find_ask

LONGEST: Final = 40
"""Characters of a name."""
_WORDS: Final = {
    "Read": ("Reading the file {}", "file_path"),
    "Write": ("Writing the file {}", "file_path"),
    "Edit": ("Editing the file {}", "file_path"),
    "Bash": ("Running the command {}", "command"),
    "Grep": ("Searching the files for {}", "pattern"),
    "Glob": ("Looking for files like {}", "pattern"),
    "Agent": ("Waiting for another agent", ""),
    "SendMessage": ("Writing to another agent", ""),
}
BEGINNING: Final = "Beginning with the task"
REPORTING: Final = "Writing up the results"


def status(conversation: Conversation, directive: Directive) -> tuple[Block, ...]:
    """The reply to a directive that asks for it: what was called last, or how it stands."""
    ask = find_ask(conversation)
    end = ask.at if ask else len(conversation.messages)
    said = [m for m in conversation.messages[:end] if m.role == "assistant"]
    if not said:
        return (Text(BEGINNING),)
    uses = said[-1].tool_uses
    return (Text(whole_characters(_doing(uses[-1]) if uses else REPORTING)),)


def _doing(use: ToolUse) -> str:
    phrase, key = _WORDS.get(use.name, ("Calling the tool {}", ""))
    about = use.input.get(key, "") if key else use.name
    return phrase.format(_one_word(str(about), key))


def _one_word(text: str, key: str) -> str:
    """A file by its own name, a command by its program, anything else by its first word."""
    word = re.sub(r"\s+", "_", text.strip()) if key == "file_path" else text.strip().split(" ")[0]
    name = PurePosixPath(word.replace("\\", "/")).name if key in ("file_path", "command") else word
    return (name or word or "something").split("\n")[0][:LONGEST]
