"""Gets a summary out of a model: the wording, the reply, and the text that takes the place of the messages.

    on the prefix   the conversation's own request, one directive more; almost all of it is in the cache
    a nudge         once, when the reply has no summary in it
    plain           the record as text under a system prompt of its own, where the first way is closed
                    (the request was not accepted, was too long, or the model would only call tools) or
                    dearer: the cache is cold, or the small model may write it
    shortened       too long again: the oldest rounds go, as many as the provider's numbers ask for

Whatever comes of it, the conversation is not touched here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import BadRequest, ModelFailure, PromptTooLong, SevenfoldError
from sevenfold.core.events import Emit, Progress
from sevenfold.core.messages import Message, ToolResult, user, write_directive
from sevenfold.core.protocols import Forker
from sevenfold.core.request import Frame, Request, find_open_uses
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import PlacedMessage, Transcript, View
from sevenfold.layers.l4_compaction.plan import ANSWER, find_unread_results, split_rounds
from sevenfold.layers.shared.boundary import TITLES, UNKNOWN_GAP, sum_sizes
from sevenfold.layers.shared.facts import (
    clip_text,
    enclose_in_tag,
    escape_quote,
    format_quote,
    format_record,
    format_transcript_hint,
    summarise_call,
)
from sevenfold.layers.shared.side_work import SideQuestion, SideRequest, SideWork
from sevenfold.settings.layers import CompactionSettings

KIND: Final = "compact"  # The kind of the directive, on which the offline engine dispatches
TAG: Final = "summary"
SAID: Final = TITLES.index("All user messages")
_KEYS: Final = (
    "primary request",
    "key technical concept",
    "files and code",
    "errors and fix",
    "problem solving",
    "all user message",
    "pending task",
    "current work",
    "next step",
)
"""The first words of each section's heading, in small letters; the rest may vary."""
_ANALYSIS: Final = r"(?is)\A\s*<analysis>.*?</analysis>"
_BEGINS: Final = r"(?i)<summary>"
_FENCE: Final = r"\s*(`{3,}|~{3,})"
_NUMBER: Final = r"[\s#*_]*(\d{1,2})[.):]"
_ENDS: Final = re.compile(r"</summary>\s*\Z|\Z", re.I)
_HEADING: Final = r"[ \t]{0,3}(?P<form>[#*_ \t]*(?:\d{1,2}[.):]?[ \t]+)?[*_ \t]*)(?P<rest>[A-Za-z].*)"

_WHAT: Final = (
    "{where} was too long for the window and is not shown any more. This summary of it, written by the "
    "model itself, stands in its place."
)
_FOLLOWS: Final = (
    "From here on the conversation is shown word for word. Go on with the work as if there had been no "
    "break: do not greet, do not repeat this summary, do not ask what is answered above."
)
_LAST: Final = (
    "Go on from here with what the user asked for last, as if there had been no break: do not greet, do "
    "not repeat this summary, do not ask what is answered above."
)


@cache
def read_prompt(name: str) -> str:
    return Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8").strip()


# --- what is asked ------------------------------------------------------------------------------------


def format_directive(scope: str, instructions: str = "") -> str:
    own = f"\nThe user wants this of the summary besides:\n{instructions.strip()}"
    text = read_prompt("prompt").replace("{scope}", scope)  # once each: neither may bring in the other
    head, _, tail = text.rpartition("{instructions}")
    return f"{head}{own if instructions.strip() else ''}{tail}".strip()


def format_nudge(missing: Sequence[str]) -> str:
    if len(missing) == len(TITLES) - 1:
        why = "There was no summary in your reply."
    else:
        why = f"Your summary lacks {len(missing)} of its headings: {', '.join(missing)}."
    headings = "\n".join(f"## {n}. {title}" for n, title in enumerate(TITLES, 1))
    return read_prompt("nudge").replace("{why}", why).replace("{headings}", headings)


