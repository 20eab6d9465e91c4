"""What the user is to be told about the memory folder: each sentence once, and not under its lock."""

from __future__ import annotations

from sevenfold.events import Emit, Notice


class Saying:
    """Sentences that wait until the folder is free again: a listener may want to read it."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._waiting: list[str] = []
        self._said: set[str] = set()

    def say(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._waiting.append(sentence)

    def tell(self) -> None:
        while self._waiting:
            self._emit(Notice(self._waiting.pop(0), "warning"))
