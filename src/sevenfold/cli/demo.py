"""`sevenfold demo`: a real session, a resume that sends the same bytes, and what it all cost.

Nothing here is staged: the offline engine answers behind the simulator's loopback port, the tools are the
real ones on a small project, and every figure is read from the simulator's ledger afterwards.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sevenfold.cache.prices import Prices
from sevenfold.cli.demo_agents import with_agents
from sevenfold.cli.demo_days import two_days
from sevenfold.cli.demo_project import lay_out
from sevenfold.cli.options import Shared
from sevenfold.cli.output import result
from sevenfold.cli.surroundings import environment_of
from sevenfold.events import Acted, Event, Forked, Replied, Sending, Stored, ToolStarted
from sevenfold.layers.savings import Saved, savings
from sevenfold.models.offline.wire import reply_to_wire
from sevenfold.request import Request, prefix
from sevenfold.session import Session
from sevenfold.simulator import Ledger, Simulator
from sevenfold.sync import run_sync
from sevenfold.tokens import Usage

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
SECOND: Final = (
    "read sales.txt",
    "which port does the till listen on?",
    "what is the tax rate in this town?",
)
AFTER: Final = (
    "which port does the till listen on?",
    "run `python3 -B -m unittest -q`",
)
"""Asked after the compaction, which pays from the next requests on."""
ALLOWED: Final = (
    "Bash(python3 -B -m unittest:*)",
    "Bash(python3 -B journal.py)",
    "Edit(./**)",
)


@dataclass
class Told:
    """What the demo has to say, line by line, on the screen unless it ends up as JSON."""

    shared: Shared
    turns: list[dict[str, Any]] = field(default_factory=list)

    def line(self, text: str = "") -> None:
        if not self.shared.json and not self.shared.quiet:
            print(text, flush=True)

    def heard(self, event: Event) -> None:
        match event:
            case ToolStarted(use):
                self.line(f"    · {use.name} {_short(', '.join(map(str, use.input.values())))}")
            case Acted(results):
                for one in (r for r in results if r.is_error):
                    self.line(f"      {_short(one.text)}")
            case Forked("notes", _, usage, hit_rate):
                self.line(
                    f"    [notes on this session brought up to date beside it: {usage.prompt:,} tokens "
                    f"sent, {hit_rate:.0%} from the cache]"
                )
            case Stored(characters=characters):
                self.line(
                    f"      {characters:,} characters: whole on disk, the beginning in the window"
                )
            case Replied(message, usage, source="main") if message.text and not message.tool_uses:
                for text in message.text.strip().splitlines():
                    self.line(f"    {text}")
                self.line(
                    f"    [{usage.prompt:,} tokens sent, {usage.hit_rate:.0%} from the cache]"
                )


def run(shared: Shared) -> int:
    """Everything in a folder that is thrown away, unless `--home` names one to keep."""
    with _place(shared.home) as folder:
        return run_sync(_demo, shared, folder)


@contextmanager
def _place(home: Path | None) -> Iterator[Path]:
    if home is not None:
        yield home.expanduser().absolute()
        return
    with tempfile.TemporaryDirectory(prefix="sevenfold-demo-") as folder:
        yield Path(folder)


async def _demo(shared: Shared, folder: Path) -> int:
    told = Told(shared)
    project = folder / "demo-project"
    lay_out(project)
    async with Simulator(replies=reply_to_wire) as simulator:
        environ = {
            **environment_of(shared).variables,
            "ANTHROPIC_API_KEY": "any-key-will-do",
            "ANTHROPIC_BASE_URL": simulator.url,
        }
        told.line("A session: the offline engine behind a simulated provider, real tools, no key.")
        told.line(f"Project: {project}\n")
        before = await _talk(told, folder, project, environ, FIRST)
        told.line("\nThe session is closed. From here on it is resumed from its file alone.\n")
        after = await _talk(told, folder, project, environ, SECOND, resume=before.session)
        same = _compare(told, before, after)
        days = await two_days(told.line, MODEL, folder, project, environ)
        agents = await with_agents(told.line, MODEL, folder, project, environ)
        _ledger(told, simulator.ledger)
        _saved(told, after.saved)
    _goodbye(told, shared, folder)
    found = {"turns": told.turns, "resume": same, "days": days, "agents": agents}
    result(shared, "", {**found, "total": _total(simulator.ledger)})
    return 0 if same["identical"] else 1


@dataclass
class Talked:
    session: str
    first: Request
    last: Request
    """The first and the last request as they went out, to be compared byte for byte."""
    saved: tuple[Saved, ...]


async def _talk(
    told: Told,
    folder: Path,
    project: Path,
    environ: Mapping[str, str],
    prompts: tuple[str, ...],
    resume: str | None = None,
) -> Talked:
    settings = {"permissions": {"allow": list(ALLOWED)}}
    session = Session(
        MODEL, project, resume=resume, home=folder, settings=settings, environ=environ
    )
    sent: list[Request] = []
    async with session:
        session.subscribe(told.heard)
        session.subscribe(lambda event: _note(event, session, sent))
        for prompt in prompts:
            await _ask(told, session, prompt)
        if resume is not None:
            await _compact(told, session)
            for prompt in AFTER:
                await _ask(told, session, prompt)
        price, log = Prices.load().of(MODEL), session.turn.transcript
        saved = savings(log.entries, log.view.calibration, price)
        return Talked(session.id, sent[0], sent[-1], saved)


async def _ask(told: Told, session: Session, prompt: str) -> None:
    told.line(f"  > {prompt}")
    reply = await session.ask(prompt)
    told.turns.append({"prompt": prompt, "reply": reply.message.text})
    told.line()


async def _compact(told: Told, session: Session) -> None:
    """Summarised by hand, as `/compact` does it; the summary is asked for on what is in the cache."""
    told.line("  > /compact")
    report = await session.compact()
    if (done := report.boundary) is not None:
        told.line(
            f"    {done.tokens_before:,} tokens became {done.tokens_after:,}; of what was said, "
            f"{done.fidelity or 0:.0%} can still be found"
        )
    told.line(
        f"    [{report.usage.prompt:,} tokens sent for the summary, {report.usage.hit_rate:.0%} from the "
        "cache]"
    )
    told.line()


def _note(event: Event, session: Session, sent: list[Request]) -> None:
    if isinstance(event, Sending):
        sent.append(session.request)


def _compare(told: Told, before: Talked, after: Talked) -> dict[str, Any]:
    """Whether what the resumed session sent first begins with all that was sent last before."""
    old, new = prefix(before.last), prefix(after.first)
    identical = new[: len(old)] == old
    digests = [hashlib.sha256(b"\n".join(one[: len(old)])).hexdigest() for one in (old, new)]
    told.line("\nThe last request before the resume, and the beginning of the first one after it:")
    for name, digest in zip(("before", "after "), digests, strict=True):
        told.line(f"  {name} {len(old)} parts  sha256 {digest}")
    told.line(f"  {'identical, byte for byte' if identical else 'NOT IDENTICAL: this is a bug'}\n")
    return {"identical": identical, "parts": len(old), "sha256": digests}


def _ledger(told: Told, ledger: Ledger) -> None:
    told.line(f"The simulator's ledger (simulated cost, prices of {MODEL}):")
    told.line("  request   sent  from cache  written  new  out      cost")
    for row in ledger.rows:
        t = row.tokens
        written = t.cache_write_5m + t.cache_write_1h
        sent = t.input + written + t.cache_read
        told.line(
            f"  {row.n:>7} {sent:>6,} {t.cache_read:>11,} {written:>8,} {t.input:>4,}"
            f" {t.output:>4,}  ${row.cost or 0:.5f}"
        )
    total = _total(ledger)
    told.line(
        f"  {total['requests']} requests, {total['sent']:,} tokens sent, "
        f"{total['from_cache']:.1%} of them from the cache"
    )
    told.line(
        f"  simulated cost ${total['simulated_cost']:.4f}; the same requests without a cache "
        f"${total['simulated_cost_without_cache']:.4f}"
    )


def _saved(told: Told, saved: tuple[Saved, ...]) -> None:
    for one in saved:
        cost = one.cost or 0.0
        gain = "saved" if cost >= 0 else "lost by it"
        told.line(
            f"  layer {one.layer} ({one.what}): {one.tokens_so_far:,} tokens not sent, "
            f"${abs(cost):.4f} {gain} so far (simulated)"
        )


def _total(ledger: Ledger) -> dict[str, Any]:
    total, price = ledger.total, Prices.load().of(MODEL)
    t = total.tokens
    sent = t.input + t.cache_write_5m + t.cache_write_1h + t.cache_read
    plain = price.cost(Usage(input=sent, output=t.output)) if price else 0.0
    return {
        "requests": total.requests,
        "sent": sent,
        "from_cache": total.hit_rate,
        "simulated_cost": total.cost,
        "simulated_cost_without_cache": plain,
    }


def _goodbye(told: Told, shared: Shared, folder: Path) -> None:
    told.line()
    if shared.home is not None:
        told.line(f"Kept: {folder}. The transcript is plain text below projects/.")
    else:
        told.line("All of it was thrown away. 'sevenfold demo --home DIR' keeps it.")
    told.line("Next: 'sevenfold chat', in a project of yours.")


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 90 else flat[:89] + "…"
