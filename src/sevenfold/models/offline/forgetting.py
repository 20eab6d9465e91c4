"""How the offline engine forgets: it finds the memory by its line in the index, and writes it empty.

A model would weigh what is meant. This engine goes by the words alone, so it takes the one memory that
shares most of them, and none at all where two are equally close.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from sevenfold.models.offline.remembering import memory_folder
from sevenfold.models.offline.steps import Call, Calls, Step, Unclear
from sevenfold.models.offline.view import Conversation, calls
from sevenfold.models.offline.words import terms

LEAST: Final = 0.5
"""The share of the words that a memory must have to be the one that is meant."""
_ROW: Final = re.compile(
    r"^- \[(?P<title>[^\]\n]+)\]\((?P<file>[^()\n]+\.md)\)(?P<hook>[^\n]*)", re.M
)
_DESCRIBED: Final = re.compile(r"^(?:name|description):[ ]*(.+)", re.M)


def forgotten(conversation: Conversation, text: str, before: int) -> tuple[Step, ...]:
    """The calls that remove the memory of this, or why there are none. `before`: where it was asked."""
    folder = memory_folder(conversation.system)
    if folder is None or not {"Read", "Write"} <= conversation.tools.keys():
        return (Unclear(text, "nothing_to_forget"),)
    files = _closest(text, dict(_known(conversation, folder, before)))
    if not files:
        return (Unclear(text, "nothing_to_forget"),)
    if len(files) > 1:
        return (Unclear(", ".join(files), "which_memory"),)
    path = str(PurePath(folder) / files[0])
    return (
        Calls((Call("Read", {"file_path": path}),)),
        Calls((Call("Write", {"file_path": path, "content": ""}),)),
    )


def _closest(text: str, known: dict[str, str]) -> list[str]:
    wanted = frozenset(terms(text))
    if not wanted:
        return []
    shares = {file: len(wanted & {*terms(said)}) / len(wanted) for file, said in known.items()}
    best = max(shares.values(), default=0.0)
    return [file for file, share in shares.items() if share == best] if best >= LEAST else []


def _known(conversation: Conversation, folder: str, before: int) -> Iterator[tuple[str, str]]:
    """The memories in view: those of the index that opens it, and those that were saved here."""
    for at, message in enumerate(conversation.messages[: before + 1]):
        if at in conversation.added or message.text.lstrip().startswith("<context>"):
            for row in _ROW.finditer(message.text):
                yield row["file"], f"{row['title']} {row['hook']}"
    for done in calls(conversation, 0, before):
        path = PurePath(str(done.use.input.get("file_path", "")))
        if done.use.name == "Write" and not done.failed and path.is_relative_to(folder):
            said = " ".join(_DESCRIBED.findall(str(done.use.input.get("content", ""))))
            yield path.relative_to(folder).as_posix(), said
