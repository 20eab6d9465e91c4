"""The parts of a `Context`: a turn in the caller's loop, its files, and the provider's refusals."""

from __future__ import annotations

import asyncio
import math
import shutil
import tempfile
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from sevenfold.cache.prices import read_user_limits
from sevenfold.context.history import BY
from sevenfold.core.errors import Mistake, ModelFailure, PromptTooLong, SessionNotFound
from sevenfold.core.events import Emit, Event, Notice
from sevenfold.core.messages import Block, Json, ToolResult, ToolUse
from sevenfold.core.protocols import (
    Background,
    BackgroundStep,
    Capabilities,
    Change,
    Clock,
    Model,
    Tools,
    Work,
)
from sevenfold.core.request import Frame, Request
from sevenfold.core.transcript import Reply, Transcript, View
from sevenfold.layers.shared.background import BackgroundTasks, open_task_group
from sevenfold.models import connect_model, find_capabilities
from sevenfold.models.capabilities import ModelAccess
from sevenfold.models.failures import ProviderInfo, parse_error_body, parse_too_long
from sevenfold.session.log import RESULTS, TranscriptFile, make_frame_mark
from sevenfold.settings.environment import Environment
from sevenfold.settings.schema import Settings
from sevenfold.storage.files import make_private_dir
from sevenfold.storage.places import check_session_id
from sevenfold.streaming import FailureReport
from sevenfold.turn import Turn


class HostedTurn(Turn):
    """A turn that takes results in and lets the layers work at rest; their failures become events."""

    def take_in(self, results: tuple[ToolResult, ...]) -> tuple[ToolResult, ...]:
        """These results, next in the view, as the layers show them."""
        for layer in self.layers.intake:
            with FailureReport(self.emit, layer):
                results = layer.intake(results, self.transcript.view)
        return results

    async def run_at_rest(self, layers: Sequence[BackgroundStep]) -> None:
        """Let these layers do what they do in the background, and write what they hand back."""
        async with open_task_group() as tasks:
            self.background = tray = BackgroundTasks(tasks, self.emit)
            self._after(layers)
            await tray.drain(math.inf)
        self.collect()


class NamedModel(msgspec.Struct, frozen=True):
    """A model known by name only: enough to measure by, not to ask."""

    name: str
    capabilities: Capabilities

    def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        raise Mistake(
            f"this Context only knows the name of {self.name}; give it a Model to let layers ask one"
        )


def find_measuring_model(model: str | Model, settings: Settings) -> Model:
    """The model itself, or what is known of the model of this name."""
    if not isinstance(model, str):
        return model
    if not model.strip():
        raise Mistake("a Context needs the name of a model, such as 'claude-sonnet-4-5'")
    own = read_user_limits(settings.prices)(model)
    return NamedModel(
        model, find_capabilities(model, betas=settings.betas, window=settings.window, own=own)
    )


class RestModel(msgspec.Struct, frozen=True):
    """The model that layers may ask while the caller rests: the one given, or the one of this name."""

    model: Model | None = None
    why: str = ""  # The reason why there is no model to ask
    ours: bool = False  # Connected by us, so closed by us after each rest

    @classmethod
    def by(
        cls, model: str | Model, format: str, at: Environment, settings: Settings, clock: Clock
    ) -> RestModel:
        """Connect the model; without its key there is none. Nothing is sent before the first question."""
        if not isinstance(model, str):
            return cls(model)
        access = ModelAccess(
            anthropic_key=at.anthropic_key,
            anthropic_token=at.anthropic_token,
            anthropic_base_url=settings.anthropic_base_url,
            openai_key=at.openai_key,
            openai_base_url=settings.openai_base_url,
            betas=settings.betas,
            window=settings.window,
            limits_of=read_user_limits(settings.prices),
            variables=at.variables,
        )
        name = f"openai:{model}" if format in ("openai", "responses") and ":" not in model else model
        try:
            return cls(connect_model(name, access, clock=clock), ours=True)
        except Mistake as error:
            return cls(None, str(error))

    async def close(self) -> None:
        if self.ours and (end := getattr(self.model, "close", None)):
            with anyio.CancelScope(shield=True):
                await end()


class CallerTools:
    """The caller runs its tools itself."""

    def safe(self, use: ToolUse) -> bool:
        return False

    async def call(self, use: ToolUse) -> ToolResult:
        raise Mistake(f"{use.name} is a tool of the caller, who runs it")


class PrivateEventLoop:
    """Runs async work for plain code, always in the same event loop: connections belong to one loop."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._close: Callable[[], object] = lambda: None

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if _in_a_loop():
            raise Mistake("rest_sync() is for code without an event loop: here, await rest()")
        if self._runner is None:
            self._runner = asyncio.Runner()
            self._close = weakref.finalize(self, _closed, self._runner)
        self._runner.run(work())

    def close(self, model: Model) -> None:
        """Close the model's connections of this loop; our own models connect again when asked."""
        end = getattr(model, "close", None)
        if self._runner is not None and end is not None and not _in_a_loop():
            self._runner.run(end())
        self._close()


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _closed(runner: asyncio.Runner) -> None:
    if _in_a_loop():  # nothing of it can run any more
        runner.get_loop().close()
    else:
        runner.close()


