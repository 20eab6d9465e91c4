"""The offline engine summarises: the nine sections of a compaction, filled with what it can retell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from sevenfold.boundary import TITLES
from sevenfold.facts import call_of, line
from sevenfold.messages import Block, Text
from sevenfold.models.directives import Directive
from sevenfold.models.offline import retelling
from sevenfold.models.offline.retelling import Render, listed, listed_files, merged, quoted, shared
from sevenfold.models.offline.story import Story, story_of
from sevenfold.models.offline.view import Conversation
from sevenfold.tokens import TEXT_RATE, byte_length

LONGEST: Final = 6_000
"""Tokens of a summary, where more would be allowed."""
OVERHEAD: Final = 600
"""Bytes of tags and headings."""
SECTION: Final = 0.4
"""The most of the room that one section takes."""
NAMES: Final = 0.15
SAID: Final = 0.2
"""The most that names take, and what the user said: the program that asked knows that word for word."""
QUOTE: Final = 300
NONE: Final = "None"
BY_RULE: Final = "Put together by rule, without a language model: it retells and concludes nothing"
_NAMED: Final = r"(?:the message that starts|your reply that starts|your call) “(.+?)”"
_BEGINS: Final = re.compile(rf"only what begins with {_NAMED}")
_STAYS: Final = re.compile(rf"^What begins with {_NAMED} stays", re.MULTILINE)
_WANTS: Final = re.compile(r"^The user wants this of the summary besides:\n(.+)", re.S | re.M)


def summarised(conversation: Conversation, directive: Directive) -> tuple[Block, ...]:
    """A reply with an analysis of one sentence and a whole summary."""
    start, end = _stretch(conversation, directive.body)
    story = story_of(conversation, start, end)
    room = int(min(conversation.room or LONGEST, LONGEST) / TEXT_RATE) - OVERHEAD
    wants = [
        f"Asked of this summary: “{line(w[1], QUOTE)}”" for w in _WANTS.finditer(directive.body)
    ]
    bodies = _bodies(story, max(0, room), wants)
    titled = enumerate(zip(TITLES, bodies, strict=True), 1)
    sections = "\n\n".join(f"## {n}. {title}\n{body or NONE}" for n, (title, body) in titled)
    return (Text(f"<analysis>\n{BY_RULE}.\n</analysis>\n\n<summary>\n{sections}\n</summary>"),)


def _bodies(story: Story, room: int, wants: Sequence[str]) -> list[str]:
    old = retelling.told_in(story.earlier)
    quote = "" if any(old.values()) else story.earlier
    stored = merged(old["stored"], retelling.stored(story))
    files = merged(old["files"], retelling.files(story))
    trouble = [*retelling.errors(story), *retelling.corrections(story)]
    before, now = retelling.steps(story)
    parts: list[tuple[float, Render]] = [
        (1.0, partial(listed, [BY_RULE, *retelling.request(story), *wants])),
        (4.0, partial(listed_files, [*stored, *files])),
        (2.0, partial(listed, merged(old["errors"], trouble))),
        (1.5, partial(retelling.excerpt, quote)),
        (2.5, partial(listed, merged(old["answers"], retelling.answers(story)))),
        (1.0, partial(listed, before)),
        (2.5, partial(listed, merged(old["commands"], retelling.commands(story)))),
        (0.5, partial(listed, [*retelling.unsolved(story), *retelling.unanswered(story)])),
        (1.0, partial(listed, now)),
        (1.5, partial(listed, retelling.state(story))),
        (0.2, partial(listed, retelling.go_on(story))),
    ]
    said = quoted(story.said, int(room * SAID), "<said>", "</said>", QUOTE)
    left = room - byte_length(said)
    told = shared(parts, int(left * (1 - NAMES)), int(room * SECTION))
    request, files_, errors, *solved, pending, doing, state, following = told
    rest = min(left - sum(map(byte_length, told)), int(room * NAMES))
    known = dict.fromkeys([*story.names, *retelling.names_told(story.earlier.splitlines())])
    names = retelling.came_up(known, "\n".join(told), rest)
    solving, current = ("\n".join(filter(None, some)) for some in (solved, (doing, state)))
    return [request, names, files_, errors, solving, said, pending, current, following]


def _stretch(conversation: Conversation, asked: str) -> tuple[int, int]:
    """Which messages are to be summarised, where the directive names the first one or one that stays."""
    begins, stays = _BEGINS.search(asked), _STAYS.search(asked)
    last = len(conversation.messages)
    start = next(_starting(conversation, begins[1], range(last)), 0) if begins else 0
    end = next(_starting(conversation, stays[1], range(last)[::-1]), last) if stays else last
    return (start, end) if start < end else (0, last)


def _starting(conversation: Conversation, words: str, places: Sequence[int]) -> Iterator[int]:
    """Where messages are that start so, or make such a call."""
    for at in places:
        message = conversation.messages[at]
        calls = [call_of(use).name for use in message.tool_uses[:1]]
        if any(" ".join(t.split()).startswith(words) for t in (message.text[:400], *calls)):
            yield at
