"""`memory check`: what is wrong with a memory folder, where, and what to do about it.

Nothing is changed here. Each finding is one sentence with a fix; what is harmless is not reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias, get_args

import msgspec

from sevenfold.memory.consolidation.contradictions import find_contradiction
from sevenfold.memory.dates.relative import list_relative_dates
from sevenfold.memory.folder.folder import OWN, SHARED, FolderPart, is_personal
from sevenfold.memory.folder.names import find_suspicious_names, is_copy, make_file_key, make_slug
from sevenfold.memory.frontmatter import strip_broken_characters
from sevenfold.memory.index import HOOK, IndexPointer, list_exceeded_limits, read_index, split_unlisted
from sevenfold.memory.recall_results import count_days_ago, format_age
from sevenfold.memory.similarity import find_similar_pairs
from sevenfold.memory.text.links import list_link_names, make_link_key
from sevenfold.memory.topic_file import Topic, decode_text

Kind: TypeAlias = Literal[
    "secret", "instruction", "source", "team", "contradiction", "size", "limit", "dangling", "missing",
    "twice", "frontmatter", "duplicate", "date", "link", "long", "stale",
]  # fmt: skip
STALE: Final = 60  # Days after which a memory about ongoing work is probably out of date
_ORDER: Final = {kind: at for at, kind in enumerate(get_args(Kind))}
_SHOWN: Final = 5


class CheckFinding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be."""

    kind: Kind
    file: str
    text: str
    fix: str


class GuardHit(Protocol):
    """A finding of the guard; it never holds the secret itself."""

    @property
    def kind(self) -> Literal["secret", "instruction", "size", "source"]: ...
    @property
    def what(self) -> str: ...
    @property
    def where(self) -> str: ...


def check_memories(
    topics: Sequence[Topic],
    index: str,
    team_index: str = "",
    *,
    modified: Mapping[str, float],
    now: float,
    scan: Callable[[str], Iterable[GuardHit]] | None = None,
    also: Collection[str] = (),
) -> list[CheckFinding]:
    """Everything worth saying about these memories and their indexes, the gravest first.

    `modified` says when each file was last changed, `scan` is the guard, `also` are files that an
    index may point to but need not.
    """
    findings: list[CheckFinding] = []
    texts = {OWN: index, SHARED: team_index}
    if scan is not None:
        inside = [
            (one.file, strip_broken_characters(decode_text(one.data)) if one.data else one.body)
            for one in topics
        ]
        findings += _guarded([*inside, *((part.index, text) for part, text in texts.items())], scan)
        findings += _named(topics, scan)
    for part, text in texts.items():
        findings += _index(part, topics, text, also)
    names = {name for topic in topics for name in list_link_names(topic.file, topic.name)}
    for topic in topics:
        findings += _topic(topic, names, modified.get(topic.file), now)
    findings += _duplicates(topics)
    return sorted(findings, key=lambda one: (_ORDER[one.kind], one.file))


def _guarded(
    texts: Iterable[tuple[str, str]], scan: Callable[[str], Iterable[GuardHit]]
) -> Iterator[CheckFinding]:
    fixes = {
        "secret": "remove it, renew the secret, and purge the memory from the history",
        "instruction": "remove it unless you wrote it yourself: a memory is data, not an order",
        "size": "split it into several memories",
        "source": "remove it unless you said it: only your own words found a rule",
    }
    for file, text in texts:
        for seen in scan(text):
            yield CheckFinding(seen.kind, file, f"{seen.what} in {seen.where}", fixes[seen.kind])


def _named(topics: Sequence[Topic], scan: Callable[[str], Iterable[GuardHit]]) -> Iterator[CheckFinding]:
    """Secrets in the names of files: lists, messages and the history show those."""
    suspicious = set(find_suspicious_names([topic.file for topic in topics], lambda text: any(scan(text))))
    for topic in topics:
        for seen in scan(topic.file) if topic.file in suspicious else ():
            if seen.kind == "secret":
                fix = "renew the secret, rename the file, and purge the old name from the history"
                yield CheckFinding("secret", topic.file, f"{seen.what} in the name of the file", fix)


