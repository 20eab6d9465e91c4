"""Conversations to fold: long ones by hand, and any at all from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
from kit import make_parts, use

from sevenfold.core.errors import PromptTooLong
from sevenfold.core.messages import Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities, Change, Fit
from sevenfold.core.request import (
    Frame,
    Request,
    complete_changes,
    encode_view,
    has_paired_tools,
    measure_pressure,
)
from sevenfold.core.tokens import Pressure, Thresholds
from sevenfold.core.transcript import Id, Reply, Transcript
from sevenfold.layers.l4_compaction.fold import BY, BY_COLLAPSE, expand_folds, find_snips
from sevenfold.layers.parts import LayerParts

WINDOWS = (8_000, 32_000, 128_000, 200_000)
FRAME = Frame("m", ("s" * 800,))
LOG = Path("/sessions/one.jsonl")
PLAIN = Capabilities()
BINDS = Capabilities(binds_thinking=True)

Make = Callable[[LayerParts], Fit]


def expand_snip(transcript: Transcript, id: Id | None = None) -> Sequence[Change]:
    """The changes that put back the rounds behind this note; without an id, behind all notes."""
    return expand_folds(
        transcript, BY, [fold.id for fold in find_snips(transcript)] if id is None else [id]
    )


def expand_collapse(transcript: Transcript, id: Id) -> Sequence[Change]:
    return expand_folds(transcript, BY_COLLAPSE, [id])


def pressed(
    request: Request, window: int, refused: PromptTooLong | None = None, now: float = 0.0
) -> Pressure:
    return measure_pressure(request, Thresholds.of(window, 32_000), now, refused)


def offered(
    make: Make,
    log: Transcript,
    window: int,
    able: Capabilities = PLAIN,
    refused: PromptTooLong | None = None,
) -> list[Change]:
    """What the layer hands back for this conversation in a window of this size."""
    layer = make(make_parts(able=able, path=LOG))
    request = Request(FRAME, log.view)
    return list(anyio.run(layer.fit, request, pressed(request, window, refused)))


def written(log: Transcript, handed: Sequence[Change], by: str, able: Capabilities = PLAIN) -> None:
    """Write it as a turn would, which takes it whole or not at all."""
    whole = complete_changes(handed, log, able.loses_thinking)
    assert whole is not None, "the turn would decline it"
    log.add(*whole, by=by)
    assert has_paired_tools(log.view)


def rounds(log: Transcript, n: int, size: int = 2_000, first: int = 0) -> None:
    for i in range(first, first + n):
        log.add(Reply(use(f"u{i}", "Bash", command=f"make part{i}")), by="model")
        text = f"line {i} of the build\n" * (size // 16)
        log.add(Message("user", (ToolResult(f"u{i}", text),)), by="tools")


def talked(turns: int = 6, each: int = 4, size: int = 2_000, tail: int = 6) -> Transcript:
    """Finished turns, and one that is going on."""
    log, n = Transcript(lambda: 0.0), 0
    for turn in range(turns):
        log.add(user(f"task {turn}: never touch the file LICENSE{turn}"))
        rounds(log, each, size, n)
        n += each
        log.add(Reply(assistant(Text(f"Task {turn} is done."))), by="model")
    log.add(user("and now the last one, please"))
    rounds(log, tail, size, n)
    return log


def random_talk(seed: int, tokens: int, *, thinks: bool = False) -> Transcript:
    """Any conversation of at least so many tokens: parallel calls, errors, attachments, interruptions."""
    rng = random.Random(seed)
    log, n = Transcript(lambda: 0.0), 0
    while log.view.tokens < tokens:
        log.add(user(f"request {seed}-{n} " + "please " * rng.randrange(40)))
        for _ in range(rng.randrange(12)):
            if rng.random() < 0.1:
                log.add(user(f"<context>\nattached {n}\n</context>"), by="Recall")
            thought = [Thinking(f"hm {n}", f"sig{n}")] if thinks and rng.random() < 0.5 else []
            calls = [_call(rng, n + k) for k in range(rng.randrange(1, 4))]
            n += len(calls)
            log.add(Reply(assistant(*thought, *(c for c, _ in calls))), by="model")
            log.add(Message("user", tuple(r for _, r in calls)), by="tools")
        if rng.random() < 0.85:  # else the user spoke into the turn
            thought = [Thinking(f"so {n}", f"sig-{n}")] if thinks and rng.random() < 0.5 else []
            log.add(Reply(assistant(*thought, Text(f"Answer {n}. " * 5))), by="model")
    if rng.random() < 0.7:
        log.add(user(f"the newest request of {seed}"))
    return log


def _call(rng: random.Random, n: int) -> tuple[ToolUse, ToolResult]:
    id = f"t{n}"
    tool, args = rng.choice(
        [
            ("Read", {"file_path": f"/src/file{n % 9}.py"}),
            ("Edit", {"file_path": f"/src/file{n % 5}.py"}),
            ("Bash", {"command": f"make part{n % 7}"}),
            ("Grep", {"pattern": f"def f{n}"}),
        ]
    )
    size = rng.choice([0, 40, 400, 2_000, 8_000])
    return ToolUse(id, tool, args), ToolResult(id, f"said {n}\n" * (size // 8), rng.random() < 0.1)


def sent(log: Transcript) -> list[bytes]:
    """The messages as they would be sent now."""
    return list(encode_view(log.view))


def reloaded(lines: Sequence[bytes]) -> Transcript:
    return Transcript.load(b"".join(lines), lambda: 0.0)


def copied(log: Transcript) -> tuple[Transcript, list[bytes]]:
    """The same log again, and the lines it writes from now on and has written before."""
    lines: list[bytes] = []
    new = Transcript(lambda: 0.0, lines.append)
    for entry in log.entries:
        new.add(entry.what, by=entry.by)
    return new, lines
