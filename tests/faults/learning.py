"""A process that writes memories, or talks and learns from it, and prints what is safe: to be killed.

learning.py adding PROJECT HOME SEED            memories through `Memory.add`
learning.py talking PROJECT HOME SEED PRICES    a chat; with a table of prices its words wait
learning.py leaving PROJECT HOME SEED PRICES    the same, closed after two turns
learning.py reading PROJECT HOME 0              takes up what waits, until nothing does
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator

import anyio

from sevenfold import Memory
from sevenfold.core.clock import run_sync
from sevenfold.core.events import Event, Replied
from sevenfold.session.session import Session

EVENTS = ("audit", "review", "exam", "wedding", "conference", "interview", "workshop", "migration")
PACE = 0.15  # Seconds between two texts: without them there would be hundreds before a kill
LETTERS = ("bcdfglmnprstvz", "aeiou")


def make_words(seed: int) -> Iterator[str]:
    """Words that nobody has said before."""
    rng = random.Random(seed)
    while True:
        yield "".join(rng.choice(LETTERS[place % 2]) for place in range(8))


def make_environment(home: str) -> dict[str, str]:
    return {"HOME": home, "PATH": "/usr/bin:/bin", "SEVENFOLD_HOME": home}


def add_memories(project: str, home: str, seed: str) -> None:
    memory = Memory.open(project, home=home, environ=make_environment(home))
    words = make_words(int(seed))
    while True:
        word = next(words)
        memory.add(type="project", name=word, description=f"About {word} {next(words)}.", body=next(words))
        print("added", word, flush=True)
        time.sleep(PACE)


async def talk(project: str, home: str, seed: str, prices: str = "", turns: int = 0) -> None:
    settings = {"flags": {"dream": False}} | ({"prices": prices} if prices else {})
    environ, words = make_environment(home), make_words(int(seed))
    rng = random.Random(seed)
    async with Session(
        "offline", project, home=home, environ=environ, interactive=True, settings=settings
    ) as session:
        said = ""

        def acknowledge(event: Event) -> None:
            if isinstance(event, Replied) and event.source == "main":
                print("said", said, session.id, flush=True)

        session.subscribe(acknowledge)
        turn = 0
        while not turns or turn < turns:
            said, turn = next(words), turn + 1
            more = f"{next(words)} {next(words)} {next(words)}"
            date = f"2027-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
            await session.ask(f"The {rng.choice(EVENTS)} of {said} {more} ends on {date}.")
            await anyio.sleep(PACE)
    print("left", session.id, flush=True)


async def read_what_waits(project: str, home: str) -> None:
    async with Session(
        "offline", project, home=home, environ=make_environment(home), interactive=True
    ) as session:
        print("opened", session.id, flush=True)


if __name__ == "__main__":
    what, project, home, *more = sys.argv[1:]
    if what == "adding":
        add_memories(project, home, *more)
    elif what == "reading":
        run_sync(read_what_waits, project, home)
    else:
        turns = 2 if what == "leaving" else 0
        run_sync(talk, project, home, more[0], more[1] if len(more) > 1 else "", turns)
