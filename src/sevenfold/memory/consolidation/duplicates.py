"""Merges memories that say the same; nothing that only one of them said is left out.

The one that others link to, else the older one, is kept. It gets what the other says beyond it; a
sentence that both have stands there once. Keys of its frontmatter that are not ours are kept too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import combinations
from typing import Final

import msgspec

from sevenfold.memory.consolidation.dates import find_origin_time
from sevenfold.memory.consolidation.sentences import (
    MemorySentence,
    SentenceWording,
    append_paragraph,
    compute_likeness,
    has_clash,
    is_near_wording,
    is_numbered_apart,
    is_same_subject,
    is_same_wording,
    is_wording_covered,
    make_wording,
    read_description,
    read_sentences,
)
from sevenfold.memory.consolidation.staged_memories import (
    MemoryMove,
    MergedMemory,
    StagedFiles,
    count_links,
    relink_files,
)
from sevenfold.memory.dreams.losses import StatementIndex
from sevenfold.memory.dreams.statements import read_facts
from sevenfold.memory.frontmatter import (
    FrontmatterEntry,
    detect_line_break,
    find_frontmatter,
    find_last_entry,
)
from sevenfold.memory.topic_file import Topic, change_topic, decode_text, encode_text, read_topic

_OURS: Final = frozenset(["name", "description", "type", "metadata", "origin"])
_INNER: Final = frozenset(["type", "origin", "originsessionid", "node_type"])


def join_keys(kept: Topic, gone: Topic) -> tuple[Topic, list[str]]:
    """The memory with the other's keys that it lacks, and as sentences those that it has otherwise."""
    text = decode_text(kept.data)
    told: list[str] = []
    for entry, raw in _foreign(gone):
        mine = _found(kept, entry.key)
        if mine is not None and _value(mine, text) == _value(entry, raw):
            continue
        new = None if mine is not None else _added(kept, entry, raw)
        if new is not None:
            kept, text = new, decode_text(new.data)
        elif entry.key.casefold() != "originsessionid":
            told.append(f"{entry.key}: {_value(entry, raw)}")
    return kept, told


def join_origin(kept: Topic, gone: Topic) -> Topic:
    """The origin of the one that is kept; where it has none, that of the other."""
    mine, other = kept.origin, gone.origin
    if other is None:
        return kept
    origin = mine or other
    if mine is not None and mine.session and mine.session == other.session:
        entries = tuple(sorted({*mine.entries, *other.entries}))
        origin = msgspec.structs.replace(mine, entries=entries)
    # Without both it is only the id of a session of another program.
    if origin == mine or not _writable(kept) or not (origin.date or origin.author):
        return kept
    return read_topic(change_topic(kept, origin=origin), kept.file)


def _writable(topic: Topic) -> bool:
    found = find_frontmatter(decode_text(topic.data))
    return found is not None and found.closed and not found.why


def _foreign(topic: Topic) -> list[tuple[FrontmatterEntry, str]]:
    """The entries that are not ours, with the text they stand in."""
    text = decode_text(topic.data)
    found = find_frontmatter(text)
    if found is None:
        return []
    meta = find_last_entry(found.entries, "metadata")
    inner = meta.inner if meta else ()
    outer = [one for one in found.entries if one.key.casefold() not in _OURS]
    return [(one, text) for one in [*outer, *inner] if one.key.casefold() not in _INNER]


def _found(topic: Topic, key: str) -> FrontmatterEntry | None:
    found = find_frontmatter(decode_text(topic.data))
    if found is None:
        return None
    meta = find_last_entry(found.entries, "metadata")
    return find_last_entry((*found.entries, *(meta.inner if meta else ())), key.casefold())


def _value(entry: FrontmatterEntry, text: str) -> str:
    return " ".join((text[entry.start : entry.end] if entry.value is None else entry.value).split())


