"""Cost by layer: from what carrying everything would have cost down to what it costs with the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sevenfold.replay.figures import Cost, Figures
from sevenfold.replay.report.drawing import amount, label, picture, safe, steps, tag, tokens

WIDTH, LEFT, RIGHT = 960.0, 210.0, 150.0
BAR, GAP = 18.0, 8.0
LEAST: Final = 0.0005
"""Of the whole; smaller steps are left out."""


class _Step:
    def __init__(self, name: str, start: float, end: float, kind: str) -> None:
        self.name, self.start, self.end, self.kind = name, start, end, kind

    @property
    def change(self) -> float:
        return self.end - self.start


def waterfall(id: str, name: str, whole: Figures) -> str:
    """The bars of one policy."""
    bars = _steps(whole)
    most = max(max(bar.start, bar.end) for bar in bars) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / most
    height = (BAR + GAP) * len(bars) + 30
    out = []
    for at in steps(most):
        x = LEFT + at * scale
        out.append(tag("line", x1=x, x2=x, y1=4, y2=height - 22, class_="grid"))
        out.append(label(x, height - 8, tokens(at), anchor="middle"))
    for n, bar in enumerate(bars):
        out.append(_bar(bar, 6 + n * (BAR + GAP), scale))
    title = f"Cost by layer under {name}"
    return picture(id, title, _told(name, bars), WIDTH, height, "".join(out))


def _bar(bar: _Step, y: float, scale: float) -> str:
    low, high = sorted((bar.start, bar.end))
    value = tokens(bar.end) if bar.kind in ("whole", "paid") else f"{_signed(bar.change)}"
    about = f"<title>{safe(f'{bar.name}: {value}')}</title>"
    return "".join(
        (
            label(LEFT - 8, y + 13, bar.name, anchor="end"),
            tag(
                "rect",
                about,
                x=LEFT + low * scale,
                y=y,
                width=max(1.0, (high - low) * scale),
                height=BAR,
                class_=f"bar {bar.kind}",
            ),
            label(LEFT + high * scale + 6, y + 13, value),
        )
    )


def _steps(whole: Figures) -> list[_Step]:
    end = whole.cost.units
    at = end + sum(layer.net for layer in whole.layers.values())
    bars = [_Step("carrying everything", 0.0, at, "whole")]
    for name, layer in whole.layers.items():
        for value, kind, words in (
            (-layer.saved, "saved", "saves"),
            (layer.cost, "spent", "costs"),
        ):
            if abs(value) > LEAST * max(end, 1.0):
                bars.append(_Step(f"{name} {words}", at, at + value, kind))
                at += value
    bars.append(_Step("simulated", 0.0, end, "whole"))
    if whole.paid is not None:
        part = whole.paid_files < whole.files
        name = f"paid, {whole.paid_files:,} of {whole.files:,} sessions" if part else "really paid"
        bars.append(_Step(name, 0.0, whole.paid.units, "paid"))
    return bars


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'}{tokens(abs(value))}"


def _told(name: str, bars: Sequence[_Step]) -> str:
    parts = [
        f"{bar.name} {tokens(bar.end) if bar.kind in ('whole', 'paid') else _signed(bar.change)}"
        for bar in bars
    ]
    return f"In base-price tokens, under {name}: {', '.join(parts)}."


def frontier(wholes: Mapping[str, Figures]) -> str:
    """Cost against what had to be read back: policies to the lower left are better."""
    points = {
        name: (whole.extra_per_100, 100 * whole.of_paid)
        for name, whole in wholes.items()
        if whole.of_paid is not None
    }
    if len(points) < 2:
        return ""
    right = max(x for x, _ in points.values()) * 1.15 or 1.0
    high = max(y for _, y in points.values()) * 1.1
    width, height, left, bottom = 960.0, 320.0, 70.0, 40.0
    sx, sy = (width - left - 190) / right, (height - bottom - 16) / high
    out = [label(left, height - 6, "extra requests per 100: what was gone was read back →")]
    out.append(label(6, 14, "% of paid", "head"))
    for y in steps(high):
        at = height - bottom - y * sy
        out.append(tag("line", x1=left, x2=width - 180, y1=at, y2=at, class_="grid"))
        out.append(label(left - 6, at + 4, f"{y:g}", anchor="end"))
    low = height - bottom + 16
    out += [label(left + x * sx, low, f"{x:g}", anchor="middle") for x in steps(right)]
    for n, (name, (x, y)) in enumerate(points.items()):
        about = (
            f"<title>{safe(f'{name}: {y:.1f} % of paid, {x:.1f} extra requests per 100')}</title>"
        )
        cx, cy = left + x * sx, height - bottom - y * sy
        out.append(tag("circle", about, cx=cx, cy=cy, r=6, class_=f"dot p{n % 6}"))
        out.append(label(cx + 10, cy + 4, name))
    told = "; ".join(f"{name}: {y:.1f} % of paid, {x:.1f} extra" for name, (x, y) in points.items())
    return picture("frontier", "Cost against reading back", told, width, height, "".join(out))


def difference(cost: Cost, paid: Cost | None) -> str:
    """What would have been saved, in words."""
    if paid is None or not paid.units:
        return ""
    change = 1 - cost.units / paid.units
    known = cost.amount is not None and paid.amount is not None
    less = f" ({amount(Cost(0.0, abs((paid.amount or 0) - (cost.amount or 0)), cost.currency))})"
    return f"{abs(change):.1%}{less if known else ''} {'less' if change >= 0 else 'more'} than was paid"
