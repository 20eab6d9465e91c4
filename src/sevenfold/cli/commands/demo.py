"""`sevenfold demo`: a session, its resume with the same bytes, memory over two days, agents, and the cost.

The offline engine answers behind the simulator's port; the tools are real, the figures the simulator's.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio

from sevenfold.cache.prices import Prices
from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import print_result
from sevenfold.cli.startup import read_environment
from sevenfold.core.clock import SystemClock, run_sync
from sevenfold.core.errors import Mistake
from sevenfold.core.events import (
    Acted,
    AgentEnded,
    Event,
    Forked,
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
from sevenfold.offline import encode_reply
from sevenfold.session.session import Session
from sevenfold.simulator.ledger import SimulatorLedger
from sevenfold.simulator.server import Simulator

BEGUN: Final = "read README.md, config.toml and sales.txt"
FORKED: Final = "fork twice: find TAX_RATE in till.py; read journal.py and tell me how many sales it prints"
BEHIND: Final = (
    "in the background, ask an agent called scout to run `python3 -B -m unittest -q` and then "
    "read test_till.py"
)
WRITTEN: Final = "tell scout that the audit of the till is on Friday"
MEANWHILE: Final = "which port does the till listen on?"
AGENT_COMMANDS: Final = ("Bash(python3 -B -m unittest:*)",)
_ID: Final = re.compile(r"^Agent \S+ \((\S+)\)")
LONGEST: Final = 60.0  # Seconds to wait for the agent


async def run_agents_part(
    line: Callable[[str], None], model: str, folder: Path, project: Path, environ: Mapping[str, str]
) -> dict[str, Any]:
    """A session that delegates; the figures of each agent are those that the provider counted."""
    ended: list[AgentEnded] = []
    results: list[str] = []

    def note_event(event: Event) -> None:
        if isinstance(event, AgentEnded):
            ended.append(event)
        elif isinstance(event, Acted):
            results[:] = [one.text for one in event.results]

    async def ask(prompt: str) -> str:
        line(f"  > {prompt}")
        return (await session.ask(prompt)).message.text.strip()

    settings = {"permissions": {"allow": list(AGENT_COMMANDS)}}
    line("A conversation that hands work to others:\n")
    async with Session(model, project, home=folder, environ=environ, settings=settings) as session:
        session.subscribe(note_event)
        await ask(BEGUN)
        line("    read\n")
        await ask(FORKED)
        forks = [_show_fork(line, one) for one in sorted(ended, key=lambda one: one.name)]
        line("    the prefix of both is the conversation, and it was paid for once\n")
        await ask(BEHIND)
        line("    " + _ID.sub(r"\1", results[0].partition(". ")[0]) + ".\n")
        sent = await ask(WRITTEN)
        written = results[0]
        line(f"    {written}\n")
        answer = await ask(MEANWHILE)
        line(f"    {answer.splitlines()[0]}\n")
        with anyio.move_on_after(LONGEST):
            await session.agents.wait()
        told = await _go_on_with_notice(line, session) or f"{sent}\n{answer}"
        scout = session.agents.find("scout")
    return {
        "forks": forks,
        "message": written,
        "meanwhile": answer,
        "told": told,
        "scout": scout.status if scout else "",
        "read": scout.said if scout else "",
    }


def _show_fork(line: Callable[[str], None], one: AgentEnded) -> dict[str, Any]:
    """Show the answer of a fork, and how much of its requests came from the cache."""
    used = one.usage
    line(f"    {one.name}: {' '.join(one.said.split())[:70]}")
    line(
        f"      [{used.prompt:,} tokens sent in {one.steps} requests, {used.hit_rate:.0%} from the "
        f"cache, {used.cache_write:,} written to it]"
    )
    return {"name": one.name, "sent": used.prompt, "from_cache": used.hit_rate, "said": one.said}


async def _go_on_with_notice(line: Callable[[str], None], session: Session) -> str:
    """Let the conversation go on with the notice of its agent."""
    try:
        said = (await session.go_on()).message.text.strip()
    except Mistake:
        return ""  # an earlier answer has it already
    line("  (scout is done, and the conversation goes on with its notice)")
    first, *rest = said.splitlines()
    for text in (first, "…", *rest[-1:]):
        line(f"    {text}")
    line("")
    return said


TAUGHT: Final = (
    "No, never round the prices: keep them in whole cents, because the bookkeeping needs exact sums.",
    "The audit of the till is next Friday, so nothing may change after that.",
)
ASKED: Final = ("do we round the prices, or keep them in whole cents?",)
DAY: Final = 86_400.0


class ShiftedClock(SystemClock):
    """The system clock, some days ahead."""

    def __init__(self, days: int) -> None:
        self._ahead = days * DAY

    def now(self) -> float:
        return super().now() + self._ahead


async def run_two_days(
    line: Callable[[str], None], model: str, folder: Path, project: Path, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Teach something on one day, ask about it on the next, and dream in between."""

    async def talk(prompts: tuple[str, ...], days: int) -> tuple[list[Event], str]:
        heard: list[Event] = []
        said = ""
        async with Session(
            model, project, interactive=True, home=folder, environ=environ, clock=ShiftedClock(days)
        ) as session:
            session.subscribe(heard.append)
            for prompt in prompts:
                line(f"  > {prompt}")
                said = (await session.ask(prompt)).message.text.strip()
                line(f"    {said.splitlines()[0]}")
                await session.tray.drain(30)
            store, places = session.knowledge.store, session.places
        assert store is not None
        dreams[0] = DreamRunner(store, places.project, ShiftedClock(days), lambda event: None)
        return heard, said

    dreams: list[DreamRunner | None] = [None]
    line("Another conversation, in which something is said that should last:\n")
    learned, _ = await talk(TAUGHT, 0)
    saved = [one.name for one in learned if isinstance(one, Remembered)]
    forks = [one for one in learned if isinstance(one, Forked) and one.kind == "extract"]
    sent = sum(one.usage.prompt for one in forks)
    read = sum(one.usage.cache_read for one in forks)
    line(f"    saved to memory by itself: {', '.join(saved)}")
    line(f"    [{sent:,} tokens sent for that, {read / max(sent, 1):.0%} from the cache]\n")
    line("The next day, a new conversation that has seen none of this:\n")
    asked, said = await talk(ASKED, 1)
    found = [name for one in asked if isinstance(one, Surfaced) for name in one.names]
    line(f"    recalled: {', '.join(found)}\n")
    assert dreams[0] is not None
    dreamt = await dreams[0].dream(RuleDreamer(ShiftedClock(1), lambda: 0.0), by_hand=True)
    line(
        f"  > sevenfold dream --now\n    {dreamt.status}: {dreamt.files_before} memories before, "
        f"{dreamt.files_after} after, {len(dreamt.lost)} facts lost\n"
    )
    return {"saved": saved, "recalled": found, "reply": said, "dream": dreamt.status}


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
"""Prints what was sold this year, a line a sale."""

