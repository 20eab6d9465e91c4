"""Memories that say the same become one: nothing that only one of them said is left out.

The one that others link to, else the older one, is kept. It gets what the other says beyond it; a
sentence that both have stands there once.

What of a removed memory's frontmatter comes along: the keys that are not ours are kept too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Final

import msgspec

from sevenfold.memory.consolidation.dates import origin_time
from sevenfold.memory.consolidation.sentences import (
    Statement,
    Wording,
    clashes,
    description,
    likeness,
    near,
    numbered_apart,
    of_one_subject,
    same,
    says_all_of,
    statements,
    with_text,
    wording,
)
from sevenfold.memory.consolidation.staged import Merged, Move, StagedFiles, linked, relink
from sevenfold.memory.dreams.losses import Shelf
from sevenfold.memory.dreams.statements import stated
from sevenfold.memory.frontmatter import Entry, find_frontmatter, last, line_break
from sevenfold.memory.topic_file import Origin, Topic, changed, decoded, encoded, read_topic

_OURS: Final = frozenset(["name", "description", "type", "metadata", "origin"])
_INNER: Final = frozenset(["type", "origin", "originsessionid", "node_type"])


def with_keys_of(kept: Topic, gone: Topic) -> tuple[Topic, list[str]]:
    """The memory with the other's keys that it lacks, and as sentences those that it has otherwise."""
    text = decoded(kept.data)
    told: list[str] = []
    for entry, raw in _foreign(gone):
        mine = _found(kept, entry.key)
        if mine is not None and _value(mine, text) == _value(entry, raw):
            continue
        new = None if mine is not None else _added(kept, entry, raw)
        if new is not None:
            kept, text = new, decoded(new.data)
        elif entry.key.casefold() != "originsessionid":
            told.append(f"{entry.key}: {_value(entry, raw)}")
    return kept, told


def joined_origin(kept: Topic, gone: Topic) -> Topic:
    """The origin of the one that is kept; where it has none, that of the other."""
    mine, other = kept.origin, gone.origin
    if other is None:
        return kept
    origin = mine or other
    if mine is not None and mine.session and mine.session == other.session:
        entries = tuple(sorted({*mine.entries, *other.entries}))
        origin = msgspec.structs.replace(mine, entries=entries)
    if origin == mine or not _writable(kept) or not _told(origin):
        return kept
    return read_topic(changed(kept, origin=origin), kept.file)


def _told(origin: Origin) -> bool:
    """Whether an origin says more than the id of a session of another program."""
    return bool(origin.date or origin.author)


def _writable(topic: Topic) -> bool:
    found = find_frontmatter(decoded(topic.data))
    return found is not None and found.closed and not found.why


def _foreign(topic: Topic) -> list[tuple[Entry, str]]:
    """The entries that are not ours, with the text they stand in."""
    text = decoded(topic.data)
    found = find_frontmatter(text)
    if found is None:
        return []
    meta = last(found.entries, "metadata")
    inner = meta.inner if meta else ()
    outer = [one for one in found.entries if one.key.casefold() not in _OURS]
    return [(one, text) for one in [*outer, *inner] if one.key.casefold() not in _INNER]


def _found(topic: Topic, key: str) -> Entry | None:
    found = find_frontmatter(decoded(topic.data))
    if found is None:
        return None
    meta = last(found.entries, "metadata")
    return last((*found.entries, *(meta.inner if meta else ())), key.casefold())


def _value(entry: Entry, text: str) -> str:
    """A value in one line."""
    if entry.value is not None:
        return " ".join(entry.value.split())
    return " ".join(text[entry.start : entry.end].split())


