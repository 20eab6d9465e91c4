"""A session drawn: how large each request was, how much of it came from the cache, and what layers did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from sevenfold.replay.figures import Figures, Point
from sevenfold.replay.outcome import BESIDE
from sevenfold.replay.report.drawing import (
    area,
    label,
    line,
    picture,
    safe,
    span,
    steps,
    tag,
    tokens,
)

WIDTH, LEFT, RIGHT = 960.0, 136.0, 12.0
TOP, PLOT, HITS, LANE = 18.0, 170.0, 34.0, 16.0
SILENCE: Final = 300.0
"""Seconds after which a cache of the usual lifetime is cold."""
LANES: Final = (
    "tool results",
    "microcompaction",
    "session memory",
    "compaction",
    "read back",
    "keep warm",
    "extraction",
    "recording",
)
WORK: Final = {
    "notes": "session memory",
    "summary": "compaction",
    "keep warm": "keep warm",
    "extraction": "extraction",
}
"""Which lane a request beside the conversation belongs to."""


def chart(id: str, title: str, known: Mapping[str, Figures], main: str) -> str:
    """`known`: what came of the session under each policy; `main` is the one drawn in full."""
    return _Chart(id, title, known, main).drawn()


class _Chart:
    def __init__(self, id: str, title: str, known: Mapping[str, Figures], main: str) -> None:
        self._id, self._title, self._known, self._main = id, title, known, main
        every = [p for figures in known.values() for p in figures.points if p.kind not in BESIDE]
        self._points = [p for p in known[main].points if p.kind not in BESIDE]
        self._number = max((figures.turns for figures in known.values()), default=1) or 1
        """Of requests; each has a place of the same width, the first as well as the last."""
        self._most = max((max(p.context, p.recorded) for p in every), default=1) or 1

    def drawn(self) -> str:
        lanes = self._lanes()
        hits_at = TOP + PLOT + 26
        lanes_at = hits_at + HITS + 8
        height = lanes_at + LANE * len(lanes) + 22
        body = "".join(
            (
                self._grid(),
                self._silences(lanes_at + LANE * len(lanes)),
                self._areas(),
                self._lines(),
                self._hits(hits_at),
                *(self._lane(lanes_at + LANE * n, *lane) for n, lane in enumerate(lanes.items())),
                self._bottom(height - 6),
            )
        )
        return picture(self._id, self._title, self._told(lanes), WIDTH, height, body)

    # --- places -----------------------------------------------------------------------------------------

    def _x(self, turn: int) -> float:
        """The middle of its place; what comes after the last belongs to it."""
        return LEFT + self._wide * (min(turn, self._number - 1) + 0.5)

    @property
    def _wide(self) -> float:
        return (WIDTH - LEFT - RIGHT) / self._number

    def _y(self, tokens: float) -> float:
        return TOP + PLOT * (1 - tokens / self._most)

    # --- parts ------------------------------------------------------------------------------------------

    def _grid(self) -> str:
        out = [label(8, TOP + 12, "tokens sent", "head")]
        for at in steps(self._most):
            y = self._y(at)
            out.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
            out.append(label(LEFT - 6, y + 4, tokens(at), anchor="end"))
        return "".join(out)

    def _silences(self, bottom: float) -> str:
        """Where nobody spoke for so long that the cache went cold."""
        out = []
        turns = [p for p in self._points if p.kind == "turn"]
        for before, after in pairwise(turns):
            gap = after.at - before.at
            if gap > SILENCE and before.at:
                x = self._x(after.turn)
                about = f"<title>{safe(f'silence of {span(gap)}')}</title>"
                out.append(tag("line", about, x1=x, x2=x, y1=TOP, y2=bottom, class_="silence"))
        return "".join(out)

    def _areas(self) -> str:
        sent = [(self._x(p.turn), self._y(p.context)) for p in self._points]
        read = [(self._x(p.turn), self._y(p.read)) for p in self._points]
        return area(sent, TOP + PLOT, "sent") + area(read, TOP + PLOT, "read")

    def _lines(self) -> str:
        out = []
        recorded = [(self._x(p.turn), self._y(p.recorded)) for p in self._points if p.recorded]
        if recorded:
            out.append(line(recorded, "recorded"))
        for n, (name, figures) in enumerate(self._known.items()):
            points = [p for p in figures.points if p.kind not in BESIDE]
            kind = "main" if name == self._main else f"policy p{n % 6}"
            out.append(line([(self._x(p.turn), self._y(p.context)) for p in points], kind))
        return "".join(out)

    def _hits(self, top: float) -> str:
        """The share of each request that came from the cache, as a bar."""
        width = max(1.0, self._wide * 0.85)
        out = [label(LEFT - 6, top + HITS / 2 + 4, "cache hit", anchor="end")]
        out.append(
            tag("rect", x=LEFT, y=top, width=WIDTH - LEFT - RIGHT, height=HITS, class_="frame")
        )
        for p in self._points:
            share = min(1.0, p.read / p.context) if p.context else 0.0
            kind = "hit" if share >= 0.5 else "miss"
            high = HITS * (share if share >= 0.5 else 1 - share)
            y = top + HITS - high if kind == "hit" else top
            x = self._x(p.turn) - width / 2
            out.append(tag("rect", x=x, y=y, width=width, height=high, class_=kind))
        return "".join(out)

    def _lanes(self) -> dict[str, list[tuple[Point, str]]]:
        """What each layer did and when; layers that did nothing have no lane."""
        found: dict[str, list[tuple[Point, str]]] = {name: [] for name in LANES}
        for p in self._known[self._main].points:
            for did in p.happened:
                found.setdefault(did.layer, []).append(
                    (p, f"{did.what} ({tokens(did.tokens)} tokens)")
                )
            if p.kind in WORK:
                found[WORK[p.kind]].append((p, f"a request for {p.kind}"))
        return {name: did for name, did in found.items() if did}

    def _lane(self, top: float, name: str, did: Sequence[tuple[Point, str]]) -> str:
        middle = top + LANE / 2
        out = [label(LEFT - 6, middle + 4, name, anchor="end")]
        out.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=middle, y2=middle, class_="grid"))
        kind = f"event {name.replace(' ', '-')}" if name in LANES else "event"
        for p, what in did:
            request = min(p.turn + 1, self._number)
            about = f"<title>{safe(f'request {request}: {name}: {what}')}</title>"
            x = self._x(p.turn)
            out.append(tag("rect", about, x=x - 2, y=middle - 5, width=4, height=10, class_=kind))
        return "".join(out)

    def _bottom(self, y: float) -> str:
        last = label(WIDTH - RIGHT, y, f"{self._number}", anchor="end")
        return label(LEFT, y, "request 1") + (last if self._number > 1 else "")

    def _told(self, lanes: Mapping[str, Sequence[object]]) -> str:
        """The drawing in words."""
        largest = max((p.context for p in self._points), default=0)
        did = "; ".join(f"{name} {len(events)} times" for name, events in lanes.items())
        hits = self._known[self._main].usage.hit_rate
        requests = f"{self._number} request{'' if self._number == 1 else 's'}"
        return (
            f"Under {self._main} the {requests} of this session sent up to "
            f"{tokens(largest)} tokens each, {hits:.0%} of all of them from the cache. "
            f"{f'Layers: {did}.' if did else 'No layer did anything.'}"
        )
