"""`sevenfold demo`: what the seven layers do, on a small project, for somebody who is new to it.

The offline engine answers behind the simulator's port; the tools are real, the figures the simulator's.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio

from sevenfold.cache.prices import Prices
from sevenfold.cli.commands.dream_display import undo_last_dream
from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import print_result
from sevenfold.cli.startup import read_environment
from sevenfold.core.clock import SystemClock, run_sync
from sevenfold.core.errors import Mistake
from sevenfold.core.events import (
    Acted,
    AgentEnded,
    Cleared,
    Event,
    Remembered,
    Replied,
    Sending,
    Stored,
    Surfaced,
    ToolStarted,
)
from sevenfold.core.request import Request, encode_prefix
from sevenfold.core.tokens import Usage
from sevenfold.layers.l6_dreaming.dreaming import DreamRunner
from sevenfold.layers.l6_dreaming.workers import RuleDreamer
from sevenfold.layers.savings import LayerSavings, compute_savings
from sevenfold.memory.history.revisions import Author
from sevenfold.offline import encode_reply
from sevenfold.session.session import Session
from sevenfold.simulator.ledger import SimulatorLedger
from sevenfold.simulator.server import Simulator

MODEL: Final = "claude-sonnet-4-5"
DAY: Final = 86_400.0
LONGEST: Final = 60.0  # Seconds to wait for the agent
_TELLING: Final = re.compile(r"\s*[^\W_<][^<]*")  # A line of a reply that is worth showing


# --- the project ----------------------------------------------------------------------------------------


FILES: Final = {
    "README.md": """\
# Till

Adds up what a customer buys. The tax rate in this town is 8 %; `config.toml` says where the till listens.
""",
    "config.toml": """\
[server]
host = "127.0.0.1"
port = 8471          # the old till used 8080
log = "till.log"
""",
    "till.py": '''\
"""Adds up what a customer buys."""

TAX_RATE = 0.07


def total(prices: list[float]) -> float:
    """The sum with tax, rounded to cents."""
    return round(sum(prices) * (1 + TAX_RATE), 2)
''',
    "journal.py": '''\
"""Prints what was sold, a line a sale: of one month, or of the whole year."""

import sys

first, step = (int(sys.argv[1]), 12) if sys.argv[1:] else (1, 1)
for n in range(first, 2_001, step):
    print(f"sale {n:>5}: {n % 17 + 1} pieces, {(n * 37 % 9_000) / 100:>6.2f} before tax")
''',
    "test_till.py": """\
import unittest

from till import total


class TotalTest(unittest.TestCase):
    def test_tax_is_eight_percent(self) -> None:
        self.assertEqual(total([10.0, 2.5]), 13.5)

    def test_nothing_costs_nothing(self) -> None:
        self.assertEqual(total([]), 0.0)
""",
}


def write_demo_project(folder: Path) -> None:
    """Write the project into an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")


OPENING: Final = """\
What Sevenfold does for an agent, on a small project: a till that adds up prices.
No key and no network: rules answer in place of a model, the tools are real, and a simulated provider
counts the tokens. A token is a piece of a word; a model is sent tokens, and you pay for each. Those
that the provider still has in its cache cost a tenth."""


# --- what is said ---------------------------------------------------------------------------------------


# -B: bytecode of a second ago would hide an edit that changes neither the size nor the second.
TESTS: Final = "run `python3 -B -m unittest -q`"
WORK: Final = (
    "read config.toml and README.md and tell me which port the till listens on",
    *(f"run `python3 -B journal.py {month}`" for month in (1, 2, 3)),
    TESTS,
    "replace `0.07` with `0.08` in till.py",
    TESTS,
)
LONG: Final = "run `python3 -B journal.py`"
PORT: Final = "which port does the till listen on?"
TAUGHT: Final = (
    "No, never round the prices: keep them in whole cents, because the bookkeeping needs exact sums."
)
ASKED: Final = "do we round the prices, or keep them in whole cents?"
NOTE: Final = """\
---
name: prices-in-cents
description: "Never round the prices: keep them in whole cents."
type: feedback
---

Never round the prices: keep them in whole cents. Refunds are no exception.
"""  # As a colleague would write it into the folder
FORKED: Final = "fork twice: find TAX_RATE in till.py; read journal.py and tell me how many sales it prints"
BEHIND: Final = (
    "in the background, ask an agent called scout to run `python3 -B -m unittest -q` and then "
    "read test_till.py"
)
WRITTEN: Final = "tell scout that the audit of the till is on Friday"
ALLOWED: Final = ("Bash(python3 -B -m unittest:*)", "Bash(python3 -B journal.py:*)", "Edit(./**)")