def _added(topic: Topic, entry: Entry, raw: str) -> Topic | None:
    """The memory with this entry at the end of its frontmatter; None when that cannot be done safely."""
    text = decoded(topic.data)
    found = find_frontmatter(text)
    if found is None or not _writable(topic) or "&" in raw[entry.start : entry.end][:1]:
        return None
    nl = line_break(text)
    lines = raw[entry.line : entry.after].splitlines()
    margin = len(lines[0]) - len(lines[0].lstrip())
    if any(line[:margin].strip() for line in lines):
        return None
    block = "".join(line[margin:] + nl for line in lines)
    data = encoded(text[: found.end] + block + text[found.end :]) + topic.data[len(encoded(text)) :]
    new = read_topic(data, topic.file)
    same = all(
        getattr(new, each) == getattr(topic, each)
        for each in ("name", "description", "type", "origin", "body")
    )
    mine = _found(new, entry.key)
    fits = mine is not None and _value(mine, decoded(new.data)) == _value(entry, raw)
    return new if same and fits and _writable(new) else None


MATCHED: Final = 0.6
"""The part of the smaller memory, by words, that the other has to say too."""
LIKE: Final = 0.6
"""From so many shared words on, two sentences are compared for what stands between them."""
_COMMON: Final = 0.1
"""Words that more than this part of all memories have do not bring two of them together."""
_ROUNDS: Final = 8
_MANY: Final = 400


class _Read(msgspec.Struct, frozen=True):
    """A memory with its sentences and their wordings."""

    topic: Topic
    said: tuple[tuple[Statement, Wording], ...]
    words: frozenset[str]

    def prose(self) -> list[tuple[Statement, Wording]]:
        return [one for one in self.said if one[1].words]


def merge(files: StagedFiles) -> list[Merged]:
    """Join what is surely the same; says what became of each file that is gone."""
    done: list[Merged] = []
    read: dict[str, _Read] = {}
    settled: set[tuple[bytes, bytes]] = set()
    for _ in range(_ROUNDS):
        for topic in files.workable():
            if topic.file not in read or read[topic.file].topic.data is not topic.data:
                read[topic.file] = _read(topic)
        found = _round(files, read, settled)
        done += found
        if not found:
            break
    return done


def _round(
    files: StagedFiles, read: dict[str, _Read], settled: set[tuple[bytes, bytes]]
) -> list[Merged]:
    there = [read[topic.file] for topic in files.workable()]
    touched: set[str] = set()
    done: list[Merged] = []
    moves: list[Move] = []
    for one, other in _candidates(there):
        pair = (one.topic.data, other.topic.data)
        if {one.topic.file, other.topic.file} & touched or pair in settled:
            continue
        settled.add(pair)
        why = _why_same(one, other)
        if not why:
            continue
        kept, gone = _which(files, one.topic, other.topic)
        if (new := joined(kept, gone)) is None:
            continue
        files.put(kept.file, new.data, files.times.get(gone.file))
        files.drop(gone.file)
        moves.append(Move(gone, new))
        touched |= {kept.file, gone.file}
        done.append(Merged(gone.file, kept.file, why))
    relink(files, moves)
    return done


def _read(topic: Topic) -> _Read:
    said = tuple((one, wording(one.text)) for one in statements(topic))
    words = frozenset[str]().union(*(each.content for _, each in said))
    return _Read(topic, said, words)


def _candidates(there: list[_Read]) -> Iterator[tuple[_Read, _Read]]:
    """Pairs of one type that share rare words, the most alike first."""
    counted = Counter(word for one in there for word in one.words)
    common = max(12, int(len(there) * _COMMON))
    holders: dict[str, list[int]] = {}
    for at, one in enumerate(there):
        for word in one.words:
            if counted[word] <= common:
                holders.setdefault(word, []).append(at)
    shared: Counter[tuple[int, int]] = Counter()
    for places in holders.values():
        shared.update(combinations(places, 2))
    scored: list[tuple[float, int, int]] = []
    for left, right in shared:
        one, other = there[left], there[right]
        both = len(one.words & other.words)
        share = both / min(len(one.words), len(other.words))
        if share >= 0.5 and _types_fit(one.topic, other.topic):
            scored.append((-share, left, right))
    for _, left, right in sorted(scored):
        yield there[left], there[right]


def _types_fit(one: Topic, other: Topic) -> bool:
    return one.type == other.type or None in (one.type, other.type)


