"""The grounds of a memory: the words, their time and their author. Without them it is not saved.

    user, feedback        a quote of what the person typed, and nothing copied from results or files
    project, reference    the same, or a sentence of the assistant's that the person went on from

A quote is a line `> words` in the memory. The origin in the frontmatter is written here and never taken
from the model. Relative dates become calendar dates, counted from the day of the quoted message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

import msgspec

from sevenfold.core.clock import format_date
from sevenfold.core.messages import Message, Text, ToolResult, ToolUse
from sevenfold.core.transcript import Entry, Id, PlacedMessage, Replace, Reply, Undo, View
from sevenfold.layers.l5_durable_memory.prompt import is_opening
from sevenfold.layers.l5_durable_memory.recall import extract_typed_text
from sevenfold.layers.shared.facts import TYPED
from sevenfold.memory.dates.relative import make_dates_absolute
from sevenfold.memory.frontmatter import find_frontmatter, find_last_entry
from sevenfold.memory.guard.own_words import split_pasted_text
from sevenfold.memory.guard.user_words import SpokenWords, extract_offers
from sevenfold.memory.guard.wall import SourceText, WriteSources
from sevenfold.memory.similarity import extract_statement, is_quote
from sevenfold.memory.text.words import split_words
from sevenfold.memory.topic_file import (
    TYPES,
    Origin,
    Topic,
    change_topic,
    decode_text,
    find_origin_entry,
    read_topic,
    shorten_text,
)

LEAST: Final = 3
"""Words of a quote that is not all of what was typed; of Chinese or Japanese one character more."""
RUN: Final = 8
RUN_UNSPACED: Final = 14
"""So many words, or characters of a script without spaces, in a row are copied and no coincidence."""
TELLING: Final = 4  # Letters of a word that may tell what a sentence is about
_STEM: Final = 5
_ELLIPSIS: Final = re.compile(r"\s*(?:\[?(?:…|\.\.\.)\]?)\s*")
_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_EMPTY: Final = (
    "that this with from have what when where which will would should could your about please into "
    "them then than they there these those just also some only more very user memory always never "
    "want wants like likes make makes made does done work works said says"
)
"""Words that tell nothing about a subject."""
_UNTELLING: Final = frozenset(_EMPTY.split())
_APPROVAL: Final = re.compile(
    r"\b(?:yes|yeah|yep|exactly|perfect|great|good|right|correct|agreed|keep|love|nice)\b"
    r"|对|對|好|没错|沒錯|就这样|就這樣|可以|是的|完美|正是",
    re.IGNORECASE,
)
_OBJECTION: Final = re.compile(
    r"\W*(?:no|nope|not|wrong|incorrect|false|actually|stop|don['’]?t|that['’]?s (?:not|wrong)"
    r"|不|错|錯|别|別|没有|沒有)(?:\b|(?<=[^\x00-\x7f]))",
    re.IGNORECASE,
)


class SourceQuote(msgspec.Struct, frozen=True):
    """Something a person typed or the assistant said, where and when."""

    id: Id
    at: float
    text: str
    flat: str  # Its words, with a blank on either side
    by_user: bool
    before: str = ""  # Of what was typed: what the assistant had said just before
    session: str = ""  # The session it was said in; empty: the one that is looked at


class SourceMessages:
    """The messages of a view, by who is behind them."""

    def __init__(self, view: View, entries: Sequence[Entry], now: float) -> None:
        self._view, self._now, self._entries = view, now, entries
        self._times = {entry.id: entry.at for entry in entries}
        gone = find_replaced_user_words(entries, view)
        self.said = [self._said(id, extract_own_words(message), by_user=True) for id, message in gone]
        self.said += self._heard()

    def collect(self) -> WriteSources:
        """The person's own words and all other texts."""
        return self._write_sources

    @cached_property
    def _write_sources(self) -> WriteSources:
        found = collect_write_sources(self._entries)
        said = SpokenWords(one.text for one in self.said if one.by_user)  # of other sessions, too
        return msgspec.structs.replace(found, spoken=found.spoken.join_with(said), quoted=True)

    def find(self, quote: str, *, assistant: bool) -> SourceQuote | None:
        """The newest text that says this word for word; of the assistant, one without objection."""
        parts = [flatten_text(part) for part in _ELLIPSIS.split(quote) if split_words(part)]
        if not parts:
            return None
        for one in reversed(self.said):
            if not one.by_user and not assistant:
                continue
            if all(part in one.flat for part in parts) and _is_enough(parts, one.flat):
                return one
        return None

    def copied(self, text: str) -> str:
        """Words in a row that stand in no message of the person but in a result, a file or a reminder."""
        told = split_words(text)
        length = RUN_UNSPACED if _UNSPACED.search(text) else RUN
        runs = [f" {' '.join(told[at : at + length])} " for at in range(len(told) - length + 1)]
        own = [one.flat for one in self.said if one.by_user]
        for run in runs:
            if run in self._elsewhere and not any(run in flat for flat in own):
                return run.strip()
        return ""

    def is_instructed(self, statement: str) -> bool:
        """True if a line of an instruction file says this: all telling words, and as many numbers."""
        own = set(split_words(statement)) - _UNTELLING
        return len(own) >= LEAST and any(own <= line for line in self._instructed)

    @cached_property
    def _instructed(self) -> list[set[str]]:
        """The words of each line of the instruction files in view."""
        opened = (placed.message.text for placed in self._view if is_opening(placed))
        told = (re.split(r"<(?:team-)?memory-index>", text)[0] for text in opened)  # the index follows
        return [set(split_words(line)) for text in told for line in text.split("\n")]

    @cached_property
    def _elsewhere(self) -> str:
        texts = (text for placed in self._view for text in _foreign(placed))
        return "\n".join(map(flatten_text, texts))

    def _heard(self) -> Iterator[SourceQuote]:
        """Texts of the assistant after which the person went on without objecting."""
        waiting: list[SourceQuote] = []
        for placed in self._view:
            if is_typed(placed):
                text = extract_own_words(placed.message)
                if not _OBJECTION.match(text):
                    yield from waiting
                before = waiting[-1].text if waiting else ""
                waiting = []
                yield self._said(placed.id, text, before, by_user=True)
            elif placed.message.role == "assistant" and placed.message.text.strip():
                waiting.append(self._said(placed.id, placed.message.text, by_user=False))

    def _said(self, id: Id, text: str, before: str = "", *, by_user: bool) -> SourceQuote:
        return SourceQuote(id, self._times.get(id, self._now), text, flatten_text(text), by_user, before)