# --- how it is shown ------------------------------------------------------------------------------------


@dataclass
class DemoOutput:
    """Prints the demo line by line, unless it is quiet or prints JSON."""

    shared: SharedOptions
    turns: list[dict[str, Any]] = field(default_factory=list)
    chapters: int = 0

    def line(self, text: str = "") -> None:
        if not self.shared.json and not self.shared.quiet:
            print(text, flush=True)

    def open_chapter(self, title: str, *about: str) -> None:
        self.chapters += 1
        self.line(f"\n{self.chapters}. {title}")
        for text in about:
            self.line(f"   {text}")
        self.line()

    def show_event(self, event: Event) -> None:
        match event:
            case ToolStarted(use):
                self.line(f"    · {use.name} {_shorten(', '.join(map(str, use.input.values())))}")
            case Stored(characters=characters):
                self.line(
                    f"      {characters:,} characters, too long to send: the model gets the first lines"
                )
                self.line("      and the name of a file that has all of them")
            case Replied(message, usage, source="main") if message.text and not message.tool_uses:
                lines = [text for text in message.text.splitlines() if _TELLING.fullmatch(text)]
                for text in dict.fromkeys((*lines[:1], *lines[-1:])):
                    self.line(f"    {_shorten(text, 160)}")
                self.line(
                    f"    [{usage.prompt:,} tokens sent, {usage.hit_rate:.0%} of them from the cache]"
                )


class ShiftedClock(SystemClock):
    """The system clock, some days ahead."""

    days: int = 0

    def now(self) -> float:
        return super().now() + self.days * DAY


@dataclass
class Demo:
    """The demo while it runs: its output, its folders, and the time that it plays."""

    out: DemoOutput
    folder: Path
    project: Path
    environ: Mapping[str, str]
    clock: ShiftedClock

    def open_session(self, resume: str | None = None, *, interactive: bool = False) -> Session:
        return Session(
            MODEL,
            self.project,
            resume=resume,
            interactive=interactive,
            home=self.folder,
            settings={"permissions": {"allow": list(ALLOWED)}},
            environ=self.environ,
            clock=self.clock,
        )

    async def ask(self, session: Session, prompt: str) -> str:
        self.out.line(f"  > {prompt}")
        text = (await session.ask(prompt)).message.text.strip()
        self.out.turns.append({"prompt": prompt, "reply": text})
        return text


def run_demo(shared: SharedOptions) -> int:
    """Run the demo in a temporary folder, or in the one that `--home` names."""
    if shared.home is not None:
        return run_sync(_run_demo, shared, shared.home.expanduser().absolute())
    with tempfile.TemporaryDirectory(prefix="sevenfold-demo-") as folder:
        return run_sync(_run_demo, shared, Path(folder))


async def _run_demo(shared: SharedOptions, folder: Path) -> int:
    out, clock, project = DemoOutput(shared), ShiftedClock(), folder / "demo-project"
    write_demo_project(project)
    async with Simulator(replies=encode_reply, clock=clock) as simulator:
        environ = {
            **read_environment(shared).variables,
            "ANTHROPIC_API_KEY": "any-key-will-do",
            "ANTHROPIC_BASE_URL": simulator.url,
        }
        demo = Demo(out, folder, project, environ, clock)
        out.line(OPENING)
        before = await show_work(demo)
        same = await show_resume(demo, before)
        morning = await show_morning(demo, before.session)
        days = await show_memory(demo)
        agents = await show_agents(demo)
        _show_costs(out, simulator.ledger, morning.pop("saved"))
    kept = f"Kept: {folder}. The transcripts and memories are plain text below projects/."
    gone = "All of it was thrown away. 'sevenfold demo --home DIR' keeps it to look at."
    out.line(f"\n{gone if shared.home is None else kept}")
    out.line("Next: 'sevenfold chat', in a project of yours.")
    found = {"turns": out.turns, "resume": same, "morning": morning, "days": days, "agents": agents}
    print_result(shared, "", {**found, "total": _sum_ledger(simulator.ledger)})
    return 0 if same["identical"] else 1


