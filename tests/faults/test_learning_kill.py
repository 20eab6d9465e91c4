"""SIGKILL among writers, extractions and exits: nothing acknowledged is missing, nothing waits in vain."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from sevenfold.storage.waiting_notes import WaitingFolder

WORKER = Path(__file__).with_name("learning.py")
PRICES = "[models.offline]\ninput = 3.0\noutput = 15.0\n"
KINDS = ("adding", "talking", "talking", "leaving")


class Campaign:
    """One project whose processes are killed again and again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.project, self.home = folder / "project", folder / "home"
        self.project.mkdir()
        self.prices = folder / "prices.toml"
        self.prices.write_text(PRICES, encoding="utf-8")
        self._rng, self._started = random.Random(seed), seed * 1_000
        self.added: set[str] = set()
        self.said: dict[str, str] = {}  # Each acknowledged text by a word of its own: the session
        self.counts: Counter[str] = Counter()

    def kill_once(self) -> None:
        """One or two processes at once, each killed after so many lines and milliseconds."""
        workers = [self._start() for _ in range(self._rng.choice((1, 1, 2)))]
        for kind, worker in workers:
            with worker:
                self._kill(kind, worker)

    def _kill(self, kind: str, worker: subprocess.Popen[str]) -> None:
        assert worker.stdout is not None
        lines = [worker.stdout.readline() for _ in range(self._rng.randint(1, 3))]
        time.sleep(self._rng.random() * 0.3)  # the moment of the kill, not a wait for anything
        self.counts[f"{kind} killed" if worker.poll() is None else f"{kind} ended before"] += 1
        worker.kill()
        lines += worker.stdout.read().splitlines(keepends=True)
        self._note([line.split() for line in lines if line.endswith("\n")])

    def _start(self) -> tuple[str, subprocess.Popen[str]]:
        kind = self._rng.choice(KINDS)
        self._started += 1
        more = [str(self.prices)] if kind != "adding" and self._rng.random() < 0.5 else []
        words = [kind, str(self.project), str(self.home), str(self._started), *more]
        return kind, subprocess.Popen(
            [sys.executable, str(WORKER), *words], stdout=subprocess.PIPE, text=True
        )

    def _note(self, lines: list[list[str]]) -> None:
        for what, word, *more in lines:
            if what == "added":
                self.added.add(word)
            elif what == "said":
                self.said[word] = more[0]

    # --- what must hold ---------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        [folder] = (self.home / "projects").iterdir()
        return folder

    def read_memories(self) -> str:
        files = (self.folder / "memory").glob("*.md")
        return "\n".join(path.read_text(encoding="utf-8") for path in files if path.name != "MEMORY.md")

    def check(self) -> None:
        memories = self.read_memories()
        assert [word for word in self.added if word not in memories] == [], "acknowledged and missing"
        waiting = set(WaitingFolder(self.folder).list_sessions())
        lost = [word for word, id in self.said.items() if word not in memories and id not in waiting]
        assert lost == [], "neither saved nor waiting"

    def finish(self) -> int:
        """The next session takes up all that waits; returns how many texts were left for it."""
        memories = self.read_memories()
        left = [word for word in self.said if word not in memories]
        command = [sys.executable, str(WORKER), "reading", str(self.project), str(self.home)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        assert WaitingFolder(self.folder).list_sessions() == []
        memories = self.read_memories()
        assert [word for word in self.said if word not in memories] == [], "said and never saved"
        return len(left)


def run_campaign(folder: Path, kills: int, seed: int) -> str:
    campaign = Campaign(folder, seed)
    while sum(campaign.counts.values()) < kills:
        campaign.kill_once()
        campaign.check()
    left = campaign.finish()
    counts = ", ".join(f"{count} {what}" for what, count in sorted(campaign.counts.items()))
    return (
        f"{counts}; {len(campaign.added)} memories and {len(campaign.said)} texts acknowledged, "
        f"{left} texts waited at the end, 0 lost"
    )


@pytest.mark.real
def test_nothing_acknowledged_and_nothing_that_waits_is_lost(tmp_path: Path) -> None:
    print(run_campaign(tmp_path, kills=20, seed=17))


@pytest.mark.soak
def test_two_hundred_kills(tmp_path: Path) -> None:
    for seed in range(8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        print(run_campaign(folder, kills=25, seed=seed))