for n in range(1, 2_001):
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


SALES: Final = "".join(
    f"sale {n:>4}: {n % 17 + 1:>2} pieces, {n * 37 % 9_000 / 100:>6.2f} before tax, till {n % 3 + 1}\n"
    for n in range(1, 901)
)  # Long enough that notes are begun, short enough to stay in the window


def write_demo_project(folder: Path) -> None:
    """Write the project into an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**FILES, "sales.txt": SALES}.items():
        (folder / name).write_text(text, encoding="utf-8")


MODEL: Final = "claude-sonnet-4-5"
# -B: bytecode of a second ago would hide an edit that changes neither the size nor the second.
FIRST: Final = (
    "read config.toml and README.md and tell me which port the till listens on",
    "run `python3 -B -m unittest -q`",
    "find TAX_RATE in till.py",
    "replace `0.07` with `0.08` in till.py",
    "run `python3 -B -m unittest -q`",
    "run `python3 -B journal.py`",
)
SECOND: Final = ("read sales.txt", MEANWHILE, "what is the tax rate in this town?")
# Asked after the compaction, which saves from the next requests on
AFTER: Final = (MEANWHILE, "run `python3 -B -m unittest -q`")
ALLOWED: Final = ("Bash(python3 -B -m unittest:*)", "Bash(python3 -B journal.py)", "Edit(./**)")


@dataclass
class DemoOutput:
    """Prints the demo line by line, unless it is quiet or prints JSON."""

    shared: SharedOptions
    turns: list[dict[str, Any]] = field(default_factory=list)

    def line(self, text: str = "") -> None:
        if not self.shared.json and not self.shared.quiet:
            print(text, flush=True)

    def show_event(self, event: Event) -> None:
        match event:
            case ToolStarted(use):
                self.line(f"    · {use.name} {_shorten(', '.join(map(str, use.input.values())))}")
            case Acted(results):
                for one in (r for r in results if r.is_error):
                    self.line(f"      {_shorten(one.text)}")
            case Forked("notes", _, usage, hit_rate):
                self.line(
                    f"    [notes on this session brought up to date beside it: {usage.prompt:,} tokens "
                    f"sent, {hit_rate:.0%} from the cache]"
                )
            case Stored(characters=characters):
                self.line(f"      {characters:,} characters: whole on disk, the beginning in the window")
            case Replied(message, usage, source="main") if message.text and not message.tool_uses:
                for text in message.text.strip().splitlines():
                    self.line(f"    {text}")
                self.line(f"    [{usage.prompt:,} tokens sent, {usage.hit_rate:.0%} from the cache]")


def run_demo(shared: SharedOptions) -> int:
    """Run the demo in a temporary folder, or in the one that `--home` names."""
    if shared.home is not None:
        return run_sync(_run_demo, shared, shared.home.expanduser().absolute())
    with tempfile.TemporaryDirectory(prefix="sevenfold-demo-") as folder:
        return run_sync(_run_demo, shared, Path(folder))


async def _run_demo(shared: SharedOptions, folder: Path) -> int:
    out = DemoOutput(shared)
    project = folder / "demo-project"
    write_demo_project(project)
    async with Simulator(replies=encode_reply) as simulator:
        environ = {
            **read_environment(shared).variables,
            "ANTHROPIC_API_KEY": "any-key-will-do",
            "ANTHROPIC_BASE_URL": simulator.url,
        }
        out.line("A session: the offline engine behind a simulated provider, real tools, no key.")
        out.line(f"Project: {project}\n")
        before = await _talk(out, folder, project, environ, FIRST)
        out.line("\nThe session is closed. From here on it is resumed from its file alone.\n")
        after = await _talk(out, folder, project, environ, SECOND, resume=before.session)
        same = _compare(out, before, after)
        days = await run_two_days(out.line, MODEL, folder, project, environ)
        agents = await run_agents_part(out.line, MODEL, folder, project, environ)
        _show_ledger(out, simulator.ledger)
        _show_savings(out, after.saved)
    kept = f"Kept: {folder}. The transcript is plain text below projects/."
    gone = "All of it was thrown away. 'sevenfold demo --home DIR' keeps it."
    out.line(f"\n{gone if shared.home is None else kept}")
    out.line("Next: 'sevenfold chat', in a project of yours.")
    found = {"turns": out.turns, "resume": same, "days": days, "agents": agents}
    print_result(shared, "", {**found, "total": _sum_ledger(simulator.ledger)})
    return 0 if same["identical"] else 1


@dataclass
class DemoTalk:
    session: str
    first: Request
    last: Request  # The first and the last request as they went out, to be compared byte for byte
    saved: tuple[LayerSavings, ...]


async def _talk(
    out: DemoOutput,
    folder: Path,
    project: Path,
    environ: Mapping[str, str],
    prompts: tuple[str, ...],
    resume: str | None = None,
) -> DemoTalk:
    settings = {"permissions": {"allow": list(ALLOWED)}}
    session = Session(MODEL, project, resume=resume, home=folder, settings=settings, environ=environ)
    sent: list[Request] = []
    async with session:
        session.subscribe(out.show_event)
        session.subscribe(
            lambda event: sent.append(session.request) if isinstance(event, Sending) else None
        )
        for prompt in prompts:
            await _ask(out, session, prompt)
        if resume is not None:
            await _compact(out, session)
            for prompt in AFTER:
                await _ask(out, session, prompt)
        price, log = Prices.load().of(MODEL), session.turn.transcript
        saved = compute_savings(log.entries, log.view.calibration, price)
        return DemoTalk(session.id, sent[0], sent[-1], saved)


async def _ask(out: DemoOutput, session: Session, prompt: str) -> None:
    out.line(f"  > {prompt}")
    reply = await session.ask(prompt)
    out.turns.append({"prompt": prompt, "reply": reply.message.text})
    out.line()


async def _compact(out: DemoOutput, session: Session) -> None:
    """Compact as `/compact` does; the request for the summary reads the cached prefix."""
    out.line("  > /compact")
    report = await session.compact()
    if (done := report.boundary) is not None:
        out.line(
            f"    {done.tokens_before:,} tokens became {done.tokens_after:,}; of what was said, "
            f"{done.fidelity or 0:.0%} can still be found"
        )
    out.line(
        f"    [{report.usage.prompt:,} tokens sent for the summary, {report.usage.hit_rate:.0%} from the "
        "cache]"
    )
    out.line()


def _compare(out: DemoOutput, before: DemoTalk, after: DemoTalk) -> dict[str, Any]:
    """Check that the first request after the resume begins with the last one before it."""
    old, new = encode_prefix(before.last), encode_prefix(after.first)
    identical = new[: len(old)] == old
    digests = [hashlib.sha256(b"\n".join(one[: len(old)])).hexdigest() for one in (old, new)]
    out.line("\nThe last request before the resume, and the beginning of the first one after it:")
    for name, digest in zip(("before", "after "), digests, strict=True):
        out.line(f"  {name} {len(old)} parts  sha256 {digest}")
    out.line(f"  {'identical, byte for byte' if identical else 'NOT IDENTICAL: this is a bug'}\n")
    return {"identical": identical, "parts": len(old), "sha256": digests}


def _show_ledger(out: DemoOutput, ledger: SimulatorLedger) -> None:
    out.line(f"The simulator's ledger (simulated cost, prices of {MODEL}):")
    out.line("  request   sent  from cache  written  new  out      cost")
    for row in ledger.rows:
        t = row.tokens
        written = t.cache_write_5m + t.cache_write_1h
        sent = t.input + written + t.cache_read
        out.line(
            f"  {row.n:>7} {sent:>6,} {t.cache_read:>11,} {written:>8,} {t.input:>4,}"
            f" {t.output:>4,}  ${row.cost or 0:.5f}"
        )
    total = _sum_ledger(ledger)
    out.line(
        f"  {total['requests']} requests, {total['sent']:,} tokens sent, "
        f"{total['from_cache']:.1%} of them from the cache"
    )
    out.line(
        f"  simulated cost ${total['simulated_cost']:.4f}; the same requests without a cache "
        f"${total['simulated_cost_without_cache']:.4f}"
    )


def _show_savings(out: DemoOutput, saved: tuple[LayerSavings, ...]) -> None:
    for one in saved:
        cost = one.cost or 0.0
        gain = "saved" if cost >= 0 else "lost by it"
        out.line(
            f"  layer {one.layer} ({one.what}): {one.tokens_so_far:,} tokens not sent, "
            f"${abs(cost):.4f} {gain} so far (simulated)"
        )


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


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 90 else flat[:89] + "…"
