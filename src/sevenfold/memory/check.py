"""`memory check`: what is wrong with a memory folder, where, and what to do about it.

Nothing is changed here. Each finding is one sentence with a fix; what is harmless is not reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, Literal, Protocol, TypeAlias, get_args

import msgspec

from sevenfold.memory.dates.relative import relative_dates
from sevenfold.memory.folder.folder import OWN, SHARED, Part, is_personal
from sevenfold.memory.folder.names import is_copy, key, slug
from sevenfold.memory.frontmatter import whole
from sevenfold.memory.index import HOOK, Pointer, exceeded, read_index
from sevenfold.memory.recalled import age, days_ago
from sevenfold.memory.similarity import alike
from sevenfold.memory.topic_file import Topic, decoded

Kind: TypeAlias = Literal[
    "secret",
    "instruction",
    "team",
    "size",
    "limit",
    "dangling",
    "missing",
    "twice",
    "frontmatter",
    "duplicate",
    "date",
    "link",
    "long",
    "stale",
]
STALE: Final = 60
"""Days after which a memory about ongoing work is probably out of date."""
_ORDER: Final = {kind: at for at, kind in enumerate(get_args(Kind))}
_SHOWN: Final = 5


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be."""

    kind: Kind
    file: str
    text: str
    fix: str


class Seen(Protocol):
    """What a guard found in a text; it never holds the secret itself."""

    @property
    def kind(self) -> Literal["secret", "instruction", "size"]: ...
    @property
    def what(self) -> str: ...
    @property
    def where(self) -> str: ...


def check(
    topics: Sequence[Topic],
    index: str,
    team_index: str = "",
    *,
    modified: Mapping[str, float],
    now: float,
    scan: Callable[[str], Iterable[Seen]] | None = None,
    also: Collection[str] = (),
) -> list[Finding]:
    """Everything worth saying about these memories and their indexes, the gravest first.

    `modified` says when each file was last changed, `scan` is the guard, `also` are files that an
    index may point to but need not.
    """
    findings: list[Finding] = []
    texts = {OWN: index, SHARED: team_index}
    if scan is not None:
        inside = [(one.file, _text(one)) for one in topics]
        findings += _guarded([*inside, *((part.index, text) for part, text in texts.items())], scan)
        findings += _named(topics, scan)
    for part, text in texts.items():
        findings += _index(part, topics, text, also)
    names = _names(topics)
    for topic in topics:
        findings += _frontmatter(topic)
        findings += _personal(topic)
        findings += _dates(topic)
        findings += _links(topic, names)
        findings += _stale(topic, modified, now)
    findings += _duplicates(topics)
    return sorted(findings, key=lambda one: (_ORDER[one.kind], one.file))


def _text(topic: Topic) -> str:
    return whole(decoded(topic.data)) if topic.data else topic.body


def _guarded(
    texts: Iterable[tuple[str, str]], scan: Callable[[str], Iterable[Seen]]
) -> Iterator[Finding]:
    fixes = {
        "secret": "remove it, renew the secret, and purge the memory from the history",
        "instruction": "remove it unless you wrote it yourself: a memory is data, not an order",
        "size": "split it into several memories",
    }
    for file, text in texts:
        for seen in scan(text):
            yield Finding(seen.kind, file, f"{seen.what} in {seen.where}", fixes[seen.kind])


def _named(topics: Sequence[Topic], scan: Callable[[str], Iterable[Seen]]) -> Iterator[Finding]:
    """Secrets in the names of files: lists, messages and the history show those."""
    for topic in topics:
        for seen in scan(topic.file):
            if seen.kind == "secret":
                fix = "renew the secret, rename the file, and purge the old name from the history"
                yield Finding("secret", topic.file, f"{seen.what} in the name of the file", fix)


def _personal(topic: Topic) -> Iterator[Finding]:
    if is_personal(topic):
        yield Finding(
            "team",
            topic.file,
            "it is of type 'user' and lies with the team, and what is about a person is never shared",
            "move it out of team/, or give it another type",
        )


