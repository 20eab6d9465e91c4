"""Small pieces of SVG and HTML: safe text, numbers for people, axes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from math import floor, log10
from typing import Final

from sevenfold.replay.figures import Cost

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Characters that turn text round, hide something or are none."""


def safe(text: str, most: int = 120) -> str:
    """Text of somebody else's, as it may stand in a page: nothing in it is markup or invisible."""
    line = " ".join(text.split())
    line = "".join("\ufffd" if unicodedata.category(c) in _HIDDEN else c for c in line)
    return escape(line if len(line) <= most else f"{line[: most - 1]}…")


def tokens(number: float) -> str:
    """12345 -> 12.3k"""
    size = abs(number)
    if size < 1_000:
        return f"{number:.0f}"
    if size < 999_950:
        return f"{number / 1_000:.1f}".removesuffix(".0") + "k"
    return f"{number / 1_000_000:.2f}".rstrip("0").removesuffix(".") + "M"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}\u00a0%"


def amount(cost: Cost | None) -> str:
    """A cost in money where its price is known, else in tokens."""
    if cost is None:
        return "–"
    if cost.amount is None:
        return tokens(cost.units)
    sign = "$" if cost.currency == "USD" else f"{safe(cost.currency or '')} "
    return f"{sign}{cost.amount:,.2f}"


def span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3_600:.1f} h"
    return f"{seconds / 86_400:.0f} days"


def steps(most: float, wanted: int = 4) -> list[float]:
    """Round numbers from nothing to about `most`, to draw lines at."""
    if most <= 0:
        return [0.0]
    rough = most / wanted
    ten = 10 ** floor(log10(rough))
    step = next(n * ten for n in (1, 2, 2.5, 5, 10) if n * ten >= rough)
    return [n * step for n in range(int(most / step) + 1)]


def tag(name: str, body: str = "", **attributes: str | float) -> str:
    """An element; `_` in the name of an attribute is `-`, and `class_` is `class`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{number(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{body}</{name}>"


def number(value: str | float) -> str:
    if isinstance(value, str):
        return escape(value)
    return f"{value:.1f}".removesuffix(".0")


def label(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return tag("text", safe(text), x=x, y=y, class_=f"label {kind}".strip(), text_anchor=anchor)


def line(points: Sequence[tuple[float, float]], kind: str) -> str:
    return tag("polyline", points=_path(points), class_=kind)


def area(points: Sequence[tuple[float, float]], floor_at: float, kind: str) -> str:
    if not points:
        return ""
    closed = [(points[0][0], floor_at), *points, (points[-1][0], floor_at)]
    return tag("polygon", points=_path(closed), class_=kind)


def _path(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{number(x)},{number(y)}" for x, y in points)


def picture(id: str, title: str, about: str, width: float, height: float, body: str) -> str:
    """A drawing with a name and a description for those who do not see it."""
    head = f'<title id="{id}-t">{safe(title)}</title><desc id="{id}-d">{safe(about, 600)}</desc>'
    return (
        f'<svg role="img" aria-labelledby="{id}-t {id}-d" viewBox="0 0 {number(width)} '
        f'{number(height)}" preserveAspectRatio="xMinYMin meet">{head}{body}</svg>'
    )
