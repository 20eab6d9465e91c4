"""Learns from a conversation: after a turn a fork looks back and saves what later sessions will need.

It runs on the prefix that the provider has in its cache, off the user's path. A mark records how far it
has looked. One run at a time: a turn that ends meanwhile leaves its request behind, the newest one only,
and one more run follows. What may be saved is decided in `founding`, what may be done in
`extraction_tools`; this is about when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio.to_thread
from msgspec.structs import replace

from sevenfold.cache.breakpoints import as_cached
from sevenfold.errors import BadReply, SevenfoldError
from sevenfold.events import Emit, Failed, Notice, Progress
from sevenfold.layers.l5_durable_memory.provenance import Sources, is_typed
from sevenfold.layers.l5_durable_memory.quiet_tools import May
from sevenfold.layers.l5_durable_memory.selecting import Start
from sevenfold.layers.l5_durable_memory.settings import ExtractionSettings
from sevenfold.memory.folder.desk import Saved
from sevenfold.memory.folder.naming import ENDING
from sevenfold.memory.store import MemoryStore
from sevenfold.messages import ToolUse, user
from sevenfold.models.directives import write_directive
from sevenfold.protocols import After, Clock, Forker, ToolFailed, Tools
from sevenfold.request import Frame, Request
from sevenfold.tools.paths import inside
from sevenfold.tools.rules import EDITORS
from sevenfold.transcript import Entry, Id, Mark, Placed, View

if TYPE_CHECKING:
    from sevenfold.layers.l5_durable_memory.extraction_tools import ExtractionTools

BY: Final = "Extraction"
KIND: Final = "extract"
CURSOR: Final = "extraction"
"""The mark that says how far it has looked: `{"last": id}`."""
FAILURES: Final = 3
"""So many in a row, and nothing is tried until the next session."""
ANSWER: Final = 8_000
"""Tokens of a reply: a handful of memories."""


@dataclass(frozen=True, slots=True)
class Learning:
    """What extraction needs of a conversation and its memory."""

    store: MemoryStore
    session: str
    tools: Callable[[], tuple[Tools, May]]
    """To look around with, and the rules, for one run: nobody is asked, and its reads are its own."""
    entries: Callable[[], Sequence[Entry]]
    """The transcript, for when each thing was said."""
    start: Start
    """Starts work beside the conversation."""
    locate: Callable[[str], Path] = Path
    """Which file a tool means by a path."""


class Extraction:
    """The `rest` moment of the main conversation."""

    def __init__(
        self,
        learning: Learning,
        fork: Forker,
        clock: Clock,
        emit: Emit,
        settings: ExtractionSettings | None = None,
    ) -> None:
        self._learning, self._fork, self._clock, self._emit = learning, fork, clock, emit
        self._set = settings or ExtractionSettings()
        self._busy = False
        self._newest: Request | None = None
        """What ended while a run was on."""
        self._cursor: Id | None = None
        """As in the mark, which is written only at the next step."""
        self._failures = 0
        self.refused: Counter[str] = Counter()
        """Calls that were not carried out in this session, by the kind of the reason."""

    async def __call__(self, request: Request) -> Sequence[Mark]:
        if request.source != "main" or not len(request.view):
            return ()
        if self._busy:
            self._newest = request
            return ()
        return await self._alone(request, trailing=False)

    async def _alone(self, request: Request, *, trailing: bool) -> Sequence[Mark]:
        """One run, and after it another piece of work for what ended meanwhile.

        That one is started and not waited for, so that the mark of this one is handed back at once. In
        between it stays busy, or a turn that ends just then would run beside it.
        """
        self._busy = True
        try:
            return await self._looked_through(request, trailing)
        finally:
            newest, self._newest = self._newest, None
            self._busy = newest is not None
            if newest is not None:
                self._learning.start(BY, partial(self._alone, newest, trailing=True))

    # --- when -------------------------------------------------------------------------------------------

    async def _looked_through(self, request: Request, trailing: bool) -> Sequence[Mark]:
        if self._failures >= FAILURES or not _can_write(request.frame):
            return ()
        view = as_cached(request.view)
        since = self._looked_at(view)
        new = [view[at] for at in range(since, len(view))]
        turns = sum(map(is_typed, new))
        if turns == 0 or (turns < self._set.every and not trailing):
            return ()
        if any(self._wrote_memory(placed, view) for placed in new):
            return (self._advanced(view),)
        tools, may = self._learning.tools()
        if await may(_some_write(self._learning.store.folder)) is not None:
            return ()  # nothing could be saved: in plan mode, or where a rule denies it
        self._failures += 1  # until it has worked: whatever breaks, it does not go on for ever
        try:
            await self._run(replace(request, view=view), since, tools, may)
        except SevenfoldError as why:
            self._failed(str(why))
            return ()
        self._failures = 0
        return (self._advanced(view),)

    def _looked_at(self, view: View) -> int:
        """How many messages were looked at before; none when those have left the view."""
        mark = view.marks.get(CURSOR)
        last = mark.get("last") if isinstance(mark, dict) else None
        places = [view.where(id) for id in (last, self._cursor) if isinstance(id, int)]
        return 1 + max((place for place in places if place is not None), default=-1)

    def _advanced(self, view: View) -> Mark:
        self._cursor = view[-1].id
        return Mark(CURSOR, {"last": self._cursor})

    def _wrote_memory(self, placed: Placed, view: View) -> bool:
        """Whether the agent itself has saved something here: then it knew what was worth it."""
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
        return path is not None and inside(path, self._learning.store.folder)

    # --- what -------------------------------------------------------------------------------------------

    async def _run(self, request: Request, since: int, tools: Tools, may: May) -> None:
        from sevenfold.layers.l5_durable_memory.extraction_tools import ExtractionTools
        from sevenfold.layers.l5_durable_memory.extraction_writing import MemoryWriter

        learning, view = self._learning, request.view
        self._emit(Progress(BY, "looking for what is worth remembering"))
        sources, body = await anyio.to_thread.run_sync(
            self._prepared, view, tuple(learning.entries()), since
        )
        writer = MemoryWriter(learning.store, sources, learning.session, learning.locate)
        hands = ExtractionTools(tools, writer, may, self._emit)
        directive = user(write_directive(KIND, f"x-{view[-1].id}", body))
        try:
            said = await self._fork(
                request,
                directive,
                kind=KIND,
                steps=self._set.steps,
                tools=hands,
                max_tokens=ANSWER,
            )
        finally:  # what was saved before it failed is saved
            self.refused += hands.kinds
            self._tell(tuple(writer.saved.values()), hands)
        if hands.broken is not None:
            raise hands.broken
        if said.reply.stop == "cut" and not writer.saved:
            raise BadReply("the model's reply was cut off")

    def _prepared(self, view: View, entries: Sequence[Entry], since: int) -> tuple[Sources, str]:
        """Who said what, and the question; in a thread, since a conversation may be long."""
        from sevenfold.layers.l5_durable_memory.extraction_wording import NEWEST, asking

        store, now = self._learning.store, self._clock.now()
        memories = store.newest(NEWEST)
        told = asking(
            memories,
            store.folder,
            self._learning.session,
            now,
            since,
            self._set.steps,
            team=store.has_team,
        )
        return Sources(view, entries, now), told

    def _tell(self, saved: Sequence[Saved], hands: ExtractionTools) -> None:
        if saved:
            files = ", ".join(_shown(one, self._learning.store.folder) for one in saved)
            self._emit(Notice(f"saved to memory: {files}"))
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(hands.kinds.items()))
        calls = "1 call" if hands.denied == 1 else f"{hands.denied} calls"
        refused = f"; {calls} refused ({counts})" if counts else ""
        told = f"{len(saved)} memories saved" if len(saved) != 1 else "1 memory saved"
        self._emit(Progress(BY, f"{told}{refused}", done=True))

    def _failed(self, why: str) -> None:
        over = "; not tried again in this session" if self._failures >= FAILURES else ""
        self._emit(Failed(BY, f"the conversation was not looked through: {why}{over}"))


def _can_write(frame: Frame) -> bool:
    """Whether the conversation offers a tool to write with; its list of tools cannot be changed."""
    return any(tool.get("name") in EDITORS for tool in frame.tools)


def _some_write(folder: Path) -> ToolUse:
    """A call like those that will come, to ask the rules about."""
    return ToolUse("", "Write", {"file_path": str(folder / f"some{ENDING}"), "content": ""})


def _worked(use: ToolUse, view: View) -> bool:
    at = view.result_at(use.id)
    results = view[at].message.results if at is not None else ()
    return any(one.tool_use_id == use.id and not one.is_error for one in results)


def _shown(one: Saved, folder: Path) -> str:
    return f"{one.path.relative_to(folder).as_posix()} ({one.action})"


_check: type[After] = Extraction
