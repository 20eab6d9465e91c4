"""Makes memory folders in which everything is known: what is unique, twice, out of date or broken."""

from __future__ import annotations

import datetime
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.dreaming.sentences import BOTH_HOLD, CHANGED, DATED, MORE, OVER, UNIQUE, VALUES, Pair
from sevenfold.memory.folder.names import make_slug
from sevenfold.memory.index import format_pointer
from sevenfold.memory.topic_file import TYPES, Origin, Type, encode_new_topic, read_topic

TODAY: Final = datetime.date(2026, 11, 15)
NOW: Final = datetime.datetime.combine(TODAY, datetime.time(12)).timestamp()
LONG: Final = "{x} told {y} that rack {n} must be moved before the audit of the north hall"
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwxz", "aeioaeoaiuoeaoiueoy"
_SYLLABLES: Final = tuple(map("".join, zip(_CONSONANTS, _VOWELS, strict=True)))


class Change(msgspec.Struct, frozen=True):
    """A contradiction: of two sentences the new one counts."""

    old: str
    new: str
    style: str


class Twin(msgspec.Struct, frozen=True):
    """Two files that say the same."""

    first: str
    second: str


class Planted(msgspec.Struct, frozen=True):
    """What is in a folder."""

    facts: tuple[str, ...]
    """Sentences each of which has to be there afterwards."""
    twins: tuple[Twin, ...]
    apart: tuple[Twin, ...]
    """Files that look alike and are not the same."""
    changes: tuple[Change, ...]
    open: tuple[tuple[str, str], ...]
    """Contradictions that nobody can decide: both sentences have to stay."""
    dates: tuple[tuple[str, str], ...]
    """A relative sentence, and the day that it means."""
    over: tuple[str, ...]
    broken: tuple[str, ...]
    """Files that the index points to and that are not there."""
    files: int


