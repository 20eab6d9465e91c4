"""The parts that a conversation gives its layers: one `LayerParts`, which every layer takes whole.

    parts = LayerParts(results=ResultStore(lambda: Path("results")), emit=print)
    layer = ToolResults(parts)

`Session`, `Context` and the replay build one each. What may change while they live, such as the model, a
layer asks of `parts.conversation` when it needs it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from sevenfold.cache.prices import Prices
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake
from sevenfold.core.events import Emit, Event
from sevenfold.core.messages import ToolUse
from sevenfold.core.protocols import Attach, Capabilities, Clock, Forker, Model, Tools, Work
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Thresholds, Usage
from sevenfold.core.transcript import Entry, Id, Reply
from sevenfold.layers.shared.idle_gaps import GapCounts
from sevenfold.layers.shared.restore import CompactionHooks, Restorer
from sevenfold.layers.shared.side_work import SideWork
from sevenfold.settings.layers import Switches
from sevenfold.settings.schema import Settings
from sevenfold.storage.results import ResultStore

if TYPE_CHECKING:
    from sevenfold.layers.l3_session_memory.notes import Notebook
    from sevenfold.layers.l6_dreaming.dreaming import DreamRunner
    from sevenfold.memory.recall_results import Recalled
    from sevenfold.memory.store import MemoryStore
    from sevenfold.storage.waiting_notes import WaitingFolder, WaitingNote
    from sevenfold.tools.confined_tools import ConfinedTools
    from sevenfold.tools.workspace import FileKeeper

WITH_FILE_TOOLS: Final = "To see more, Read that file with offset and limit, or Grep in it."
"""The sentence that tells the model how to read a stored result."""


class Conversation(Protocol):
    """The conversation that the layers belong to, as it is at the moment of asking."""

    @property
    def model(self) -> Model: ...
    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def thresholds(self) -> Thresholds: ...
    @property
    def transcript_path(self) -> Path | None:
        """The file of the transcript; None: it is in memory only."""
        ...

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries of the transcript."""
        ...

    @property
    def reading_hint(self) -> str:
        """A sentence that tells the model how to read a stored result."""
        ...


class PlainConversation:
    """A conversation made of values, for a layer that is used alone. Every field may be set anew."""

    def __init__(
        self,
        model: Model | None = None,
        *,
        capabilities: Capabilities | None = None,
        thresholds: Thresholds | None = None,
        transcript_path: Path | None = None,
        entries: Sequence[Entry] = (),
        reading_hint: str = WITH_FILE_TOOLS,
    ) -> None:
        """Capabilities are those of the model, and thresholds follow from them, unless they are given."""
        self._model = model
        self.capabilities = capabilities or (model.capabilities if model else Capabilities())
        able = self.capabilities
        self.thresholds = thresholds or Thresholds.of(able.window, able.max_output)
        self.transcript_path, self.entries, self.reading_hint = transcript_path, entries, reading_hint

    @property
    def model(self) -> Model:
        if self._model is None:
            raise Mistake("this conversation has no model that could be asked: give it one")
        return self._model


_check: type[Conversation] = PlainConversation

StartWork: TypeAlias = Callable[[str, Work], object]  # Starts work beside the conversation, under a name
FindMemories: TypeAlias = "Callable[[str, int, frozenset[str]], Sequence[Recalled]]"
"""Searches for a text: at most so many, best first, without these files. Called in a thread."""
ListNewest: TypeAlias = "Callable[[int], Sequence[Recalled]]"
"""The newest so many memories, newest first. Called in a thread."""
AllowCall: TypeAlias = Callable[[ToolUse], Awaitable[str | None]]
"""Says why a call may not run; None: it may. It asks no person."""
ConfineTools: TypeAlias = "Callable[[Path, FileKeeper], ConfinedTools]"
"""Makes the tools of the session, confined to a folder."""


@dataclass(frozen=True, slots=True)
class RecallParts:
    """The memories that recall searches in, and the model that chooses among them."""

    folder: Path  # The memory folder: what the model has read below it is not recalled
    find: FindMemories
    newest: ListNewest = lambda most: ()
    fork: Forker | None = None
    """Asks the model that chooses. Without it, and without `start`, the search decides."""
    model: Callable[[], str] = lambda: ""
    """The name of the model that chooses; raises one of our errors where it cannot be asked."""
    why: Callable[[], str] = lambda: ""  # Why it is that one
    start: StartWork | None = None


@dataclass(slots=True)
class ExtractionProgress:
    """The progress of extraction in one conversation; it outlives a layer that is made anew."""

    busy: bool = False
    newest: Request | None = None  # The request of a turn that ended while a run was on
    cursor: Id | None = None  # As in the mark, which is written only at the next step
    waits: bool = False  # True if a turn was left for later
    earlier_waits: bool = False  # True if the look at what ended sessions left was broken off
    failures: int = 0
    runs: int = 0
    noted: WaitingNote | None = None  # The note that words of this conversation wait


