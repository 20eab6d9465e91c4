"""Law 5: whatever fails beside the conversation, the turn ends with a reply and an event says why."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties.sessions import UNSHRUNK, Said, Talk, helpful, kind_of

from sevenfold.core.errors import (
    BadReply,
    BadRequest,
    KeyRefused,
    ModelFailure,
    Overloaded,
    PromptTooLong,
    Unreachable,
)
from sevenfold.core.events import Failed, Notice, Progress, Retrying
from sevenfold.core.messages import Message, ToolUse, assistant
from sevenfold.core.request import Request

ERRORS: tuple[type[ModelFailure], ...] = (
    *(BadReply, BadRequest, KeyRefused, Overloaded, PromptTooLong, Unreachable),
)
NONSENSE: tuple[Said, ...] = (
    "",
    "I would rather not.",
    "<summary></summary>",
    assistant(ToolUse("x", "Bash", {"command": "rm -rf /"})),
    Message("assistant", ()),
)


class Failing:
    """Answers what is asked beside the conversation, or fails, each kind of question in its own way."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self.causes = rng, list[str]()

    def __call__(self, request: Request) -> Said:
        draw = self._rng.random()
        if draw < 0.3:
            return helpful(request)
        if draw < 0.55:
            return self._rng.choice(NONSENSE)
        error = self._rng.choice(ERRORS)
        cause = f"{kind_of(request)} broke for the {len(self.causes)}th time"
        if error is not PromptTooLong:  # what is too long is asked for in another way
            self.causes.append(cause)
        raise error(cause)


def spoil(talk: Talk, rng: random.Random) -> None:
    """Put something in the way of what is written beside the transcript."""
    folder = talk.path.with_suffix("")
    for name in ("session-memory", "tool-results"):
        if rng.random() < 0.5:
            shutil.rmtree(folder / name, ignore_errors=True)
            folder.mkdir(exist_ok=True)
            (folder / name).unlink(missing_ok=True)
            (folder / name).write_text("in the way", encoding="utf-8")
    memory = talk.path.parent / "memory"
    if rng.random() < 0.5 and not memory.exists():
        memory.write_text("in the way", encoding="utf-8")


def check(seed: int) -> None:
    async def talked(folder: Path) -> None:
        rng = random.Random(seed)
        failing = Failing(rng)
        talk = Talk(folder, seed, failing)
        async with talk.session() as session:
            assert await talk.turns(session, 5) == 5
        spoil(talk, rng)
        async with talk.session() as session:
            assert await talk.turns(session, 5) == 5
        talk.check_laws()
        told = " ".join(
            str(event) for kind in (Failed, Notice, Progress, Retrying) for event in talk.of(kind)
        )
        silent = [cause for cause in failing.causes if cause not in told]
        assert not silent, "it failed and nobody was told"

    with TemporaryDirectory() as folder:
        anyio.run(talked, Path(folder))


@settings(max_examples=8, phases=UNSHRUNK)
@given(st.integers(0, 10_000))
def test_a_turn_ends_whatever_fails_beside_it_and_the_cause_is_told(seed: int) -> None:
    check(seed)


@pytest.mark.soak
@settings(max_examples=150, phases=UNSHRUNK)
@given(st.integers(10_001, 10**9))
def test_a_turn_ends_whatever_fails_beside_it_for_long(seed: int) -> None:
    check(seed)
