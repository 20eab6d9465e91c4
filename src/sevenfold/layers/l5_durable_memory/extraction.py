"""Learns from a conversation: now and then the model looks back and saves what later sessions need.

It runs off the user's path, one run at a time, by a fork or by a lean request (`shared/side_work.py`); a
mark records how far it has looked. A turn that ends meanwhile leaves its request (the newest counts), and
one more run follows. Where tokens cost money, words wait for a batch or for the end of the session, and
those of a short session are looked through only if some of them last. What still waits then is written
down, and the next session of the project takes it up (`earlier_words.py`). `provenance.py` decides what may
be saved.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

import anyio
import anyio.to_thread

from sevenfold.cache.prefix import cut_to_cached
from sevenfold.core.clock import format_date
from sevenfold.core.errors import BadReply, Mistake, SevenfoldError, StorageFailure
from sevenfold.core.events import Failed, Notice, Progress, Repaired
from sevenfold.core.messages import Message, ToolUse, strip_half_characters, user, write_directive
from sevenfold.core.protocols import BackgroundStep, IdleStep, ToolFailed, Tools
from sevenfold.core.request import TTL_SECONDS, Request, make_kept_until_mark
from sevenfold.core.transcript import Entry, Id, Mark, PlacedMessage, Reply, View
from sevenfold.layers.l5_durable_memory.recall import extract_typed_text, has_substance
from sevenfold.layers.l5_durable_memory.selection import format_manifest, read_wording
from sevenfold.layers.parts import AllowCall, LayerParts
from sevenfold.layers.shared.facts import TYPED
from sevenfold.layers.shared.side_work import SideQuestion, SideRequest, make_lean_messages
from sevenfold.memory.folder.folder import Saved
from sevenfold.memory.folder.names import ENDING
from sevenfold.memory.recall_results import Recalled
from sevenfold.settings.layers import ExtractionSettings
from sevenfold.storage.waiting_notes import CURSOR, WaitingFolder, WaitingNote, find_cursor
from sevenfold.tools.permissions import EDITORS
from sevenfold.tools.workspace import is_inside

if TYPE_CHECKING:
    from sevenfold.layers.l5_durable_memory.earlier_words import EarlierWords
    from sevenfold.layers.l5_durable_memory.extraction_tools import ExtractionTools
    from sevenfold.layers.l5_durable_memory.provenance import SourceMessages

LULL: Final = 0.85 * TTL_SECONDS["5m"]
"""Seconds of silence after which to look by a fork, before others think of keeping the prefix. One that is
kept for an hour does not wait for that hour."""
_LASTING: Final = (
    r"(?i)\b(?:remember|forget|memori[sz]e|keep in mind|note that|from now on|going forward"
    r"|in (?:the )?future|always|never|every time|each time|whenever|prefer\w*|conventions?|deadline|freeze"
    r"|i(?:['’]m| am) (?:an?|the|new)\b|i (?:work|live|like|love|hate|use|own|maintain)\b"
    r"|i (?:don['’]?t|do not) (?:like|use)\b|call me|my (?:name|team|role|job|boss|manager)\b"
    r"|we (?:use|don['’]?t use|do not use|decided|agreed|ship|release|deploy)\b"
    r"|our (?:team|rule|policy|standard|style|process)\w*"
    r"|(?:by|on|until|before|next|from) "
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|week|month|quarter)\b)"
    r"|记住|記住|别忘|別忘|以后|以後|今后|今後|总是|總是|永远|永遠|从不|從不|每次|偏好|喜欢|喜歡|讨厌|討厭"
    r"|我是|我叫|我们用|我們用|我们不|我們不|决定|決定|截止|规定|規定|约定|約定"
)
"""Words for something that lasts beyond this session. They decide the time of a look, nothing else."""
_QUESTION: Final = (
    r"(?im)(?:^|(?<=[.!?。！？]))\s*(?:(?:and|but|so|ok),? )?(?:"
    r"(?:why(?! (?:not|don['’]?t)\b)|how(?! about\b)|what(?! (?:about|if)\b)|which|who|is|are|was|were"
    r"|does|did|(?:do|have)(?= (?:we|you|i|they)\b)|has(?= (?:he|she|it|this|that|the|any\w+|some\w+)\b)"
    r"|(?:when|where)(?= (?:is|are|was|were|do|does|did|has|have|will)\b)"
    r"|warum|wieso|wie|wann|wo|wer|welche\w*|ist|sind|hat|haben)\b(?:[^.!?\n]|[.!?](?=\S))*\?"
    r"|(?:为什么|為什麼|为何|為何|怎么|怎麼|什么|什麼|哪|谁|誰)[^。！？?\n]*[？?])"
)
"""A sentence that only asks: nothing in it lasts. "Could you always …?" and "why not …?" are wishes."""
_UNKNOWN: Final = r"[^\W\d_\u0000-\u024f\u3400-\u9fff\uf900-\ufaff]"
"""Letters of scripts for which there are no such words here."""


def is_worth_a_look(
    said: Sequence[str], requests: int, settings: ExtractionSettings, *, free: bool, last: bool
) -> bool:
    """True if what was typed since the last look should be looked through now.

    `requests`: those of the session so far. `free`: tokens cost nothing; then all is but a bare greeting.
    `last`: it is the end, or a silence; nothing more will come.
    """
    if free:
        return any(map(has_substance, said))
    is_time = bool(said) and (last or len(said) >= settings.batch)
    return is_time and (requests >= settings.least_requests or any(map(is_lasting, said)))


OWN_WORDS: Final = 500  # Characters at either end of a long text that are looked at


@lru_cache(maxsize=64)  # asked about the same words after every turn, until they are looked through
def is_lasting(text: str) -> bool:
    """True for words about something that lasts. Of a long text, which is mostly pasted, the ends count."""
    text = text if len(text) <= 2 * OWN_WORDS else f"{text[:OWN_WORDS]}\n{text[-OWN_WORDS:]}"
    told = re.sub(_QUESTION, " ", text)
    return bool(re.search(_LASTING, told)) or len(re.findall(_UNKNOWN, text)) * 2 > len(text)


BY: Final = "Extraction"
EARLIER: Final = "EarlierWords"  # The look at what ended sessions left, as work in the background
KIND: Final = "extract"
FAILURES: Final = 3  # So many in a row, and nothing is tried until the next session
ANSWER: Final = 8_000  # Tokens of a reply: a handful of memories
Prepare: TypeAlias = "Callable[[], tuple[SourceMessages, str]]"  # The sources and the directive of a run
Moment: TypeAlias = Literal["turn", "silence", "end"]  # A turn ended, the user is silent, the session ends


class Extraction:
    """The `rest` moment of the main conversation."""

    label: ClassVar[str] = BY

    def __init__(self, parts: LayerParts) -> None:
        if parts.extraction is None:
            raise Mistake("extraction needs a memory to save to: give LayerParts an `extraction`")
        self._parts, self._learning, self._set = parts, parts.extraction, parts.settings.extraction
        self._side, self._clock, self._emit = parts.get_side_work(), parts.clock, parts.emit
        self._state = parts.extraction.progress
        self.refused: Counter[str] = Counter()
        """Calls that were not carried out in this session, by the kind of the reason."""

    async def __call__(self, request: Request) -> Sequence[Mark]:
        if request.source != "main" or not len(request.view):
            return ()
        if self._state.busy:
            self._state.newest = request
            return ()
        marks = await self._alone(partial(self._looked_through, request, "turn"))
        if self._state.earlier_waits:
            self._learning.start(EARLIER, partial(self.take_up, request))
        return marks

    @property
    def waiting(self) -> bool:
        """True if a turn was left for later."""
        return self._state.waits and not self._state.busy

    async def catch_up(self, request: Request, idle: float) -> Sequence[Mark]:
        """The `idle` moment: what waited is looked through. The end of a session is an endless silence."""
        if not self.waiting or request.source != "main" or not self._is_time(request, idle):
            return ()
        runs = self._state.runs
        moment: Moment = "end" if math.isinf(idle) else "silence"
        marks = await self._alone(partial(self._looked_through, request, moment))
        until = self._parts.cached_until(request.frame) or 0.0
        if self._state.runs == runs or until <= self._clock.now():
            return marks
        return (*marks, make_kept_until_mark(request.view, until))  # it has read the prefix, which lives on

    def _is_time(self, request: Request, idle: float) -> bool:
        """Only while the provider has the prefix: it lives from the start of a request, and replies take
        their time. What is too late now is looked at after the next turn, or in the end.
        """
        if math.isinf(idle):
            return True
        if not self._set.patient:
            return False
        until, now = self._parts.cached_until(request.frame), self._clock.now()
        if until is None or until <= now:
            return False
        return idle >= LULL or now >= until - (TTL_SECONDS["5m"] - LULL)

    async def _alone(self, look: Callable[[], Awaitable[Sequence[Mark]]]) -> Sequence[Mark]:
        """One run, and after it another piece of work for what ended meanwhile.

        That one is started and not waited for, so that the mark of this one is handed back at once. In
        between it stays busy, or a turn that ends just then would run beside it.
        """
        state = self._state
        state.busy = True
        try:
            return await look()
        except anyio.get_cancelled_exc_class():  # the user is waiting for the model, or it is the end
            state.newest, state.waits = None, True
            raise
        finally:
            newest, state.newest = state.newest, None
            state.busy = newest is not None
            if newest is not None:
                again = partial(self._looked_through, newest, "turn")
                self._learning.start(BY, partial(self._alone, again))

    # --- when -------------------------------------------------------------------------------------------

    async def _looked_through(self, request: Request, moment: Moment) -> Sequence[Mark]:
        state = self._state
        state.waits = False
        if not self._can_try(request):
            return ()
        cached = cut_to_cached(request)
        view = cached.view
        places = map(view.where, self._cursors(view))  # none when those messages have left the view
        since = 1 + max((place for place in places if place is not None), default=-1)
        said, saved = self._said(view, since)
        if not said:
            self._settle(view)
            return (self._advanced(view),) if saved else ()
        if self._parts.prices.is_free(request.frame.model) and not any(map(has_substance, said)):
            return (self._advanced(view),)  # a bare greeting waits for nothing
        requests = sum(isinstance(entry.what, Reply) for entry in self._parts.conversation.entries)
        state.waits = not self._is_worth_a_look(request, said, requests, last=moment != "turn")
        if state.waits:
            return ()
        if self._learning.hand_over is not None:
            return await self._hand_over_view(request.view)
        question = self._question(request.view, since, said)
        if moment == "silence" and self._side.compare(cached, question).way == "lean":
            state.waits = True  # only a fork has a reason to hurry: it finds the prefix, and keeps it
            return ()
        if (hands := await self._find_tools()) is None:
            return ()
        hidden = state.noted and state.noted.off  # a fork would show what was said without memory
        side = (self._side.choose_lean if hidden else self._side.choose)(cached, question)
        view, since = (request.view, 0) if side.by_small or hidden else (view, since)
        entries = tuple(self._parts.conversation.entries)
        prepare = partial(self._prepared, view, entries, since)
        if not await self._tried(side, prepare, f"x-{view[-1].id}", hands, "the conversation"):
            return ()
        return (self._advanced(view),)

    def _can_try(self, request: Request) -> bool:
        can_write = any(tool.get("name") in EDITORS for tool in request.frame.tools)
        return self._state.failures < FAILURES and can_write  # the list of tools cannot be changed

    async def _find_tools(self) -> tuple[Tools, AllowCall] | None:
        """The tools of one run; None where nothing could be saved: in plan mode, or by a rule."""
        tools, may = self._learning.tools()
        some = {"file_path": str(self._learning.store.path_of() / f"some{ENDING}"), "content": ""}
        return (tools, may) if await may(ToolUse("", "Write", some)) is None else None

    async def _tried(
        self, side: SideRequest, prepare: Prepare, id: str, hands: tuple[Tools, AllowCall], what: str
    ) -> bool:
        """One run; False if it failed, which is said."""
        state = self._state
        state.failures += 1  # until it has worked: whatever breaks, it does not go on for ever
        state.runs += 1
        try:
            await self._run(side, prepare, id, *hands)
        except anyio.get_cancelled_exc_class():
            state.failures -= 1
            raise
        except SevenfoldError as why:
            over = "; not tried again in this session" if state.failures >= FAILURES else ""
            self._emit(Failed(BY, f"{what} was not looked through: {why}{over}"))
            return False
        state.failures = 0
        return True

    # --- what waits -------------------------------------------------------------------------------------

    def note_words(self, view: View) -> None:
        """Write down that words wait: called just before the user's words go into the transcript."""
        waiting, state, session = self._learning.waiting, self._state, self._learning.session
        if waiting is None:
            return
        if state.noted is not None and len(view):
            state.noted = waiting.switch(session, view[-1].id, on=True)
        if state.noted is not None:
            return
        if len(view) and waiting.read(session) is None:
            state.cursor = view[-1].id  # what stands above was looked at, or was said with memory off
        state.noted = WaitingNote(max(self._cursors(view), default=-1))
        waiting.write(session, state.noted.last)

    def count_waiting(self, view: View) -> int:
        """The texts of this conversation that wait for a look."""
        places = (place for place in map(view.where, self._cursors(view)) if place is not None)
        return len(self._said(view, 1 + max(places, default=-1))[0])

    def list_earlier(self) -> list[str]:
        """The other sessions of the project with words that wait."""
        waiting, own = self._learning.waiting, self._learning.session
        return [one for one in waiting.list_sessions() if one != own] if waiting is not None else []

    async def take_up(self, request: Request) -> Sequence[Mark]:
        """Look through what ended sessions left, if that is worth a request by now."""
        if self._state.busy or not self.list_earlier():
            return ()
        self._state.earlier_waits = False
        try:
            return await self._alone(partial(self._look_at_earlier, request))
        except anyio.get_cancelled_exc_class():
            self._state.earlier_waits = True
            raise

    async def _look_at_earlier(self, request: Request) -> Sequence[Mark]:
        from sevenfold.layers.l5_durable_memory.earlier_words import split_batches

        waiting = self._learning.waiting
        if waiting is None or not self._can_try(request):
            return ()
        with waiting.claim() as mine:
            words = await anyio.to_thread.run_sync(self._read_earlier, waiting) if mine else []
            said = [text for one in words for text in one.texts]
            requests = sum(one.requests for one in words)
            due = self._is_worth_a_look(request, said, requests, last=True)
            if due and self._learning.hand_over is not None:
                for one in words:
                    if (last := await self._hand_over(one)) is not None:
                        all = last >= one.last
                        waiting.settle(one.session, last, self._clock.now, all=all)
            elif due and (hands := await self._find_tools()) is not None:
                for batch in split_batches(words, self._side.find_lean_room(request)):
                    if not await self._look_at_batch(request, batch, hands):
                        break
                    for one in {one.session: one for one in batch}.values():  # the last part of each
                        waiting.settle(one.session, one.last, self._clock.now, all=one.all)
        return ()

    async def _hand_over_view(self, view: View) -> Sequence[Mark]:
        """Give the words of this conversation to somebody else to look through."""
        from sevenfold.layers.l5_durable_memory.earlier_words import find_earlier_words

        session, entries = self._learning.session, tuple(self._parts.conversation.entries)
        last = max(self._cursors(view), default=-1)
        words = find_earlier_words(session, view, entries, last, self._wrote_memory, self._covers)
        taken = await self._hand_over(words)
        if taken is None or taken < words.last:  # the rest at the next look
            self._state.waits = True
        return () if taken is None else (self._advanced(view, taken),)

    async def _hand_over(self, words: EarlierWords) -> Id | None:
        """The last entry that was taken; None if nobody took any, which is said."""
        assert self._learning.hand_over is not None
        try:
            return await anyio.to_thread.run_sync(self._learning.hand_over, words)
        except SevenfoldError as why:
            self._emit(Failed(BY, f"what was said waits on this machine: {why}"))
            return None

    def _read_earlier(self, waiting: WaitingFolder) -> list[EarlierWords]:
        """In a thread. A session in which nothing waits after all is crossed off."""
        from sevenfold.layers.l5_durable_memory.earlier_words import find_earlier_words

        found: list[EarlierWords] = []
        for session in self.list_earlier():
            if (transcript := waiting.load(session)) is None or (note := waiting.read(session)) is None:
                continue
            last = max(note.last, find_cursor(transcript.view))
            view, entries = transcript.view, transcript.entries
            words = find_earlier_words(session, view, entries, last, self._wrote_memory, note.covers)
            if any(map(has_substance, words.texts)):
                found.append(words)
            else:
                waiting.settle(session, words.last, self._clock.now, all=True)
        return found

    async def _look_at_batch(
        self, request: Request, batch: Sequence[EarlierWords], hands: tuple[Tools, AllowCall]
    ) -> bool:
        from sevenfold.layers.l5_durable_memory.earlier_words import EarlierSources, join_messages

        said = [text for one in batch for text in one.texts]
        question = make_extraction_question(join_messages(batch), said, self._set.steps)
        sessions = len({one.session for one in batch})
        what = f"what {sessions} earlier sessions left" if sessions > 1 else "what an earlier session left"
        self._emit(Progress(BY, f"looking through {what}"))

        def prepare() -> tuple[SourceMessages, str]:
            return EarlierSources(batch, self._clock.now()), self._write_body(0)

        side, id = self._side.choose_lean(request, question), f"x-{batch[-1].session}-{batch[-1].last}"
        return await self._tried(side, prepare, id, hands, what)

    def _settle(self, view: View, last: Id | None = None) -> None:
        """Bring the note on what waits up to date, after a look at this view, up to an entry."""
        waiting, state = self._learning.waiting, self._state
        if waiting is None or state.noted is None:
            return
        last = view[-1].id if last is None else last
        newer = [entry for entry in self._parts.conversation.entries if entry.id > last]
        try:
            if any(isinstance(entry.what, Message) and entry.by in TYPED for entry in newer):
                waiting.write(self._learning.session, last)
                state.noted = WaitingNote(last)
            else:
                waiting.remove(self._learning.session)
                state.noted = None
        except StorageFailure as error:
            self._emit(Failed(BY, str(error)))

    def _is_worth_a_look(self, request: Request, said: Sequence[str], requests: int, *, last: bool) -> bool:
        free = self._parts.prices.is_free(request.frame.model)
        return is_worth_a_look(said, requests, self._set, free=free, last=last)

    def _cursors(self, view: View) -> list[Id]:
        return [id for id in (find_cursor(view), self._state.cursor) if id is not None and id >= 0]

    def _said(self, view: View, since: int) -> tuple[list[str], bool]:
        """The texts typed since the last look, and True if the agent saved something itself.

        Turns in which it did are left out: it knew what was worth saving. Texts for which a summary stands
        by now are among them.
        """
        from sevenfold.layers.l5_durable_memory.provenance import find_replaced_user_words, is_typed

        last = max(self._cursors(view), default=-1)
        gone = find_replaced_user_words(self._parts.conversation.entries, view, last)
        said, saved = [extract_typed_text(message) for id, message in gone if self._covers(id)], False
        turn: list[str] = []
        for at in range(since, len(view)):
            if not self._covers(view[at].id):
                continue
            if is_typed(view[at]):
                said += turn
                turn = [extract_typed_text(view[at].message)]
            elif self._wrote_memory(view[at], view):
                turn, saved = [], True
        return said + turn, saved

    def _covers(self, id: Id) -> bool:
        """False for what was said while memory was switched off."""
        return self._state.noted is None or self._state.noted.covers(id)

    def _advanced(self, view: View, last: Id | None = None) -> Mark:
        self._state.cursor = view[-1].id if last is None else last
        self._settle(view, last)
        return Mark(CURSOR, {"last": self._state.cursor})

    def _wrote_memory(self, placed: PlacedMessage, view: View) -> bool:
        """True if the agent itself has saved something here."""
        return any(
            use.name in EDITORS and self._is_memory(use) and _worked(use, view)
            for use in placed.message.tool_uses
        )

    def _is_memory(self, use: ToolUse) -> bool:
        asked = use.input.get("file_path")
        try:
            path = self._learning.locate(asked) if isinstance(asked, str) else None
        except ToolFailed:
            return False
        return path is not None and is_inside(path, self._learning.store.path_of())

    # --- what -------------------------------------------------------------------------------------------

    async def _run(
        self, side: SideRequest, prepare: Prepare, id: str, tools: Tools, may: AllowCall
    ) -> None:
        from sevenfold.layers.l5_durable_memory.extraction_tools import ExtractionTools, MemoryWriter

        learning = self._learning
        self._emit(Progress(BY, "looking for what is worth remembering"))
        sources, body = await anyio.to_thread.run_sync(prepare)
        writer = MemoryWriter(learning.store, sources, learning.session, learning.locate)
        hands = ExtractionTools(tools, writer, may, self._emit)
        directive = user(write_directive(KIND, id, body))
        try:
            answer = await side(directive, steps=self._set.steps, tools=hands, max_tokens=ANSWER)
        finally:  # what was saved before it failed is saved
            self.refused += hands.kinds
            self._tell(tuple(writer.saved.values()), hands)
        if hands.broken is not None:
            raise hands.broken
        if answer.cut or (answer.reply.stop == "cut" and not writer.saved):
            raise BadReply("the model's reply was cut off, so something may be missing")

    def _question(self, view: View, since: int, said: Sequence[str]) -> SideQuestion:
        from sevenfold.layers.l5_durable_memory.provenance import find_replaced_user_words

        entries, last = self._parts.conversation.entries, max(self._cursors(view), default=-1)
        times = {entry.id: entry.at for entry in entries}
        placed = [view[at] for at in range(since, len(view)) if self._covers(view[at].id)]
        new = make_lean_messages(placed, view, times)
        gone = find_replaced_user_words(entries, view, last)
        words = tuple(user(extract_typed_text(message)) for id, message in gone if self._covers(id))
        return make_extraction_question((*words, *new), said, self._set.steps)

    def _prepared(self, view: View, entries: Sequence[Entry], since: int) -> tuple[SourceMessages, str]:
        """The authors of all texts, and the question; in a thread, since a conversation may be long."""
        from sevenfold.layers.l5_durable_memory.provenance import SourceMessages

        return SourceMessages(view, entries, self._clock.now()), self._write_body(since)

    def _write_body(self, since: int) -> str:
        learning, store, now = self._learning, self._learning.store, self._clock.now()
        team, steps = learning.team and store.has_team, self._set.steps
        return format_extraction_request(
            store.newest(NEWEST), store.path_of(), learning.session, now, since, steps, team=team
        )

    def _tell(self, saved: Sequence[Saved], hands: ExtractionTools) -> None:
        if saved:
            folder = self._learning.store.path_of()
            files = (f"{one.path.relative_to(folder).as_posix()} ({one.action})" for one in saved)
            self._emit(Notice(f"saved to memory: {', '.join(files)}"))
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(hands.kinds.items()))
        calls = "1 call" if hands.denied == 1 else f"{hands.denied} calls"
        refused = f"; {calls} refused ({counts})" if counts else ""
        if saved and (hands.denied or hands.mended):
            self._emit(Repaired(BY, f"{hands.mended} calls were mended{refused}"))
        told = f"{len(saved)} memories saved" if len(saved) != 1 else "1 memory saved"
        self._emit(Progress(BY, f"{told}{refused}", done=True))


