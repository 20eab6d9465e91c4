"""Stand-ins for the world of a replayed session: a model for notes and summaries, extraction, files.

The offline engine writes notes and summaries by rule. Their length and price are those of the recordings: a
summary has 3,000 tokens less the user's words, which we do not ask for, and four times the analysis that we
do ask for; notes cost a little, and for what is new as much as a recorded summary, and a third more for
quoted lines.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from time import perf_counter
from typing import Final

from msgspec.structs import replace

from sevenfold.cache.ledger import SIDE
from sevenfold.cache.prices import LimitsOf, Price, Prices
from sevenfold.core.events import Emit
from sevenfold.core.messages import Block, Message, ToolResult, ToolUse
from sevenfold.core.protocols import Capabilities, Forker, Model
from sevenfold.core.request import Request, Ttl
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Id, Reply
from sevenfold.layers.l5_durable_memory.extraction import (
    ASKED,
    NOTHING,
    SOMETHING,
    is_worth_a_look,
    make_extraction_question,
)
from sevenfold.layers.l5_durable_memory.recall import extract_typed_text
from sevenfold.layers.l7_agents.forks import ForkRunner
from sevenfold.layers.ladder import LayerRole
from sevenfold.layers.parts import Conversation
from sevenfold.layers.shared.side_work import (
    SidePrices,
    SideQuestion,
    SideWork,
    SmallModel,
    estimate_lean_usage,
    find_small_model,
    make_lean_messages,
)
from sevenfold.models.capabilities import find_capabilities
from sevenfold.offline.conversation import OfflineConversation
from sevenfold.offline.reply import make_reply
from sevenfold.recordings.own_sessions import OwnRecordedSession
from sevenfold.recordings.recorded_session import RecordedSession
from sevenfold.replay.bookkeeping import ReplayBooks
from sevenfold.replay.policies import Policy
from sevenfold.testing.doubles import FakeClock, NoAccounts

NOTES, LEAN_NOTES = "fork:notes", f"{SIDE}notes"
SUMMARY_OUTPUT: Final = 3_300  # Output tokens of a model that writes a summary
NOTES_OUTPUT: Final = 400  # Output tokens of any update of the notes
NOTED: Final = 0.035  # ... and for each token that came since the last one.


class RuleModel:
    """A model for forks: `ask` charges the prompt, the offline engine answers."""

    name = "by rule"

    def __init__(
        self,
        able: Capabilities,
        ask: Callable[[Request], Usage],
        answered: Callable[[Request, Usage], None],
    ) -> None:
        self.capabilities = able
        self._ask, self._answered = ask, answered
        self._noted_at = 0
        self.seconds = 0.0

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        used = self._ask(request)
        began = perf_counter()
        room = replace(request, max_tokens=SUMMARY_OUTPUT) if request.source != NOTES else request
        blocks = make_reply(OfflineConversation.of(room))
        self.seconds += perf_counter() - began
        message = Message("assistant", blocks)
        output = SUMMARY_OUTPUT
        if request.source == LEAN_NOTES:
            output = NOTES_OUTPUT + round(NOTED * used.prompt)
        elif request.source == NOTES:
            new, self._noted_at = max(0, used.prompt - self._noted_at), used.prompt
            output = NOTES_OUTPUT + round(NOTED * new)
        used = replace(used, output=output)
        self._answered(request, used)
        for block in blocks:
            yield block
        yield Reply(message, used, "tool_use" if message.tool_uses else "end_turn", model=self.name)


_check: type[Model] = RuleModel


def make_replay_side_work(
    policy: Policy,
    prices: Prices,
    limits_of: LimitsOf,
    conversation: Conversation,
    clock: FakeClock,
    emit: Emit,
    fork: Forker,
) -> SideWork:
    """The side work of the product, asked of the stand-in for a model."""
    lean = ForkRunner(conversation, NoAccounts(), clock, emit, source=SIDE)
    small = SmallModel(
        lean,
        lambda model: find_small_model(prices, model, None),
        lambda name: find_capabilities(name, own=limits_of(name)).window,
    )
    return SideWork(fork, prices, clock, emit, policy.side_work, small)


LEAN_TOOLS: Final = 950  # Tokens of the tools of a lean extraction that a replayed frame does not have


class ReplayExtraction:
    """The extraction of one session. `ask`: one request on the prefix as it is now."""

    def __init__(
        self,
        policy: Policy,
        price: Price,
        ask: Callable[[], Usage],
        books: ReplayBooks,
        clock: FakeClock,
        request: Callable[[], Request],
        rate: float = 1.0,
    ) -> None:
        """`rate`: real tokens for each that we estimate."""
        self._on, self._set = policy.flags.extraction, policy.extraction
        self._free = not price.input  # for the product, too, a model without a known price is free
        self._rate = rate
        self._ask, self._books, self._clock, self._request = ask, books, clock, request
        self._said: list[str] = []
        self._seen: Id | None = None
        self.side_work: SideWork | None = None

    def note_message(self, message: Message) -> None:
        if self._on and (text := extract_typed_text(message)):
            self._said.append(text)

    def end_turn(self) -> None:
        if self._is_worth_a_look(last=False):
            self._extract(self._make_question())

    def catch_up(self) -> bool:
        """Extract in a silence from the messages that wait; True if a fork read the prefix for it."""
        if not (self._set.patient and self._is_worth_a_look(last=True)):
            return False
        question = self._make_question()
        if self._compare(question).way == "lean":
            return False
        self._extract(question)
        return True

    def end_session(self) -> None:
        if self._is_worth_a_look(last=True):
            self._extract(self._make_question())

    def _is_worth_a_look(self, *, last: bool) -> bool:
        return is_worth_a_look(self._said, self._books.turns, self._set, free=self._free, last=last)

    def _make_question(self) -> SideQuestion:
        view = self._request().view
        return make_extraction_question(
            make_lean_messages(view.since(self._seen), view), self._said, self._set.steps
        )

    def _compare(self, question: SideQuestion) -> SidePrices:
        if self.side_work is None:
            return SidePrices("fork", "there is no small model to ask")
        return self.side_work.compare(self._request(), question)

    def _extract(self, question: SideQuestion) -> None:
        work = self.side_work
        if work is not None and self._compare(question).way == "lean":
            lean = work.make_lean_request(self._request(), question)
            usage = estimate_lean_usage(question, LEAN_TOOLS + round(self._rate * lean.tokens))
            self._books.record_lean("extraction", self._clock.time, usage, work.prices.of(lean.frame.model))
        else:
            self._fork(question)
        self._said.clear()
        view = self._request().view
        self._seen = view[-1].id if len(view) else None

    def _fork(self, question: SideQuestion) -> None:
        for n in range(question.rounds):
            used = self._ask()
            output = SOMETHING if n < question.rounds - 1 else NOTHING
            new = used.input + ASKED + n * SOMETHING
            self._books.record_request(
                "extraction", self._clock.time, replace(used, input=new, output=output)
            )


RECALLED: Final = 350  # Tokens of a recalled memory with its frame: one for each thing that the user says
MOST_RECALLED: Final = 15_000  # Tokens of memories in view at once
DREAM_STEPS, DREAM_READ, DREAM_OUTPUT = 10, 15_000, 4_000
"""Replies of a dream, tokens of the memories that it reads, and of all that it writes."""
DREAM_SESSIONS: Final = 5  # Sessions from one dream to the next: each bears its part


class MemoryCharges:
    """The cost of recall and dreams, beside all else: the memory of a session is not in its recording."""

    def __init__(self, policy: Policy, price: Price, ttl: Ttl) -> None:
        self._recalls, self._dreams, self._price = policy.flags.recall, policy.flags.dream, price
        self._write = price.write_1h if ttl == "1h" else price.write_5m
        self._new = self._carried = 0
        self.recalled = 0.0

    def note_message(self, message: Message) -> None:
        """Recall attaches a memory to what the user says, unless it is one word."""
        if self._recalls and len(extract_typed_text(message).split()) > 1:
            self._new += RECALLED if self._carried + self._new < MOST_RECALLED else 0

    def charge_request(self, usage: Usage) -> None:
        """New memories are written; those of before are read, as far as the request reads the cache."""
        kept = usage.cache_read / usage.prompt if usage.prompt else 0.0
        again = self._price.read * kept + self._write * (1 - kept)
        self.recalled += self._new * self._write + self._carried * again
        self._new, self._carried = 0, self._carried + self._new

    def forget(self) -> None:
        """A compaction takes recalled memories out of the view."""
        self._carried = 0

    def compute_dream_share(self, context: int) -> float:
        """This session's part of a dream, a fork on a context of so many tokens."""
        if not self._dreams:
            return 0.0
        reads = DREAM_STEPS * context * self._price.read + DREAM_READ * self._write
        return (reads + self._price.units(Usage(output=DREAM_OUTPUT))) / DREAM_SESSIONS


