"""What was known about a tool result at a point of a recorded session, and whether it was needed later."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.core.transcript import Replace, Reply, Transcript
from sevenfold.layers.l2_microcompaction.candidates import ViewScan
from sevenfold.layers.l2_microcompaction.cost import compute_features
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import convert_recording
from sevenfold.replay.needs import ROBUST, ReplyNeed, find_needs
from sevenfold.settings.layers import CLEARABLE, MicroSettings

SESSIONS: Final = Path(__file__).parents[2] / "../shared/data/sessions"
EVERY: Final = 6
"""One request in so many is looked at: neighbours say nearly the same."""


class Sample(msgspec.Struct, frozen=True):
    features: tuple[float, ...]
    needed: bool
    robust: bool
    tokens: int


def session_files(folder: Path = SESSIONS) -> list[Path]:
    return sorted([*folder.glob("*.jsonl.gz"), *folder.glob("*.jsonl")])


def halves(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """One part to tune on, one to report on. Names are random ids, so every second one will do."""
    return list(files[::2]), list(files[1::2])


class Samples:
    """The samples of one session, and how many requests were still to come at each of them."""

    def __init__(self, path: Path) -> None:
        self.samples: list[Sample] = []
        self.remaining: list[int] = []
        self._entries = convert_recording(read_session(path)).entries
        self._needs = find_needs(self._entries)
        self._open: list[tuple[int, str, tuple[float, ...], int]] = []
        self._needed: dict[str, list[tuple[int, bool]]] = defaultdict(list)
        self._request = self._began = 0
        self._read()

    def _read(self) -> None:
        transcript, scan = Transcript(lambda: 0.0), ViewScan(CLEARABLE, ())
        keep = MicroSettings().keep_recent
        for entry in self._entries:
            if isinstance(entry.what, Reply):
                self._request += 1
                if self._request % EVERY == 0:
                    scan.follow(transcript.view)
                    for one in scan.old(keep):
                        known = compute_features(one, scan)
                        self._open.append((self._request, one.use.id, known, one.size.tokens()))
                for use, robust in _newest(self._needs.get(entry.id, ())):
                    self._needed[use].append((self._request, robust))
            elif isinstance(entry.what, Replace):
                self._close()  # a compaction takes everything out of every view
            transcript.add(entry.what, by=entry.by)
        self._close()

    def _close(self) -> None:
        for request, use, known, tokens in self._open:
            later = [robust for at, robust in self._needed[use] if at >= request]
            self.samples.append(Sample(known, bool(later), any(later), tokens))
        self.remaining += [self._request - at for at in range(self._began, self._request)]
        self._began = self._request
        self._open.clear()
        self._needed.clear()


def _newest(needs: Sequence[ReplyNeed]) -> Iterator[tuple[str, bool]]:
    """The result each need goes back to, and whether beyond doubt; of several the newest would do."""
    needs = [need for need in needs if need.is_results_only]
    words = Counter(need.sources[-1] for need in needs)
    lines = {need.sources[-1] for need in needs if need.line}
    for use, count in words.items():
        yield use, use in lines or count >= ROBUST
