"""Decides whether a text may be written into memory, with the reason.

Secrets and texts that are too large are refused. A text that tries to steer the agent goes to quarantine
until the user releases or drops it. The user's own words are trusted further than a page from the web: the
thresholds by source stand in `signals.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from sevenfold.core.clock import format_date
from sevenfold.core.errors import Mistake, Refused, StorageFailure
from sevenfold.core.protocols import Clock
from sevenfold.memory.guard.injection import find_instructions
from sevenfold.memory.guard.secrets import find_secrets
from sevenfold.memory.guard.text import PASSED, GuardFinding, GuardVerdict, format_quarantine_hint

if TYPE_CHECKING:
    from sevenfold.memory.backend import StateRecords

LARGEST: Final = 250_000  # The most bytes of a memory: searching a longer one would take long
RELEASED: Final = "released"
"""The source of a text that the user let out of quarantine: only secrets and size are looked at."""
_NAMED: Final = 3  # Findings that an explanation names; the others are counted


class Guard:
    """Looks at every text before it is written. Has no state: threads may share one."""

    def __init__(self, *, largest: int = LARGEST, agent: str = "") -> None:
        """`agent`: whose memory it guards, where that is not the project's."""
        self._largest, self._agent = largest, agent

    def check(self, text: str | bytes, *, source: str = "") -> GuardVerdict:
        """`source` says where the words come from: "user", "agent", "web:https://…", "tool", "team", …"""
        size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "replace"))
        if size > self._largest:
            return self._too_large(size)
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        if secrets := find_secrets(text):
            return GuardVerdict("refuse", tuple(secrets), _about_secrets(secrets))
        if orders := find_instructions(text, source):
            return GuardVerdict("quarantine", tuple(orders), _about_orders(orders, self._agent))
        return PASSED

    def _too_large(self, size: int) -> GuardVerdict:
        found = GuardFinding("size", "too large", "the whole text", f"{size:,} bytes of {self._largest:,}")
        return GuardVerdict(
            "refuse",
            (found,),
            f"refused: it has {size:,} bytes and a memory may have {self._largest:,}; "
            "split it, or save where it is kept instead",
        )


def _about_secrets(found: Sequence[GuardFinding]) -> str:
    first = found[0]
    more = f", and {len(found) - 1} more like it" if len(found) > 1 else ""
    return (
        f"refused: {first.where} looks like {_article(first.what)}{more}; "
        "save where it is kept instead of the secret itself"
    )


def _about_orders(found: Sequence[GuardFinding], agent: str) -> str:
    signs = list(dict.fromkeys(f"{one.where} {one.what}" for one in found))
    more = f", and {len(signs) - _NAMED} more" if len(signs) > _NAMED else ""
    return (
        f"quarantined: {'; '.join(signs[:_NAMED])}{more}. Nothing was saved; if it is meant, "
        f"the user can release it with '{format_quarantine_hint(agent=agent)}'"
    )


def _article(what: str) -> str:
    if what.startswith("credentials"):
        return what
    an = what[:1].lower() in "aeio" or what.startswith(("SSH", "npm"))
    return f"{'an' if an else 'a'} {what}"


ENTRIES: Final = 2_000
"""So many texts are kept; then new ones are refused until the user has looked through them."""
TOTAL: Final = 10_000_000  # Bytes of all files together
_COUNTER: Final = "last-number"
_NAME: Final = re.compile(r"(\d{3,12})\.json")
_WORDS: Final = 300  # Characters of a source, a file name or an author that are kept
_AHEAD: Final = 1_000  # Numbers to skip if the counter is damaged, so that no number comes twice
_HIGHEST: Final = 10**11  # A counter that says more is damaged
_ROOM: Final = 7  # A file may be so many times larger than its text: JSON escapes some bytes sixfold


class QuarantinedText(msgspec.Struct, frozen=True):
    """One entry. Of a damaged one only the number is known, and what is wrong with it."""

    number: int
    file: str = ""  # The memory it was to become, relative to the memory folder
    source: str = ""
    author: str = ""
    at: float = 0.0
    date: str = ""
    findings: tuple[GuardFinding, ...] = ()
    text: str = ""  # The text; bytes that are not UTF-8 become replacement characters
    damaged: str = ""