class _Maker:
    """One folder, as it is made."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.dice = random.Random(seed)
        self.facts: list[str] = []
        self.twins: list[Twin] = []
        self.apart: list[Twin] = []
        self.changes: list[Change] = []
        self.open: list[tuple[str, str]] = []
        self.dates: list[tuple[str, str]] = []
        self.over: list[str] = []
        self.lines: list[str] = []
        self._used: set[str] = set()
        self._pairs: set[str] = set()

    # --- parts ----------------------------------------------------------------------------------------

    def unique(self) -> str:
        """A memory that nothing else is like."""
        type = self.dice.choice(TYPES)
        sentence, name = self._filled(self.dice.choice(UNIQUE[type]))
        more = [self._filled(self.dice.choice(MORE))[0] for _ in range(self.dice.randint(0, 2))]
        told = f"About {name} and what came of it"
        body = self.dice.choice((" ", "\n\n", "\n- ")).join([sentence, *more])
        self.facts += [sentence, *more]
        return self.write(f"{name} {self.dice.choice(('note', 'facts', 'info'))}", type, told, body)

    def twin(self) -> None:
        """A memory and its near-duplicate."""
        first = self.unique()
        topic = read_topic((self.folder / first).read_bytes(), first)
        body = self.dice.choice((_plain, _with_articles, _as_list, self._longer))(topic.body)
        told = self.dice.choice((topic.description, f"{topic.description}, in short"))
        name = f"{topic.name} {self.dice.choice(('2', 'again', 'copy'))}"
        self.twins.append(Twin(first, self.write(name, topic.type or "project", told, body)))

    def change(self) -> None:
        """An old and a new sentence, with what shows which is which."""
        pair = self._pair(CHANGED)
        if pair is None:
            return
        old, new, name, former = self._both(pair)
        style = self.dice.choice(("origin", "file", "text", "marker"))
        days = self.dice.randint(120, 300), self.dice.randint(5, 80)
        if style == "text":
            new = f"Since {_day(-days[1])}, {new}" if new.isascii() else f"{new[:-1]}（{_day(-days[1])}）。"
        elif style == "marker":
            new = _marked(new, former)
            days = (days[1], days[1])
        titles = self.dice.choice(((name, f"{name} update"), (f"{name} setup", f"{name} news")))
        origin = style == "origin"
        told = f"{name}: how it is set up"
        self.write(titles[0], pair.type, told, old, said=-days[0], origin=origin)
        self.write(titles[1], pair.type, told, new, said=-days[1], origin=origin)
        self.changes.append(Change(old, new, style if pair in CHANGED[:-3] else "other words"))

    def both_hold(self) -> None:
        """Two sentences that look like a contradiction and are none."""
        pair = self._pair(BOTH_HOLD)
        if pair is None:
            return
        one, other, name, _ = self._both(pair)
        days = self.dice.randint(120, 300), self.dice.randint(5, 80)
        titles = (name, f"{name} more")
        files = [
            self.write(title, pair.type, f"{name}, {at}", text, said=-day)
            for title, text, day, at in zip(titles, (one, other), days, ("first", "then"), strict=True)
        ]
        self.facts += [one, other]
        self.apart.append(Twin(*files))

    def undecided(self) -> None:
        """A contradiction without any sign of which is newer."""
        pair = self._pair(CHANGED[:9])
        if pair is None or "moved" in pair.second:
            return
        one, other, name, _ = self._both(pair)
        for title, text in ((name, one), (f"{name} other", other)):
            self.write(title, pair.type, f"{name}: how it is set up", text, said=-30)
        self.open.append((one, other))

    def dated(self) -> None:
        text, days = self.dice.choice(DATED)
        sentence, name = self._filled(text)
        said = -self.dice.randint(3, 60)
        self.write(
            name,
            "project",
            f"What happens with {name}",
            sentence,
            said=said,
            origin=self.dice.random() < 0.5,
        )
        self.dates.append((sentence, _day(said + days)))

    def past(self) -> None:
        sentence, name = self._filled(self.dice.choice(OVER), d=_day(-self.dice.randint(120, 400)))
        self.over.append(self.write(name, "project", f"A date of {name}", sentence, said=-450))
        self.facts.append(sentence)

    def index(self, broken: int) -> tuple[str, ...]:
        """Some lines missing, some twice, some to nowhere, some far too long."""
        lines = list(self.lines)
        for at in range(0, len(lines), 12):
            fact, _ = self._filled(LONG)
            more = "and so on " * 12
            lines[at] = f"{lines[at].split(' — ')[0]} — {fact}, {more}until all of it stands there"
            self.facts.append(fact)
        kept = [line for at, line in enumerate(lines) if at % 12 == 0 or self.dice.random() < 0.85]
        kept += [line for line in kept if self.dice.random() < 0.05]
        gone = [f"{self._name().lower()}-{at}.md" for at in range(broken)]
        kept += [f"- [{file[:-3]}]({file}) — nothing is left of it" for file in gone]
        self.dice.shuffle(kept)
        (self.folder / "MEMORY.md").write_text("# Memory\n\n" + "\n".join(kept) + "\n", encoding="utf-8")
        return tuple(gone)

    # --- inside ---------------------------------------------------------------------------------------

    def write(
        self, name: str, type: Type, told: str, body: str, *, said: int | None = None, origin: bool = False
    ) -> str:
        file = f"{make_slug(name)}.md"
        said = -self.dice.randint(1, 80) if said is None else said
        source = Origin(session="s-1", date=_day(said), author="user") if origin else None
        data = encode_new_topic(file, name=name, description=told, type=type, body=body, origin=source)
        if self.dice.random() < 0.1:
            data = data.replace(b"\ntype:", b"\nx-owner: somebody\ntype:", 1)
        path = self.folder / file
        path.write_bytes(data)
        at = NOW + said * 86_400 if not origin else NOW
        os.utime(path, (at, at))
        self.lines.append(format_pointer(read_topic(data, file)))
        return file

    def _name(self) -> str:
        while True:
            name = "".join(self.dice.choice(_SYLLABLES) for _ in range(3)).capitalize()
            if name not in self._used:
                self._used.add(name)
                return name

    def _filled(self, text: str, **more: str) -> tuple[str, str]:
        name = self._name()
        numbers = {"n": str(self.dice.randint(11, 98_765)), "m": str(self.dice.randint(11, 98_765))}
        return text.format(x=name, y=self._name(), **numbers, **more), name

    def _pair(self, pairs: tuple[Pair, ...]) -> Pair | None:
        """One of them; those about the user only once in a folder."""
        pair = self.dice.choice(pairs)
        if pair.name == "{x}":
            return pair
        if pair.name in self._pairs:
            return None
        self._pairs.add(pair.name)
        return pair

    def _both(self, pair: Pair) -> tuple[str, str, str, str]:
        known = VALUES.get(pair.values)
        if known is not None:
            p, q = self.dice.sample(known, 2) if known[0] else ("", "")
        elif pair.values == "date":
            p, q = _day(self.dice.randint(20, 90)), _day(self.dice.randint(91, 200))
        else:
            p, q = (str(one) for one in self.dice.sample(range(1_000, 9_999), 2))
        x, y = self._name(), self._name()
        name = pair.name.format(x=x)
        return (pair.first.format(x=x, y=y, p=p, q=q), pair.second.format(x=x, y=y, p=p, q=q), name, p)

    def _longer(self, body: str) -> str:
        sentence, _ = self._filled(self.dice.choice(MORE))
        self.facts.append(sentence)
        return f"{body}\n\n{sentence}"


def folder(place: Path, size: int, seed: int) -> Planted:
    """A folder of about `size` memories, with everything that can be wrong in it."""
    place.mkdir(parents=True, exist_ok=True)
    maker = _Maker(place, seed)
    for _ in range(size * 40 // 100):
        maker.unique()
    for count, make in (
        (10, maker.twin),
        (10, maker.change),
        (5, maker.both_hold),
        (2, maker.undecided),
        (5, maker.dated),
        (3, maker.past),
    ):
        for _ in range(max(1, size * count // 100)):
            make()
    broken = maker.index(max(1, size // 25))
    return Planted(
        facts=tuple(maker.facts),
        twins=tuple(maker.twins),
        apart=tuple(maker.apart),
        changes=tuple(maker.changes),
        open=tuple(maker.open),
        dates=tuple(maker.dates),
        over=tuple(maker.over),
        broken=broken,
        files=sum(1 for _ in topics(place)),
    )


def topics(place: Path) -> Iterator[Path]:
    """The topic files of a folder."""
    return (path for path in sorted(place.rglob("*.md")) if path.name != "MEMORY.md")


def _day(days: int) -> str:
    return (TODAY + datetime.timedelta(days=days)).isoformat()


def _plain(body: str) -> str:
    return body


def _with_articles(body: str) -> str:
    return body.replace("The user", "This user").replace("  ", " ")


def _as_list(body: str) -> str:
    return "\n".join(f"- {line.lstrip('- ')}" for line in body.split("\n") if line.strip())


def _marked(new: str, former: str) -> str:
    """The same sentence with a word that says that it is new."""
    if not new.isascii():
        return new if "改为" in new or "现在" in new else new.replace("是", "现在是", 1)
    if "no longer" in new or "moved" in new:
        return new
    if former and former.isdigit():
        return f"{new[:-1]} instead of {former}."
    for verb in (" is ", " uses ", " runs ", " happen ", " lives ", " has been "):
        if verb in new:
            return new.replace(verb, f"{verb}now " if verb == " is " else f" now{verb}", 1)
    return f"Now {new}"
