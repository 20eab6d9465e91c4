"""Side work (notes, extraction, status lines) the cheaper way: by a fork, or by a request of its own.

    fork    the cached prefix of the conversation, and the directive, on the model of the conversation
    lean    only what is new and the directive, on the provider's small model

The price table decides each time, and an event says which way was taken and what each would have cost.
Where tokens are free, or a price is unknown, it is a fork. A small model that cannot be reached is asked
once; after that the model of the conversation is asked, by a fork wherever there is a prefix to use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.cache.prefix import count_kept_tokens
from sevenfold.cache.prices import PROVIDER_PREFIX, Price, Prices
from sevenfold.core.clock import format_date
from sevenfold.core.errors import BadRequest, KeyRefused, ModelNotFound, NoKey, PromptTooLong, UnknownModel
from sevenfold.core.events import Emit, SideWorkChosen
from sevenfold.core.messages import (
    Message,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    make_context_message,
    user,
)
from sevenfold.core.protocols import Clock, Forker, ForkReply, Tools
from sevenfold.core.request import Frame, Request, is_warm
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Id, PlacedMessage, Transcript, View
from sevenfold.layers.shared.facts import TYPED, extract_words_beside, find_last_line, to_bounded_line
from sevenfold.settings.layers import SideWay

Way: TypeAlias = Literal["fork", "lean"]
FULL: Final = 0.6  # The most of the small model's window that a lean request may take
LEAST_ROOM: Final = 20_000  # Tokens of a lean request where the window of the small model is not known
OUTCOME: Final = 160  # Bytes of an error that are told
TARGET: Final = 120  # Bytes of the argument that says what a call was about
_TARGETS: Final = ("file_path", "path", "command", "pattern", "url", "query", "description", "prompt")
SURROUNDINGS: Final = "surroundings"  # The mark with folder, branch and system, as they were told last
NO_TIMES: Final[Mapping[Id, float]] = MappingProxyType({})
_BEFORE: Final = "[What was said before this is left out.]"
_UNUSABLE: Final = (BadRequest, KeyRefused, ModelNotFound, NoKey, PromptTooLong, UnknownModel)
"""Errors of a small model that will come again each time, or whose window is not what was said of it."""


class SideQuestion(msgspec.Struct, frozen=True):
    """One piece of side work, before it is decided how it is asked for."""

    kind: str
    new: tuple[Message, ...]  # What a lean request holds: see `make_lean_messages`
    system: tuple[str, ...] = ()  # Added to the system prompt of a lean request
    tools: tuple[str, ...] = ()  # The tools of the conversation that the work needs
    asked: int = 0  # Tokens of the directive, about
    output: int = 0  # Tokens of the answer, about
    rounds: int = 1  # Replies that it probably takes
    steps: int = 1  # Replies that it may take
    awaited: bool = False  # True if the user waits for it: it is no background work


class SidePrices(msgspec.Struct, frozen=True):
    """The expected price of both ways, and the way that is taken."""

    way: Way
    why: str
    fork: float | None = None
    lean: float | None = None


def choose_way(
    setting: SideWay,
    main: Price | None,
    small: Price | None,
    question: SideQuestion,
    *,
    prefix: int,
    read: int,
    lean: int,
) -> SidePrices:
    """The cheaper way. `prefix` and `lean`: the tokens before the directive; `read`: those of the prefix in
    the cache.
    """
    if setting == "fork":
        return SidePrices("fork", "the setting sideWork says so")
    free = main is None or not main.input
    if setting == "small" and (free or small is None):
        return SidePrices("lean", "the setting sideWork says so")
    if free or main is None:
        return SidePrices("fork", "tokens cost nothing here, or their price is unknown")
    if small is None:
        return SidePrices("fork", "the price of the small model is unknown")
    by_fork = main.cost(estimate_fork_usage(question, prefix, read))
    by_lean = small.cost(estimate_lean_usage(question, lean))
    if setting == "small":
        return SidePrices("lean", "the setting sideWork says so", by_fork, by_lean)
    way: Way = "lean" if by_lean < by_fork else "fork"
    heat = "cached" if read else "not cached any more"
    why = f"a prefix of {prefix:,} tokens, {heat}, against {lean:,} tokens on {small.model}"
    return SidePrices(way, why, by_fork, by_lean)


def estimate_fork_usage(question: SideQuestion, prefix: int, read: int) -> Usage:
    """Further replies read what the first has written; a fork of one step writes nothing to the cache."""
    new = prefix + question.asked - read
    more = (question.rounds - 1) * (prefix + question.asked + question.output)
    if question.steps == 1:
        return Usage(input=new, cache_read=read, output=question.output)
    return Usage(cache_write=new, cache_read=read + more, output=question.output)


def estimate_lean_usage(question: SideQuestion, lean: int) -> Usage:
    """Nothing of a lean request is kept in the cache: it is short, and mostly there is one reply."""
    sent = question.rounds * (lean + question.asked) + (question.rounds - 1) * question.output
    return Usage(input=sent, output=question.output)


def make_lean_messages(
    placed: Iterable[PlacedMessage], view: View, times: Mapping[Id, float] = NO_TIMES
) -> tuple[Message, ...]:
    """What was said, for a request of its own: words in full, a line for each call and its outcome.

    What layers attached is left out: it is not new, or it is no one's word. `times`: the times of the
    entries; with them the surroundings are told, and each new day.
    """
    told: list[Message] = []
    day, around = "", view.marks.get(SURROUNDINGS)
    known = [f"{name}: {value}" for name, value in around.items() if name != "Date"] if around else []
    for one in placed:
        message = one.message
        if one.id in times and (today := format_date(times[one.id])) != day:
            day = today
            told.append(make_context_message(f"Date: {day}", *known))
            known = []
        if message.role == "assistant":
            lines = [message.text.strip(), *(_tell_call(use, view) for use in message.tool_uses)]
            text = "\n".join(filter(None, lines))
            if text and told and told[-1].role == "assistant":
                told[-1] = assistant(Text(f"{told[-1].text}\n{text}"))
            elif text:
                told.append(assistant(Text(text)))
        elif one.by in TYPED and not message.results and message.text.strip():
            told.append(user(message.text))
        elif one.by == "tools" and (words := extract_words_beside(message)):
            told.append(user(words))
    return tuple(told)


def find_told_calls(text: str) -> list[str]:
    """The tools that a reply in a lean request has called."""
    return re.findall(r"^\[(\w+) .*: (?:done(?:: .*)?|failed: .*|no result yet)\]$", text, re.MULTILINE)


def _tell_call(use: ToolUse, view: View) -> str:
    about = next((v for key in _TARGETS if isinstance(v := use.input.get(key), str) and v.strip()), "")
    at = view.result_at(use.id)
    results = view[at].message.results if at is not None else ()
    result = next((one for one in results if one.tool_use_id == use.id), None)
    return f"[{use.name} {to_bounded_line(about, TARGET)}: {_tell_outcome(use, result)}]"


def _tell_outcome(use: ToolUse, result: ToolResult | None) -> str:
    """The beginning of an error, the last line of what a command printed."""
    if result is None:
        return "no result yet"
    if result.is_error:
        return f"failed: {to_bounded_line(result.text, OUTCOME)}"
    last = to_bounded_line(find_last_line(result.text), OUTCOME) if use.name == "Bash" else ""
    return f"done: {last}" if last else "done"


@dataclass(frozen=True, slots=True)
class SmallModel:
    """The small model of a conversation, and the way to ask it."""

    ask: Forker
    name: Callable[[str], str]  # Its name, by that of the conversation's model
    window: Callable[[str], int]  # Its window, by its own name
    ask_now: Forker | None = None  # The way for what the user waits for, whatever background work may cost
    ask_main: Forker | None = None  # The way to ask the model of the conversation the same instead


@dataclass(slots=True)
class SideWork:
    """Asks for the side work of one conversation."""

    fork: Forker
    prices: Prices
    clock: Clock
    emit: Emit
    setting: SideWay = "cheapest"
    small: SmallModel | None = None  # None: there is none to ask, and all is done by forks
    _unusable: str = ""

    def choose(self, request: Request, question: SideQuestion) -> SideRequest:
        """Decide, and say so. `request`: the one that a fork would go on from."""
        prices = self.compare(request, question)
        name = self._find_small(request)
        self.emit(SideWorkChosen(question.kind, prices.way, name, prices.why, prices.fork, prices.lean))
        if self.small is None or prices.way == "fork":
            return SideRequest(self, self.fork, request, question.kind, by_small=False)
        lean = self.make_lean_request(request, question)
        ask = (question.awaited and self.small.ask_now) or self.small.ask
        return SideRequest(self, ask, lean, question.kind, by_small=True)

    def _find_small(self, request: Request) -> str:
        return self.small.name(request.frame.model) if self.small is not None else ""

    def compare(self, request: Request, question: SideQuestion) -> SidePrices:
        """The way that would be taken now."""
        if self.small is None:
            return SidePrices("fork", "there is no small model to ask")
        if self._unusable:
            return SidePrices("fork", f"the small model cannot be asked: {self._unusable}")
        if not question.new:
            return SidePrices("fork", "there is nothing to show beside the conversation")
        lean = self.make_lean_request(request, question)
        tokens, name = lean.tokens, lean.frame.model
        if tokens > FULL * self.small.window(name):
            return SidePrices("fork", f"{tokens:,} tokens are too many for {name}")
        main, read = self.prices.of(request.frame.model), 0
        if is_warm(request, self.clock.now()):
            read = count_kept_tokens(request, keeps_thinking=main is None or main.keeps_thinking)
        return choose_way(
            self.setting,
            main,
            self.prices.of(name),
            question,
            prefix=request.tokens,
            read=read,
            lean=tokens,
        )

    def choose_lean(self, request: Request, question: SideQuestion) -> SideRequest:
        """A request of its own in any case. `request` says which model and tools the conversation has.

        The model of the conversation is asked where the small one cannot be, at once.
        """
        main, why = request.frame.model, "there is no prefix that a fork could use"
        small = None if self._unusable else self.small
        if small is not None:
            name, ask = self._find_small(request), small.ask
        else:
            name, ask = main, (self.small and self.small.ask_main) or self.fork
            why += f"; the small model cannot be asked: {self._unusable}" if self._unusable else ""
        self.emit(SideWorkChosen(question.kind, "lean", name, why))
        lean = make_lean_request(request, question, name, self.clock.now)
        again = partial(self.choose_lean, request, question) if name != main else None
        return SideRequest(self, ask, lean, question.kind, by_small=small is not None, again=again)

    def find_lean_room(self, request: Request) -> int:
        """The tokens that a lean request may hold, whichever model is asked in the end."""
        if self.small is None:
            return LEAST_ROOM
        return int(FULL * min(map(self.small.window, (self._find_small(request), request.frame.model))))

    def make_lean_request(self, request: Request, question: SideQuestion) -> Request:
        """The lean request for this question, to the small model of the moment."""
        return make_lean_request(request, question, self._find_small(request), self.clock.now)

    def give_up(self, why: str) -> None:
        """From now on the model of the conversation is asked."""
        self._unusable = why


@dataclass(frozen=True, slots=True)
class SideRequest:
    """A piece of side work, ready to be asked for."""

    work: SideWork
    ask: Forker
    request: Request
    kind: str
    by_small: bool  # True if the small model is asked
    again: Callable[[], SideRequest] | None = None
    """Chooses anew after an error that will come again; None: who asks next does."""

    async def __call__(
        self, directive: Message, *, steps: int = 1, tools: Tools | None = None, max_tokens: int = 0
    ) -> ForkReply:
        try:
            return await self.ask(
                self.request, directive, kind=self.kind, steps=steps, tools=tools, max_tokens=max_tokens
            )
        except _UNUSABLE as error:
            self.note_error(error)
            if self.again is None:
                raise
        return await self.again()(directive, steps=steps, tools=tools, max_tokens=max_tokens)

    def note_error(self, error: BaseException) -> None:
        """Take note of an error: after one that will come again the small model is not asked again."""
        if self.by_small and isinstance(error, _UNUSABLE):
            self.work.give_up(str(error))


def make_lean_request(
    request: Request, question: SideQuestion, model: str, now: Callable[[], float]
) -> Request:
    """A request of its own: a short system prompt, the tools that the work needs, and what is new."""
    transcript = Transcript(now)
    if question.new and question.new[0].role != "user":
        transcript.add(user(_BEFORE), by="side")
    for message in question.new:
        transcript.add(message, by="model" if message.role == "assistant" else "user")
    offered = tuple(tool for tool in request.frame.tools if tool.get("name") in question.tools)
    frame = Frame(model, (_read_system(), *question.system), offered)
    return Request(frame, transcript.view)


@cache
def _read_system() -> str:
    return Path(__file__).with_name("side.md").read_text(encoding="utf-8").strip()


def find_small_model(prices: Prices, model: str, wanted: str | None) -> str:
    """The model for side work: the one that was set, the small one of its family, else itself."""
    if wanted:
        return wanted
    price = prices.of(model)
    if price is None or not price.small:
        return model
    found = re.match(PROVIDER_PREFIX, model)
    if found is not None and not found[0].endswith(":"):
        return model  # the clouds have names of their own, which the table does not know
    return f"{found[0] if found else ''}{price.small}"
