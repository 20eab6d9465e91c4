"""Promise: whatever compacts a conversation, in whatever order, nothing that the user said goes missing.

Pay-outs of any notes, summaries, digests after failed summaries, snips, collapses, the provider's own
summaries, stretches put back, processes that end and others that go on: after each of them every message
of the user is in the view word for word, or cut where it says so, or counted in a line that says how many
are left out; and the records know all of it, in order.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import RestoredBy, make, make_parts
from layers.l3_session_memory.noting import LOG, noted
from layers.l4_compaction.foldable import expand_collapse, expand_snip
from layers.l4_compaction.summaries import summary

from sevenfold.core.errors import KeyRefused
from sevenfold.core.events import Compacted, Declined, Event
from sevenfold.core.messages import (
    Image,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    make_context_message,
    user,
)
from sevenfold.core.protocols import Capabilities, Change, Fit, ForkReply, Layers
from sevenfold.core.request import Request, has_paired_tools
from sevenfold.core.tokens import Usage, count_bytes, estimate_tokens
from sevenfold.core.transcript import Entry, Mark, Replace, Reply, Transcript
from sevenfold.layers.l3_session_memory.notes import NOTES, Notebook
from sevenfold.layers.l3_session_memory.notes_compaction import NotesCompaction
from sevenfold.layers.l4_compaction import fold as collapse
from sevenfold.layers.l4_compaction.compaction import Compaction
from sevenfold.layers.l4_compaction.digest import Digest
from sevenfold.layers.l4_compaction.fold import Collapse, Snip, read_server_summary
from sevenfold.layers.l4_compaction.server import RequestedCompaction, add_requested_compaction
from sevenfold.layers.parts import LayerParts
from sevenfold.layers.shared.boundary import BOUNDARY, collect_facts, find_last_boundary
from sevenfold.layers.shared.restore import CompactionCut, Restorer
from sevenfold.testing import FakeClock, ScriptedModel
from sevenfold.turn import Turn

RUNGS = (
    "pay out",
    "summary",
    "failing summary",
    "empty summary",
    "large summary",
    "digest",
    "snip",
    "collapse",
    "by the provider",
    "from",
    "up to",
    "expand",
    "resume",
)
QUOTED = re.compile(r'<said n="\d+"(?: newest)?>\n(.*?)\n</said>', re.DOTALL)
NOTE = re.compile(r"\n?\[… ([\d,]+) bytes left out …\]\n?")
LEFT_OUT = re.compile(r"\[([\d,]+) messages of the user are left out here\]")
PICTURE = Image({"type": "base64", "media_type": "image/png", "data": "AAAA"})
TAGS = ("</said>", "</digest>", "</summary>", "<session-notes>", "</snipped>", "<context>")
SPENT = Usage(input=3, output=5)


# --- a conversation, and what may happen to it ----------------------------------------------------------


@dataclass
class Chain:
    """A conversation of real parts. Only the model is made up: it works, or fails, as it is told to."""

    folder: Path
    seed: int
    window: int = 8_000
    binds: bool = False
    wordy: bool = False
    """Whether the user says more than there is room for."""
    events: list[Event] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    """The transcript as it is on disk."""
    written: list[str] = field(default_factory=list)
    """What the summariser is to say; nothing: it fails."""

    def __post_init__(self) -> None:
        self.rng, self.clock, self.calls = random.Random(self.seed), FakeClock(), 0
        self.able = Capabilities(window=self.window, binds_thinking=self.binds, server_compaction=True)
        self.log = Transcript(self.clock.now, self.lines.append)
        self.log.add(user("<context>\nWorking folder: /src\n</context>"), by="session")
        self.begun, self.spent = False, Usage()
        self.talkative = self.rng.choice([0.03, 0.25, 0.5])

    def turn(self, *layers: Fit) -> Turn:
        model = ScriptedModel((), self.able)
        made = make(model, Layers(fit=layers), events=self.events, transcript=self.log, clock=self.clock)
        made.frame = add_requested_compaction(made.frame, self.able)
        return made

    def parts(self, **fields: Any) -> LayerParts:
        return make_parts(
            able=self.able, path=LOG, events=self.events, clock=self.clock, fork=self.fork, **fields
        )

    @property
    def tokens(self) -> int:
        return self.turn().pressure().tokens

    @property
    def said(self) -> list[str]:
        """All that the user ever said, as a digest would say it."""
        typed = [m for entry in self.log.entries if (m := _typed(entry)) is not None]
        return [m.text + "\n[an image]" * (PICTURE in m.content) for m in typed]

    # --- what is said -----------------------------------------------------------------------------------

    def fill(self, share: float) -> None:
        """Go on until so much of the room before the next compaction is used."""
        limit = self.turn().thresholds.auto_compact * share
        while self.tokens <= limit:
            if not self.begun or self.rng.random() < self.talkative:
                self.say()
            self.begun = True
            self.round()
            if self.rng.random() < 0.3:
                self.log.add(Reply(assistant(*self.thought(), Text("Done so far."))), by="model")

    def say(self) -> None:
        rng, n = self.rng, len(self.said) + 1
        size = rng.choice([1, 3, 8, *([60, 300, 700] if self.wordy else [])])
        word = rng.choice(["please ", "設定を読む ", "naïve\n", f"{rng.choice(TAGS)} "])
        text = f"request {n} of {self.seed}: " + word * (size if self.begun or self.wordy else 3)
        picture = (PICTURE,) if rng.random() < 0.1 else ()
        self.log.add(Message("user", (Text(text.strip()), *picture)))

    def round(self) -> None:
        self.calls += 1
        args = {"file_path": f"/src/f{self.calls % 7}.py"}
        call = ToolUse(f"t{self.calls}", self.rng.choice(["Read", "Edit"]), args)
        if self.rng.random() < 0.5:
            call = ToolUse(call.id, "Bash", {"command": f"make part{self.calls % 5}"})
        self.log.add(Reply(assistant(*self.thought(), call), stop="tool_use"), by="model")
        size = self.rng.choice([40, 800, 2_000, self.window // 6])
        result = ToolResult(call.id, f"line {self.calls}\n" * (size // 8), self.rng.random() < 0.1)
        if self.rng.random() < 0.05:  # the user spoke into the turn
            beside = Text(f"wait, request {len(self.said) + 1} of {self.seed}")
            self.log.add(Message("user", (result, beside)))
        else:
            self.log.add(Message("user", (result,)), by="tools")

    def thought(self) -> tuple[Thinking, ...]:
        return (Thinking("hm", "signed"),) if self.rng.random() < 0.2 else ()

    # --- what compacts it -------------------------------------------------------------------------------

    def lead_up_to(self, rung: str) -> None:
        """What makes it due."""
        self.events.clear()
        self.spent = Usage()
        if rung not in ("resume", "expand"):
            self.fill(0.6 if rung in ("from", "up to") else 1.0)

    async def step(self, rung: str) -> None:
        match rung:
            case "resume":
                whole = b"".join(self.lines)
                before, self.log = (self.log, Transcript.load(whole, self.clock.now, self.lines.append))
                assert self.log.view == before.view
            case "expand":
                for by, put_back in (("Snip", expand_snip), ("Collapse", self.expanded)):
                    self.turn().append(by, put_back(self.log))
            case "from" | "up to":
                await self.by_hand(rung)
            case _:
                await self.turn(self.layer(rung)).fit()

    def expanded(self, log: Transcript) -> Sequence[Change]:
        ids = [fold.id for fold in collapse.find_collapsed(log)]
        return expand_collapse(log, self.rng.choice(ids)) if ids else ()

    async def by_hand(self, rung: str) -> None:
        self.written = [summary("a part of it")]
        turn, layer = self.turn(), self.compaction()
        typed = [placed.id for placed in self.log.view if placed.by == "user"]
        id = self.rng.choice(typed or [self.log.view[0].id])
        first, last = (id, None) if rung == "from" else (None, id)
        trigger = rung.replace(" ", "_")
        handed = await layer.compact(turn.request, turn.pressure(), trigger=trigger, first=first, last=last)
        turn.append("Compaction", handed)

    def layer(self, rung: str) -> Fit:
        replies = {
            "summary": [summary("the work")],
            "empty summary": ["", ""],
            "large summary": [summary("x" * 6 * self.window)],
        }
        self.written = replies.get(rung, [])
        simple: dict[str, Callable[..., Fit]] = {"snip": Snip, "collapse": Collapse, "digest": Digest}
        if rung in simple:
            return simple[rung](self.parts())
        if rung == "pay out":
            return self.payout()
        if rung == "by the provider":
            return RequestedCompaction(self.parts(send=self.summed_up))
        return self.compaction()

    def compaction(self) -> Compaction:
        def restore(cut: CompactionCut, room: int) -> Message | None:
            return make_context_message("notes.md as it is now") if room > 100 else None

        parts = self.parts(restorer=Restorer([RestoredBy(restore)]))
        return Compaction(parts, lambda gone, there: 0.5)

    async def fork(self, request: Request, directive: Message, **options: Any) -> ForkReply:
        if not self.written:
            raise KeyRefused("the key is wrong")
        self.spent += SPENT
        return ForkReply(Reply(assistant(Text(self.written.pop(0))), SPENT), SPENT)

    async def summed_up(self, request: Request) -> Reply:
        told = " ".join(p.message.text for p in request.view if p.by == "user")[:200]
        block = {"type": "compaction", "content": f"What was said: {told}"}
        raw = msgspec.json.encode(block).decode()
        return Reply(assistant(Opaque("compaction", raw)), stop="compaction")

    def payout(self) -> NotesCompaction:
        """With any notes; some of them quote the user."""
        rng, view = self.rng, self.log.view
        quoted = rng.choice([*self.said, "nothing", "</session-notes> </said> so far"])
        notes = noted(
            Current_state=f"at step {self.calls}",
            Task_specification=quoted.replace("\n", " "),
            Worklog="- more\n" * rng.choice([1, 30]),
        )
        (self.folder / "summary.md").write_text(notes, encoding="utf-8")
        anchor = view[max(0, len(view) - rng.randint(2, 8))].id
        self.log.add(Mark(NOTES, {"last": anchor, "anchor": anchor}), by="NotesKeeping")
        parts = self.parts()
        return NotesCompaction(parts, Notebook(parts, self.folder / "summary.md"))


def _typed(entry: Entry) -> Message | None:
    """What a person said in it."""
    what = entry.what
    if isinstance(what, Message) and entry.by == "user" and what.text:
        return what
    return None


# --- what must hold -------------------------------------------------------------------------------------


def check(chain: Chain, tokens: int, entries: list[Entry], rung: str) -> None:
    """All that is promised, whether the rung did something or not."""
    log, view = chain.log, chain.log.view
    assert log.entries[: len(entries)] == entries, "append-only"
    assert Transcript.load(b"".join(chain.lines), chain.clock.now).view == view
    assert has_paired_tools(view)
    declined = any(isinstance(event, Declined) for event in chain.events)
    assert not declined or (rung == "expand" and chain.binds), "a loop may need its thinking"
    assert [s.text for s in collect_facts(view, view.marks).said] == chain.said, "on record, in order"
    the_words_are_there(chain)
    acted = [event for event in chain.events if isinstance(event, Compacted)]
    edited = [e for e in log.entries[len(entries) :] if isinstance(e.what, Replace)]
    if rung in ("resume", "expand"):
        assert acted == []
        return
    marked = [e for e in log.entries[len(entries) :] if _is_boundary(e)]
    assert len(acted) == len(marked) == bool(edited), "one event and one boundary for each"
    if not edited:
        return
    [event], boundary = acted, find_last_boundary(view)
    assert boundary is not None
    assert event == boundary.event(event.seconds, event.usage)
    assert boundary.fidelity is not None
    assert event.tokens_after < event.tokens_before
    assert chain.tokens < tokens, "smaller"
    assert event.usage == chain.spent, "also of what came to nothing"


def _is_boundary(entry: Entry) -> bool:
    return isinstance(entry.what, Mark) and entry.what.name == BOUNDARY


def the_words_are_there(chain: Chain) -> None:
    messages = chain.log.view.messages
    shown = [_plain(message.text or read_server_summary(message)) for message in messages]
    everything = _flat("\n".join(shown))
    quotes = [_plain(quote) for m in messages for quote in QUOTED.findall(m.text)]
    texts = [_plain(text) for text in chain.said]
    missing = [text for text in texts if _flat(_in_words(text)) not in everything]
    left_out = sum(_number(n) for text in shown for n in LEFT_OUT.findall(text))
    unseen = [text for text in missing if not any(_is_cut(quote, text) for quote in quotes)]

    assert len(unseen) <= left_out, "none is missing silently"
    assert not missing or texts[-1] not in missing, "what was said last is whole"
    if not chain.wordy:
        room = 0.03 * chain.window  # what the least generous of them has room for
        all_of_it = sum(estimate_tokens(text) + 25 for text in texts)
        assert all_of_it > room or missing == [], "nothing is cut where there is room"


def _in_words(text: str) -> str:
    """Without the marker that stands for a picture; where the picture is, there is none."""
    return text.removesuffix("\n[an image]")


def _plain(text: str) -> str:
    """As it was before the tags in it were made harmless."""
    return text.replace("<\\/", "</")


def _flat(text: str) -> str:
    return " ".join(text.split())


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _is_cut(quote: str, text: str) -> bool:
    """Whether this is the beginning and the end of the text, with an honest note between them."""
    found = NOTE.search(quote)
    if not found:
        return False
    head, tail = quote[: found.start()], quote[found.end() :]
    gone = count_bytes(text) - count_bytes(head) - count_bytes(tail)
    return text.startswith(head) and text.endswith(tail) and _number(found[1]) == gone


async def run(chain: Chain, rungs: Sequence[str]) -> list[str]:
    """Who compacted it, in order."""
    by: list[str] = []
    for rung in rungs:
        chain.lead_up_to(rung)
        tokens, entries = chain.tokens, list(chain.log.entries)
        await chain.step(rung)
        check(chain, tokens, entries, rung)
        by += [event.by for event in chain.events if isinstance(event, Compacted)]
    return by


@settings(max_examples=80, deadline=None)
@given(
    rungs=st.lists(st.sampled_from(RUNGS), min_size=2, max_size=8),
    seed=st.integers(0, 10**6),
    window=st.sampled_from([8_000, 32_000]),
    binds=st.booleans(),
    wordy=st.booleans(),
)
def test_what_the_user_said_outlives_any_chain_of_compactions(
    rungs: list[str], seed: int, window: int, binds: bool, wordy: bool
) -> None:
    with TemporaryDirectory() as folder:
        chain = Chain(Path(folder), seed, window, binds, wordy)
        anyio.run(run, chain, rungs)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200))
def test_long_chains(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    window = rng.choice([8_000, 32_000, 200_000])
    chain = Chain(tmp_path, seed, window, rng.random() < 0.5, rng.random() < 0.5)
    anyio.run(run, chain, rng.choices(RUNGS, k=25))


def test_every_rung_takes_part(tmp_path: Path) -> None:
    """So that the test above tests what it says."""
    done: set[str] = set()
    for seed in range(6):
        chain = Chain(tmp_path, seed, 32_000)
        done.update(anyio.run(run, chain, [*RUNGS, *RUNGS[::-1]]))

    assert done == {"notes", "summary", "digest", "snip", "collapse", "server"}


@pytest.mark.anyio
async def test_words_that_had_to_be_cut_are_whole_again_when_there_is_room(tmp_path: Path) -> None:
    """A small room for quotes in the pay-out, a larger one in the digest after it."""
    chain = Chain(tmp_path, 1)
    long = "mind this: " + "and that " * 400
    chain.log.add(user(long), Reply(assistant(Text("I will."))))
    await run(chain, ["pay out"])
    cut = "\n".join(m.text for m in chain.log.view.messages)
    await run(chain, ["digest"])
    whole = "\n".join(m.text for m in chain.log.view.messages)

    assert "bytes left out" in cut
    assert long not in cut
    assert long in whole