def _why_same(one: _Read, other: _Read) -> str:
    """Why two memories are one; empty when they are not, or that is not sure."""
    if one.topic.body == other.topic.body and _types_fit(one.topic, other.topic):
        return "both say the same, word for word" if _no_clash(one, other) else ""
    small, large = sorted((one, other), key=lambda each: sum(len(w.words) for _, w in each.said))
    if len(small.said) > _MANY or not _no_clash(small, large):
        return ""
    total = matched = 0
    for _, mine in small.prose():
        total += len(mine.words)
        if any(near(mine, theirs) for _, theirs in large.prose()):
            matched += len(mine.words)
    share = matched / total if total else 0.0
    if share < MATCHED:
        return ""
    if share < 1 and not of_one_subject(one.topic, other.topic):
        return ""
    return f"{round(100 * share)} % of what it says stands there too"


def _no_clash(one: _Read, other: _Read) -> bool:
    """Whether no sentence of the one is a sentence of the other with another number, name or 'not'."""
    if numbered_apart(one.topic, other.topic):
        return False
    theirs = other.prose()
    for _, mine in one.prose():
        if any(same(mine, each) for _, each in theirs):
            continue
        if any(likeness(mine, each) >= LIKE and clashes(mine, each) for _, each in theirs):
            return False
    return True


def _which(files: StagedFiles, one: Topic, other: Topic) -> tuple[Topic, Topic]:
    """The one to keep and the one to go: what others link to stays, then what is older."""

    def rank(topic: Topic) -> tuple[int, float, int, str]:
        at = origin_time(topic)
        time = files.times.get(topic.file, 0.0) if at is None else at
        return (-linked(files, topic), time, len(topic.file), topic.file)

    first, second = sorted((one, other), key=rank)
    return first, second


def joined(kept: Topic, gone: Topic) -> Topic | None:
    """One memory that says what both say; None when something would not be in it."""
    new, told = with_keys_of(kept, gone)
    new = joined_origin(new, gone)
    new = _described(new, gone)
    lacking = _lacking(new, gone)
    extra = _laid_out(lacking) + [f"- {line}" for line in told]
    if extra:
        if any(one.form == "heading" for one in statements(new)) and not extra[0].startswith("## "):
            extra = [f"## From {gone.name}", "", *extra]
        body = with_text(new.body, "\n".join(extra))
        new = read_topic(changed(new, body=body), new.file)
    after = Shelf({new.file: new.data})
    everything = [*stated(kept.data, kept.file), *stated(gone.data, gone.file)]
    return new if all(after.holder(one) for one in everything) else None


def _lacking(new: Topic, gone: Topic) -> list[Statement]:
    """What only the other says. A description is a summary: that its words are there is enough."""
    mine = [wording(one.text) for one in statements(new)]
    told = [one for one in stated(gone.data, gone.file) if description(gone)]
    there = Shelf({new.file: new.data})
    summed_up = {one.fact.text for one in told if there.holder(one)}
    found: list[Statement] = []
    for one in statements(gone):
        summary = one.field == "description" and one.text in summed_up
        if not summary and not any(says_all_of(each, wording(one.text)) for each in mine):
            found.append(one)
    return found


def _described(kept: Topic, gone: Topic) -> Topic:
    """The description of the other where it says all that this one does, and more."""
    mine, theirs = description(kept), description(gone)
    if not mine or not theirs:
        return kept
    small, large = wording(mine), wording(theirs)
    more = small.content < large.content and not clashes(small, large)
    if not more or len(theirs) > 300:
        return kept
    return read_topic(changed(kept, description=theirs), kept.file)


def _laid_out(lacking: list[Statement]) -> list[str]:
    """The sentences of the other memory, with their headings where they stood under one."""
    lines: list[str] = []
    under = ""
    shown = {one.under for one in lacking if one.form in ("prose", "row")}
    for one in lacking:
        if one.form == "code" or (one.form == "heading" and one.text in shown):
            continue
        if one.form != "heading" and one.under and one.under != under:
            lines += [*([""] if lines else []), f"## {one.under}", ""]
            under = one.under
        lines.append(f"- {one.text.strip('| ')}")
    code = [one.text for one in lacking if one.form == "code"]
    if code:
        lines += [*([""] if lines else []), "```", *code, "```"]
    return lines
