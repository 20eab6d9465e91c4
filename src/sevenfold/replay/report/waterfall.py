"""Cost by layer: from what the policy would have cost without its layers down to what it costs with them.

The first bar is an estimate, worked out backwards: what was simulated and what layers are credited with.
It differs from policy to policy; what a policy really costs without a layer is another replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sevenfold.replay.figures import Cost, Figures
from sevenfold.replay.report.drawing import amount, label, picture, safe, steps, tag, tokens

WIDTH, LEFT, RIGHT = 960.0, 260.0, 120.0
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
    bars = [_Step("without its layers, estimated", 0.0, at, "whole")]
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
        name = (
            f"paid, {whole.paid_files:,} of {whole.files:,} sessions" if part else paid_name(whole)
        )
        bars.append(_Step(name, 0.0, whole.paid.units, "paid"))
    return bars


def paid_name(whole: Figures) -> str:
    """At another price than that of its models it is not what was paid."""
    return f"recorded, priced as {whole.paid_at}" if whole.paid_at else "really paid"


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'}{tokens(abs(value))}"


def _told(name: str, bars: Sequence[_Step]) -> str:
    parts = [
        f"{bar.name} {tokens(bar.end) if bar.kind in ('whole', 'paid') else _signed(bar.change)}"
        for bar in bars
    ]
    return f"In base-price tokens, under {name}: {', '.join(parts)}."


def difference(cost: Cost, paid: Cost | None) -> str:
    """What would have been saved, in words."""
    if paid is None or not paid.units:
        return ""
    change = 1 - cost.units / paid.units
    known = cost.amount is not None and paid.amount is not None
    less = f" ({amount(Cost(0.0, abs((paid.amount or 0) - (cost.amount or 0)), cost.currency))})"
    return f"{abs(change):.1%}{less if known else ''} {'less' if change >= 0 else 'more'} than was paid"
