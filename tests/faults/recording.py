"""Writes revisions until it is killed, opening anew and purging in between; says when each is done.

    recording.py FOLDER SEED

Run by the kill tests. The state after step n follows from n alone.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from sevenfold.memory.history.history import MemoryHistory
from sevenfold.memory.history.revisions import Author
from sevenfold.storage.locks import hold_file_lock

SECRET = "secret-words-of-step-"
EVERY = 23


def state(step: int) -> dict[str, bytes]:
    """The folder after a step: seven files that take turns, and for a while one to be purged."""
    files = {f"f{n % 7}.md": b"%d\n" % n * 40 for n in range(max(1, step - 6), step + 1)}
    files["MEMORY.md"] = b"the index after step %d\n" % step
    files["sub/folder/x.md"] = b"%d" % (step // 5)
    if step % EVERY > EVERY // 2:
        begun = step - step % EVERY
        files[f"vault-{begun}.md"] = f"{SECRET}{begun}.".encode()
    return files


def last_step(history: MemoryHistory) -> int:
    """The step the newest revision is from; a purge changes summaries, the index says it still."""
    return int((history.file_at("last", "MEMORY.md") or b"0").split()[-1])


def say(what: str, step: int) -> None:
    print(what, step, flush=True)


def open_history(folder: Path) -> MemoryHistory:
    return MemoryHistory(folder / "history.sqlite", lambda sentence: say(sentence.replace(" ", "_"), 0))


def main(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    history = open_history(folder)
    step = last_step(history) if history.log(limit=1) else 0
    while True:
        step += 1
        with hold_file_lock(folder / ".memory"):
            if step > 1 and step % EVERY == 0:
                begun = step - EVERY
                history.record(state(step), Author("agent"), f"step {step}", float(step))
                history.purge(f"vault-{begun}.md")
                say("purged", begun)
            else:
                before, now = state(step - 1), state(step)
                changed = {n: now.get(n) for n in before.keys() | now if before.get(n) != now.get(n)}
                history.record(now, Author("agent"), f"step {step}", float(step), changed)
        say("recorded", step)
        if rng.random() < 0.15:
            history = open_history(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