def _added(topic: Topic, entry: FrontmatterEntry, raw: str) -> Topic | None:
    """The memory with this entry at the end of its frontmatter; None when that cannot be done safely."""
    text = decode_text(topic.data)
    found = find_frontmatter(text)
    if found is None or not _writable(topic) or "&" in raw[entry.start : entry.end][:1]:
        return None
    nl = detect_line_break(text)
    lines = raw[entry.line : entry.after].splitlines()
    margin = len(lines[0]) - len(lines[0].lstrip())
    if any(line[:margin].strip() for line in lines):
        return None
    block = "".join(line[margin:] + nl for line in lines)
    data = encode_text(text[: found.end] + block + text[found.end :]) + topic.data[len(encode_text(text)) :]
    new = read_topic(data, topic.file)
    same = all(
        getattr(new, each) == getattr(topic, each)
        for each in ("name", "description", "type", "origin", "body")
    )
    mine = _found(new, entry.key)
    fits = mine is not None and _value(mine, decode_text(new.data)) == _value(entry, raw)
    return new if same and fits and _writable(new) else None


MATCHED: Final = 0.6  # The part of the smaller memory, by words, that the other has to say too
LIKE: Final = 0.6  # From so many shared words on, two sentences are compared for what stands between them
_COMMON: Final = 0.1
"""Words that more than this part of all memories have do not bring two of them together."""
_ROUNDS: Final = 8
_MANY: Final = 400
_MARKS: Final = r"(?<!\d)[^\w\s]|[^\w\s](?!\d)"  # Not those within a number


class _ComparedMemory(msgspec.Struct, frozen=True):
    """A memory with its sentences and their wordings."""

    topic: Topic
    said: tuple[tuple[MemorySentence, SentenceWording], ...]
    words: frozenset[str]

    def prose(self) -> list[tuple[MemorySentence, SentenceWording]]:
        return [one for one in self.said if one[1].words]


def merge_duplicates(
    files: StagedFiles, apart: Collection[frozenset[str]] = frozenset()
) -> list[MergedMemory]:
    """Join what is surely the same; says what became of each file that is gone.

    Pairs of files in `apart` contradict each other and stay two.
    """
    done: list[MergedMemory] = []
    read: dict[str, _ComparedMemory] = {}
    settled: set[tuple[bytes, bytes]] = set()
    for one, other in (sorted(pair) for pair in apart if len(pair) == 2):
        if one in files.now and other in files.now:
            settled |= {(files.now[one], files.now[other]), (files.now[other], files.now[one])}
    for _ in range(_ROUNDS):
        for topic in files.workable():
            if topic.file not in read or read[topic.file].topic.data is not topic.data:
                said = tuple((one, make_wording(one.text)) for one in read_sentences(topic))
                words = frozenset[str]().union(*(each.content for _, each in said))
                read[topic.file] = _ComparedMemory(topic, said, words)
        found = _round(files, read, settled)
        done += found
        if not found:
            break
    return done


def _round(
    files: StagedFiles, read: dict[str, _ComparedMemory], settled: set[tuple[bytes, bytes]]
) -> list[MergedMemory]:
    there = [read[topic.file] for topic in files.workable()]
    touched: set[str] = set()
    done: list[MergedMemory] = []
    moves: list[MemoryMove] = []
    for one, other in _candidates(there):
        pair = (one.topic.data, other.topic.data)
        if {one.topic.file, other.topic.file} & touched or pair in settled:
            continue
        settled.add(pair)
        if not (why := _why_same(one, other)):
            continue
        kept, gone = _which(files, one.topic, other.topic)
        if (new := join_memories(kept, gone)) is None:
            continue
        # What was put right in a memory makes the rest of it no younger.
        disagreed = files.newer.get(kept.file) == gone.file
        files.put(kept.file, new.data, None if disagreed else files.times.get(gone.file))
        files.drop(gone.file)
        moves.append(MemoryMove(gone, new))
        touched |= {kept.file, gone.file}
        done.append(MergedMemory(gone.file, kept.file, why))
    relink_files(files, moves)
    return done


def _candidates(there: list[_ComparedMemory]) -> Iterator[tuple[_ComparedMemory, _ComparedMemory]]:
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
        share = len(one.words & other.words) / min(len(one.words), len(other.words))
        if share >= 0.5 and _types_fit(one.topic, other.topic):
            scored.append((-share, left, right))
    for _, left, right in sorted(scored):
        yield there[left], there[right]


def _types_fit(one: Topic, other: Topic) -> bool:
    return one.type == other.type or None in (one.type, other.type)


