"""Scripts of longer sessions with Claude Code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Json = dict[str, Any]


def use(name: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "name": name, "input": arguments}


def print_numbers(start: int) -> Json:
    """A Bash call that prints about 20 KB, other lines for another start."""
    return use("Bash", command=f"seq {start} {start + 2_900}", description="Print numbers")


def answer(prompt: str, text: str, *calls: Json) -> Json:
    """A step that answers the turn that began with this prompt."""
    return {"match": {"text": prompt}, "reply": {"text": text, "content": list(calls)}}


def make_long_session(calls: int) -> list[Json]:
    """That many Bash calls of 20 KB, each in a request of its own; no output twice."""
    prints = [print_numbers(100_000 + 3_000 * n) for n in range(calls)]
    steps = [{"reply": {"text": "Next.", "content": [call]}} for call in prints]
    return [*steps, {"reply": {"text": "All done."}}]


def make_mixed_session(project: Path) -> list[Json]:
    """Re-reads of a file that changes, and two agents at once. Its prompts are those of `answer`."""
    notes = project / "notes.md"
    notes.write_text("".join(f"line {n} of the notes\n" for n in range(400)), encoding="utf-8")
    read = use("Read", file_path=str(notes))
    change = use("Bash", command=f"echo more >> {notes}", description="Append a line")
    agents = [
        use(
            "Agent",
            description=f"agent {name}",
            prompt=f"task-{name}",
            subagent_type="general-purpose",
            run_in_background=False,
        )
        for name in ("one", "two")
    ]
    return [
        answer("prompt-begin", "Numbers.", print_numbers(100_000)),
        answer("prompt-begin", "The notes.", read),
        answer("prompt-begin", "One line more.", change),
        answer("prompt-begin", "The notes again.", read),
        answer("prompt-begin", "Two agents.", *agents),
        answer("task-one", "Numbers.", print_numbers(200_000)),
        answer("task-two", "Numbers.", print_numbers(300_000)),
        answer("task-one", "One is done."),
        answer("task-two", "Two is done."),
        answer("prompt-begin", "Begun."),
        answer("prompt-go-on", "Numbers.", print_numbers(400_000)),
        answer("prompt-go-on", "Gone on."),
        answer("prompt-again", "The notes.", read),
        answer("prompt-again", "Again."),
        answer("prompt-after", "Numbers.", print_numbers(500_000)),
        answer("prompt-after", "After."),
        answer("prompt-fresh", "Fresh."),
        # The client's own request for a summary.
        {"reply": {"text": "<summary>Numbers were printed and the notes were read.</summary>"}},
    ]