class IdleBackground:
    """No work is going on between two calls of the caller."""

    def start(self, name: str, work: Work) -> None:
        raise Mistake(f"{name} can only work inside rest()")

    def collect(self) -> list[tuple[str, Sequence[Change]]]:
        return []


_model: type[Model] = NamedModel
_tools: type[Tools] = CallerTools
_background: type[Background] = IdleBackground


OURS: Final[Json] = {"kind": BY}  # The first record of a transcript that a `Context` wrote


def check_conversation_id(id: str) -> str:
    """The id as given, if it can be one."""
    try:
        return check_session_id(id)
    except SessionNotFound:
        raise Mistake(
            f"{id!r} cannot be the id of a Context, as it names a file: use letters, digits, '-', '_' "
            "and '.'"
        ) from None


class ContextFiles:
    """The transcript of one conversation, and the folder for what is too big for it."""

    def __init__(
        self,
        state: str | Path | None,
        id: str,
        clock: Clock,
        emit: Emit,
        results: str | Path | Callable[[], Path] | None = None,
    ) -> None:
        self._elsewhere = results
        self._recording: TranscriptFile | None = None
        self._temporary: Path | None = None
        self.transcript = Transcript(clock.now)
        self.frame: Frame | None = None  # The last one that was written down
        self._used: Frame | None = None
        if state is None:
            return
        folder = make_private_dir(Path(state).expanduser().absolute())
        self._recording = recording = TranscriptFile(folder / f"{id}.jsonl", clock, emit)
        if recording.path.is_file():
            recording.load(clock)
            self.frame = recording.frame()
        self.transcript = recording.transcript
        if self.transcript.view.marks.get("session", OURS).get("kind") != BY:
            recording.close()
            raise Mistake(
                f"{recording.path} is the transcript of a session, which a Context cannot go on with: "
                "give it another id, or another folder"
            )
        for lost in self.transcript.problems:  # the caller still has what was said there
            where = f"{recording.path.name}:{lost.line}"
            emit(Notice(f"{where} cannot be read and was passed over: {lost.why}", "warning"))

    @property
    def path(self) -> Path | None:
        """The file of the transcript, if it has one."""
        return self._recording.path if self._recording else None

    def results(self) -> Path:
        """The folder for whole tool results."""
        if self._elsewhere is not None:
            where = self._elsewhere() if callable(self._elsewhere) else self._elsewhere
            return Path(where).expanduser().absolute()
        if self._recording:
            return self._recording.path.with_suffix("") / RESULTS
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="sevenfold-")).resolve()
        return self._temporary

    def keep(self, about: Json, frame: Frame) -> None:
        """Write down what a later process needs to resume: what this is, and its frame."""
        used, self._used = self._used, frame
        if self._recording is None or frame is self.frame:
            return
        if "session" not in self.transcript.view.marks:
            self._recording.begin({**OURS, **about}, frame, None)
        elif frame is used or self.frame is None:
            self.transcript.add(make_frame_mark(frame), by=BY)
        else:  # one that changes with every request is not worth a line each time
            return
        self.frame = frame

    def sync(self) -> None:
        if self._recording:
            self._recording.sync()

    def close(self) -> None:
        if self._recording:
            self._recording.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None


def make_weak_emit(emit: Emit) -> Emit:
    """The same through a weak reference, so that the owner can be garbage collected."""
    method = weakref.WeakMethod(emit)

    def told(event: Event) -> None:
        if (tell := method()) is not None:
            tell(event)

    return told


UNKNOWN_GAP: Final = 0.2  # The part that has to go when the provider says "too long" and not by how much
_ANY_PROVIDER: Final = ProviderInfo("the provider", "", "", "")


def read_refusal(error: BaseException, model: str) -> PromptTooLong | None:
    """The refusal as ours, from an SDK's status and body or the text; None: it was about something else."""
    if isinstance(error, ModelFailure):
        return error if isinstance(error, PromptTooLong) else None
    body: Any = getattr(error, "body", None)
    status = getattr(error, "status_code", None)
    said = parse_error_body(
        _ANY_PROVIDER,
        body if isinstance(body, dict) and body else str(error),
        status=status if isinstance(status, int) else None,
        model=model,
    )
    return parse_too_long(said)


def is_still_too_long(refused: PromptTooLong, sent: View, now: View) -> bool:
    """True if the refused conversation has not been shortened by the caller."""
    return sent.tokens - now.tokens < (refused.over or int(sent.tokens * UNKNOWN_GAP))
