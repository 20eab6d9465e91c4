"""The tables of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from sevenfold.replay.figures import Figures
from sevenfold.replay.report.drawing import amount, percent, safe, tokens
from sevenfold.replay.running import Replayed

MOST_ERRORS: Final = 5
"""Shown of one file."""


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already; the first of each row is its name."""
    heads = "".join(f'<th scope="col">{safe(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{safe(caption)}" tabindex="0"><table>'
        f"<caption>{safe(caption)}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def policies(wholes: Mapping[str, Figures]) -> str:
    head = (
        "policy", "requests", "tokens sent", "from cache", "cache breaks", "cost", "paid", "of paid",
        "extra per 100", "needed again", "robust", "by tokens", "compactions", "fidelity",
    )  # fmt: skip
    rows = [
        [
            safe(name),
            f"{f.requests:,}",
            tokens(f.usage.prompt),
            percent(f.usage.hit_rate),
            f"{len(f.breaks):,}",
            amount(f.cost),
            amount(f.paid),
            percent(f.of_paid),
            f"{f.extra_per_100:.1f}",
            *_regret(f),
            f"{len(f.compactions):,}",
            percent(f.fidelity),
        ]
        for name, f in wholes.items()
    ]
    return table("All sessions together, by policy", head, rows)


def _regret(f: Figures) -> list[str]:
    regret = f.regret
    if not regret.removed:
        return ["–", "–", "–"]
    return [percent(regret.share), percent(regret.robust_share), percent(regret.token_share)]


def layers(name: str, whole: Figures) -> str:
    rows = [
        [
            safe(layer),
            f"{did.times:,}",
            tokens(max(0, did.tokens)),
            tokens(did.saved),
            tokens(did.cost),
            tokens(did.net),
            *_taken(whole, layer),
        ]
        for layer, did in whole.layers.items()
    ]
    head = (
        "layer",
        "times",
        "tokens removed",
        "saved",
        "cost",
        "net",
        "things removed",
        "needed again",
    )
    return table(f"What the layers did under {name}", head, rows) if rows else ""


def _taken(whole: Figures, layer: str) -> list[str]:
    gone, needed = whole.regret.by_layer.get(layer, (0, 0))
    return [f"{gone:,}", f"{needed:,}"] if gone else ["–", "–"]


def reasons(wholes: Mapping[str, Figures]) -> str:
    """Why the cache broke, and how many tokens were paid for again."""
    every = sorted({broke.reason for f in wholes.values() for broke in f.breaks})
    if not every:
        return ""
    rows = []
    for reason in every:
        cells = []
        for f in wholes.values():
            times = Counter[str](broke.reason for broke in f.breaks)[reason]
            again = sum(broke.tokens for broke in f.breaks if broke.reason == reason)
            cells.append(f"{times:,} ({tokens(again)})" if times else "–")
        rows.append([safe(reason), *cells])
    return table("Cache breaks by reason: times (tokens paid again)", ("reason", *wholes), rows)


def sessions(done: Sequence[Replayed], names: Sequence[str], main: str, drawn: set[int]) -> str:
    others = [name for name in names if name != main]
    head = (
        "session", "requests", "paid", main, "of paid", *(f"{name}, of paid" for name in others),
        "cache breaks", "extra per 100", "robust", "fidelity",
    )  # fmt: skip
    rows = [
        [
            _who(one, drawn),
            f"{f.requests:,}",
            amount(f.paid),
            amount(f.cost),
            percent(f.of_paid),
            *(_of_paid(one.by_policy.get(other)) for other in others),
            f"{len(f.breaks):,}",
            f"{f.extra_per_100:.1f}",
            percent(f.regret.robust_share) if f.regret.removed else "–",
            percent(f.fidelity),
        ]
        for one in done
        if (f := one.by_policy.get(main)) is not None
    ]
    return table(f"Each session, under {main}", head, rows)


def _of_paid(figures: Figures | None) -> str:
    return percent(figures.of_paid) if figures is not None else "–"


def _who(one: Replayed, drawn: set[int]) -> str:
    """The name of a session, with its title and its model in small print."""
    name = f"<bdi>{safe(one.called, 18)}</bdi>"
    if one.number in drawn:
        name = f'<a href="#s{one.number}">{name}</a>'
    small = " · ".join(f"<bdi>{safe(text, 60)}</bdi>" for text in (one.title, one.model) if text)
    return f"{name}<small>{small}</small>" if small else name


def errors(done: Sequence[Replayed]) -> str:
    """What is wrong with which file."""
    wrong = [one for one in done if one.errors]
    if not wrong:
        return ""
    items = []
    for one in wrong:
        said = [safe(error, 300) for error in one.errors[:MOST_ERRORS]]
        if len(one.errors) > MOST_ERRORS:
            said.append(f"and {len(one.errors) - MOST_ERRORS:,} more")
        inner = "".join(f"<li>{error}</li>" for error in said)
        items.append(f"<li><bdi>{safe(one.path, 200)}</bdi><ul>{inner}</ul></li>")
    return f"<ul>{''.join(items)}</ul>"