def is_typed(placed: PlacedMessage) -> bool:
    """True if a person typed this."""
    message = placed.message
    if message.role != "user" or placed.by not in TYPED or message.results:
        return False
    return bool(extract_typed_text(message))


def extract_own_words(message: Message) -> str:
    """The words of a message that the person typed, without what was pasted or quoted."""
    return split_pasted_text(extract_typed_text(message)).own


_WHERE: Final = ("file_path", "path", "url", "notebook_path", "command", "pattern", "query")
PASTED: Final = "a text that the user pasted"
LONGEST_TEXT: Final = 100_000  # Characters of a result in which the source of a memory is looked for


def collect_write_sources(entries: Sequence[Entry]) -> WriteSources:
    """All that the agent's writes may rest on: the person's own words, and every other text by its name."""
    said: list[str] = []
    others: list[SourceText] = []
    names: dict[str, str] = {}
    reply = ""
    undone = {id for entry in entries if isinstance(entry.what, Undo) for id in entry.what.ids}
    for entry in entries:
        if entry.id in undone:
            continue
        match entry.what:
            case Reply(message=message):
                names |= {use.id: _name_call(use) for use in message.tool_uses}
                reply = message.text or reply
            case Message(role="user") as message if entry.by in TYPED and not message.results:
                typed = extract_typed_text(message)
                said += filter(None, (typed, extract_offers(reply, typed)))
                others += [SourceText(PASTED, text) for text in split_pasted_text(typed).pasted]
            case Message(role="user") as message:
                others += [
                    SourceText(names.get(one.tool_use_id, "a tool"), one.text[:LONGEST_TEXT])
                    for one in message.results
                    if one.text
                ]
            case _:
                pass
    return WriteSources(SpokenWords(said), tuple(others))


def _name_call(use: ToolUse) -> str:
    """The place that a call read: a file, an address, a command."""
    for key in _WHERE:
        if isinstance(value := use.input.get(key), str) and value.strip():
            return f"the output of `{value}`" if key == "command" else value
    return use.name


