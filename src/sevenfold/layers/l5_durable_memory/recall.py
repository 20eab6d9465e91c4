"""Recall: when the user says something, what is known about it from earlier sessions is put beside it.

At the first attach of a turn a search begins for the newest text that a person typed. It is waited for,
50 ms at most (the first search of a session opens the index and gets a second): else a question answered in
one step would never see its memories. What takes longer is attached at the next step, or dropped when the
user has asked something else. Explanations of tools that the model uses with success are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as settled
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final

import anyio
import msgspec

from sevenfold.core.errors import Mistake, SevenfoldError
from sevenfold.core.events import Failed, Notice, Surfaced
from sevenfold.core.messages import Message, Text, ToolUse
from sevenfold.core.protocols import Attach, Change
from sevenfold.core.tokens import scale_constant
from sevenfold.core.transcript import Id, Mark, View
from sevenfold.layers.l5_durable_memory.selection import (
    LEAST,
    ByModel,
    Limits,
    ModelSelector,
    RecallAttachment,
    RecallQuery,
    Selection,
    ShownMemories,
    find_read_memories,
    find_shown_memories,
    make_attachment,
    select_by_search,
)
from sevenfold.layers.parts import LayerParts
from sevenfold.layers.shared.facts import TYPED, summarise_call
from sevenfold.memory.recall_results import BY, Recalled
from sevenfold.models.capabilities import OFFLINE

LONGEST: Final = 2_000
"""Characters to search with. Of a longer text the two ends: a question stands before or after the rest."""
_PIPED: Final = r"(?ms)^<(stdin-*)>\n.*\n</\1>\s*\Z"
_UNSPACED: Final = (
    (r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]", 2),
    (r"[\u3040-\u30ff]", 4),
    (r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]", 5),
)
"""Scripts without spaces between words, and how many characters a word has: Han, kana, those of Thailand,
Laos, Burma and Cambodia."""
_WORD: Final = r"\S*\w\S*"


class UserQuestion(msgspec.Struct, frozen=True):
    """Something that a person typed: where it stands, what it says, whether a reply has begun."""

    id: Id
    text: str
    answered: bool = False


def find_newest_question(view: View) -> UserQuestion | None:
    """The newest; results of tools and what the program itself said are none."""
    answered = False
    for placed in reversed(view):
        message = placed.message
        if message.role == "assistant":
            answered = True
        elif placed.by in TYPED and not message.results and (text := extract_typed_text(message)):
            return UserQuestion(placed.id, text, answered)
    return None


def find_typed_texts(view: View) -> Iterator[str]:
    """All that a person typed, the newest first."""
    for placed in reversed(view):
        if placed.by in TYPED and placed.message.role == "user" and not placed.message.results:
            yield extract_typed_text(placed.message)


def extract_typed_text(message: Message) -> str:
    """The words of a message without what was piped in behind them."""
    text = "\n".join(b.text for b in message.content if isinstance(b, Text))
    return re.sub(_PIPED, "", text).strip()


def extract_asked_text(text: str) -> str:
    """The text to search with: without a wish that memory be used, and not too long."""
    if any(word in text.lower() for word in ("memor", "remember", "记忆")):  # others load no rules
        from sevenfold.memory.agent_writes import drop_memory_wish

        text = drop_memory_wish(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}\n{text[-LONGEST // 2 :]}"


def has_substance(text: str) -> bool:
    """True for more than one word: "ok", "继续" and "Hello" ask for nothing, and tell nothing."""
    return count_words(text[:LONGEST]) >= 2


def count_words(text: str) -> float:
    """About how many words this has, in scripts with and without spaces."""
    count = 0.0
    for script, length in () if text.isascii() else _UNSPACED:
        text, characters = re.subn(script, " ", text)
        count += characters / length
    return count + len(re.findall(_WORD, text))


RECENT: Final = 20  # Messages in which a call counts as now
_USAGE: Final = (
    r"(?i)\b(?:usage|how[ -]to(?:[ -]use)?|using|syntax|flags?|options?|arguments?|parameters?|commands?"
    r"|subcommands?|cheat[ -]?sheets?|manual|man pages?|docs|documentation|examples?)\b"
    r"|用法|使用方法|使用说明|怎么用|如何使用|语法|参数|选项|命令|手册|文档|速查|示例"
)
_WARNING: Final = (
    r"(?i)\b(?:warn\w*|gotchas?|caveats?|pitfalls?|beware|careful\w*|caution\w*|danger\w*|never|do not"
    r"|don'?t|must(?:n'?t| not)|cannot|can'?t|avoid\w*|instead of|known (?:issues?|bugs?|problems?)|bugs?"
    r"|buggy|broken|breaks?|fails?|failing|failure|errors?|deprecated|unsafe|wrong\w*|does(?:n'?t| not)"
    r"|only works|workarounds?|important)\b"
    r"|注意|警告|小心|切勿|不要|不能|不得|禁止|避免|陷阱|踩坑|有坑|已知问题|缺陷|报错|出错|失败|弃用|危险|务必"
)
_TOKEN: Final = r"[^\W_]+(?:[-_.][^\W_]+)*"
_PARTS: Final = r"[-_.]"
_SIMPLE: Final = r"&&|\|\||[;|\n]"
_AHEAD: Final = r"\s*(?:(?:sudo|env|time|nohup|exec|[A-Za-z_]\w*=\S*)\s+)*"
_PROGRAM: Final = re.compile(r"[^\s'\"$`()<>]+")
_EVERYDAY: Final = frozenset(["cd", "ls", "cat", "echo", "export", "set", "true", "pwd", "mkdir"])
LONGEST_COMMAND: Final = 2_000


def find_tools_in_use(view: View) -> frozenset[str]:
    """Names of tools, servers and programs that were called lately and worked when called last."""
    worked: dict[str, bool] = {}
    uses: dict[str, ToolUse] = {}
    for at in range(max(0, len(view) - RECENT), len(view)):
        message = view[at].message
        uses.update((use.id, use) for use in message.tool_uses)
        for result in message.results:
            if use := uses.get(result.tool_use_id):
                worked.update((name, not result.is_error) for name in _names(use))
    return frozenset(name for name, well in worked.items() if well)


def is_tool_explanation(memory: Recalled, tools: frozenset[str]) -> bool:
    """True if this only tells the model how to use what it is using already."""
    if memory.type != "reference" or not tools:
        return False
    about = f"{memory.name}\n{memory.description}"
    if not re.search(_USAGE, about.replace("_", " ")) or tools.isdisjoint(_words(about)):
        return False
    return not re.search(_WARNING, f"{about}\n{memory.text}")


def _names(use: ToolUse) -> Iterator[str]:
    """A tool by its own name, which is written as it is; servers and programs in small letters."""
    yield use.name
    if use.name.startswith("mcp__"):
        yield from (part.lower() for part in use.name.split("__")[1:] if part)
    call = summarise_call(use)
    for simple in re.split(_SIMPLE, call.about[:LONGEST_COMMAND]) if call.kind == "command" else ():
        ahead = re.match(_AHEAD, simple)
        found = _PROGRAM.match(simple, ahead.end() if ahead else 0)
        if found and (name := found[0].rpartition("/")[2].lower()) not in _EVERYDAY:
            yield name


def _words(text: str) -> Iterator[str]:
    """Each word as it is and in small letters; of one with dashes also its parts."""
    for token in re.findall(_TOKEN, text):
        for word in (token, *re.split(_PARTS, token)):
            yield word
            yield word.lower()


SMALLEST_SHARE: Final = 3  # In a small window one memory takes at most such a part of what all of them may
_THREADS: Final = 2  # One may be stuck in a search whose result is not needed any more


@dataclass(slots=True)
class _RunningSearch:
    """A search that is going on, and for which question."""

    question: UserQuestion
    found: Future[Selection] = field(default_factory=Future)
    scope: anyio.CancelScope | None = None
    dropped: bool = False

    def drop(self) -> None:
        self.dropped = True
        self.found.cancel()
        if self.scope is not None:
            self.scope.cancel()


class _RecallView:
    """The facts of a view that recall needs, looked up once, when they are needed."""

    def __init__(self, view: View, folder: Path) -> None:
        self._view, self._folder = view, folder

    @cached_property
    def shown(self) -> ShownMemories:
        return find_shown_memories(self._view)

    @cached_property
    def files(self) -> frozenset[str]:
        """The memories that the model has before it already."""
        return self.shown.files | find_read_memories(self._view, self._folder)

    @cached_property
    def tools(self) -> frozenset[str]:
        return find_tools_in_use(self._view)

    @property
    def ignored(self) -> bool:
        """True if the person wants memory to be as if it were empty."""
        from sevenfold.memory.agent_writes import is_memory_ignored

        return is_memory_ignored(find_typed_texts(self._view))


class Recall:
    """Attaches what is remembered about the user's question, once a turn."""

    label: ClassVar[str] = "Recall"

    def __init__(self, parts: LayerParts) -> None:
        if parts.recall is None:
            raise Mistake("recall needs memories to search in: give LayerParts a `recall`")
        self._parts, self._sources, self._settings = parts, parts.recall, parts.settings.recall
        self._clock, self._emit = parts.clock, parts.emit
        self._by_model = self._model_selector()
        self._threads: ThreadPoolExecutor | None = None
        self._question: UserQuestion | None = None  # The newest that was looked at
        self._search: _RunningSearch | None = None
        self._told = False

    def attach(self, view: View) -> Sequence[Message | Mark]:
        question, seen = find_newest_question(view), _RecallView(view, self._sources.folder)
        known = self._question.id if self._question else None
        if question is not None and not question.answered and question.id != known:
            self._begin(question, seen)
        if self._search is None or not self._search.found.done():
            return ()
        search, self._search = self._search, None
        try:
            found = search.found.result()
        except SevenfoldError as error:  # the turn reports others
            self._emit(Failed(BY, str(error)))
            return ()
        made = self._attachment(found, seen) if found.memories else None
        if made is None:
            return ()
        names, files = tuple(m.name for m in made.shown), tuple(m.file for m in made.shown)
        self._emit(Surfaced(names, files, made.bytes, found.selector, found.milliseconds))
        return made.mark, made.message

    def stop(self) -> None:
        """Let go of a search that is going on, and of its threads."""
        if self._search is not None:
            self._search.drop()
            self._search = None
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    # --- beginning --------------------------------------------------------------------------------------

    def _begin(self, question: UserQuestion, seen: _RecallView) -> None:
        before, self._question = self._search, question
        if before is not None:
            if before.question.text == question.text:  # asked again: it is still the answer
                return
            self._search = None
            if before.found.done() and (error := before.found.exception()):  # reported even so
                self._emit(Failed(BY, str(error) or repr(error)))
            before.drop()
        text = extract_asked_text(question.text)
        if not has_substance(text) or self._limits(seen.shown).left < LEAST or seen.ignored:
            return
        wanted = RecallQuery(text, self._settings.limit, seen.files)
        self._search = self._by_a_model(question, wanted)
        if self._search is None:
            spare = self._settings.limit if seen.tools else 0  # some may be left out
            self._search = self._at_once(question, wanted, wanted.limit + spare)

    def _at_once(self, question: UserQuestion, wanted: RecallQuery, limit: int) -> _RunningSearch:
        """Search in a thread. The wait is too short to notice; longer when the index has to be opened."""
        wait = self._settings.first_wait_ms if self._threads is None else self._settings.wait_ms
        self._threads = self._threads or ThreadPoolExecutor(_THREADS, "recall")
        found = self._threads.submit(select_by_search, self._sources.find, wanted, limit)
        settled([found], wait / 1_000)
        return _RunningSearch(question, found)

    def _by_a_model(self, question: UserQuestion, wanted: RecallQuery) -> _RunningSearch | None:
        """Beside the conversation, if there is a model that can choose."""
        select, start = self._by_model, self._sources.start
        if select is None or start is None or select.gave_up:
            return None
        if why := self._no_model():
            if not self._told:
                self._told = True
                text = f"the selector {select.selector!r} needs a model, and {why}: "
                self._emit(Notice(f"{text}memories are chosen by search alone", "warning"))
            return None
        search = _RunningSearch(question)

        async def work() -> Sequence[Change]:
            with anyio.CancelScope() as search.scope:
                found = None if search.dropped else await select(wanted)
                if found is not None and not search.dropped:
                    search.found.set_result(found)
            return ()

        start(BY, work)
        return search

    def _no_model(self) -> str:
        """The reason why no model can choose; empty when one can."""
        try:
            return "the offline engine is none" if self._sources.model() == OFFLINE else ""
        except SevenfoldError as error:  # no key for it, or no such model
            return str(error)

    def _model_selector(self) -> ByModel | None:
        selector, sources = self._settings.selector, self._sources
        if selector == "hybrid" or sources.fork is None:
            return None
        choose = ModelSelector(sources.fork, sources, self._settings, self._emit)
        return ByModel(sources, choose, selector, self._emit)

    # --- handing back -----------------------------------------------------------------------------------

    def _attachment(self, found: Selection, seen: _RecallView) -> RecallAttachment | None:
        """The memories that are not in view by now, without those about tools in use."""
        fitting: dict[str, Recalled] = {}
        for one in found.memories:
            if one.file not in seen.files and not is_tool_explanation(one, seen.tools):
                fitting.setdefault(one.file, one)
        limits = self._limits(seen.shown)
        return make_attachment(tuple(fitting.values()), seen.shown.next, self._clock.now(), limits)

    def _limits(self, shown: ShownMemories) -> Limits:
        """Recalled memories take their share of a small window, and no more."""
        settings = self._settings
        total = int(scale_constant(settings.total_bytes, self._parts.window))
        each = min(settings.bytes, total // SMALLEST_SHARE)
        return Limits(settings.limit, settings.lines, each, total - shown.bytes)


_check: type[Attach] = Recall