# --- one conversation -----------------------------------------------------------------------------------


@dataclass
class DemoTalk:
    session: str
    last: Request  # The last request as it went out


async def show_work(demo: Demo) -> DemoTalk:
    """An agent mends a bug, and a command prints far too much."""
    demo.out.open_chapter("An agent at work: it reads, runs, finds the wrong tax rate and mends it.")
    sent: list[Request] = []
    async with demo.open_session() as session:
        session.subscribe(demo.out.show_event)
        session.subscribe(lambda e: sent.append(session.request) if isinstance(e, Sending) else None)
        for prompt in WORK:
            await demo.ask(session, prompt)
            demo.out.line()
        demo.out.open_chapter("A result that is too long goes to a file.")
        await demo.ask(session, LONG)
        return DemoTalk(session.id, sent[-1])


async def show_resume(demo: Demo, before: DemoTalk) -> dict[str, Any]:
    """The first request after a resume begins with the last one before it, byte for byte."""
    out = demo.out
    out.open_chapter(
        "The session was closed. It is resumed from its file, and not a byte of it is different,",
        "so the provider still has all of it in its cache.",
    )
    sent: list[Request] = []
    async with demo.open_session(before.session) as session:
        session.subscribe(out.show_event)
        session.subscribe(lambda e: sent.append(session.request) if isinstance(e, Sending) else None)
        await demo.ask(session, PORT)
    old, new = encode_prefix(before.last), encode_prefix(sent[0])
    identical = new[: len(old)] == old
    digests = [hashlib.sha256(b"\n".join(one[: len(old)])).hexdigest() for one in (old, new)]
    for name, digest in zip(("before", "after "), digests, strict=True):
        out.line(f"    {name} {len(old)} parts  sha256 {digest[:32]}…")
    out.line(f"    {'identical, byte for byte' if identical else 'NOT IDENTICAL: this is a bug'}")
    return {"identical": identical, "parts": len(old), "sha256": digests}


async def show_morning(demo: Demo, id: str) -> dict[str, Any]:
    """After a night the cache is cold: old results are cleared. Then the conversation is compacted."""
    out = demo.out
    out.open_chapter(
        "The next morning the provider's cache has expired, and everything must be sent again.",
        "Old results are cleared first: the model sees one line in the place of each.",
    )
    demo.clock.days = 1
    cleared: list[Cleared] = []
    async with demo.open_session(id) as session:
        session.subscribe(lambda e: cleared.append(e) if isinstance(e, Cleared) else None)
        session.subscribe(out.show_event)
        await demo.ask(session, PORT)
        freed = sum(one.tokens for one in cleared)
        gone = [use for one in cleared for use in one.use_ids]
        out.line(f"    cleared: {len(gone)} results, {freed:,} tokens that no request carries any more")
        marker = _find_marker(session, gone)
        out.line(f"    in the place of the first: {marker.replace(str(session.folder), '…')}")
        out.open_chapter(
            "When a conversation gets too long for the window, its older part is summarised.",
            "/compact does it now. What you said stays word for word.",
        )
        compacted = await _compact(out, session)
        answer = await demo.ask(session, PORT)
        price, log = Prices.load().of(MODEL), session.turn.transcript
        saved = compute_savings(log.entries, log.view.calibration, price)
    found = {"cleared": len(gone), "freed": freed, "marker": marker, "answer": answer}
    return {**found, **compacted, "saved": saved}


