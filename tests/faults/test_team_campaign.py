"""Three members of a team, random edits, adds, renames and removals, syncs interleaved and killed.

At the end all have the same files, no words that somebody wrote are lost unless somebody who saw them took
them out, no secret is in any object of the shared repository, and nothing lies outside the folders.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from memory.team.clones import (
    KEY_BEGINS,
    KEY_GOES_ON,
    SECRET,
    Clone,
    alike,
    environment,
    holds,
    remote_of,
    settle,
    still,
    team_of,
    topic,
)

from sevenfold.core.clock import SystemClock
from sevenfold.memory.team.team import Team

pytestmark = pytest.mark.real
MEMBER = Path(__file__).with_name("team_member.py")
NAMES = ("rules", "deploys", "sub/rig", "people", "sub/deep/tests")


@dataclass
class World:
    """What was written by whom, and what somebody took out again knowing it."""

    clones: list[Clone]
    chance: random.Random
    words: int = 0
    written: set[str] = field(default_factory=set)
    taken_out: set[str] = field(default_factory=set)

    def word(self) -> str:
        self.words += 1
        word = f"word-{self.words:05}"
        self.written.add(word)
        return word

    def act(self, clone: Clone) -> None:
        """One random change by one member."""
        files = sorted(clone.topics() - {"key.md"})
        choice = self.chance.random()
        if not files or choice < 0.25:
            file = f"{self.chance.choice(NAMES)}{self.chance.choice(['', '-2', '-3'])}.md"
            if file not in files:
                lines = "\n".join(self.word() for _ in range(6))
                clone.write(file, topic(file.rpartition("/")[2].removesuffix(".md"), lines))
                return
        file = self.chance.choice(files)
        if choice < 0.75:
            self.edit(clone, file)
        elif choice < 0.87:
            self.taken_out |= self.seen(clone, file)
            clone.remove(file)
        else:
            target = f"{self.chance.choice(NAMES)}-{self.chance.randrange(9)}.md"
            if target not in files:
                (clone.folder / target).parent.mkdir(parents=True, exist_ok=True)
                (clone.folder / file).rename(clone.folder / target)

    def edit(self, clone: Clone, file: str) -> None:
        before = self.seen(clone, file)
        lines = clone.read(file).splitlines()
        at = self.chance.randrange(6, len(lines)) if len(lines) > 6 else len(lines)
        kind = self.chance.random()
        if kind < 0.5:
            lines.insert(at, self.word())
        elif kind < 0.85 and at < len(lines):
            lines[at] = self.word()
        elif at < len(lines):
            del lines[at]
        clone.write(file, "\n".join(lines) + "\n")
        self.taken_out |= before - self.seen(clone, file)

    def seen(self, clone: Clone, file: str) -> set[str]:
        return {line for line in clone.read(file).splitlines() if line in self.written}


def kill_a_sync(clone: Clone, after: float) -> None:
    """A sync in a process of its own, which dies after so many seconds of it."""
    process = subprocess.Popen(
        [sys.executable, str(MEMBER), str(clone.top), clone.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.stdin.write(b"\n")
    process.stdin.flush()
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()


def campaign(top: Path, seed: int, rounds: int, kills: int) -> None:
    chance = random.Random(seed)
    clones = team_of(top, "ann", "bob", "eve")
    clones[1].say("key.md", f"token = {SECRET}")
    for clone, half in zip(clones, (KEY_BEGINS, KEY_GOES_ON), strict=False):
        clone.write("MEMORY.md", f"{clone.read('MEMORY.md')}{half}\n")
    outside = {path.name for path in top.iterdir()}
    world = World(clones, chance)
    dying = set(chance.sample(range(rounds), kills))
    took = 0.1
    for number in range(rounds):
        for clone in clones:
            for _ in range(chance.randrange(3)):
                world.act(clone)
        clone = chance.choice(clones)
        if number in dying:
            kill_a_sync(clone, chance.uniform(0, 1.5 * took))
        else:
            began = time.perf_counter()
            clone.sync()
            took = time.perf_counter() - began
    clones[1].remove("key.md")
    for clone in clones:
        clone.write("MEMORY.md", clone.read("MEMORY.md").replace(KEY_GOES_ON, ""))
    settle(clones)
    still(clones)
    final = "\n".join(text for file, text in clones[0].files().items() if file != "MEMORY.md")
    lost = {word for word in world.written - world.taken_out if word not in final}
    assert not lost, (seed, sorted(lost))
    places = [remote_of(top), *(clone.repository for clone in clones)]
    places += [clone.store.local / "history.sqlite" for clone in clones]
    for secret in (SECRET, f"{KEY_BEGINS}\n{KEY_GOES_ON}"):
        assert not any(holds(repository, secret) for repository in places)
    assert {path.name for path in top.iterdir()} == outside
    assert not list(top.rglob(".memory-writing-*"))


Death = tuple[int, str, str]
"""At which command of git: the how-manieth with this word in it, and whether before or after it."""
EVERY = "-c"
DEATHS: list[Death] = [
    (0, "fetch", "after"),
    (0, "cat-file", "after"),
    (0, "push", "before"),
    (0, "push", "after"),
]


def dying_git(top: Path) -> dict[str, str]:
    """An environment whose git kills whoever called it as the plan says."""
    tools = top / "tools"
    tools.mkdir()
    (tools / "git").write_text(
        f"#!/bin/sh\nread count word moment < {top}/plan\n"
        'case " $* " in *" $word "*) ;; *) count=$((count + 1));; esac\n'
        f'echo $((count - 1)) "$word" $moment > {top}/plan\n'
        '[ "$count $moment" = "0 before" ] && kill -9 $PPID\n'
        f'PATH="{os.environ["PATH"]}" git "$@"\ncode=$?\n'
        '[ "$count $moment" = "0 after" ] && kill -9 $PPID\nexit $code\n',
        "utf-8",
    )
    (tools / "git").chmod(0o755)
    own = environment(top)
    return {**own, "PATH": f"{tools}:{own['PATH']}"}


def sync_and_die(clone: Clone, environ: dict[str, str], death: Death) -> bool:
    """Whether the sync got as far as this command of git, and died there."""
    count, word, moment = death
    (clone.top / "plan").write_text(f"{count} {word} {moment}\n", "utf-8")
    pid = os.fork()
    if pid == 0:
        Team(clone.store, SystemClock(), environ).sync()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


@dataclass
class Deaths:
    """One team in which a member dies again and again, each time in the middle of everything."""

    top: Path
    rounds: int = 0

    def __post_init__(self) -> None:
        self.ann, self.bob = team_of(self.top, "ann", "bob")
        self.environ = dying_git(self.top)

    def once(self, death: Death) -> bool:
        ann, bob, count = self.ann, self.bob, self.rounds
        self.rounds += 1
        ann.say("rules.md", f"one\ntwo\nthree\nfour\nanswer-{count}")
        ann.say("gone.md", f"It stays for round {count}.")
        ann.sync()
        bob.sync()
        ann.write("rules.md", ann.read("rules.md").replace("one", f"ann-{count}"))
        ann.say("clash.md", f"clash-ann-{count}")
        ann.sync()
        bob.write("rules.md", bob.read("rules.md").replace("four", f"bob-{count}"))
        bob.say("clash.md", f"clash-bob-{count}")
        bob.say(f"new-{count}.md", f"new-{count}")
        bob.remove("gone.md")
        died = sync_and_die(bob, self.environ, death)
        self.bob = bob.anew()
        self.bob.sync()
        ann.sync()
        self.check()
        return died

    def check(self) -> None:
        ann, last = self.ann, self.rounds - 1
        assert alike([ann, self.bob])
        assert f"ann-{last}\ntwo\nthree\nbob-{last}" in ann.read("rules.md")
        assert "gone.md" not in ann.files()
        text = "\n".join(ann.files().values())
        assert all(f"clash-bob-{n}" in text and f"new-{n}" in text for n in range(self.rounds))
        assert len([file for file in ann.files() if ".conflict-" in file]) == self.rounds


def test_a_sync_that_dies_at_a_command_of_git_is_mended_by_the_next(tmp_path: Path) -> None:
    world = Deaths(tmp_path)
    assert all(world.once(death) for death in DEATHS)
    still([world.ann, world.bob])


@pytest.mark.soak
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_sync_that_dies_at_any_command_of_git_is_mended_by_the_next(tmp_path: Path, moment: str) -> None:
    world = Deaths(tmp_path)
    while world.once((world.rounds, EVERY, moment)):
        pass
    assert world.rounds > 6
    still([world.ann, world.bob])


def test_members_who_write_at_once_and_die_lose_nothing_and_agree_in_the_end(tmp_path: Path) -> None:
    campaign(tmp_path, seed=1, rounds=8, kills=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_members_who_write_at_once_and_die_for_a_long_time(tmp_path: Path, seed: int) -> None:
    campaign(tmp_path, seed, rounds=40, kills=10)
