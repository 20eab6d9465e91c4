"""A small plot as SVG: points with names, lines through some of them, and the corner that is the goal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, TypeAlias

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 860, 520, 70, 60, 40, 30
COLOURS: Final = ("#1b6ca8", "#c2571a", "#555555")
At: TypeAlias = Callable[[float, float], tuple[float, float]]
"""Where a pair of values stands on the paper."""


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    name: str


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[Point]
    line: bool = True
    below: bool = False  # True if names stand below their points, clear of those of another series


def svg(title: str, across: str, up: str, series: Sequence[Series], goal: tuple[float, float]) -> str:
    """`goal`: what should not be exceeded on either axis."""
    points = [point for one in series for point in one.points]
    low, high = min([goal[1], *(p.y for p in points)]) - 5, max(p.y for p in points) + 5
    most = max([goal[0], *(p.x for p in points)]) * 1.12

    def at(x: float, y: float) -> tuple[float, float]:
        wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return LEFT + x / most * wide, TOP + (high - y) / (high - low) * tall

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        "<style>text{font:12px sans-serif;fill:#222}.t{font-size:15px}.n{font-size:10px}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text class="t" x="{LEFT}" y="24">{escape(title)}</text>',
        *_goal(at, goal, low),
        *_axes(at, most, low, high, across, up),
    ]
    for number, one in enumerate(series):
        parts += _drawn(one, COLOURS[number % len(COLOURS)], at)
        y = TOP + 14 + 16 * number
        parts.append(
            f'<circle cx="{WIDTH - 230}" cy="{y - 4}" r="4" fill="{COLOURS[number % 3]}"/>'
            f'<text x="{WIDTH - 220}" y="{y}">{escape(one.name)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _goal(at: At, goal: tuple[float, float], low: float) -> list[str]:
    (x0, y0), (x1, y1) = at(0, goal[1]), at(goal[0], low)
    return [
        f'<rect x="{x0:.0f}" y="{y0:.0f}" width="{x1 - x0:.0f}" height="{y1 - y0:.0f}" fill="#e3f1e0"/>',
        f'<text class="n" x="{x0 + 6:.0f}" y="{y1 - 6:.0f}">the goal</text>',
    ]


def _axes(at: At, most: float, low: float, high: float, across: str, up: str) -> list[str]:
    (x0, y0), (x1, _), (_, y1) = at(0, low), at(most, low), at(0, high)
    parts = [f'<path d="M{x0:.0f} {y1:.0f}V{y0:.0f}H{x1:.0f}" fill="none" stroke="#222"/>']
    step = 1 if most < 14 else 2
    for x in range(0, int(most) + 1, step):
        px, py = at(x, low)
        parts.append(f'<text x="{px:.0f}" y="{py + 18:.0f}" text-anchor="middle">{x}</text>')
    for y in range(int(low // 5 + 1) * 5, int(high) + 1, 5):
        px, py = at(0, y)
        parts.append(f'<text x="{px - 8:.0f}" y="{py + 4:.0f}" text-anchor="end">{y}</text>')
        parts.append(f'<path d="M{px:.0f} {py:.0f}H{x1:.0f}" stroke="#eee"/>')
    middle = (x0 + x1) / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 14}" text-anchor="middle">{escape(across)}</text>')
    turn = f'transform="translate(18 {(y0 + y1) / 2:.0f}) rotate(-90)"'
    return [*parts, f'<text {turn} text-anchor="middle">{escape(up)}</text>']


def _drawn(one: Series, colour: str, at: At) -> list[str]:
    places = [at(point.x, point.y) for point in one.points]
    parts = []
    if one.line and len(places) > 1:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    away = 14 if one.below else -5
    for point, (x, y) in zip(one.points, places, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        parts.append(f'<text class="n" x="{x + 6:.1f}" y="{y + away:.1f}">{escape(point.name)}</text>')
    return parts