UNKNOWN: Final = "the file does not say whether a person talked: extraction is charged as if one did"


def has_person(recorded: RecordedSession) -> bool | None:
    """True if a person talked in the session; None if a file of ours does not say."""
    if recorded.agent:
        return False
    return recorded.interactive if isinstance(recorded, OwnRecordedSession) else True


def find_role(recorded: RecordedSession) -> LayerRole:
    """The layers that the product gives to this conversation."""
    if isinstance(recorded, OwnRecordedSession) and recorded.forked:
        return "fork"
    return "agent" if recorded.agent else "main"


def adjust_to_session(policy: Policy, recorded: RecordedSession) -> Policy:
    """The policy as the product applies it: an agent has less, and so has a session without a person."""
    role, flags = find_role(recorded), policy.flags
    if isinstance(recorded, OwnRecordedSession) and recorded.one_shot:
        flags = replace(flags, notes=False)  # they would never be used
    if has_person(recorded) is not False:
        return replace(policy, flags=flags)
    extracts = flags.extraction and policy.extraction.non_interactive
    less = replace(
        policy,
        flags=replace(flags, extraction=extracts, dream=False),
        system_ttl=policy.system_ttl or policy.cache_ttl,
    )
    if role == "main":
        return less
    flags = replace(less.flags, extraction=False, recall=False, compact=flags.compact and role == "agent")
    kept = policy.cache_ttl if role == "agent" else policy.system_ttl  # a fork has the frame of its session
    return replace(less, flags=flags, system_ttl=kept, keep_warm=0, clear=None)


