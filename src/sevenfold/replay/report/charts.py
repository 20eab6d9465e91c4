"""The drawings of the report, as SVG, and their small parts: safe text, numbers, axes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import dist, floor, log10
from typing import Final, NamedTuple

from sevenfold.replay.bookkeeping import (
    COMPACTION,
    EXTRACTION,
    KEEP_WARM,
    MICRO,
    NOTES,
    READ_BACK,
    RECORDING,
    TOOL_RESULTS,
    WHO,
)
from sevenfold.replay.outcome import BESIDE
from sevenfold.replay.results import ChartPoint, ReplayCost, ReplayFigures

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})  # They turn text round or hide something


def escape_text(text: str, most: int = 120) -> str:
    """Foreign text as it may stand in a page, without markup and invisible characters."""
    line = " ".join(text.split())
    line = "".join("\ufffd" if unicodedata.category(c) in _HIDDEN else c for c in line)
    return escape(line if len(line) <= most else f"{line[: most - 1]}…")


def format_tokens(number: float) -> str:
    """12345 -> 12.3k"""
    size = abs(number)
    if size < 1_000:
        return f"{number:.0f}"
    if size < 999_950:
        return f"{number / 1_000:.1f}".removesuffix(".0") + "k"
    return f"{number / 1_000_000:.2f}".rstrip("0").removesuffix(".") + "M"


def format_percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}\u00a0%"


def format_cost(cost: ReplayCost | None) -> str:
    """A cost in money if its price is known, else in tokens."""
    if cost is None:
        return "–"
    if cost.amount is None:
        return format_tokens(cost.units)
    sign = "$" if cost.currency == "USD" else f"{escape_text(cost.currency or '')} "
    return f"{sign}{cost.amount:,.2f}"


def format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3_600:.1f} h"
    return f"{seconds / 86_400:.0f} days"


def choose_axis_steps(most: float, wanted: int = 4) -> list[float]:
    """Round numbers from 0 to about `most`, to draw lines at."""
    if most <= 0:
        return [0.0]
    rough = most / wanted
    ten = 10 ** floor(log10(rough))
    step = next(n * ten for n in (1, 2, 2.5, 5, 10) if n * ten >= rough)
    return [n * step for n in range(int(most / step) + 1)]


def format_tag(name: str, body: str = "", **attributes: str | float) -> str:
    """An element; `_` in the name of an attribute is `-`, and `class_` is `class`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{format_number(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{body}</{name}>"


def format_number(value: str | float) -> str:
    if isinstance(value, str):
        return escape(value)
    return f"{value:.1f}".removesuffix(".0")


def draw_label(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return format_tag(
        "text", escape_text(text), x=x, y=y, class_=f"label {kind}".strip(), text_anchor=anchor
    )


def draw_line(points: Sequence[tuple[float, float]], kind: str) -> str:
    return format_tag("polyline", points=_format_points(points), class_=kind)


def draw_area(points: Sequence[tuple[float, float]], floor_at: float, kind: str) -> str:
    if not points:
        return ""
    closed = [(points[0][0], floor_at), *points, (points[-1][0], floor_at)]
    return format_tag("polygon", points=_format_points(closed), class_=kind)


def _format_points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{format_number(x)},{format_number(y)}" for x, y in points)


def draw_picture(id: str, title: str, about: str, width: float, height: float, body: str) -> str:
    """An SVG element with a title and a description."""
    head = (
        f'<title id="{id}-t">{escape_text(title)}</title><desc id="{id}-d">{escape_text(about, 600)}</desc>'
    )
    return (
        f'<svg role="img" aria-labelledby="{id}-t {id}-d" viewBox="0 0 {format_number(width)} '
        f'{format_number(height)}" preserveAspectRatio="xMinYMin meet">{head}{body}</svg>'
    )


WIDTH, LEFT, RIGHT = 960.0, 136.0, 12.0
TOP, PLOT, HITS, LANE = 18.0, 170.0, 34.0, 16.0
SILENCE: Final = 300.0  # Seconds after which a cache of the usual lifetime is cold
LANES: Final = (TOOL_RESULTS, MICRO, NOTES, COMPACTION, READ_BACK, KEEP_WARM, EXTRACTION, RECORDING)


def draw_chart(id: str, title: str, known: Mapping[str, ReplayFigures], main: str) -> str:
    """Draw a session. `known`: its figures by policy; `main` is the policy drawn in full."""
    return _Chart(id, title, known, main).draw()


class _Chart:
    def __init__(self, id: str, title: str, known: Mapping[str, ReplayFigures], main: str) -> None:
        self._id, self._title, self._known, self._main = id, title, known, main
        every = [p for figures in known.values() for p in figures.points if p.kind not in BESIDE]
        self._points = [p for p in known[main].points if p.kind not in BESIDE]
        self._number = max((figures.turns for figures in known.values()), default=1) or 1
        self._most = max((max(p.context, p.recorded) for p in every), default=1) or 1

    def draw(self) -> str:
        lanes = self._find_lanes()
        hits_at = TOP + PLOT + 26
        lanes_at = hits_at + HITS + 8
        height = lanes_at + LANE * len(lanes) + 22
        body = "".join(
            (
                self._draw_grid(),
                self._draw_silences(lanes_at + LANE * len(lanes)),
                self._draw_areas(),
                self._draw_lines(),
                self._draw_hits(hits_at),
                *(self._draw_lane(lanes_at + LANE * n, *lane) for n, lane in enumerate(lanes.items())),
                self._draw_bottom(height - 6),
            )
        )
        return draw_picture(self._id, self._title, self._describe(lanes), WIDTH, height, body)

    def _x(self, turn: int) -> float:
        """The middle of a request; later events belong to the last one."""
        return LEFT + self._request_width * (min(turn, self._number - 1) + 0.5)

    @property
    def _request_width(self) -> float:
        return (WIDTH - LEFT - RIGHT) / self._number

    def _y(self, tokens: float) -> float:
        return TOP + PLOT * (1 - tokens / self._most)

    def _draw_grid(self) -> str:
        out = [draw_label(8, TOP + 12, "tokens sent", "head")]
        for at in choose_axis_steps(self._most):
            y = self._y(at)
            out.append(format_tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
            out.append(draw_label(LEFT - 6, y + 4, format_tokens(at), anchor="end"))
        return "".join(out)

    def _draw_silences(self, bottom: float) -> str:
        """Draw a line at each silence in which the cache went cold."""
        out = []
        for before, after in pairwise([p for p in self._points if p.kind == "turn"]):
            gap = after.at - before.at
            if gap > SILENCE and before.at:
                x = self._x(after.turn)
                about = f"<title>{escape_text(f'silence of {format_duration(gap)}')}</title>"
                out.append(format_tag("line", about, x1=x, x2=x, y1=TOP, y2=bottom, class_="silence"))
        return "".join(out)

    def _draw_areas(self) -> str:
        sent = [(self._x(p.turn), self._y(p.context)) for p in self._points]
        read = [(self._x(p.turn), self._y(p.read)) for p in self._points]
        return draw_area(sent, TOP + PLOT, "sent") + draw_area(read, TOP + PLOT, "read")

    def _draw_lines(self) -> str:
        out = []
        recorded = [(self._x(p.turn), self._y(p.recorded)) for p in self._points if p.recorded]
        if recorded:
            out.append(draw_line(recorded, "recorded"))
        for n, (name, figures) in enumerate(self._known.items()):
            points = [p for p in figures.points if p.kind not in BESIDE]
            kind = "main" if name == self._main else f"policy p{n % 6}"
            out.append(draw_line([(self._x(p.turn), self._y(p.context)) for p in points], kind))
        return "".join(out)

    def _draw_hits(self, top: float) -> str:
        """Draw the share of each request that came from the cache, as a bar."""
        width = max(1.0, self._request_width * 0.85)
        out = [draw_label(LEFT - 6, top + HITS / 2 + 4, "cache hit", anchor="end")]
        out.append(
            format_tag("rect", x=LEFT, y=top, width=WIDTH - LEFT - RIGHT, height=HITS, class_="frame")
        )
        for p in self._points:
            share = min(1.0, p.read / p.context) if p.context else 0.0
            kind = "hit" if share >= 0.5 else "miss"
            high = HITS * (share if share >= 0.5 else 1 - share)
            y = top + HITS - high if kind == "hit" else top
            x = self._x(p.turn) - width / 2
            out.append(format_tag("rect", x=x, y=y, width=width, height=high, class_=kind))
        return "".join(out)

    def _find_lanes(self) -> dict[str, list[tuple[ChartPoint, str]]]:
        """The actions by layer; layers without any have no lane."""
        found: dict[str, list[tuple[ChartPoint, str]]] = {name: [] for name in LANES}
        for p in self._known[self._main].points:
            for did in p.happened:
                found.setdefault(did.layer, []).append(
                    (p, f"{did.what} ({format_tokens(did.tokens)} tokens)")
                )
            if p.kind in WHO:
                found[WHO[p.kind]].append((p, f"a request for {p.kind}"))
        return {name: did for name, did in found.items() if did}

    def _draw_lane(self, top: float, name: str, did: Sequence[tuple[ChartPoint, str]]) -> str:
        middle = top + LANE / 2
        out = [draw_label(LEFT - 6, middle + 4, name, anchor="end")]
        out.append(format_tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=middle, y2=middle, class_="grid"))
        kind = f"event {name.replace(' ', '-')}" if name in LANES else "event"
        for p, what in did:
            request = min(p.turn + 1, self._number)
            about = f"<title>{escape_text(f'request {request}: {name}: {what}')}</title>"
            x = self._x(p.turn)
            out.append(format_tag("rect", about, x=x - 2, y=middle - 5, width=4, height=10, class_=kind))
        return "".join(out)

    def _draw_bottom(self, y: float) -> str:
        last = draw_label(WIDTH - RIGHT, y, f"{self._number}", anchor="end")
        return draw_label(LEFT, y, "request 1") + (last if self._number > 1 else "")

    def _describe(self, lanes: Mapping[str, Sequence[object]]) -> str:
        """Describe the drawing in words."""
        largest = max((p.context for p in self._points), default=0)
        did = "; ".join(f"{name} {len(events)} times" for name, events in lanes.items())
        hits = self._known[self._main].usage.hit_rate
        requests = f"{self._number} request{'' if self._number == 1 else 's'}"
        return (
            f"Under {self._main} the {requests} of this session sent up to "
            f"{format_tokens(largest)} tokens each, {hits:.0%} of all of them from the cache. "
            f"{f'Layers: {did}.' if did else 'No layer did anything.'}"
        )


WIDTH_SCATTER, HEIGHT = 480.0, 340.0  # Small, so that its words can be read on a telephone
LEFT_SCATTER, TOP_SCATTER, RIGHT_SCATTER, BOTTOM = 44.0, 28.0, 12.0, 44.0
LETTER, LINE, DOT = 7.2, 15.0, 6.0  # Width of the widest letters, height of a line, radius of a dot
FAR: Final = 60  # Lines above and below a dot that are tried for a label
SAME: Final = 3.0  # Dots nearer than this share one label
LONGEST: Final = 28  # Letters of a label; the whole name is in the table and in the dot's title

Box = tuple[float, float, float, float]  # Left, top, right and bottom


class LabelPlace(NamedTuple):
    """The place of a label: its beginning, or its end if it stands to the left of the dot."""

    x: float
    y: float
    anchor: str
    box: Box


def draw_scatter(wholes: Mapping[str, ReplayFigures]) -> str:
    """The drawing; empty if fewer than two policies have a recorded cost to compare with."""
    points = {
        name: (whole.extra_per_100, 100 * whole.of_paid)
        for name, whole in wholes.items()
        if whole.of_paid is not None
    }
    if len(points) < 2:
        return ""
    right = max(x for x, _ in points.values()) * 1.15 or 1.0
    costs = [y for _, y in points.values()]
    high = max(costs) * 1.03 or 1.0
    low = max((y for y in choose_axis_steps(high, 10) if y <= 0.97 * min(costs)), default=0.0)
    sx = (WIDTH_SCATTER - LEFT_SCATTER - RIGHT_SCATTER) / right
    sy = (HEIGHT - BOTTOM - TOP_SCATTER) / (high - low)
    dots = [(LEFT_SCATTER + x * sx, HEIGHT - BOTTOM - (y - low) * sy) for x, y in points.values()]
    out = [draw_label(LEFT_SCATTER, HEIGHT - 6, "extra requests per 100, to read back what was gone →")]
    out.append(draw_label(6, 14, "cost, % of paid", "head"))
    for y in (low + step for step in choose_axis_steps(high - low)):
        at = HEIGHT - BOTTOM - (y - low) * sy
        end = WIDTH_SCATTER - RIGHT_SCATTER
        out.append(format_tag("line", x1=LEFT_SCATTER, x2=end, y1=at, y2=at, class_="grid"))
        out.append(draw_label(LEFT_SCATTER - 6, at + 4, f"{y:g}", anchor="end"))
    floor = HEIGHT - BOTTOM + 16
    out += [
        draw_label(LEFT_SCATTER + x * sx, floor, f"{x:g}", anchor="middle")
        for x in choose_axis_steps(right)
    ]
    out.append(_draw_dots(points, dots))
    told = "; ".join(f"{name}: {_describe_point(*point)}" for name, point in points.items())
    return draw_picture("frontier", "Cost against reading back", told, WIDTH_SCATTER, HEIGHT, "".join(out))


def _draw_dots(points: Mapping[str, tuple[float, float]], dots: Sequence[tuple[float, float]]) -> str:
    groups = _group_dots(dots)
    leaders = [dots[group[0]] for group in groups]
    every = list(points)
    names = [_shorten_names([every[n] for n in group]) for group in groups]
    places = place_labels(leaders, names, (LEFT_SCATTER, TOP_SCATTER - 8, WIDTH_SCATTER, HEIGHT - BOTTOM))
    out = []
    for (x, y), place in zip(leaders, places, strict=True):
        if abs(place.y - 4 - y) >= LINE:  # so far off that a line leads there
            out.append(format_tag("line", x1=x, y1=y, x2=place.x, y2=place.y - 4, class_="grid"))
    for group, (x, y), name, place in zip(groups, leaders, names, places, strict=True):
        about = "; ".join(f"{every[n]}: {_describe_point(*points[every[n]])}" for n in group)
        title, kind = f"<title>{escape_text(about, 600)}</title>", f"dot p{group[0] % 6}"
        out.append(format_tag("circle", title, cx=x, cy=y, r=DOT, class_=kind))
        out.append(draw_label(place.x, place.y, name, anchor=place.anchor))
    return "".join(out)


def _group_dots(dots: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Groups of dots that are too near to be told apart."""
    groups: list[list[int]] = []
    for n, dot in enumerate(dots):
        near = (group for group in groups if dist(dots[group[0]], dot) < SAME)
        if (group := next(near, None)) is not None:
            group.append(n)
        else:
            groups.append([n])
    return groups


def _shorten_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    room = LONGEST - len(more)
    return (names[0] if len(names[0]) <= room else f"{names[0][: room - 1]}…") + more


def _describe_point(extra: float, cost: float) -> str:
    return f"{cost:.1f} % of paid, {extra:.1f} extra requests per 100"


def place_labels(dots: Sequence[tuple[float, float]], names: Sequence[str], frame: Box) -> list[LabelPlace]:
    """A free place for each label: beside its dot, or above or below it."""
    taken: list[Box] = [(x - DOT, y - DOT, x + DOT, y + DOT) for x, y in dots]
    found: dict[int, LabelPlace] = {}
    for n in sorted(range(len(dots)), key=lambda n: dots[n][1]):
        wide = LETTER * len(names[n])
        choice = _find_places(*dots[n], wide, frame)
        free = (p for p in choice if not any(_overlaps(p.box, box) for box in taken))
        found[n] = next(free, _place_beside(*dots[n], wide, "start"))
        taken.append(found[n].box)
    return [found[n] for n in range(len(dots))]


def _find_places(x: float, y: float, wide: float, frame: Box) -> Iterator[LabelPlace]:
    """The places inside the frame, nearest first."""
    for n in range(FAR):
        middle = y + LINE * ((n + 1) // 2) * (1 if n % 2 else -1)
        for side in ("start", "end"):
            place = _place_beside(x, middle, wide, side)
            left, top, right, bottom = place.box
            if left >= frame[0] and right <= frame[2] and top >= frame[1] and bottom <= frame[3]:
                yield place


def _place_beside(x: float, y: float, wide: float, side: str) -> LabelPlace:
    start = x + DOT + 4 if side == "start" else x - DOT - 4 - wide
    box = start, y - LINE / 2, start + wide, y + LINE / 2
    return LabelPlace(start if side == "start" else start + wide, y + 4, side, box)


def _overlaps(one: Box, other: Box) -> bool:
    return not (one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1])


WIDTH_WATERFALL, LEFT_WATERFALL, RIGHT_WATERFALL = 960.0, 260.0, 120.0
BAR, GAP = 18.0, 8.0
LEAST: Final = 0.0005  # Smaller steps (share of the whole) are left out


class _ScaleStep(NamedTuple):
    name: str
    start: float
    end: float
    kind: str

    @property
    def value(self) -> str:
        """The total of a whole bar, else the change with its sign."""
        if self.kind in ("whole", "paid"):
            return format_tokens(self.end)
        change = self.end - self.start
        return f"{'−' if change < 0 else '+'}{format_tokens(abs(change))}"


def draw_waterfall(id: str, name: str, whole: ReplayFigures) -> str:
    """Draw the cost of one policy by layer."""
    bars = _list_steps(whole)
    most = max(max(bar.start, bar.end) for bar in bars) or 1.0
    scale = (WIDTH_WATERFALL - LEFT_WATERFALL - RIGHT_WATERFALL) / most
    height = (BAR + GAP) * len(bars) + 30
    out = []
    for at in choose_axis_steps(most):
        x = LEFT_WATERFALL + at * scale
        out.append(format_tag("line", x1=x, x2=x, y1=4, y2=height - 22, class_="grid"))
        out.append(draw_label(x, height - 8, format_tokens(at), anchor="middle"))
    for n, bar in enumerate(bars):
        out.append(_draw_bar(bar, 6 + n * (BAR + GAP), scale))
    title = f"Cost by layer under {name}"
    parts = ", ".join(f"{bar.name} {bar.value}" for bar in bars)
    about = f"In base-price tokens, under {name}: {parts}."
    return draw_picture(id, title, about, WIDTH_WATERFALL, height, "".join(out))


def _draw_bar(bar: _ScaleStep, y: float, scale: float) -> str:
    low, high = sorted((bar.start, bar.end))
    about = f"<title>{escape_text(f'{bar.name}: {bar.value}')}</title>"
    return "".join(
        (
            draw_label(LEFT_WATERFALL - 8, y + 13, bar.name, anchor="end"),
            format_tag(
                "rect",
                about,
                x=LEFT_WATERFALL + low * scale,
                y=y,
                width=max(1.0, (high - low) * scale),
                height=BAR,
                class_=f"bar {bar.kind}",
            ),
            draw_label(LEFT_WATERFALL + high * scale + 6, y + 13, bar.value),
        )
    )


def _list_steps(whole: ReplayFigures) -> list[_ScaleStep]:
    end = whole.cost.units
    at = end + sum(layer.net for layer in whole.layers.values())
    bars = [_ScaleStep("without its layers, estimated", 0.0, at, "whole")]
    for name, layer in whole.layers.items():
        for value, kind, words in ((-layer.saved, "saved", "saves"), (layer.cost, "spent", "costs")):
            if abs(value) > LEAST * max(end, 1.0):
                bars.append(_ScaleStep(f"{name} {words}", at, at + value, kind))
                at += value
    bars.append(_ScaleStep("simulated", 0.0, end, "whole"))
    if whole.paid is not None:
        part = whole.paid_files < whole.files
        name = f"paid, {whole.paid_files:,} of {whole.files:,} sessions" if part else name_paid_cost(whole)
        bars.append(_ScaleStep(name, 0.0, whole.paid.units, "paid"))
    return bars


def name_paid_cost(whole: ReplayFigures) -> str:
    """The name of the recorded cost: at the price of --price it is not what was paid."""
    return f"recorded, priced as {whole.paid_at}" if whole.paid_at else "really paid"


def describe_difference(whole: ReplayFigures) -> str:
    """The difference to the recorded cost, in words."""
    cost, paid, share = whole.compared or whole.cost, whole.paid, whole.of_paid
    if paid is None or share is None:
        return ""
    change = 1 - share
    known = cost.amount is not None and paid.amount is not None
    less = f" ({format_cost(ReplayCost(0.0, abs((paid.amount or 0) - (cost.amount or 0)), cost.currency))})"
    return f"{abs(change):.1%}{less if known else ''} {'less' if change >= 0 else 'more'} than was paid"