class _QuarantineEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a record: the text, or base64 if it is not UTF-8."""

    file: str
    source: str
    author: str
    at: float
    date: str
    findings: tuple[GuardFinding, ...]
    text: str | None = None
    base64: bytes | None = None
    part: str = ""  # What was saved of the text

    @property
    def data(self) -> bytes:
        return self.text.encode() if self.text is not None else self.base64 or b""


def _name(number: int) -> str:
    return f"{number:03}.json"


class Quarantine:
    """The texts that the guard held back. Several processes may use it at once."""

    def __init__(self, texts: StateRecords, clock: Clock, agent: str = "") -> None:
        """`agent`: whose texts they are, where they are not the project's."""
        self._texts, self._clock, self._agent = texts, clock, agent

    def put(
        self,
        file: str,
        data: bytes,
        source: str,
        findings: Sequence[GuardFinding],
        *,
        author: str = "",
        part: bytes = b"",
    ) -> int:
        """Keep a text and say under which number; the same text for the same file is kept once.

        `part`: what was saved of it; a release merges the rest into what the file says then.
        """
        if len(data) > LARGEST:
            raise Refused(f"{file[:_WORDS]} is too large for the quarantine: {len(data):,} bytes")
        told = data.decode("utf-8", "replace")
        if find_secrets(told) or find_secrets(file) or find_secrets(author):
            raise Refused(
                "the text also holds a secret, so it was not kept in quarantine either; "
                "take the secret out and save it again"
            )
        entry = self._entry(file, data, source, findings, author, part)
        with self._texts.lock():
            numbers = self._numbers()
            if (same := self._same(entry, numbers)) is not None:
                return same
            encoded = msgspec.json.format(msgspec.json.encode(entry), indent=1)
            self._room_for(len(encoded), numbers)
            number = self._next(numbers)
            self._texts.write(_name(number), encoded)
            return number

    def show(self, number: int) -> QuarantinedText:
        held = self._held(number) if self._there(number) else None
        if held is None:
            raise Mistake(f"there is no entry {number} in quarantine; 'list' shows those there are")
        return held

    def release(
        self, number: int, write: Callable[[str, bytes, bytes], object] | None = None
    ) -> tuple[str, bytes]:
        """The text and the memory it is for; the entry goes when `write` has taken it.

        `write` also gets the part that was saved of it. Without `write` the entry goes at once, and the
        caller answers for the text.
        """
        with self._texts.lock():
            held = self.show(number)
            if held.damaged:
                raise Refused(f"entry {number} is damaged: {held.damaged}; drop it")
            entry = self._read(number)
            data = entry.data
        if write is not None:
            write(held.file, data, entry.part.encode())
        self._remove(number)
        return held.file, data

    def drop(self, number: int) -> None:
        """Remove an entry for good; its number is not used again."""
        if not self._there(number):
            raise Mistake(f"there is no entry {number} in quarantine; 'list' shows those there are")
        self._remove(number)

    def _remove(self, number: int) -> None:
        with self._texts.lock():
            self._remember(number)
            self._texts.remove(_name(number))

    def _entry(
        self,
        file: str,
        data: bytes,
        source: str,
        findings: Sequence[GuardFinding],
        author: str,
        part: bytes,
    ) -> _QuarantineEntry:
        if find_secrets(source):  # an address can carry a token
            source = source.split(":", 1)[0] if not find_secrets(source.split(":", 1)[0]) else ""
        now = self._clock.now()
        try:
            text, raw = data.decode("utf-8"), None
        except UnicodeDecodeError:
            text, raw = None, data
        return _QuarantineEntry(
            file[:_WORDS],
            source[:_WORDS],
            author[:_WORDS],
            now,
            format_date(now),
            tuple(findings),
            text,
            raw,
            part.decode("utf-8", "replace"),
        )

    def _same(self, entry: _QuarantineEntry, numbers: Sequence[int]) -> int | None:
        for number in numbers:
            try:
                other = self._read(number)
            except (StorageFailure, msgspec.MsgspecError):
                continue
            if (other.file, other.data) == (entry.file, entry.data):
                return number
        return None

    def _room_for(self, size: int, numbers: Sequence[int]) -> None:
        sizes = self._texts.sizes()
        total = sum(sizes.get(_name(number), 0) for number in numbers)
        if len(numbers) >= ENTRIES or total + size > TOTAL:
            raise Refused(
                f"the quarantine is full ({len(numbers)} entries, {total:,} bytes); look through it "
                f"with '{format_quarantine_hint(agent=self._agent)}' and drop what you do not need"
            )

    def _next(self, numbers: Sequence[int]) -> int:
        """One more than any number ever given out; written down before it is used."""
        number = max([self._last(), *numbers]) + 1
        self._texts.write(_COUNTER, b"%d\n" % number)
        return number

    def _remember(self, number: int) -> None:
        if (last := self._last()) < number or _COUNTER not in self._texts.sizes():
            self._texts.write(_COUNTER, b"%d\n" % max(last, number))

    def _last(self) -> int:
        try:
            data = self._texts.read(_COUNTER, 32)
        except StorageFailure:
            data = b"damaged"
        if data is None:
            return 0
        last = int(data) if data.strip().isdigit() else _HIGHEST
        return last if last < _HIGHEST else max([0, *self._numbers()]) + _AHEAD

    def count(self) -> int:
        """The number of texts that are held."""
        return len(self._numbers())

    def _numbers(self) -> list[int]:
        names = self._texts.sizes()
        return sorted({int(match[1]) for name in names if (match := _NAME.fullmatch(name))})

    def _there(self, number: int) -> bool:
        return _name(number) in self._texts.sizes()

    def _held(self, number: int) -> QuarantinedText:
        try:
            entry = self._read(number)
        except StorageFailure as error:
            return QuarantinedText(number, damaged=str(error))
        except msgspec.MsgspecError:
            path = self._texts.path_of(_name(number))
            return QuarantinedText(number, damaged=f"{path} is no entry of the quarantine")
        return QuarantinedText(
            number,
            entry.file,
            entry.source,
            entry.author,
            entry.at,
            entry.date,
            entry.findings,
            entry.data.decode("utf-8", "replace"),
        )

    def _read(self, number: int) -> _QuarantineEntry:
        data = self._texts.read(_name(number), LARGEST * _ROOM) or b""
        return msgspec.json.decode(data, type=_QuarantineEntry)

    def list(self) -> list[QuarantinedText]:  # last: it hides the type in what follows it
        """All entries, oldest first, damaged ones too."""
        return [self._held(number) for number in self._numbers()]
