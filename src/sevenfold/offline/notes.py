"""The offline engine keeps notes: it fills the sections it is shown with what it can retell.

What stands there already stays, line by line: only a line about the same thing is replaced. So notes
outlive the messages they were taken from, and what a person wrote by hand is kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final, TypeAlias

import msgspec

from sevenfold.core.messages import Block, Directive, Message, Text, ToolUse, strip_half_characters
from sevenfold.core.tokens import TEXT_RATE, count_bytes, measure_message
from sevenfold.layers.shared.facts import clip_text, to_bounded_line
from sevenfold.offline import summaries as retelling
from sevenfold.offline.conversation import OfflineConversation
from sevenfold.offline.summaries import (
    CAME_UP,
    CUT,
    NOTES,
    ConversationStory,
    Render,
    collect_story,
    format_list,
    format_quotes,
    merge_lines,
    share_room,
)

SECTION: Final = 2_000
TOTAL: Final = 8_000  # Tokens that a section and all of them may hold, where the directive does not say
NAMES: Final = 0.12  # The most of the room that goes to names
_NOTES: Final = re.compile(r"^<notes>\n(.*)\n</notes>", re.DOTALL | re.MULTILINE)
_PATH: Final = re.compile(r"(?<![\w./\\])((?:/|[A-Za-z]:[\\/])[^\n]*?\.md)(?=\W|$)")
_LIMITS: Final = re.compile(
    r"more than about ([\d,]+) tokens, and all of them together\s+no more than ([\d,]*\d)"
)
_HEADING: Final = re.compile(r"#{1,3} +\S.*")
_ITALIC: Final = re.compile(r"_[^_].*_|\*[^*].*\*")
_PER_TITLE: Final = 70
ITEM: Final = "- "
_ABOUT: Final = re.compile(r"- … \(.* left out.*\)$")
"""A line that says something about the list it stands in."""


class WrittenSection(msgspec.Struct, frozen=True):
    """A section as it stands: its title, its fixed lines, and what is written below them."""

    title: str
    fixed: tuple[str, ...]
    body: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.body).strip()

    @property
    def lines(self) -> list[str]:
        """The lines that are listed in it."""
        listed = [text for text in self.body if text.startswith(ITEM) and not _ABOUT.match(text)]
        return [text.removeprefix(ITEM).rstrip() for text in listed]

    @property
    def own(self) -> str:
        """The other lines: a person has written them, and they stay as they are."""
        return "\n".join(text for text in self.body if not text.startswith(ITEM)).strip("\n")


def reply_to_notes(conversation: OfflineConversation, directive: Directive) -> tuple[Block, ...]:
    """The edits that bring the notes up to date; in words where there is no Edit."""
    shown = _NOTES.search(directive.body)
    around = _NOTES.sub("", directive.body)
    path = _PATH.search(around)
    if shown is None or path is None:
        return (Text("There are no notes in this directive to bring up to date."),)
    sections = parse_sections(shown[1])
    bodies = _bodies(sections, collect_story(conversation), *_limits(around))
    pairs = zip(sections, bodies, strict=True)
    changed = [(section, body) for section, body in pairs if body and body != section.text]
    if not changed:
        return (Text("The notes are up to date."),)
    if "Edit" not in conversation.tools:
        # nothing in a text may end its section before its end
        plain = ((s.title, new.replace("</section>", r"<\/section>")) for s, new in changed)
        told = (f'<section title="{title}">\n{text}\n</section>' for title, text in plain)
        return (Text("\n\n".join(told)),)
    place = blake2b(directive.id.encode("utf-8"), digest_size=4).hexdigest()
    calls = (
        ToolUse(f"toolu_off_notes_{place}_{n}", "Edit", {"file_path": path[1], **edit})
        for n, edit in enumerate(_edits(shown[1], changed))
    )
    return tuple(_fitting(calls, conversation.room)) or (Text("There is no room for a single edit."),)


def _fitting(calls: Iterator[ToolUse], room: int) -> Iterator[ToolUse]:
    """As many as the reply may hold; the rest comes with the next update."""
    left = room or sys.maxsize
    for call in calls:
        left -= measure_message(Message("assistant", (call,))).tokens()
        if left < 0:
            return
        yield call


def _limits(asked: str) -> tuple[int, int]:
    """Bytes for a section and for all of them, as the directive says them in tokens."""
    found = _LIMITS.search(asked)
    said = [int(number.replace(",", "")) for number in found.groups()] if found else (SECTION, TOTAL)
    section, total = (int(tokens / TEXT_RATE) for tokens in said)
    return section, min(total, int(TOTAL / TEXT_RATE))


# --- sections -------------------------------------------------------------------------------------------


def parse_sections(notes: str) -> list[WrittenSection]:
    """A heading, a line in italics if there is one, and whatever follows."""
    lines = notes.split("\n")
    starts = [at for at, text in enumerate(lines) if _HEADING.fullmatch(text)]
    out = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        body = start + 1
        described = next((at for at in range(body, end) if lines[at].strip()), end)
        if described < end and _ITALIC.fullmatch(lines[described].strip()):
            body = described + 1
        title = lines[start].lstrip("#").strip()
        out.append(WrittenSection(title, tuple(lines[start:body]), tuple(lines[body:end])))
    return out


def _edits(notes: str, changed: Sequence[tuple[WrittenSection, str]]) -> Iterator[dict[str, str]]:
    """For each section the lines that change, with as many before them as tell them apart."""
    for section, new in changed:
        before = [*section.fixed, *section.body]
        while before and not before[-1].strip():
            before.pop()
        after = [*section.fixed, *new.split("\n")]
        start, end = _differing(before, after)
        while start and (start >= end[0] or notes.count("\n".join(before[start : end[0]])) != 1):
            start -= 1
        old, text = ("\n".join(lines[start:at]) for lines, at in zip((before, after), end, strict=True))
        notes = notes.replace(old, text, 1)
        yield {"old_string": old, "new_string": text}


def _differing(before: Sequence[str], after: Sequence[str]) -> tuple[int, tuple[int, int]]:
    """From which line on they differ, and up to which line in each."""
    most = min(len(before), len(after))
    start = next((n for n in range(most) if before[n] != after[n]), most)
    same = 0
    while same < most - start and before[-1 - same] == after[-1 - same]:
        same += 1
    return start, (len(before) - same, len(after) - same)


# --- what is written into them --------------------------------------------------------------------------

Maker: TypeAlias = Callable[[ConversationStory, WrittenSection], Render]


def _bodies(
    sections: Sequence[WrittenSection], story: ConversationStory, most: int, room: int
) -> list[str]:
    """The new text of each section, and what stands there where nothing is to be said."""
    kinds = _kinds(sections)
    parts = [_MAKERS.get(kind, _AS_IT_IS) for kind in kinds]
    rendered = [(weight, make(story, one)) for (weight, make), one in zip(parts, sections, strict=True)]
    texts = share_room(rendered, int(room * (1 - NAMES)), most)
    if CODE in kinds:
        at, left = kinds.index(CODE), room - sum(map(count_bytes, texts))
        texts[at] = _code(story, sections[at], "\n".join(texts), min(most, left))
    return [strip_half_characters(text) for text in texts]


def _kinds(sections: Sequence[WrittenSection]) -> list[str]:
    """The kind of each section, by its title: ours, or what others call the same."""
    out, free = [""] * len(sections), list(range(len(sections)))
    for kind, words in _TITLES.items():
        if (at := next((n for n in free if words.search(sections[n].title)), None)) is not None:
            out[at] = kind
            free.remove(at)
    return out


def _title(story: ConversationStory, section: WrittenSection) -> Render:
    """Given once: a session keeps its name."""
    first = to_bounded_line(story.said[0].lstrip("#>-* "), _PER_TITLE) if story.said else ""
    return lambda room: section.text or first


def _state(story: ConversationStory, section: WrittenSection) -> Render:
    """Always new."""
    tell = (retelling.format_unsolved, retelling.format_state, retelling.format_wanted)
    return partial(format_list, [text for told in tell for text in told(story)])


def _task(story: ConversationStory, section: WrittenSection) -> Render:
    """Whatever the user said, each thing once."""
    said = [f"“{' '.join(text.split())}”" for text in story.said]
    old = [text for text in section.lines if not any(_same(text, one) for one in said)]
    return _below(section, partial(format_quotes, list(dict.fromkeys([*old, *said]))))


def _same(old: str, new: str) -> bool:
    """Whether an old line is this one, whole or cut."""
    head, cut, _ = old.partition("[… ")
    tail = old.rpartition("…]")[2]
    return old == new or (bool(cut) and new.startswith(head.strip()) and new.endswith(tail.strip()))


def _files(story: ConversationStory, section: WrittenSection) -> Render:
    lines = merge_lines(section.lines, retelling.format_files(story))
    return _below(section, partial(retelling.format_file_list, lines))


def _adding(*tell: Callable[[ConversationStory], list[str]]) -> Maker:
    """Beside what stands there already."""

    def make(story: ConversationStory, section: WrittenSection) -> Render:
        new = [text for told in tell for text in told(story)]
        return _below(section, partial(format_list, merge_lines(section.lines, new)))

    return make


def _below(section: WrittenSection, render: Render) -> Render:
    """The text that a person has written, and below it what we list."""
    own = section.own
    if not own:
        return render

    def both(room: int) -> str:
        above = own if count_bytes(own) <= room else clip_text(own, max(0, room - CUT))
        return "\n".join(filter(None, [above, render(room - count_bytes(above) - 1)]))

    return both


def _code(story: ConversationStory, section: WrittenSection, told: str, room: int) -> str:
    """Names that are told nowhere else, and of a summary that somebody else wrote as much as fits."""
    old = [text for text in section.lines if not text.startswith(CAME_UP)]
    known = dict.fromkeys([*story.names, *retelling.parse_told_names(section.lines)])
    names = retelling.format_new_names(known, told, room // 2)
    before: Render = partial(format_list, old)
    if not (old or section.own or story.earlier.startswith(f"<{NOTES}>")):
        before = partial(retelling.excerpt_summary, story.earlier)
    above = _below(section, before)(room - count_bytes(names) - 1)
    return "\n".join(filter(None, [above, names]))


CODE: Final = "code"
_AS_IT_IS: Final[tuple[float, Maker]] = (0.0, lambda story, section: lambda room: section.text)
_MAKERS: Final[dict[str, tuple[float, Maker]]] = {
    "title": (1.0, _title),
    "state": (1.5, _state),
    "task": (3.0, _task),
    "files": (4.0, _files),
    "workflow": (2.5, _adding(retelling.format_commands)),
    "errors": (2.0, _adding(retelling.format_errors, retelling.format_corrections)),
    "results": (2.0, _adding(retelling.format_stored_results, retelling.answer_lines)),
    CODE: (0.0, lambda story, section: lambda room: ""),
    "log": (1.0, _adding(lambda story: [text for part in retelling.format_steps(story) for text in part])),
}
"""The writer of each section, and its share of the room. To learn from something is not by rule."""
_TITLES: Final = {
    kind: re.compile(words, re.IGNORECASE)
    for kind, words in {
        "title": r"title|标题",
        "state": r"state|status|\bnow\b|状态|进展|当前",
        "task": r"task|goal|request|任务|目标|需求|要求",
        "files": r"file|文件",
        "workflow": r"workflow|command|命令|流程",
        "errors": r"error|correction|problem|错误|问题",
        "results": r"result|answer|finding|结果|结论",
        "log": r"log|history|日志|记录",
        CODE: r"code|system|concept|architecture|代码|系统|概念|架构",
    }.items()
}