@dataclass(frozen=True, slots=True)
class ExtractionParts:
    """The memory that extraction saves to, and the tools it works with."""

    store: MemoryStore
    session: str
    tools: Callable[[], tuple[Tools, AllowCall]]
    """Makes the tools and the rules of one run: its reads are its own, and no person is asked."""
    start: StartWork
    locate: Callable[[str], Path] = Path  # Finds the file that a tool means by a path
    team: bool = True  # True: memory shared with a team is used, where there is any
    waiting: WaitingFolder | None = None  # Where it is written down what waits; None: nowhere
    progress: ExtractionProgress = field(default_factory=ExtractionProgress)
    hand_over: Callable[[Any], Id] | None = None
    """Gives `EarlierWords` to somebody else to look through; returns the last entry that was taken."""


@runtime_checkable
class WordsTaker(Protocol):
    """A memory whose owners have others look through what was said."""

    def take_words(self, words: Any) -> Id:
        """Keep the words for whoever looks through them; returns the last entry that was taken."""
        ...


@dataclass(frozen=True, slots=True)
class DreamParts:
    """The dreams of the memory folder, and the tools that a dream works with."""

    runner: DreamRunner
    tools: ConfineTools


@dataclass(slots=True)
class ServerSummaries:
    """Summaries that the provider made: noted when the reply comes in, recorded by a layer after it."""

    spent: dict[str, Usage] = field(default_factory=dict)
    """The usage of each summary that is not recorded yet, by its text."""
    recorded: Id = -1  # The entry of the newest summary that is recorded


def ignore_event(event: Event) -> None:
    """The default of `LayerParts.emit`."""


def _make_results() -> ResultStore:
    """Results go to a temporary folder, made when the first one comes and removed with the store."""
    folder: list[TemporaryDirectory[str]] = []

    def find() -> Path:
        if not folder:
            folder.append(TemporaryDirectory(prefix="sevenfold-"))
        return Path(folder[0].name).resolve()

    return ResultStore(find)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParts:
    """The parts of a conversation that its layers use. Most layers can be used alone with the defaults."""

    conversation: Conversation = field(default_factory=PlainConversation)
    settings: Settings = field(default_factory=Settings)
    switches: Switches = field(default_factory=Switches)
    emit: Emit = ignore_event
    clock: Clock = field(default_factory=SystemClock)
    prices: Prices = field(default_factory=Prices.load)
    expect: Callable[[str], object] = lambda why: None
    """Tells the ledger why the next request breaks the prefix on purpose."""
    results: ResultStore = field(default_factory=_make_results)  # Keeps whole tool results
    home: Path | None = None  # The folder with the user's own template for notes
    make_notebook: Callable[[LayerParts], Notebook] | None = None
    """Makes notes that are kept elsewhere. None: a file in the folder of the conversation."""

    fork: Forker | None = None
    """Asks the model beside the conversation. None: no notes and no summaries, the digest compacts."""
    background_fork: Forker | None = None
    """The same for background work, which may spend only so much a day. None: `fork` is asked."""
    side_work: SideWork | None = None
    """Asks for notes, extraction and status lines the cheaper way. None: always by a fork."""
    one_shot: bool = False
    """True if one question is asked and no more: notes on it would never be used."""
    can_wait: bool = True
    """True if a request may wait for a model's summary; else summaries are only prepared ahead."""

    restorer: Restorer = field(default_factory=Restorer)
    """Gives the model back what it should see again after a compaction."""
    hooks: CompactionHooks = field(default_factory=CompactionHooks)
    """The user's hooks before and after a compaction."""
    server: ServerSummaries | None = None  # Summaries that the provider makes; None: it makes none
    send: Callable[[Request], Awaitable[Reply]] | None = None
    """Sends a request in which the provider is asked for a summary."""

    cached_until: Callable[[Frame], float | None] = lambda frame: None
    """The time until which the provider keeps the prefix of this frame."""
    idle_gaps: Callable[[], GapCounts] = GapCounts  # The silences of this user so far
    keep_warm: Callable[[Request], Awaitable[Reply | None]] | None = None
    """Sends a request that only keeps the cache warm."""

    instructions: Attach | None = None  # Attaches the instruction files near what the model works on
    mail: tuple[Attach, ...] = ()  # Attaches what other agents wrote
    memory_folders: tuple[Path, ...] = ()  # Results that were read from these folders are never cleared
    recall: RecallParts | None = None
    extraction: ExtractionParts | None = None
    dreams: DreamParts | None = None  # Memory. None: nothing is recalled, extracted or dreamt.

    @property
    def window(self) -> int:
        """The window of the model of the moment, in tokens."""
        return self.conversation.capabilities.window

    def get_fork(self) -> Forker:
        """The fork. Raises `Mistake` if there is none."""
        if self.fork is None:
            raise Mistake("these layers need a model to ask: give LayerParts a `fork`")
        return self.fork

    def get_background_fork(self) -> Forker:
        """The fork for background work. Raises `Mistake` if there is none."""
        return self.background_fork or self.get_fork()

    def get_side_work(self) -> SideWork:
        """The way to ask for side work. Raises `Mistake` if there is no fork."""
        return self.side_work or SideWork(self.get_background_fork(), self.prices, self.clock, self.emit)