def _index(
    part: Part, every: Sequence[Topic], text: str, also: Collection[str]
) -> Iterator[Finding]:
    """What is wrong with the index of one part; files have the names there that it gives them."""
    topics = [_within(part, one) for one in every if part.lists(one.file)]
    others = {*also, *(one.file for one in every)}
    also = [part.inner(one) for one in others if one.startswith(part.folder)]
    file = part.index
    if over := exceeded(text):
        fix = "merge or remove memories, and move what says more than a hook into topic files"
        yield Finding("limit", file, f"it has {' and '.join(over)}", fix)
    read = read_index(text)
    links = [*read.pointers, *read.mentions]
    there = {key(one) for one in [*(topic.file for topic in topics), *also]}
    named = {key(topic.name) for topic in topics}
    pointed = {key(one.file) for one in links}
    for one in links:
        if not {key(one.file), key(f"{one.file}.md")} & there and key(one.file) not in named:
            yield Finding(
                "dangling",
                file,
                f"line {one.line} points to {one.file}, which is not there",
                "remove the line, or bring the file back from the history",
            )
    for topic in topics:
        if not pointed & {key(topic.file), key(topic.file.removesuffix(".md")), key(topic.name)}:
            yield Finding(
                "missing",
                part.outer(topic.file),
                "the index has no line for it",
                "add one: - [Title](file.md) — hook",
            )
    yield from _crowded(read.pointers, read.lines, file)


def _within(part: Part, topic: Topic) -> Topic:
    return msgspec.structs.replace(topic, file=part.inner(topic.file)) if part.folder else topic


def _crowded(pointers: Sequence[Pointer], lines: Sequence[str], file: str) -> Iterator[Finding]:
    """Pointers that stand twice, and lines that say too much."""
    counted = Counter(key(one.file) for one in pointers)
    for name, count in counted.items():
        if count > 1:
            numbers = ", ".join(str(one.line) for one in pointers if key(one.file) == name)
            yield Finding("twice", file, f"{name} stands in lines {numbers}", "keep one of them")
    long = sorted({one.line for one in pointers if len(lines[one.line - 1].rstrip()) > HOOK})
    if long:
        which = "line is" if len(long) == 1 else "lines are"
        yield Finding(
            "long",
            file,
            f"{len(long)} {which} longer than {HOOK} characters: {_some([str(one) for one in long])}",
            "keep a short hook there and the rest in the topic file",
        )


def _frontmatter(topic: Topic) -> Iterator[Finding]:
    if topic.problems:
        yield Finding(
            "frontmatter",
            topic.file,
            "; ".join(topic.problems),
            "edit the first lines: name, description and type between two '---'",
        )


def _dates(topic: Topic) -> Iterator[Finding]:
    found = relative_dates(f"{topic.description}\n{topic.body}")
    if found:
        yield Finding(
            "date",
            topic.file,
            f"it says {_some([repr(one) for one in found])}, which means another day every day",
            "write the date itself, as 2026-03-05",
        )


def _names(topics: Sequence[Topic]) -> set[str]:
    """Every way in which a link may name one of them."""
    names: set[str] = set()
    for topic in topics:
        path = PurePosixPath(topic.file)
        plain = topic.file.removesuffix(".md")
        names.update(map(key, (topic.name, topic.file, plain, path.name, path.stem)))
        names.update((slug(topic.name), slug(path.stem)))
    return names


def _links(topic: Topic, names: set[str]) -> Iterator[Finding]:
    broken = [one for one in topic.links if key(one) not in names and slug(one) not in names]
    if broken:
        yield Finding(
            "link",
            topic.file,
            f"there is no memory for {_some([f'[[{one}]]' for one in broken])}",
            "correct the name, or write that memory",
        )


def _stale(topic: Topic, modified: Mapping[str, float], now: float) -> Iterator[Finding]:
    at = modified.get(topic.file)
    if topic.type == "project" and at is not None and days_ago(at, now) >= STALE:
        yield Finding(
            "stale",
            topic.file,
            f"it is about ongoing work and was last changed {age(at, now)}",
            "check whether it still holds; edit it, or remove it",
        )


def _duplicates(every: Sequence[Topic]) -> Iterator[Finding]:
    topics = sorted(
        every, key=lambda one: is_copy(one.file)
    )  # what a clash left goes into the memory
    first: dict[str, str] = {}
    for topic in topics:
        other = first.setdefault(key(topic.name), topic.file)
        if other != topic.file:
            text = f"it has the same name as {other}: {topic.name}"
            yield Finding("duplicate", topic.file, text, "merge the two, or rename one")
    texts = ((one.file, f"{one.description}\n{one.body}") for one in topics if one.body)
    for pair in alike(texts):
        same = "the same as" if pair.share == 1 else "nearly the same as"
        text = f"it says {same} {pair.first}"
        yield Finding("duplicate", pair.second, text, f"merge it into {pair.first}")


def _some(items: Sequence[str]) -> str:
    shown = ", ".join(one[:80] for one in items[:_SHOWN])
    return f"{shown} and {len(items) - _SHOWN} more" if len(items) > _SHOWN else shown