def _index(
    part: FolderPart, every: Sequence[Topic], text: str, also: Collection[str]
) -> Iterator[CheckFinding]:
    """Problems of the index of one part; files are named relative to the part."""
    topics = [_within(part, one) for one in every if part.lists(one.file)]
    others = {*also, *(one.file for one in every)}
    also = [part.inner(one) for one in others if one.startswith(part.folder)]
    file = part.index
    if over := list_exceeded_limits(text):
        fix = "a session sees only as much as fits: remove lines, or move what says more into topic files"
        yield CheckFinding("limit", file, f"it has {' and '.join(over)}", fix)
    read = read_index(text)
    links = [*read.pointers, *read.mentions]
    there = {make_file_key(one) for one in [*(topic.file for topic in topics), *also]}
    named = {make_file_key(topic.name) for topic in topics}
    pointed = {make_file_key(one.file) for one in links}
    for link in links:
        key = make_file_key(link.file)
        if not {key, make_file_key(f"{link.file}.md")} & there and key not in named:
            said = f"line {link.line} points to {link.file}, which is not there"
            fix = "remove the line, or bring the file back from the history"
            yield CheckFinding("dangling", file, said, fix)
    missing = [
        topic.file
        for topic in topics
        if not pointed & set(map(make_file_key, (topic.file, topic.file.removesuffix(".md"), topic.name)))
    ]
    if len(missing) != split_unlisted(text)[1]:  # else the index says so itself
        fix = "the next write or session adds the lines that fit, or add it: - [Title](file.md) — hook"
        for one in missing:
            yield CheckFinding("missing", part.outer(one), "the index has no line for it", fix)
    yield from _crowded(read.pointers, read.lines, file)


def _within(part: FolderPart, topic: Topic) -> Topic:
    return msgspec.structs.replace(topic, file=part.inner(topic.file)) if part.folder else topic


def _crowded(pointers: Sequence[IndexPointer], lines: Sequence[str], file: str) -> Iterator[CheckFinding]:
    """Pointers that stand twice, and lines that say too much."""
    counted = Counter(make_file_key(one.file) for one in pointers)
    for name, count in counted.items():
        if count > 1:
            numbers = ", ".join(str(one.line) for one in pointers if make_file_key(one.file) == name)
            yield CheckFinding("twice", file, f"{name} stands in lines {numbers}", "keep one of them")
    long = sorted({one.line for one in pointers if len(lines[one.line - 1].rstrip()) > HOOK})
    if long:
        which = "line is" if len(long) == 1 else "lines are"
        text = f"{len(long)} {which} longer than {HOOK} characters: {_some([str(one) for one in long])}"
        yield CheckFinding("long", file, text, "keep a short hook there and the rest in the topic file")


def _topic(topic: Topic, names: set[str], modified: float | None, now: float) -> Iterator[CheckFinding]:
    """Problems of one memory by itself; `names` are those that a link may use."""
    file = topic.file
    if topic.problems:
        fix = "edit the first lines: name, description and type between two '---'"
        yield CheckFinding("frontmatter", file, "; ".join(topic.problems), fix)
    if is_personal(topic):
        text = "it is of type 'user' and lies with the team, and what is about a person is never shared"
        yield CheckFinding("team", file, text, "move it out of team/, or give it another type")
    if (clash := find_contradiction(topic)) is not None:
        text = f"its description says {clash.description!r}, and its text says {clash.text!r}"
        yield CheckFinding("contradiction", file, text, "recall judges by the description: correct it")
    if found := list_relative_dates(f"{topic.description}\n{topic.body}"):
        text = f"it says {_some([repr(one) for one in found])}, which means another day every day"
        yield CheckFinding("date", file, text, "write the date itself, as 2026-03-05")
    if broken := [one for one in topic.links if not {make_link_key(one), make_slug(one)} & names]:
        text = f"there is no memory for {_some([f'[[{one}]]' for one in broken])}"
        yield CheckFinding("link", file, text, "correct the name, or write that memory")
    if topic.type == "project" and modified is not None and count_days_ago(modified, now) >= STALE:
        text = f"it is about ongoing work and was last changed {format_age(modified, now)}"
        yield CheckFinding("stale", file, text, "check whether it still holds; edit it, or remove it")


def _duplicates(every: Sequence[Topic]) -> Iterator[CheckFinding]:
    topics = sorted(every, key=lambda one: is_copy(one.file))  # what a clash left goes into the memory
    first: dict[str, str] = {}
    for topic in topics:
        other = first.setdefault(make_file_key(topic.name), topic.file)
        if other != topic.file:
            text = f"it has the same name as {other}: {topic.name}"
            yield CheckFinding("duplicate", topic.file, text, "merge the two, or rename one")
    texts = ((one.file, f"{one.description}\n{one.body}") for one in topics if one.body)
    for pair in find_similar_pairs(texts):
        same = "the same as" if pair.share == 1 else "nearly the same as"
        text = f"it says {same} {pair.first}"
        yield CheckFinding("duplicate", pair.second, text, f"merge it into {pair.first}")


def _some(items: Sequence[str]) -> str:
    shown = ", ".join(one[:80] for one in items[:_SHOWN])
    return f"{shown} and {len(items) - _SHOWN} more" if len(items) > _SHOWN else shown