def _why_same(one: _ComparedMemory, other: _ComparedMemory) -> str:
    """The reason to take two memories for one; empty when they differ, or that is not sure."""
    if _differ_in_marks(one, other) or (one.topic.body == other.topic.body and _no_clash(one, other)):
        return "both say the same, word for word"
    small, large = sorted((one, other), key=lambda each: sum(len(w.words) for _, w in each.said))
    if len(small.said) > _MANY or not _no_clash(small, large):
        return ""
    total = matched = 0
    for _, mine in small.prose():
        total += len(mine.words)
        if any(is_near_wording(mine, theirs) for _, theirs in large.prose()):
            matched += len(mine.words)
    share = matched / total if total else 0.0
    if share < MATCHED or (share < 1 and not is_same_subject(one.topic, other.topic)):
        return ""
    return f"{round(100 * share)} % of what it says stands there too"


def _differ_in_marks(one: _ComparedMemory, other: _ComparedMemory) -> bool:
    """True if descriptions and sentences are the same but for case and marks, and no name is numbered."""
    told = (re.sub(_MARKS, "", each.topic.description.casefold()).split() for each in (one, other))
    if next(told) != next(told) or is_numbered_apart(one.topic, other.topic):
        return False
    mine, theirs = ([said for at, said in each.said if at.field == "body"] for each in (one, other))
    return len(mine) == len(theirs) and all(map(is_same_wording, mine, theirs))


def _no_clash(one: _ComparedMemory, other: _ComparedMemory) -> bool:
    """True if no sentence of the one is a sentence of the other with another number, name or 'not'."""
    if is_numbered_apart(one.topic, other.topic):
        return False
    theirs = other.prose()
    for _, mine in one.prose():
        if any(is_same_wording(mine, each) for _, each in theirs):
            continue
        if any(compute_likeness(mine, each) >= LIKE and has_clash(mine, each) for _, each in theirs):
            return False
    return True


def _which(files: StagedFiles, one: Topic, other: Topic) -> tuple[Topic, Topic]:
    """The one to keep and the one to go.

    Of two that disagreed, the newer stays if the older says nothing beyond it. Otherwise what others
    link to stays, then what is older.
    """
    for old, new in ((one, other), (other, one)):
        if files.newer.get(old.file) == new.file:
            return (old, new) if _lacking(new, old) else (new, old)

    def rank(topic: Topic) -> tuple[int, float, int, str]:
        at = find_origin_time(topic)
        time = files.times.get(topic.file, 0.0) if at is None else at
        return (-count_links(files, topic), time, len(topic.file), topic.file)

    first, second = sorted((one, other), key=rank)
    return first, second


def join_memories(kept: Topic, gone: Topic) -> Topic | None:
    """One memory that says what both say; None when something would not be in it."""
    new, told = join_keys(kept, gone)
    new = _described(join_origin(new, gone), gone)
    extra = _laid_out(_lacking(new, gone)) + [f"- {line}" for line in told]
    if extra:
        if any(one.form == "heading" for one in read_sentences(new)) and not extra[0].startswith("## "):
            extra = [f"## From {gone.name}", "", *extra]
        body = append_paragraph(new.body, "\n".join(extra))
        new = read_topic(change_topic(new, body=body), new.file)
    after = StatementIndex({new.file: new.data})
    everything = [*read_facts(kept.data, kept.file), *read_facts(gone.data, gone.file)]
    return new if all(after.holder(one) for one in everything) else None


def _lacking(new: Topic, gone: Topic) -> list[MemorySentence]:
    """The sentences that only the other has. A description is a summary: its words are enough."""
    mine = [make_wording(one.text) for one in read_sentences(new)]
    told = [one for one in read_facts(gone.data, gone.file) if read_description(gone)]
    there = StatementIndex({new.file: new.data})
    summed_up = {one.fact.text for one in told if there.holder(one)}
    return [
        one
        for one in read_sentences(gone)
        if not (one.field == "description" and one.text in summed_up)
        and not any(is_wording_covered(each, make_wording(one.text)) for each in mine)
    ]


def _described(kept: Topic, gone: Topic) -> Topic:
    """The description of the other where it says all that this one does, and more."""
    mine, theirs = read_description(kept), read_description(gone)
    if not mine or not theirs:
        return kept
    small, large = make_wording(mine), make_wording(theirs)
    if not small.content < large.content or has_clash(small, large) or len(theirs) > 300:
        return kept
    return read_topic(change_topic(kept, description=theirs), kept.file)


def _laid_out(lacking: list[MemorySentence]) -> list[str]:
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
