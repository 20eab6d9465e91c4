"""Puts the page together. Every word that comes from a file goes through `safe`."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final

from sevenfold.replay.caveats import BY_RULE, CHARGED, GUESSED, LOOKS, NOT_CHARGED
from sevenfold.replay.figures import Cost, Figures, left_in_all, total
from sevenfold.replay.policies import DEFAULT, Policy
from sevenfold.replay.report import tables
from sevenfold.replay.report.context_chart import chart
from sevenfold.replay.report.drawing import amount, percent, safe, tokens
from sevenfold.replay.report.scatter import scatter
from sevenfold.replay.report.waterfall import difference, paid_name, waterfall
from sevenfold.replay.running import Replayed

HERE: Final = Path(__file__).parent
MOST_DRAWN: Final = 60
"""Sessions that get a drawing: those that cost most. All are in the table."""


def page(
    done: Sequence[Replayed],
    policies: Sequence[Policy],
    now: float,
    notes: Mapping[str, str] | None = None,
) -> str:
    """The report as HTML. `notes`: what is to be said of a policy, by its name."""
    names = [policy.name for policy in policies]
    main = DEFAULT if DEFAULT in names else names[-1]
    wholes = {
        name: total([one.by_policy[name] for one in done if name in one.by_policy])
        for name in names
    }
    known = [one for one in done if main in one.by_policy]
    costly = sorted(known, key=lambda one: -one.by_policy[main].cost.units)[:MOST_DRAWN]
    drawn = {one.number for one in costly}
    sections = [
        _policies(policies, wholes, notes or {}),
        _layers(wholes),
        _regret(wholes),
        _section("wrong", "What could not be read or known", tables.errors(done)),
        _section("sessions", "Sessions", tables.sessions(done, names, main, drawn)),
        _drawings([one for one in known if one.number in drawn], names, main, len(known)),
    ]
    template = Template((HERE / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title="Sevenfold replay",
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        about=_about(done, known, now),
        main=safe(main),
        tiles=_tiles(wholes[main], known),
        charged=safe(f"{CHARGED}; {LOOKS}. {GUESSED}", 600),
        not_charged=safe(f"{NOT_CHARGED}. None of them is free.", 600),
        by_rule=safe(BY_RULE, 600),
        sections="\n".join(section for section in sections if section),
    )


def _about(done: Sequence[Replayed], known: Sequence[Replayed], now: float) -> str:
    day = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y-%m-%d")
    if not known:
        return f"No session could be replayed on {day}: what is wrong with each file is below."
    formats = sorted({one.format for one in known})
    named = f"{len(known):,} recorded session{'' if len(known) == 1 else 's'}"
    broken = sum(bool(one.errors) for one in done)
    wrong = f" {broken:,} of {len(done):,} files had something wrong with them." if broken else ""
    return (
        f"{named} ({safe(', '.join(formats))}), replayed on {day}: what they "
        f"would have cost, and what they would have forgotten.{wrong}{_left(known)}"
    )


def _left(known: Sequence[Replayed]) -> str:
    left = left_in_all(one.left for one in known)
    if not left.requests:
        return ""
    were = "request was" if left.requests == 1 else "requests were"
    paid = f", and {amount(left.paid)} paid for them" if left.paid else ""
    return f" {left.requests:,} {were} made on branches that were left{paid}: that is in no figure."


def _tiles(whole: Figures, known: Sequence[Replayed]) -> str:
    usage, regret = whole.usage, whole.regret
    tiles = [
        (
            "simulated cost",
            amount(whole.cost),
            "; ".join(filter(None, (_units(whole.cost), _saved(whole)))),
        ),
        (safe(paid_name(whole)), amount(whole.paid), _units(whole.paid) or "not recorded"),
        ("requests", f"{whole.requests:,}", f"{whole.turns:,} of the sessions' own"),
        ("from the cache", percent(usage.hit_rate), f"{len(whole.breaks):,} cache breaks"),
        (
            "read back",
            f"{whole.extra_per_100:.1f} per 100",
            f"{regret.needed:,} of {regret.removed:,} things removed",
        ),
        (
            "robust regret",
            percent(regret.robust_share) if regret.removed else "–",
            f"{percent(regret.token_share) if regret.removed else '–'} by tokens",
        ),
        ("fidelity", percent(whole.fidelity), f"{len(whole.compactions):,} compactions"),
    ]
    return "\n".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{safe(more)}</small></dd></div>"
        for name, value, more in tiles
    )


def _units(cost: Cost | None) -> str:
    return f"{tokens(cost.units)} base-price tokens" if cost is not None else ""


def _saved(whole: Figures) -> str:
    """What the simulated cost is beside what was paid, over the sessions that say it."""
    if not (told := difference(whole.compared or whole.cost, whole.paid)):
        return ""
    if 0 < whole.paid_files < whole.files:
        told += f" in the {whole.paid_files:,} of {whole.files:,} sessions that say"
    elif 0 < whole.paid_requests < whole.turns:
        told += f" for the {whole.paid_requests:,} of {whole.turns:,} requests that say"
    return told


def _section(id: str, title: str, body: str) -> str:
    if not body:
        return ""
    return f'<section aria-labelledby="{id}"><h2 id="{id}">{safe(title)}</h2>\n{body}\n</section>'


def _policies(
    policies: Sequence[Policy], wholes: Mapping[str, Figures], notes: Mapping[str, str]
) -> str:
    said = [
        (policy.name, text)
        for policy in policies
        for text in (policy.description, notes.get(policy.name, ""))
        if text
    ]
    told = "".join(f"<li><b>{safe(name)}</b>: {safe(text, 300)}</li>" for name, text in said)
    picture = scatter(wholes)
    figure = f'<figure class="scatter">{picture}</figure>' if picture else ""
    body = f"<ul>{told}</ul>{tables.policies(wholes)}{figure}{tables.reasons(wholes)}"
    return _section("policies", "Policies" if len(wholes) > 1 else "The policy", body)


def _layers(wholes: Mapping[str, Figures]) -> str:
    parts = [
        f"<h3>{safe(name)}</h3><figure>{waterfall(f'w{n}', name, whole)}</figure>"
        f"{tables.layers(name, whole)}"
        for n, (name, whole) in enumerate(wholes.items())
        if whole.layers
    ]
    note = (
        '<p class="note">In base-price tokens; green saves, red costs. The first bar is worked out '
        "backwards from what the layers are credited with: it is an estimate, and each policy has its "
        "own.</p>"
    )
    return _section("layers", "Cost by layer", note + "".join(parts) if parts else "")


def _regret(wholes: Mapping[str, Figures]) -> str:
    rows = [
        [
            safe(name),
            f"{whole.regret.removed:,}",
            f"{whole.regret.needed:,}",
            f"{whole.regret.robust:,}",
            percent(whole.regret.robust_share) if whole.regret.removed else "–",
            percent(whole.regret.token_share) if whole.regret.removed else "–",
            f"{whole.extra_per_100:.1f}",
            f"{len(whole.compactions):,}",
            percent(whole.fidelity),
            percent(
                min((c.fidelity for c in whole.compactions if c.fidelity is not None), default=None)
            ),
        ]
        for name, whole in wholes.items()
    ]
    head = (
        "policy", "removed", "needed again", "beyond doubt", "robust", "by tokens", "extra per 100",
        "compactions", "fidelity", "worst",
    )  # fmt: skip
    return _section("regret", "Regret and fidelity", tables.table("What was forgotten", head, rows))


def _drawings(known: Sequence[Replayed], names: Sequence[str], main: str, every: int) -> str:
    if not known:
        return ""
    parts = [_legend(names, main)]
    if every > len(known):
        parts.append(f'<p class="note">The {len(known)} sessions that cost most, of {every:,}.</p>')
    for one in known:
        title = f"{one.title} · " if one.title else ""
        shown = {name: one.by_policy[name] for name in names if name in one.by_policy}
        parts.append(
            f'<figure id="s{one.number}"><h3><bdi>{safe(title + one.called)}</bdi></h3>'
            f"{chart(f'c{one.number}', f'Context of {one.called}', shown, main)}</figure>"
        )
    return _section("contexts", "Context over time", "".join(parts))


def _legend(names: Sequence[str], main: str) -> str:
    def key(kind: str, shape: str) -> str:
        body = f'<polyline class="{kind}" points="0,5 32,5"/>'
        if shape == "area":
            body = f'<rect class="{kind}" width="32" height="10"/>'
        return f'<svg viewBox="0 0 32 10" aria-hidden="true">{body}</svg>'

    items = [
        (key("sent", "area"), "sent and paid in full or written"),
        (key("read", "area"), "read from the cache"),
        (key("main", "line"), safe(main)),
        (key("recorded", "line"), "as recorded"),
        (key("silence", "line"), "silence of over 5 minutes"),
        (key("miss", "area"), "less than half from the cache"),
    ]
    items += [
        (key(f"policy p{n % 6}", "line"), safe(name))
        for n, name in enumerate(names)
        if name != main
    ]
    return f'<ul class="legend">{"".join(f"<li>{svg}{name}</li>" for svg, name in items)}</ul>'