def _find_marker(session: Session, gone: list[str]) -> str:
    """What the model sees in the place of the first cleared result."""
    results = (result for placed in session.view for result in placed.message.results)
    return next((result.text for result in results if result.tool_use_id in gone[:1]), "")


async def _compact(out: DemoOutput, session: Session) -> dict[str, Any]:
    """Compact as `/compact` does; the request for the summary reads the cached prefix."""
    out.line("  > /compact")
    report = await session.compact()
    done = report.boundary
    if done is None:
        return {}
    out.line(
        f"    {done.tokens_before:,} tokens became {done.tokens_after:,}; of what was said, "
        f"{done.fidelity or 0:.0%} can still be found"
    )
    used = report.usage
    out.line(
        f"    [{used.prompt:,} tokens sent for the summary, {used.hit_rate:.0%} of them from the cache]"
    )
    return {"before": done.tokens_before, "after": done.tokens_after, "fidelity": done.fidelity}


# --- memory ---------------------------------------------------------------------------------------------


async def show_memory(demo: Demo) -> dict[str, Any]:
    """Teach something on one day, ask about it on the next, dream, and undo the dream."""
    out = demo.out
    out.open_chapter("You correct the agent, once. It notes by itself what should last.")
    saved: list[str] = []
    async with demo.open_session(interactive=True) as session:
        session.subscribe(lambda e: saved.append(e.name) if isinstance(e, Remembered) else None)
        await demo.ask(session, TAUGHT)
        await session.tray.drain(LONGEST)
        folder = session.at.memory.folder
    out.line(f"    saved to memory: {', '.join(saved)}")
    for name in saved:
        text = (folder / f"{name}.md").read_text("utf-8")
        out.line(f"    a plain file, {name}.md: {_read_description(text)}")
    out.open_chapter("A day later, in a new conversation that has seen none of this, it is recalled.")
    demo.clock.days = 2
    found: list[str] = []
    async with demo.open_session(interactive=True) as session:
        session.subscribe(lambda e: found.extend(e.names) if isinstance(e, Surfaced) else None)
        said = await demo.ask(session, ASKED)
        out.line(f"    {said.splitlines()[0]}")
        out.line(f"    recalled: {', '.join(found)}")
        await session.tray.drain(LONGEST)
        store, places = session.knowledge.store, session.places
    assert store is not None
    dreams = DreamRunner(store, places.project, demo.clock, lambda event: None)
    return {"saved": saved, "recalled": found, "reply": said, **await _dream_and_undo(demo, folder, dreams)}


async def _dream_and_undo(demo: Demo, folder: Path, dreams: DreamRunner) -> dict[str, Any]:
    out = demo.out
    note = folder / "prices-in-cents.md"
    note.write_text(NOTE, encoding="utf-8")
    os.utime(note, (demo.clock.now(), demo.clock.now()))
    before = _read_memories(folder)
    out.open_chapter(
        "At night it dreams: it puts its memories in order, on a copy that is checked before it counts.",
        "A colleague has written the same rule into another file, with one sentence more.",
    )
    out.line("  > sevenfold dream --now")
    dreamt = await dreams.dream(RuleDreamer(demo.clock, lambda: 0.0), by_hand=True)
    for pair in dreamt.pairs:
        out.line(f"    {pair}")
    out.line(
        f"    {dreamt.files_before} memories before, {dreamt.files_after} after, "
        f"{len(dreamt.lost)} facts lost: the sentence about refunds came along"
    )
    after = _read_memories(folder)
    out.open_chapter("Every change of memory can be undone, a dream as a whole.")
    out.line("  > sevenfold dream undo")
    done = undo_last_dream(dreams.store, Author("user"))
    back = _read_memories(folder) == before
    out.line(
        f"    {len(done.restored)} files are as they were, byte for byte" if back else "    NOT UNDONE"
    )
    told = {"dream": dreamt.status, "merged": dreamt.pairs, "facts_lost": len(dreamt.lost)}
    return {**told, "refunds_kept": any("Refunds" in text for text in after.values()), "undone": back}


