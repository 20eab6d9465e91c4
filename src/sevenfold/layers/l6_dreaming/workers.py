"""The work of a dream: a fork of the conversation does it, or rules do where there is no model.

The tools of a dream look around, and change the copy it was given. The model's last words account for what
is gone.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, get_args

import anyio.to_thread
import msgspec

from sevenfold.cache.prefix import cut_to_cached
from sevenfold.core.clock import format_date
from sevenfold.core.errors import Failure
from sevenfold.core.messages import ToolResult, ToolUse, strip_half_characters, user, write_directive
from sevenfold.core.protocols import Clock, Forker, ToolFailed, Tools
from sevenfold.core.request import Request
from sevenfold.core.tokens import Usage
from sevenfold.layers.l6_dreaming.progress import DreamWatch
from sevenfold.layers.parts import ConfineTools
from sevenfold.memory.backend import HEAD, is_topic
from sevenfold.memory.daily_logs import parse_log_day
from sevenfold.memory.dreams.stage import DreamStage
from sevenfold.memory.folder.names import LOGS
from sevenfold.memory.guard.guard import Guard
from sevenfold.memory.recall_results import format_age
from sevenfold.memory.topic_file import read_topic
from sevenfold.models.jsontext import NotJson, decode_json_object
from sevenfold.tools.confined_tools import ConfinedTools
from sevenfold.tools.workspace import FileKeeper, resolve_path

if TYPE_CHECKING:
    from sevenfold.memory.consolidation.housekeeping import Learn
    from sevenfold.memory.consolidation.staged_memories import ConsolidationReport
    from sevenfold.memory.dreams.losses import LossReason

KEPT_APART: Final = (f"{LOGS}/", "team/")  # Files that a dream reads and does not change


class DreamTools:
    """Implements `protocols.Tools` on a `ConfinedTools` that may change the copy."""

    def __init__(self, confined: ConfinedTools, watch: DreamWatch) -> None:
        self._confined, self._watch = confined, watch

    @property
    def denied(self) -> int:
        return self._confined.denied

    def safe(self, use: ToolUse) -> bool:
        return self._confined.safe(use)

    async def call(self, use: ToolUse) -> ToolResult:
        file = self._confined.find_changed_file(use)
        self._watch.calls(use)
        try:
            if file.startswith(KEPT_APART):
                why = f"{file} is read and not changed in a dream"
                result = self._confined.refuse(use, why)
            else:
                result = await self._confined.call(use)
            if file and not result.is_error:
                result = self._changed(use, file, result)
        finally:
            self._watch.denied = self.denied
            self._watch.answered()
        return result

    def _changed(self, use: ToolUse, file: str, result: ToolResult) -> ToolResult:
        self._watch.wrote(file)
        path = self._confined.folder / file
        with contextlib.suppress(OSError):
            if path.stat().st_size < _BLANK and not path.read_bytes().strip():
                path.unlink()
                self._confined.workspace.seen.pop(path, None)
                return ToolResult(use.id, f"Removed {file}.")
        return result


_BLANK: Final = 1024


class StagedKeeper:
    """Tells how old a memory of the copy is, and lets no secret in: that is found out at once."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock = resolve_path(folder), clock
        self._guard = Guard(largest=HEAD)

    def is_kept(self, path: Path) -> bool:
        return path.is_relative_to(self._folder)

    def replace_write(self, path: Path, data: bytes) -> str | None:
        return None

    def before_write(self, path: Path, data: bytes) -> bytes:
        verdict = self._guard.check(data, source="dream")
        if verdict.action == "refuse":
            raise ToolFailed(verdict.explanation)
        return data

    def after_write(self, path: Path) -> str:
        return ""

    def make_remark(self, path: Path) -> str:
        try:
            modified = path.stat().st_mtime
        except OSError:
            return ""
        return f"[a memory, saved {format_age(modified, self._clock.now())}]"


_check: tuple[type[Tools], type[FileKeeper]] = (DreamTools, StagedKeeper)


MOST_FILES: Final = 200  # Memories that are listed in the directive, the newest first
MOST_FINDINGS: Final = 40
MOST_SESSIONS: Final = 20
MOST_LOGS: Final = 31
_DESCRIBED: Final = 160
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")
_FENCED: Final = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class DreamContext(msgspec.Struct, frozen=True, kw_only=True):
    """The folder and its surroundings, as a dream is told about them."""

    transcripts: Path
    now: float
    last: float | None = None
    steps: int = 30
    sessions: tuple[str, ...] = ()  # Those since the last dream, the newest first
    findings: tuple[str, ...] = ()  # The findings of a check of the folder, a sentence each


def format_dream_request(staged: DreamStage, known: DreamContext) -> str:
    """The words of the directive. Every path in it that may be written to is one of the copy."""
    values = {
        "staged": str(staged.folder),
        "transcripts": str(known.transcripts),
        "today": format_date(known.now),
        "last": f"on {format_date(known.last)}" if known.last is not None else "never: this is the first",
        "steps": str(known.steps),
        "files": _files(staged),
        "findings": _findings(known.findings),
        "logs": _logs(staged),
        "sessions": _sessions(known.sessions),
    }
    return strip_half_characters(_PLACE.sub(lambda found: values[found[1]], _rules()))


@cache
def _rules() -> str:
    return Path(__file__).with_name("dream.md").read_text(encoding="utf-8").strip()


def _files(staged: DreamStage) -> str:
    """`- [type] file (day): description`, the newest first."""
    dated = sorted(
        ((staged.folder / file).stat().st_mtime, file) for file in staged.files if is_topic(file)
    )
    rows = [_row(staged.folder, file, at) for at, file in reversed(dated[-MOST_FILES:])]
    if not rows:
        return "(no memories yet)"
    if (more := len(dated) - MOST_FILES) > 0:
        rows.append(f"(and {more:,} older ones: list the folder)")
    return "\n".join(rows)