def _worked(use: ToolUse, view: View) -> bool:
    at = view.result_at(use.id)
    results = view[at].message.results if at is not None else ()
    return any(one.tool_use_id == use.id and not one.is_error for one in results)


class LateExtraction:
    """The `idle` moment of an extraction."""

    label: ClassVar[str] = "LateExtraction"

    def __init__(self, extraction: Extraction) -> None:
        self._extraction = extraction

    @property
    def waiting(self) -> bool:
        return self._extraction.waiting

    async def __call__(self, request: Request, idle: float) -> Sequence[Mark]:
        return await self._extraction.catch_up(request, idle)


_check: type[BackgroundStep] = Extraction
_check_idle: type[IdleStep] = LateExtraction


TOOLS: Final = ("Read", "Grep", "Glob", *EDITORS)
ASKED: Final = 900  # Tokens of the instruction and the manifest, about
NOTHING, SOMETHING = 150, 600  # Tokens of an answer without a memory, and of one that writes a memory


def make_extraction_question(new: tuple[Message, ...], said: Sequence[str], steps: int) -> SideQuestion:
    """The work in numbers: it takes a second reply where something is written."""
    found = any(map(is_lasting, said))
    output, rounds = (SOMETHING + NOTHING, 2) if found else (NOTHING, 1)
    return SideQuestion(KIND, new, (read_types(),), TOOLS, ASKED, output, rounds, steps)


@cache
def read_types() -> str:
    """The part of the rules of memory that says what belongs there."""
    return "##" + read_wording("prompt.md").split("\n##")[1]


NEWEST: Final = 200  # Memories that the manifest lists
_STEPS: Final = "{steps}"
_SINCE: Final = "The first {} messages have been looked at before; look at what came after them."
_MANIFEST: Final = "<manifest>"


def format_extraction_request(
    memories: Sequence[Recalled],
    folder: Path,
    session: str,
    now: float,
    since: int,
    steps: int,
    *,
    team: bool = False,
) -> str:
    """The body of the directive. `since`: how many messages have been looked at before."""
    from html import escape  # a table of 2,000 names, which only an extraction needs

    listed = format_manifest(memories).removeprefix(_MANIFEST)
    parts = [
        read_wording("extract.md").replace(_STEPS, str(steps)),
        read_wording("extract_team.md") if team else "",
        _SINCE.format(f"{since:,}") if since else "",
        f'<session id="{escape(session)}" date="{format_date(now)}"/>',
        f'<manifest folder="{escape(str(folder))}">{listed}',
        f'<since entry="{since}"/>',
    ]
    return strip_half_characters("\n\n".join(filter(None, parts)))