def format_scope(view: View, first: int, cut: int, seen: int) -> str:
    """Says which part to summarise, when the model sees more than that part."""
    parts = []
    if first > 0:
        parts.append(
            f"Summarise only what begins with {_named(view[first])}. What stands before it stays in "
            "view: do not retell it."
        )
    if cut < seen:
        parts.append(
            f"What begins with {_named(view[cut])} stays in view, word for word, right after your "
            "summary: do not retell it, and let the summary lead up to it."
        )
    return "\n".join(parts) or "Summarise all of the conversation above."


def _named(placed: PlacedMessage) -> str:
    """A message, so that one finds it."""
    message = placed.message
    if words := " ".join(message.text[:400].split())[:80]:
        whose = "your reply" if message.role == "assistant" else "the message"
        return f"{whose} that starts “{words}”"
    if uses := message.tool_uses:
        return f"your call “{summarise_call(uses[0]).name[:80]}”"
    return "the results of the last tools" if message.results else "the last message"


# --- what is answered ---------------------------------------------------------------------------------


class SummarySections(msgspec.Struct, frozen=True):
    """The nine sections of a reply, as far as they are there."""

    sections: tuple[str | None, ...] = (None,) * len(TITLES)

    @property
    def missing(self) -> tuple[str, ...]:
        """Headings that are not there. What the user said is never missing: we know it ourselves."""
        pairs = enumerate(zip(TITLES, self.sections, strict=True))
        return tuple(title for at, (title, text) in pairs if text is None and at != SAID)


def parse_summary(reply: str) -> SummarySections:
    """The sections of the summary in a reply, lenient about how headings are written.

    What the model quotes may look like a summary too. The last one that is whole counts, headings come in
    their order, and quoted lines or, where headings are numbered, lines without their number begin nothing.
    """
    text = re.sub(_ANALYSIS, "", reply, count=1)
    best = SummarySections()
    for begins in reversed(list(re.finditer(_BEGINS, text))):
        ends = _ENDS.search(text, begins.end())
        answer = _sections(text[begins.end() : ends.start() if ends else len(text)])
        if not answer.missing:
            return answer
        if len(answer.missing) < len(best.missing):
            best = answer
    return best


def _sections(body: str) -> SummarySections:
    lines = list(_unfenced(body))
    numbered = any(_numbered(line) for line, quoted in lines if not quoted)
    begins: list[tuple[int, int]] = []
    for number, (line, quoted) in enumerate(lines):
        at, _ = (None, "") if quoted else _heading(line)
        if at is not None and (not numbered or _numbered(line)):
            begins.append((number, at))
    found: list[list[str] | None] = [None] * len(TITLES)
    current: list[str] = []
    sections = dict(_in_order(begins))
    for number, (line, _) in enumerate(lines):
        if (at := sections.get(number)) is not None:
            rest = _heading(line)[1]
            current = found[at] = [rest] if rest else []
        else:
            current.append(line)
    texts = (None if part is None else escape_quote("\n".join(part).strip()) for part in found)
    return SummarySections(tuple(texts))


