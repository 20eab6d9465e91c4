"""Policies as dots, cost against what had to be read back, each with its name where there is room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import dist
from typing import Final, NamedTuple

from sevenfold.replay.figures import Figures
from sevenfold.replay.report.drawing import label, picture, safe, steps, tag

WIDTH, HEIGHT = 480.0, 340.0
"""Little, so that its words can be read on a telephone."""
LEFT, TOP, RIGHT, BOTTOM = 44.0, 28.0, 12.0, 44.0
LETTER, LINE, DOT = 7.2, 15.0, 6.0
"""Of the text: a letter of the widest usual face, and a line."""
FAR: Final = 60
"""Lines above and below a dot that are looked at for room."""
SAME: Final = 3.0
"""Dots that are nearer than this have one name together."""
LONGEST: Final = 28
"""Letters of a name; the whole of it is in the table and behind the dot."""

Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""


class Place(NamedTuple):
    """Where a name stands: its beginning, or its end where it stands to the left of the dot."""

    x: float
    y: float
    anchor: str
    box: Box


def scatter(wholes: Mapping[str, Figures]) -> str:
    """The drawing; nothing where fewer than two policies can be compared with what was paid."""
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
    low = max((y for y in steps(high, 10) if y <= 0.97 * min(costs)), default=0.0)
    sx, sy = (WIDTH - LEFT - RIGHT) / right, (HEIGHT - BOTTOM - TOP) / (high - low)
    dots = [(LEFT + x * sx, HEIGHT - BOTTOM - (y - low) * sy) for x, y in points.values()]
    out = [label(LEFT, HEIGHT - 6, "extra requests per 100, to read back what was gone →")]
    out.append(label(6, 14, "cost, % of paid", "head"))
    for y in (low + step for step in steps(high - low)):
        at = HEIGHT - BOTTOM - (y - low) * sy
        out.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        out.append(label(LEFT - 6, at + 4, f"{y:g}", anchor="end"))
    floor = HEIGHT - BOTTOM + 16
    out += [label(LEFT + x * sx, floor, f"{x:g}", anchor="middle") for x in steps(right)]
    out.append(_dots(points, dots))
    told = "; ".join(f"{name}: {_said(*point)}" for name, point in points.items())
    return picture("frontier", "Cost against reading back", told, WIDTH, HEIGHT, "".join(out))


def _dots(points: Mapping[str, tuple[float, float]], dots: Sequence[tuple[float, float]]) -> str:
    groups = _groups(dots)
    leaders = [dots[group[0]] for group in groups]
    every = list(points)
    names = [_named([every[n] for n in group]) for group in groups]
    places = label_places(leaders, names, (LEFT, TOP - 8, WIDTH, HEIGHT - BOTTOM))
    out = []
    for (x, y), place in zip(leaders, places, strict=True):
        if abs(place.y - 4 - y) >= LINE:  # so far off that a line leads there
            out.append(tag("line", x1=x, y1=y, x2=place.x, y2=place.y - 4, class_="grid"))
    for group, (x, y), name, place in zip(groups, leaders, names, places, strict=True):
        about = "; ".join(f"{every[n]}: {_said(*points[every[n]])}" for n in group)
        kind = f"dot p{group[0] % 6}"
        out.append(
            tag("circle", f"<title>{safe(about, 600)}</title>", cx=x, cy=y, r=DOT, class_=kind)
        )
        out.append(label(place.x, place.y, name, anchor=place.anchor))
    return "".join(out)


def _groups(dots: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Policies whose dots are one dot to the eye, by the first of them."""
    groups: list[list[int]] = []
    for n, dot in enumerate(dots):
        near = (group for group in groups if dist(dots[group[0]], dot) < SAME)
        if (group := next(near, None)) is not None:
            group.append(n)
        else:
            groups.append([n])
    return groups


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    room = LONGEST - len(more)
    return (names[0] if len(names[0]) <= room else f"{names[0][: room - 1]}…") + more


def _said(extra: float, cost: float) -> str:
    return f"{cost:.1f} % of paid, {extra:.1f} extra requests per 100"


def label_places(
    dots: Sequence[tuple[float, float]], names: Sequence[str], frame: Box
) -> list[Place]:
    """A place for each name beside its dot, or above or below it: on no other name and on no dot."""
    taken: list[Box] = [(x - DOT, y - DOT, x + DOT, y + DOT) for x, y in dots]
    found: dict[int, Place] = {}
    for n in sorted(range(len(dots)), key=lambda n: dots[n][1]):
        wide = LETTER * len(names[n])
        choice = _places(*dots[n], wide, frame)
        free = (p for p in choice if not any(_meet(p.box, box) for box in taken))
        found[n] = next(free, _beside(*dots[n], wide, "start"))
        taken.append(found[n].box)
    return [found[n] for n in range(len(dots))]


def _places(x: float, y: float, wide: float, frame: Box) -> Iterator[Place]:
    """Those inside the frame, nearest first."""
    for n in range(FAR):
        middle = y + LINE * ((n + 1) // 2) * (1 if n % 2 else -1)
        for side in ("start", "end"):
            place = _beside(x, middle, wide, side)
            if _inside(place.box, frame):
                yield place


def _beside(x: float, y: float, wide: float, side: str) -> Place:
    start = x + DOT + 4 if side == "start" else x - DOT - 4 - wide
    box = start, y - LINE / 2, start + wide, y + LINE / 2
    return Place(start if side == "start" else start + wide, y + 4, side, box)


def _inside(box: Box, frame: Box) -> bool:
    across = box[0] >= frame[0] and box[2] <= frame[2]
    return across and box[1] >= frame[1] and box[3] <= frame[3]


def _meet(one: Box, other: Box) -> bool:
    apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    return not apart
