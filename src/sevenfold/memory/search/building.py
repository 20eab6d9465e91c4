"""Vectors are made beside the work: a thread reads files whose passages have none and asks the embedder.

Search answers by words meanwhile, and by meaning for what is done. The thread is started by who wants it
and ended by `stop`; what it had made by then is kept.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from sevenfold.errors import SevenfoldError
from sevenfold.memory.search.answers import Progress
from sevenfold.memory.search.collection import Collection
from sevenfold.memory.search.refreshing import Read
from sevenfold.memory.search.segment import text_key, texts
from sevenfold.memory.search.shelf import EMBEDDING, Shelf

if TYPE_CHECKING:
    from sevenfold.memory.search.arrays import Array
    from sevenfold.memory.search.embedding import Embedder

BATCH: Final = 256
"""Passages the embedder is given at once."""
KEEP: Final = 8_192
"""Vectors that are made before they are written, or"""
KEEP_SECONDS: Final = 5.0
"""the seconds before they are: so much is lost when the process dies."""
_LOOK: Final = 0.2
"""Seconds between two looks whether another process is done with them."""


class VectorBuild:
    """One thread that ends when every passage has its vector, or when it is told to."""

    def __init__(
        self,
        collection: Collection,
        shelf: Shelf,
        embedder: Embedder,
        read: Read,
        tell: Callable[[Progress], None] | None = None,
    ) -> None:
        self._collection, self._shelf = collection, shelf
        self._embedder, self._read, self._tell = embedder, read, tell
        self._stop = threading.Event()
        self._made: dict[int, Array] = {}
        self._kept = self._began = 0.0
        self._progress = Progress(running=True)
        self._thread = threading.Thread(target=self._run, name="vectors", daemon=True)

    def start(self) -> None:
        atexit.register(
            self.stop
        )  # a thread that is still at work when Python ends would end it badly
        self._thread.start()

    def stop(self) -> None:
        """Ends after the batch that is being made."""
        atexit.unregister(self.stop)
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait(self, timeout: float | None = None) -> bool:
        """True when it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def progress(self) -> Progress:
        return self._progress

    def _run(self) -> None:
        problem = ""
        try:
            with ExitStack() as stack:
                if self._turn(stack):
                    self._all()
        except (SevenfoldError, OSError, ValueError, RuntimeError) as error:
            problem = str(error) or type(error).__name__
        self._say(running=False, problem=problem)
        atexit.unregister(self.stop)

    def _turn(self, stack: ExitStack) -> bool:
        """Wait until no other process makes the same vectors; False when there is nothing left to do."""
        while not self._stop.is_set():
            self._collection.sync_vectors()
            if not self._collection.waiting()[1]:
                return False
            try:
                if stack.enter_context(self._shelf.alone(0, EMBEDDING)):
                    return True
            except OSError:  # no disk to lock on: made for this process alone
                return True
            stack.pop_all().close()
            self._stop.wait(_LOOK)
        return False

    def _all(self) -> None:
        self._began = self._kept = time.monotonic()
        before = 0
        self._embedder.prepare(lambda: not self._stop.is_set())
        while not self._stop.is_set():
            files, count = self._collection.waiting()
            if not count or (before and count >= before):  # what is left cannot be read, or is gone
                break
            before = count
            self._say(total=self._progress.done + count)
            self._pass(files)
        self._keep()

    def _pass(self, files: list[str]) -> None:
        batch: dict[int, str] = {}
        for file in files:
            if self._stop.is_set():
                return
            batch.update(self._texts(file))
            while len(batch) >= BATCH:
                first = dict(list(batch.items())[:BATCH])
                self._embed(first)
                batch = {key: text for key, text in batch.items() if key not in first}
        if batch:
            self._embed(batch)
        self._keep()

    def _texts(self, file: str) -> dict[int, str]:
        lacking = self._collection.lacking(file) - self._made.keys()
        if not lacking:
            return {}
        try:
            found, _ = texts(self._read(file), file)
        except (OSError, SevenfoldError):
            return {}
        keys = {text_key(part.text): part.text for part in found}
        return {key: text for key, text in keys.items() if key in lacking}

    def _embed(self, batch: dict[int, str]) -> None:
        matrix = np.asarray(self._embedder.embed(list(batch.values())), np.float32)
        self._made.update(zip(batch, matrix, strict=True))
        spent = max(time.monotonic() - self._began, 1e-9)
        done = self._progress.done + len(batch)
        self._say(done=done, total=max(done, self._progress.total), rate=done / spent)
        if len(self._made) >= KEEP or time.monotonic() - self._kept >= KEEP_SECONDS:
            self._keep()

    def _keep(self) -> None:
        if self._made:
            keys = np.array(list(self._made), np.uint64)
            self._collection.add_vectors(keys, np.stack(list(self._made.values())))
            self._made = {}
        self._kept = time.monotonic()

    def _say(self, **changes: object) -> None:
        self._progress = msgspec.structs.replace(self._progress, **changes)
        if self._tell is not None:
            self._tell(self._progress)