def is_extraction_uncertain(recorded: RecordedSession, policies: tuple[Policy, ...]) -> bool:
    """True if extraction is charged although perhaps no person talked."""
    either = any(p.flags.extraction and not p.extraction.non_interactive for p in policies)
    return has_person(recorded) is None and either


PATH: Final = "file_path"
UNKNOWN_REST: Final = "\n" * 20 + " " * 120_000
"""Stands behind the known lines of a file of which only a part was shown: too long to be restored whole."""
_NUMBERED: Final = re.compile(r"^\s*\d+[→\t]", re.M)
_LINE: Final = re.compile(r"^\s*(\d{1,6})[→\t](.*)$", re.M)
_REMINDER: Final = "<system-reminder>"


class ReplayDisk:
    """The files of a recorded session, as far as its tool calls show them."""

    def __init__(self) -> None:
        self._calls: dict[str, list[tuple[ToolUse, ToolResult]]] = {}  # Not applied yet: few files are read
        self._files: dict[str, str] = {}
        self._results: dict[str, str] = {}  # Of files that were read and not changed since
        self._parts: set[str] = set()  # Files of which only some lines were shown

    def read(self, path: str) -> str | None:
        for use, result in self._calls.pop(path, ()):
            self._apply(path, use, result)
        return self._read(path)

    def _read(self, path: str) -> str | None:
        result = self._results.get(path)
        if result is None:
            text = self._files.get(path)
            return f"{text}{UNKNOWN_REST}" if path in self._parts else text
        return _NUMBERED.sub("", result.partition(_REMINDER)[0].rstrip("\n"))

    def apply_call(self, use: ToolUse, result: ToolResult) -> None:
        """Take in a call and its result."""
        path = use.input.get(PATH)
        if isinstance(path, str) and not result.is_error:
            self._calls.setdefault(path, []).append((use, result))

    def _apply(self, path: str, use: ToolUse, result: ToolResult) -> None:
        match use.name:
            case "Read":
                self._apply_read(path, use, result.text)
            case "Write":
                self._results.pop(path, None)
                self._parts.discard(path)
                self._files[path] = str(use.input.get("content", ""))
            case "Edit":
                self._apply_edit(path, use.input)
            case "MultiEdit":
                edits = use.input.get("edits")
                for edit in edits if isinstance(edits, list) else ():
                    if isinstance(edit, dict):
                        self._apply_edit(path, edit)
            case _:
                pass

    def _apply_read(self, path: str, use: ToolUse, text: str) -> None:
        if use.input.get("offset") or use.input.get("limit"):
            if path not in self._results:
                self._add_lines(path, text)
            return
        self._files.pop(path, None)
        self._parts.discard(path)
        self._results[path] = text

    def _add_lines(self, path: str, shown: str) -> None:
        """Add the numbered lines that a call has shown."""
        whole = path in self._files and path not in self._parts
        lines = self._files.get(path, "").split("\n")
        for number, line in _LINE.findall(shown.partition(_REMINDER)[0]):
            if not whole:
                lines += [""] * (int(number) - len(lines))
            if 0 < int(number) <= len(lines):
                lines[int(number) - 1] = line
        self._files[path] = "\n".join(lines)
        if not whole:
            self._parts.add(path)

    def _apply_edit(self, path: str, edit: dict[str, object]) -> None:
        old, new = str(edit.get("old_string", "")), str(edit.get("new_string", ""))
        if not old or (text := self._read(path)) is None:
            return
        text = text.replace(old, new, -1 if edit.get("replace_all") else 1)
        self._results.pop(path, None)
        self._files[path] = text.removesuffix(UNKNOWN_REST) if path in self._parts else text
