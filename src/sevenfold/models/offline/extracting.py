"""The offline engine looks back over a conversation and saves what later sessions will need.

    reply 1     the memories that may say something already are read, all at once, if there are any
    reply 2     one Write for each new memory, and one for each that has changed
    reply 3     what was saved, in a line

Only what a person typed counts, and only what rules can be sure of. The line in the index is left to
whoever looks after the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import PurePath
from typing import Final, TypeAlias

import msgspec

from sevenfold.memory.folder.naming import ENDING, file_for, key, wrong_with_file
from sevenfold.memory.topic import Origin, Topic, changed, new_topic, read_topic
from sevenfold.memory.topics.reading import shortened
from sevenfold.messages import Block, Json, Text, ToolUse, whole_characters
from sevenfold.models.directives import Directive
from sevenfold.models.offline.hearing import heard
from sevenfold.models.offline.knowing import (
    Asked,
    Known,
    asked_in,
    is_known,
    is_news,
    may_be_known,
)
from sevenfold.models.offline.learned import Learned
from sevenfold.models.offline.learning import FEWEST, about, learned
from sevenfold.models.offline.remembering import name_of
from sevenfold.models.offline.view import Conversation, Done, calls, find_ask

NOTHING: Final = "Nothing to save."
DESCRIPTION: Final = 100
QUOTE: Final = 280
"""Characters of a description, and of the words that a memory rests on."""
NAME: Final = 4
"""Words of a name. It stands in the index twice, and the index holds 25,000 characters."""
READS: Final = 5
MOST_OF: Final = 0.6
"""The share of what is to be forgotten that a memory must say."""
AUTHOR: Final = "extraction"
TEAM: Final = "team/"
_NUMBERED: Final = re.compile(r"^ *\d+(?:\t|→)(.*)$")
_WHO: Final = re.compile(r"^(?:the user(?:['’]s)?\s+|用户的?)(?=\S)", re.IGNORECASE)
_REMARK: Final = re.compile(r"^\[.*\]$")

Blocks: TypeAlias = tuple[Block, ...]


class _Draft(msgspec.Struct, frozen=True):
    """A file to write: a new memory, or the whole of one that has changed."""

    file: str
    content: str


def extracted(conversation: Conversation, directive: Directive) -> Blocks:
    """The next reply to a directive to look back."""
    asked, ask = asked_in(directive.body), find_ask(conversation)
    if asked is None or ask is None:
        return _said("There is no manifest in this directive, so nothing was saved.")
    if "Write" not in conversation.tools:
        return _said("There is no Write here, so nothing was saved.")
    made = list(calls(conversation, ask.at))
    if written := [one for one in made if one.use.name == "Write"]:
        return _said(_reported(written))
    found = _news(learned(heard(conversation, asked.since, ask.at)), asked)
    close = _close(found, asked)
    place = blake2b(directive.id.encode("utf-8"), digest_size=4).hexdigest()
    if close and not made and "Read" in conversation.tools:
        return tuple(
            ToolUse(f"toolu_off_recall_{place}_{n}", "Read", {"file_path": _path(asked, one.file)})
            for n, one in enumerate(close)
        )
    drafts = list(_drafts(found, asked, _read(made, asked)))
    if not drafts:
        return _said(NOTHING)
    return tuple(
        ToolUse(f"toolu_off_learn_{place}_{n}", "Write", _input(asked, draft))
        for n, draft in enumerate(drafts)
    )


def _said(text: str) -> Blocks:
    return (Text(whole_characters(text)),)


def _input(asked: Asked, draft: _Draft) -> Json:
    return {
        "file_path": _path(asked, draft.file),
        "content": whole_characters(draft.content),
    }


def _path(asked: Asked, file: str) -> str:
    return str(PurePath(asked.folder) / file)


def _reported(written: Sequence[Done]) -> str:
    done = [
        PurePath(str(one.use.input.get("file_path", ""))).name for one in written if not one.failed
    ]
    failed = len(written) - len(done)
    count = f"{len(done)} memor{'y' if len(done) == 1 else 'ies'}"
    told = f"Saved {count}: {', '.join(done)}." if done else "Saved nothing."
    return f"{told} {failed} not saved." if failed else told


# --- what is new ----------------------------------------------------------------------------------------


def _news(found: Sequence[Learned], asked: Asked) -> list[Learned]:
    """Without what a description says already; to forget what nobody knows is no news either."""
    return [
        one
        for one in found
        if (one.forgets and _named(one, asked))
        or not (one.forgets or any(is_known(one.text, known.description) for known in asked.known))
    ]


def _named(one: Learned, asked: Asked) -> Known | None:
    """The memory that somebody wants forgotten: the one that has most of the words, if one does."""
    said = about(one.text)
    ranked = [
        (len(said & about(f"{known.file.removesuffix(ENDING)} {known.description}")), known)
        for known in asked.known
        if not known.file.startswith(TEAM)
    ]
    count, best = max(ranked, default=(0, None), key=lambda rank: rank[0])
    return best if count >= max(FEWEST, MOST_OF * len(said)) else None


def _close(found: Sequence[Learned], asked: Asked) -> list[Known]:
    """The memories that have to be read before anything is written."""
    wanted: dict[str, Known] = {}
    for one in found:
        if one.forgets:
            known = _named(one, asked)
            wanted |= {known.file: known} if known else {}
            continue
        for known in asked.known:
            if may_be_known(one.text, known) and not known.file.startswith(TEAM):
                wanted[known.file] = known
    return list(wanted.values())[:READS]


def _read(made: Sequence[Done], asked: Asked) -> dict[str, Topic]:
    """The memories as they were read, by file."""
    topics: dict[str, Topic] = {}
    for one in made:
        if one.use.name == "Read" and one.result is not None and not one.failed:
            path = str(one.use.input.get("file_path", ""))
            for known in asked.known:
                if _path(asked, known.file) == path:
                    topics[known.file] = read_topic(_unnumbered(one.result.text), known.file)
    return topics


def _unnumbered(text: str) -> bytes:
    """A file from the page that Read shows of it."""
    lines = [_NUMBERED.match(line) for line in text.split("\n") if not _REMARK.match(line)]
    return ("\n".join(line[1] for line in lines if line) + "\n").encode("utf-8", "replace")


# --- what is written ------------------------------------------------------------------------------------


def _drafts(found: Sequence[Learned], asked: Asked, read: dict[str, Topic]) -> Iterator[_Draft]:
    taken = {key(known.file) for known in asked.known}
    done: set[str] = set()
    for one in found:
        if one.forgets:
            known = _named(one, asked)
            if known and known.file in read and known.file not in done:
                done.add(known.file)
                yield _forgotten(one, read[known.file], asked)
            continue
        old = next((t for t in read.values() if is_news(one.text, t.description)), None)
        if any(is_known(one.text, f"{t.description}\n{t.body}") for t in read.values()):
            continue
        if old is not None and old.file not in done and not wrong_with_file(old.file):
            done.add(old.file)
            yield _changed(one, old, asked)
        elif old is None:
            file = file_for(_named_after(one.text), taken)
            taken.add(key(file))
            yield _new(one, file, asked)


def _named_after(text: str) -> str:
    return "-".join(name_of(_WHO.sub("", text)).split("-")[:NAME])


def _new(one: Learned, file: str, asked: Asked) -> _Draft:
    data = new_topic(
        file,
        name=file.removesuffix(ENDING),
        description=shortened(one.text, DESCRIPTION),
        type=one.type,
        body=_body(one),
        origin=_origin(one, asked),
    )
    return _Draft(file, data.decode("utf-8", "replace"))


def _changed(one: Learned, old: Topic, asked: Asked) -> _Draft:
    """The new fact in place of the old one, which the history keeps: a reader should find one answer."""
    data = changed(
        old,
        description=shortened(one.text, DESCRIPTION),
        body=_body(one),
        origin=_origin(one, asked),
    )
    return _Draft(old.file, data.decode("utf-8", "replace"))


def _forgotten(one: Learned, old: Topic, asked: Asked) -> _Draft:
    """Nothing of what it said stays in the file. Removing files is not ours here."""
    day = one.day or asked.date
    text = f"Withdrawn{' on ' + day if day else ''} at the request of the user."
    body = f"{text}\n\n> {shortened(one.quote, QUOTE)}"
    data = changed(old, description=text, body=body, origin=_origin(one, asked))
    return _Draft(old.file, data.decode("utf-8", "replace"))


def _body(one: Learned) -> str:
    """The statement, for a rule its reason, and the words it rests on."""
    why = f"\n\n**Why:** {one.why}" if one.why else ""
    return f"{one.text}{why}\n\n> {shortened(one.quote, QUOTE)}"


def _origin(one: Learned, asked: Asked) -> Origin:
    return Origin(asked.session, (), one.day or asked.date, AUTHOR)