def _row(folder: Path, file: str, at: float) -> str:
    topic = read_topic((folder / file).read_bytes(), file)
    about = " ".join(topic.description.split())[:_DESCRIBED]
    return f"- [{topic.type or 'untyped'}] {file} ({format_date(at)}): {_escaped(about)}"


def _findings(findings: Sequence[str]) -> str:
    if not findings:
        return ""
    rows = [f"- {_escaped(' '.join(one.split()))}" for one in findings[:MOST_FINDINGS]]
    return "\nA check of the folder found:\n" + "\n".join(rows) + "\n"


def _escaped(text: str) -> str:
    """Nothing that stands in a memory can end the list or the directive."""
    return text.replace("<", "&lt;")


def _logs(staged: DreamStage) -> str:
    days = [day for file in staged.files if (day := parse_log_day(file))]
    if not days:
        return ", of which there are none"
    return f", the newest: {', '.join(sorted(days)[-MOST_LOGS:])}"


def _sessions(sessions: Sequence[str]) -> str:
    if not sessions:
        return ""
    return f"; since the last dream: {', '.join(sessions[:MOST_SESSIONS])}"


# --- its last words -------------------------------------------------------------------------------------


def parse_account(text: str) -> Mapping[str, LossReason]:
    """The model's account of what is gone; lines that cannot be understood are left out."""
    from sevenfold.memory.dreams.losses import LossReason, Reason

    reasons = get_args(Reason)
    found: dict[str, LossReason] = {}
    for row in _rows(text):
        if not isinstance(row, dict):
            continue
        what, why, by, evidence = (_text(row.get(key)) for key in ("what", "why", "by", "evidence"))
        if what and why in reasons:
            reason = msgspec.convert(why, Reason)
            found[what] = LossReason(reason, evidence or by, by)
    return found


def _rows(text: str) -> Sequence[object]:
    begin, end = text.find("{"), text.rfind("}")
    for candidate in (*reversed(_FENCED.findall(text)), text[begin : end + 1] if begin >= 0 else ""):
        try:
            gone = decode_json_object(candidate).get("gone")
        except NotJson:
            continue
        if isinstance(gone, list):
            return gone
    return ()


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


KIND: Final = "dream"
ANSWER: Final = 4_000
"""Tokens of a reply: enough for several memories, and what the day's money has to have room for."""


class DreamOutput(msgspec.Struct, frozen=True):
    """The output of a dream beside the files it changed."""

    explained: Mapping[str, LossReason] = {}
    usage: Usage = Usage()
    notes: tuple[str, ...] = ()  # The things it left alone, with the reason, a sentence each


Think: TypeAlias = Callable[[DreamStage, DreamWatch], Awaitable[DreamOutput]]


class NeverStopped(Failure, kind="never_stopped"):
    """The model was still calling tools after the last step it was given."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"the model was still at work after {steps} replies and was stopped")


class ModelDreamer:
    """Asks the model of a conversation, on the prefix that the provider has in its cache."""

    def __init__(
        self,
        fork: Forker,
        request: Request,
        tools: ConfineTools,
        clock: Clock,
        known: Callable[[], DreamContext],
        longest: int = ANSWER,
    ) -> None:
        """`longest`: the tokens that one reply may hold."""
        self._fork, self._request, self._tools = fork, request, tools
        self._clock, self._known, self._longest = clock, known, min(ANSWER, longest)

    async def __call__(self, staged: DreamStage, watch: DreamWatch) -> DreamOutput:
        known = await anyio.to_thread.run_sync(self._known)
        body = await anyio.to_thread.run_sync(format_dream_request, staged, known)
        keeper = StagedKeeper(staged.folder, self._clock)
        tools = DreamTools(self._tools(staged.folder, keeper), watch)
        said = await self._fork(
            cut_to_cached(self._request),
            user(write_directive(KIND, f"d-{staged.id}", body)),
            kind=KIND,
            steps=known.steps,
            tools=tools,
            max_tokens=self._longest,
        )
        if said.reply.message.tool_uses:
            raise NeverStopped(said.steps)
        if said.reply.cut_short:
            raise Failure(f"a reply was longer than {self._longest:,} tokens and was cut off")
        return DreamOutput(parse_account(said.reply.message.text), said.usage)


class RuleDreamer:
    """Asks no model: it does what can be done by rule."""

    def __init__(self, clock: Clock, last: Callable[[], float | None], learn: Learn | None = None) -> None:
        """`last`: when the dream before this one was; logs from that day on are distilled by `learn`,
        which says what of a note is to be remembered: all of it by default."""
        self._clock, self._last, self._learn = clock, last, learn

    async def __call__(self, staged: DreamStage, watch: DreamWatch) -> DreamOutput:
        report = await anyio.to_thread.run_sync(self._consolidated, staged)
        for file in report.changed:
            watch.wrote(file)
        unclear = tuple(f"{one.file} and {one.other_file}: {one.why}" for one in report.unclear)
        return DreamOutput(report.explained, notes=unclear)

    def _consolidated(self, staged: DreamStage) -> ConsolidationReport:
        from sevenfold.layers.l6_dreaming.lessons import make_lessons
        from sevenfold.memory.consolidation.consolidation import consolidate_folder

        modified = {file: (staged.folder / file).stat().st_mtime for file in staged.files}
        last = self._last()
        since = format_date(last) if last is not None else ""
        logs = [file for file in staged.files if (day := parse_log_day(file)) and day >= since]
        learn = self._learn or make_lessons
        return consolidate_folder(
            *(staged.folder, self._clock.now(), modified), logs=logs, learn=learn, removed=staged.removed
        )