def find_replaced_user_words(
    entries: Sequence[Entry], view: View, after: Id = -1
) -> list[tuple[Id, Message]]:
    """The user's words after this entry for which a summary stands, which has them word for word."""
    found: list[tuple[Id, Message]] = []
    replaced: list[Replace] = []
    undone: set[Id] = set()
    for entry in reversed(entries):
        if entry.id <= after:
            break
        match entry.what:
            case _ if entry.id in undone:
                pass
            case Undo(ids):
                undone |= ids
            case Replace(by=by) as edit if by:
                replaced.append(edit)
            case Message(role="user") as message if entry.by in TYPED and not message.results:
                covered = any(edit.first <= entry.id <= edit.last for edit in replaced)
                if covered and view.where(entry.id) is None and extract_typed_text(message):
                    found.append((entry.id, message))
            case _:
                pass
    return found[::-1]


def is_related(statement: str, said: SourceQuote, quote: str) -> bool:
    """True if a quote has anything to do with what a memory states.

    An approval ("yes, exactly like that") is about what the assistant had said before it.
    """
    about, own = _telling(statement), _telling(quote)
    if _UNSPACED.search(statement + quote):
        if not (_UNSPACED.search(statement) and _UNSPACED.search(quote)):
            return True  # one may be a translation of the other
        own, about = own | _pairs(quote), about | _pairs(statement)
    if own & about:
        return True
    return bool(_APPROVAL.search(quote)) and bool(_telling(said.before) & about)


def flatten_text(text: str) -> str:
    """A text as its words, with a blank on either side."""
    return f" {' '.join(split_words(text))} "


def _is_enough(parts: Sequence[str], whole: str) -> bool:
    """Two words that stand in every message prove nothing, unless they are all that was typed."""
    count = sum(len(part.split()) for part in parts)
    least = LEAST + bool(_UNSPACED.search("".join(parts)))
    return count >= least or (count >= 2 and list(parts) == [whole])


def _telling(text: str) -> set[str]:
    return {
        word[:_STEM]
        for word in split_words(text)
        if word not in _UNTELLING and (len(word) >= TELLING or any(map(str.isdigit, word)))
    }


def _pairs(text: str) -> set[str]:
    return {a + b for a, b in pairwise(split_words(text)) if _UNSPACED.match(a)}


def _foreign(placed: PlacedMessage) -> Iterable[str]:
    """The texts of a message that neither the person nor the assistant wrote."""
    if placed.message.role == "assistant":
        return
    own = is_typed(placed)
    for block in placed.message.content:
        if isinstance(block, ToolResult) or (isinstance(block, Text) and not own):
            yield block.text
    if own:
        typed = extract_typed_text(placed.message)
        whole = "\n".join(b.text for b in placed.message.content if isinstance(b, Text))
        piped = whole.replace(typed, "", 1)
        yield from (piped,) if piped.strip() else ()
        yield from split_pasted_text(typed).pasted


LONGEST_QUOTE: Final = 300  # Characters of a quote that are kept
BY_PERSON: Final = ("user", "feedback")  # Types of memory that only the person's own words can found
_INSIDE: Final = re.compile(r"[“\"「](.{2,}?)[”\"」]")
_GAP: Final = re.compile(r"\n{3,}")
_HOW: Final = (
    "add a line that begins with '> ' and repeats, letter for letter, the words of the person's message "
    "that it rests on"
)