def _read_memories(folder: Path) -> dict[str, str]:
    return {
        path.name: path.read_text("utf-8") for path in sorted(folder.glob("*.md")) if path.stem.islower()
    }


def _read_description(text: str) -> str:
    found = re.search(r"(?m)^description: \"?(.*?)\"?$", text)
    return f"“{found[1]}”" if found else ""


# --- agents ---------------------------------------------------------------------------------------------


async def show_agents(demo: Demo) -> dict[str, Any]:
    """A session that delegates; the figures of each agent are those that the provider counted."""
    out = demo.out
    ended: list[AgentEnded] = []
    results: list[str] = []

    def note_event(event: Event) -> None:
        if isinstance(event, AgentEnded):
            ended.append(event)
        elif isinstance(event, Acted):
            results[:] = [one.text for one in event.results]

    out.open_chapter(
        "Work is handed to agents. A fork has read what the conversation has read, from the cache;",
        "others work beside it, and mail reaches them.",
    )
    async with demo.open_session() as session:
        session.subscribe(note_event)
        for prompt in (*WORK[:2], FORKED):
            await demo.ask(session, prompt)
        forks = [_show_fork(out, one) for one in sorted(ended, key=lambda one: one.name)]
        await demo.ask(session, BEHIND)
        await demo.ask(session, WRITTEN)
        written = results[0]
        out.line(f"    {written}")
        answer = await demo.ask(session, PORT)
        out.line(f"    {_shorten(answer.splitlines()[0])}")
        with anyio.move_on_after(LONGEST):
            await session.agents.wait()
        told = await _go_on_with_notice(out, session) or answer
        scout = session.agents.find("scout")
    return {
        "forks": forks,
        "message": written,
        "meanwhile": answer,
        "told": told,
        "scout": scout.status if scout else "",
        "read": scout.said if scout else "",
    }


def _show_fork(out: DemoOutput, one: AgentEnded) -> dict[str, Any]:
    """Show the answer of a fork, and how much of its requests came from the cache."""
    used = one.usage
    out.line(f"    {one.name}: {_shorten(one.said)}")
    out.line(f"    [{used.prompt:,} tokens sent, {used.hit_rate:.0%} of them from the cache]")
    return {"name": one.name, "sent": used.prompt, "from_cache": used.hit_rate, "said": one.said}


async def _go_on_with_notice(out: DemoOutput, session: Session) -> str:
    """Let the conversation go on with the notice of its agent."""
    try:
        said = (await session.go_on()).message.text.strip()
    except Mistake:
        return ""  # an earlier answer has it already
    out.line("  (scout is done, and the conversation goes on with its notice)")
    first, *rest = said.splitlines()
    for text in (first, "…", *rest[-1:]):
        out.line(f"    {text}")
    return said


# --- the bill -------------------------------------------------------------------------------------------


def _show_costs(out: DemoOutput, ledger: SimulatorLedger, saved: tuple[LayerSavings, ...]) -> None:
    total = _sum_ledger(ledger)
    out.line(f"\nWhat it would have cost (simulated, at the prices of {MODEL}):")
    out.line(
        f"  {total['requests']} requests, {total['sent']:,} tokens sent, "
        f"{total['from_cache']:.1%} of them from the cache"
    )
    out.line(
        f"  ${total['simulated_cost']:.4f}; the same requests without a cache "
        f"${total['simulated_cost_without_cache']:.4f}"
    )
    for one in saved:
        out.line(f"  layer {one.layer}, {one.what}: {one.tokens_so_far:,} tokens were not sent")


def _sum_ledger(ledger: SimulatorLedger) -> dict[str, Any]:
    total, price = ledger.total, Prices.load().of(MODEL)
    t = total.tokens
    sent = t.input + t.cache_write_5m + t.cache_write_1h + t.cache_read
    return {
        "requests": total.requests,
        "sent": sent,
        "from_cache": total.hit_rate,
        "simulated_cost": total.cost,
        "simulated_cost_without_cache": price.cost(Usage(input=sent, output=t.output)) if price else 0.0,
    }


def _shorten(text: str, most: int = 90) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"