def _in_order(begins: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most headings that rise: one that is quoted does not fit in between the others."""
    chains: list[list[tuple[int, int]]] = []
    for one in begins:
        before = [chain for chain in chains if chain[-1][1] < one[1]]
        chains.append([*max(before, key=len, default=[]), one])
    return max(chains, key=len, default=[])


def _unfenced(body: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it stands inside a fence, where it is quoted."""
    fence = ""
    for line in body.splitlines():
        mark = re.match(_FENCE, line)
        yield line, bool(fence or mark)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not line.strip(" `~"):
            fence = ""


def _numbered(line: str) -> bool:
    """A heading with the number that belongs to it."""
    at, _ = _heading(line)
    number = re.match(_NUMBER, line)
    return at is not None and number is not None and int(number[1]) == at + 1


def _heading(line: str) -> tuple[int | None, str]:
    """The section that a line begins, and the rest of the line."""
    matched = re.match(_HEADING, line)
    if matched is None:
        return None, ""
    rest = matched["rest"].replace("&", "and")
    at = next((i for i, key in enumerate(_KEYS) if rest.lower().startswith(key)), None)
    if at is None:
        return None, ""
    title, _, more = rest.partition(":")
    if title.strip(" \t*_#").count(" ") > TITLES[at].count(" ") + 4:
        return None, ""  # a sentence that happens to begin with these words
    if not matched["form"].strip() and more.strip(" \t*_"):
        return None, ""
    return at, more.strip(" \t*_")


# --- what takes the place -----------------------------------------------------------------------------


class SummaryForm(msgspec.Struct, frozen=True):
    """The summary as it is put before the model."""

    path: str = ""  # The file of the transcript, if there is one
    middle: bool = False  # True if messages stand before it
    tail: bool = True  # True if messages follow it word for word
    newest: str = ""  # Results without an answer yet, when they do not follow
    longest: int = 0  # Bytes to which each message of the user is cut; 0: none is
    last_whole: bool = False
    """True if what the user said last stands in the summary and nowhere else: it is not cut."""


def format_summary(answer: SummarySections, said: Sequence[str], form: SummaryForm) -> str:
    where = "This part" if form.middle else "The older part"
    lines = [_WHAT.format(where=f"{where} of the conversation"), format_transcript_hint(form.path)]
    for at, text in enumerate(answer.sections):
        lines += ["", _title(at), _said_text(said, form) if at == SAID else text or "None"]
    if form.newest:
        lines += ["", "## The newest results, which nobody has answered yet", form.newest]
    return enclose_in_tag(TAG, [*lines, "", _FOLLOWS if form.tail else _LAST])


def format_account(answer: SummarySections) -> str:
    """The part of the summary that the model wrote, for a digest that may have to stand for it."""
    own = ((at, text) for at, text in enumerate(answer.sections) if text and at != SAID)
    return "\n".join(part for at, text in own for part in (_title(at), text))


def _title(at: int) -> str:
    return f"## {at + 1}. {TITLES[at]}"


def _said_text(said: Sequence[str], form: SummaryForm) -> str:
    """All that the user said, in order: word for word, unless it has to be cut, and then it says so."""
    if not said:
        return "None"
    longest = form.longest
    head = "Word for word, oldest first." if not longest else "Oldest first; long ones are cut."
    quoted = [format_quote(n, clip_text(one, longest) if longest else one) for n, one in enumerate(said, 1)]
    if form.last_whole:
        quoted[-1] = format_quote(len(said), said[-1], " newest")
    return "\n".join([head, *quoted])


def format_unread(view: View, most: int) -> str:
    """The newest calls and their results, at most so many bytes, when they have no answer."""
    newest = find_unread_results(view)
    share = most // max(1, len(newest))
    return "\n".join(f"{call} gave:\n{escape_quote(clip_text(text, share))}" for call, text in newest)


ASKED: Final = 800  # Tokens of the question, about
PLAIN: Final = "compact-plain"
"""The kind of a plain request: a column of its own in the ledger, as it shares no prefix."""
LATER: Final = "[its result comes later: it is not needed for this]"
"""The placeholder for the result of a call that the request before ended with."""
DENIED: Final = "tools are not run here: answer in words"
ABOVE: Final = "Summarise the record above, all of it."
SHORTENED: Final = "[the oldest part of the record is left out here: it is too long]"


class NoSummary(Exception):
    """There is no summary to be had; the message says why, for people."""

    def __init__(self, why: str, used: Usage | None = None) -> None:
        super().__init__(why)
        self.used = used or Usage()  # The usage of asking for it all the same


class _ToolCallsOnly(NoSummary):
    """The model called tools instead."""


class SummaryJob(msgspec.Struct, frozen=True):
    """A request for a summary: of which stretch, and on which view."""

    request: Request
    on: View | None  # The view to fork from; None: a plain request is the cheaper or the only way
    scope: str
    stretch: Sequence[PlacedMessage]  # The messages that are summarised, for a plain request
    instructions: str
    max_tokens: int
    gap: int = 0  # By how many tokens the stretch is known to be too long
    most: int = 0  # Characters of each thing that a tool was given or answered, in a plain request; 0: all
    small: bool = False  # True if the small model may write it
    frame: Frame | None = None  # The frame of a plain request; None: that of the conversation without tools
    record: str = ""  # The whole stretch as a record cut to `most`, where it was written already


class WrittenSummary(msgspec.Struct, frozen=True):
    answer: SummarySections
    usage: Usage
    model: str  # The model that wrote it


class Summariser:
    """Asks until there is a summary with all its headings, or raises `NoSummary`.

    `side_work` asks the small model, for a job that it may do.
    """

    def __init__(
        self, fork: Forker, settings: CompactionSettings, emit: Emit, side_work: SideWork | None = None
    ) -> None:
        self._fork, self._settings, self._emit, self._side = fork, settings, emit, side_work

    async def __call__(self, wanted: SummaryJob) -> WrittenSummary:
        asking = _SummaryAttempt(self._fork, self._settings, self._emit, wanted)
        if (chosen := self._choose_small(wanted)) is not None:
            most, frame = self._settings.record_characters, chosen.request.frame
            record = chosen.request.view[0].message.text
            small = replace(wanted, on=None, most=most, frame=frame, record=record)
            trying = _SummaryAttempt(chosen.ask, self._settings, self._emit, small)
            try:
                return WrittenSummary(await trying.by_all_means(), trying.used, frame.model)
            except (NoSummary, SevenfoldError, TimeoutError) as error:
                chosen.note_error(error)
                self._emit(Progress("compaction", f"asking the model of the conversation, because {error}"))
                asking.used = trying.used
        try:
            return WrittenSummary(await asking.by_all_means(), asking.used, wanted.request.frame.model)
        except (NoSummary, ModelFailure) as error:
            raise NoSummary(str(error), asking.used) from error
        except TimeoutError:
            why = f"the model gave no summary within {self._settings.timeout_seconds:g} s"
            raise NoSummary(why, asking.used) from None

    def _choose_small(self, wanted: SummaryJob) -> SideRequest | None:
        """The request to the small model, where that is the cheaper way."""
        if self._side is None or not wanted.small:
            return None
        record = user(format_record(wanted.stretch, self._settings.record_characters))
        system = (read_prompt("plain"),)
        question = SideQuestion(PLAIN, (record,), system, asked=ASKED, output=ANSWER, awaited=True)
        chosen = self._side.choose(wanted.request, question)
        return chosen if chosen.by_small else None


class _SummaryAttempt:
    """One summary: all that is tried for it, and what that used."""

    def __init__(self, fork: Forker, settings: CompactionSettings, emit: Emit, wanted: SummaryJob) -> None:
        self._fork, self._settings, self._emit, self._wanted = fork, settings, emit, wanted
        self.used = Usage()

    async def by_all_means(self) -> SummarySections:
        wanted, gap = self._wanted, self._wanted.gap
        if wanted.on is not None:
            request = replace(wanted.request, view=wanted.on)
            try:
                return await self._asked(request, KIND, wanted.scope)
            except PromptTooLong as error:
                gap = _gap(error, wanted.stretch)
            except (BadRequest, _ToolCallsOnly) as error:
                self._say(f"asking again without tools and history, because {error}")
        left = self._shortened(wanted.stretch, gap)
        for _ in range(self._settings.tries):
            try:
                return await self._asked(_plain(wanted, left), PLAIN, ABOVE)
            except PromptTooLong as error:
                was, left = left, self._shortened(left, _gap(error, left))
                if len(left) == len(was):
                    break
        raise NoSummary("the conversation is too long to be summarised, even in part")

    async def _asked(self, request: Request, kind: str, scope: str) -> SummarySections:
        """One question and at most one nudge."""
        body = format_directive(scope, self._wanted.instructions)
        first = await self._once(request, kind, body)
        if not first.answer.missing:
            return first.answer
        self._say("the reply has no whole summary: asking once more")
        nudge = format_nudge(first.answer.missing)
        nudged = _after(request, kind, body, first.message)
        if nudged is None:  # it said nothing: there is nothing to point at
            second = await self._once(request, kind, f"{body}\n\n{nudge}")
        else:
            second = await self._once(nudged, kind, nudge)
        if not (missing := second.answer.missing):
            return second.answer
        if second.message.tool_uses and request.frame.tools:
            raise _ToolCallsOnly("the model called tools instead of writing a summary")
        if not second.message.text.strip():
            raise NoSummary("the model's reply was empty")
        raise NoSummary(f"the model's reply had no whole summary: no “{missing[0]}”")

    async def _once(self, request: Request, kind: str, body: str) -> _SummaryReply:
        directive, most = _directive(request, kind, body), self._wanted.max_tokens
        with anyio.fail_after(self._settings.timeout_seconds):
            said = await self._fork(request, directive, kind=kind, max_tokens=most)
        self.used += said.usage
        return _SummaryReply(said.reply.message, parse_summary(said.reply.message.text))

    def _shortened(self, left: Sequence[PlacedMessage], gap: int) -> Sequence[PlacedMessage]:
        """Without its oldest rounds, as many as cover the gap; the newest one stays in any case."""
        if gap <= 0:
            return left
        kept, gone = split_rounds(left), 0
        calibration = self._wanted.request.view.calibration
        while gap > 0 and len(kept) > 1:
            gap -= calibration.tokens(sum_sizes(kept.pop(0)))
            gone += 1
        if gone:
            self._say(f"too long for one request: summarising without the oldest {gone:,} rounds")
        return [placed for one in kept for placed in one]

    def _say(self, text: str) -> None:
        self._emit(Progress("compaction", text))


class _SummaryReply(msgspec.Struct, frozen=True):
    message: Message
    answer: SummarySections


def _directive(request: Request, kind: str, body: str) -> Message:
    last = request.view[-1].id if len(request.view) else 0
    return user(write_directive(kind, f"c-{last}", body))


def _after(request: Request, kind: str, body: str, reply: Message) -> Request | None:
    """The same request with the question and this reply behind it, its calls answered."""
    if not reply.says_something:
        return None
    log = Transcript.on(request.view, lambda: 0.0)
    if waiting := tuple(ToolResult(id, LATER) for id in find_open_uses(request.view)):
        log.add(Message("user", waiting), by="fork")
    log.add(_directive(request, kind, body), reply, by="fork")
    if uses := reply.tool_uses:
        denied = tuple(ToolResult(use.id, DENIED, is_error=True) for use in uses)
        log.add(Message("user", denied), by="fork")
    return replace(request, view=log.view)


def _plain(wanted: SummaryJob, left: Sequence[PlacedMessage]) -> Request:
    """A request that shares nothing with the conversation: no tools, no thinking, words only."""
    frame = wanted.request.frame
    betas = {k: v for k, v in frame.params.items() if k == "betas"}  # the size of the window
    text = wanted.record if left is wanted.stretch and wanted.record else format_record(left, wanted.most)
    log = Transcript(lambda: 0.0)
    log.add(user(text if len(left) == len(wanted.stretch) else f"{SHORTENED}\n{text}"))
    bare = replace(frame, system=(read_prompt("plain"),), tools=(), params=betas)
    return replace(wanted.request, frame=wanted.frame or bare, view=log.view, warm=None, breakpoints=())


def _gap(error: PromptTooLong, sent: Sequence[PlacedMessage]) -> int:
    return error.over or max(1, int(sum_sizes(sent).tokens() * UNKNOWN_GAP))