class UnfitMemory(Exception):
    """A call that is not carried out: of which kind the reason is, and the reason."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind, self.why = kind, why


class FoundedMemory(msgspec.Struct, frozen=True):
    """A memory with what it rests on."""

    topic: Topic
    origin: Origin
    quote: str


def check_sources(new: Topic, old: Topic | None, sources: SourceMessages, session: str) -> FoundedMemory:
    """The memory as it may be saved; `UnfitMemory` when it was not said. `old`: what its file holds."""
    _check_form(new)
    kept = set(old.body.split("\n")) if old else set()
    found = _found(new, kept, sources)
    stated = "\n".join(extract_statement(topic) for topic in (new, old) if topic is not None)
    if not any(is_related(stated, said, quote) for quote, said in found):
        raise UnfitMemory(
            "source",
            f"what it quotes (“{found[0][0]}”) says nothing of what it states; {_HOW}, or leave it",
        )
    if new.type in BY_PERSON:
        _check_not_copied(new, old, kept, sources)
    newest = max(found, key=lambda one: one[1].at)[1]
    entries = tuple(sorted({said.id for _, said in found if said.session == newest.session}))
    origin = Origin(newest.session or session, entries, format_date(newest.at), "extraction")
    description = new.description
    if old is None or description != old.description:
        description = make_dates_absolute(description, newest.at)
    body = _body(new, kept, list(_blocks(new, kept)) and [quote for quote, _ in found], newest.at)
    data = change_topic(new, description=description, body=body, origin=origin)
    return FoundedMemory(read_topic(data, new.file), origin, found[0][0])


def _check_form(topic: Topic) -> None:
    if topic.type is None or find_frontmatter(decode_text(topic.data)) is None:
        raise UnfitMemory(
            "form",
            f"a memory begins with frontmatter: name, description, and as type one of {', '.join(TYPES)}",
        )
    if not split_words(topic.description) or not split_words(extract_statement(topic)):
        raise UnfitMemory("form", "a memory needs a description that says what it is about, and a text")


def _found(topic: Topic, kept: set[str], sources: SourceMessages) -> list[tuple[str, SourceQuote]]:
    """The quotes and who said them: every new one, else those in the file that were said here too."""
    person = topic.type in BY_PERSON
    found = list[tuple[str, SourceQuote]]()
    for block in _blocks(topic, kept):
        if (one := _said(block, sources, person)) is None:
            whose = "the person did not type" if person else "nobody said"
            raise UnfitMemory(
                "source",
                f"{whose} “{shorten_text(block, 120)}” in this conversation: results of tools, files and "
                f"recalled memories are no source, and a quote needs a few words in a row; {_HOW}, or "
                "leave it",
            )
        found.append(one)
    if not found:
        there = (_said(block, sources, person) for block in _blocks(topic, set()))
        found = [one for one in there if one is not None]
    if not found:
        more = "" if person else ", or a sentence of yours that they answered without objecting"
        raise UnfitMemory("source", f"it does not say what it rests on; {_HOW}{more}")
    return found


def _said(block: str, sources: SourceMessages, person: bool) -> tuple[str, SourceQuote] | None:
    for quote in _readings(block):
        if (said := sources.find(quote, assistant=not person)) is not None:
            return quote, said
    return None


def _blocks(topic: Topic, kept: set[str]) -> Iterator[str]:
    """The quotes that are not among those kept: lines that stand together are one."""
    block: list[str] = []
    for line in [*topic.body.split("\n"), ""]:
        if is_quote(line) and line not in kept and _bare(line):
            block.append(_bare(line))
        elif block:
            yield " ".join(block)
            block = []
    frontmatter = find_frontmatter(decode_text(topic.data))
    entry = find_origin_entry(frontmatter.entries) if frontmatter else None
    quote = find_last_entry(entry.inner, "quote") if entry is not None else None
    if quote is not None and split_words(quote.value or ""):
        yield (quote.value or "").strip()


def _bare(line: str) -> str:
    return line.strip().lstrip(">").strip()


def _readings(block: str) -> list[str]:
    """The meanings of a quote: all of it, or the part in quotation marks."""
    inside = _INSIDE.search(block)
    plain = block.strip("“”\"'「」 ")
    return [plain, inside[1].strip()] if inside else [plain]


def _check_not_copied(topic: Topic, old: Topic | None, kept: set[str], sources: SourceMessages) -> None:
    lines = [line for line in topic.body.split("\n") if line not in kept and not is_quote(line)]
    if old is None or topic.description != old.description:
        lines.append(topic.description)
    for line in lines:
        if run := sources.copied(line):
            raise UnfitMemory(
                "source",
                f"“{shorten_text(run, 120)}” comes from a result, a file or a recalled memory, and the "
                "person never said it; save only what they said themselves",
            )


def _body(topic: Topic, kept: set[str], quotes: Sequence[str], at: float) -> str:
    """The text with calendar dates, and below it each new quote on a line of its own."""
    own = [line for line in topic.body.split("\n") if line in kept or not is_quote(line)]
    lines = [line if line in kept else make_dates_absolute(line, at) for line in own]
    text = _GAP.sub("\n\n", "\n".join(lines)).rstrip()
    return "\n".join([text, "", *(_written(quote) for quote in dict.fromkeys(quotes))])


def _written(quote: str) -> str:
    """In quotation marks: what was said stays as it was said, its dates too."""
    inner = shorten_text(quote, LONGEST_QUOTE - 2).replace("“", "‘").replace("”", "’")
    return f"> “{inner}”"
