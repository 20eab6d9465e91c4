"""What a conversation opens with: a message that says where we are.

Nothing that can change within a session may stand in the frame, or every change would throw away the
provider's cache. Date, folder and branch are said in a message, and again when they have changed.
"""

from __future__ import annotations

import platform
from pathlib import Path

from sevenfold.clock import date_of
from sevenfold.errors import ContextFull, Mistake
from sevenfold.messages import Message, user
from sevenfold.tokens import measure
from sevenfold.transcript import Mark


def context(*lines: str) -> Message:
    """Something we add to the conversation, marked as ours and not the person's."""
    text = "\n".join(lines).replace("</context", "&lt;/context")  # it may come from a hostile file
    return user(f"<context>\n{text}\n</context>")


def surroundings(at: float, cwd: Path, tree: Path) -> dict[str, str]:
    """What the model must know of where it is; said again when any of it has changed."""
    return {
        "Date": date_of(at),
        "Working folder": str(cwd),
        "Project": str(tree),
        "Git branch": _branch(tree) or "none: not a git repository",
        "System": f"{platform.system()} {platform.release()}",
    }


def news(before: dict[str, str], now: dict[str, str]) -> Message | None:
    """A message with what is new, or None."""
    lines = [f"{name}: {value}" for name, value in now.items() if before.get(name) != value]
    if not lines:
        return None
    return context(*lines) if not before else context("This has changed:", *lines)


def next_day(before: dict[str, str], at: float) -> tuple[Message | Mark, ...]:
    """The new date, where midnight has passed since it was last said; else nothing."""
    today = date_of(at)
    if before.get("Date", today) == today:
        return ()
    said = context("This has changed:", f"Date: {today}")
    return said, Mark("surroundings", {**before, "Date": today})


def _branch(tree: Path) -> str:
    """The checked-out branch, read from the file: running git in an unknown folder can run its code."""
    git = tree / ".git"
    if git.is_file():
        git = tree / _first_line(git).removeprefix("gitdir:").strip()
    head = _first_line(git / "HEAD")[:300]
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else head[:12]


def _first_line(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(1_000).strip()
    except OSError:
        return ""


def check(message: Message, room: int) -> None:
    """What no provider would take must not get into the transcript, where it would stay."""
    if not message.says_something:
        raise Mistake("there is nothing to ask: the message is empty")
    if (size := measure(message).tokens()) > room > 0:
        raise ContextFull(
            f"the message alone is about {size:,} tokens and at most {room:,} fit; "
            "put it into a file and ask about that"
        )
