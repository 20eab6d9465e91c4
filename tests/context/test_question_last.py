"""One question and a task that fills the window again and again: what the user said last stands last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from context.conversing import Json, called, chat_called, chat_result, result, results, said
from models.asking import remove_cache_marks

from sevenfold.context.context import Context, FormatName
from sevenfold.core.events import Compacted, Event
from sevenfold.offline import OfflineEngine
from sevenfold.testing import FakeClock

WINDOW = 16_000
STEPS, STEER = 150, 60
QUESTION, STOP = (
    "build everything, and never touch the file LICENSE",
    "stop building, and only mend the crash",
)


class Task:
    """A loop that asks once, reads file after file, and is told to stop in the middle of it."""

    def __init__(self, folder: Path, format: FormatName, model: Any, **more: Any) -> None:
        self.format: FormatName = format
        self.events: list[Event] = []
        self.ctx = Context(
            model,
            format=format,
            settings={"window": WINDOW, "flags": {"micro_api": False, "micro_cost": False}},
            environ={"HOME": str(folder)},
            clock=FakeClock(),
            **more,
        )
        self.ctx.subscribe(self.events.append)
        self.history: list[Json] = [said(QUESTION)]

    def step(self, n: int) -> list[str]:
        """One request and its call; all that the user's side says in it, without what tools returned."""
        out: list[Json] = remove_cache_marks(self.ctx.prepare(self.history)["messages"])
        anthropic = self.format == "anthropic"
        call = called(f"t{n}") if anthropic else chat_called(f"t{n}")
        self.ctx.record(call if anthropic else {"choices": [{"message": call}]})
        self.history.append(call)
        text = f"line of file {n}\n" * 100
        beside = [{"type": "text", "text": STOP}] if n == STEER else []
        if anthropic:
            self.history.append(results(result(f"t{n}", text)))
            self.history[-1]["content"] += beside
        else:
            self.history.append(chat_result(f"t{n}", text))
            self.history += [said(STOP)] if beside else []
        self.ctx.rest_sync()
        return [text for message in out if message["role"] == "user" for text in texts(message["content"])]


def texts(content: Any) -> list[str]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [block["text"] for block in blocks if block["type"] == "text"]


@pytest.mark.parametrize("format", ["anthropic", "openai"])
@pytest.mark.parametrize("by", ["digest", "summary", "notes"])
def test_what_the_user_said_last_stands_last_whatever_stands_for_the_older_part(
    tmp_path: Path, format: FormatName, by: str
) -> None:
    model = "claude-sonnet-4-5" if by == "digest" else OfflineEngine(WINDOW)
    known: dict[str, Any] = {"state": tmp_path / "state", "id": "one"} if by == "notes" else {}
    task = Task(tmp_path, format, model, **known)
    newest = [task.step(n)[-1] for n in range(STEPS)]
    task.ctx.close()

    made = [event.by for event in task.events if isinstance(event, Compacted)]
    assert len(made) >= 2
    assert set(made) == {by}
    assert newest == [QUESTION if n <= STEER else STOP for n in range(STEPS)]


def test_what_a_client_adds_in_a_tag_beside_results_is_not_what_the_user_said(tmp_path: Path) -> None:
    task = Task(tmp_path, "anthropic", "claude-sonnet-4-5")
    reminder = "<system-reminder>\nThe list of tasks is empty.\n</system-reminder>"
    for n in range(40):
        task.step(n)
        task.history[-1]["content"] += [{"type": "text", "text": reminder}]
    shown = task.step(40)
    task.ctx.close()

    assert any(isinstance(event, Compacted) for event in task.events)
    assert [text for text in shown if not text.startswith(reminder)][-1] == QUESTION
