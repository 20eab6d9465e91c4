"""The RealMem personas: dated conversations with an assistant, and what should be remembered of each."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

FOLDER: Final = Path(__file__).parents[2] / "../shared/data/realmem"
TUNED: Final = ("Lin_Wanyu", "Kenta_Tanaka")
"""The personas on which the rules of the offline engine were chosen. The others were only counted."""
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_CATEGORY: Final = re.compile(r"【[^】]*】\s*")


class Gold(msgspec.Struct, frozen=True):
    """A memory that the data set says should be kept of a session."""

    type: str
    text: str
    by_user: bool
    """Whether it is taken from what the user said; else the assistant said it, or both did over time."""


class Session(msgspec.Struct, frozen=True):
    name: str
    day: str
    turns: tuple[tuple[str, str], ...]
    """Who (`user` or `assistant`) and what."""
    gold: tuple[Gold, ...]

    @property
    def is_noise(self) -> bool:
        """Put in between by the makers of the data: other people's chats, without any gold."""
        return self.name.startswith("Enhanced")


def names() -> list[str]:
    return sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))


def sessions(name: str) -> list[Session]:
    """In the order of their days."""
    with gzip.open(FOLDER / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        told = json.load(file)
    found = [_session(one) for one in told["dialogues"]]
    return sorted(found, key=lambda one: one.day)


def _session(told: dict[str, Any]) -> Session:
    day = _DAY.search(str(told["current_time"]))
    return Session(
        str(told["session_identifier"]),
        day.group() if day else "",
        tuple(
            ("user" if turn["speaker"] == "User" else "assistant", str(turn["content"]))
            for turn in told["dialogue_turns"]
        ),
        tuple(_gold(told["extracted_memory"])),
    )


def _gold(memories: list[dict[str, Any]]) -> Iterator[Gold]:
    """Each memory once; a later version of one that is listed too is another."""
    seen: set[str] = set()
    for one in memories:
        content = one["content"]
        plain = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        text = _CATEGORY.sub("", plain).strip()
        if text and text not in seen:
            seen.add(text)
            yield Gold(str(one["type"]), text, one["source_role_snapshot"] == "User")
