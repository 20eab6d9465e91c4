"""The report as an HTML page. Every text that comes from a file goes through `escape_text`."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final

from sevenfold.replay.comparison import (
    PolicyComparison,
    compare_policy,
    count_window_sources,
    group_by_window,
    sort_by_cost,
    sort_policies,
)
from sevenfold.replay.outcome import LARGE
from sevenfold.replay.policies import DEFAULT, Policy
from sevenfold.replay.report.charts import (
    describe_difference,
    draw_chart,
    draw_scatter,
    draw_waterfall,
    escape_text,
    format_cost,
    format_percent,
    format_tokens,
    name_paid_cost,
)
from sevenfold.replay.results import (
    ASSUMED,
    BY_RULE,
    CHARGED,
    GUESSED,
    LOOKS,
    NOT_CHARGED,
    ReplayCost,
    ReplayFigures,
    sum_figures,
    sum_left,
)
from sevenfold.replay.runner import ReplayResult

MOST_ERRORS: Final = 5  # Errors shown of one file


def format_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table; cells are HTML already, and the first of each row is its name."""
    heads = "".join(f'<th scope="col">{escape_text(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{escape_text(caption)}" tabindex="0"><table>'
        f"<caption>{escape_text(caption)}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def format_policies(caption: str, compared: Mapping[str, PolicyComparison]) -> str:
    """A row for each policy, the cheapest first; a figure of some sessions alone says so in its cell."""
    head = (
        "policy", "requests", "tokens sent", "from cache", "cache breaks", "cost", "paid", "of paid",
        "of append-only", "dearer sessions", "summaries per 100", "extra per 100",
        f"robust, ≥ {LARGE} tokens", "fidelity, by rule", "recall, assumed", "dreams, assumed",
    )  # fmt: skip
    rows = [
        [
            escape_text(name),
            f"{(f := (one := compared[name]).figures).requests:,}",
            format_tokens(f.usage.prompt),
            format_percent(f.usage.hit_rate),
            f"{len(f.breaks):,}",
            _format_part(format_cost(f.cost), f.priced_files, f.files),
            _format_part(format_cost(f.paid), f.paid_files, f.files),
            format_percent(f.of_paid),
            format_percent(one.of_append_only),
            f"{one.dearer:,} of {one.compared:,}" if one.compared else "–",
            f"{f.summaries_per_100:.1f}",
            f"{f.extra_per_100:.1f}",
            format_percent(f.regret.large_share),
            format_percent(f.fidelity),
            format_tokens(round(f.recalled)),
            format_tokens(round(f.dreamt)),
        ]
        for name in sort_policies(compared)
    ]
    return format_table(caption, head, rows)


def _format_part(cost: str, known: int, files: int) -> str:
    """A cost, with the number of sessions that it is of where those are not all."""
    return f"{cost}<small>{known:,} of {files:,} sessions</small>" if 0 < known < files else cost


def format_windows(done: Sequence[ReplayResult], names: Sequence[str]) -> str:
    """The table of all policies; with several windows one more for the sessions of each."""
    groups = group_by_window(done)
    tables = [format_policies("All sessions together, by policy", _compare_policies(done, names))]
    for tokens, of in groups.items() if len(groups) > 1 else ():
        sources = ", ".join(f"{source} {n:,}" for source, n in count_window_sources(of).items())
        caption = f"{len(of):,} sessions in a window of {format_tokens(tokens)} ({sources}), by policy"
        tables.append(format_policies(caption, _compare_policies(of, names)))
    return "".join(tables)


def _compare_policies(done: Sequence[ReplayResult], names: Sequence[str]) -> dict[str, PolicyComparison]:
    return {name: compare_policy(done, name) for name in names}


def _format_if_removed(f: ReplayFigures, share: float) -> str:
    return format_percent(share) if f.regret.removed else "–"


def format_layers(name: str, whole: ReplayFigures) -> str:
    removed = {layer for layer, (gone, _) in whole.regret.by_layer.items() if gone}
    rows = [
        [
            escape_text(layer),
            f"{did.times:,}",
            format_tokens(max(0, did.tokens)),
            format_tokens(did.saved),
            format_tokens(did.cost),
            format_tokens(did.net),
            *((f"{n:,}" for n in whole.regret.by_layer[layer]) if layer in removed else ("–", "–")),
        ]
        for layer, did in whole.layers.items()
    ]
    head = ("layer", "times", "tokens removed", "saved", "cost", "net", "things removed", "needed again")
    return format_table(f"What the layers did under {name}", head, rows) if rows else ""


def format_reasons(wholes: Mapping[str, ReplayFigures]) -> str:
    """The cache breaks by reason, with the tokens that were paid for again."""
    every = sorted({broke.reason for f in wholes.values() for broke in f.breaks})
    if not every:
        return ""
    rows = []
    for reason in every:
        cells = []
        for f in wholes.values():
            times = Counter[str](broke.reason for broke in f.breaks)[reason]
            again = sum(broke.tokens for broke in f.breaks if broke.reason == reason)
            cells.append(f"{times:,} ({format_tokens(again)})" if times else "–")
        rows.append([escape_text(reason), *cells])
    return format_table("Cache breaks by reason: times (tokens paid again)", ("reason", *wholes), rows)


def format_sessions(done: Sequence[ReplayResult], names: Sequence[str], main: str, drawn: set[int]) -> str:
    others = [name for name in names if name != main]
    head = (
        "session", "window", "requests", "paid", main, "of paid",
        *(f"{name}, of paid" for name in others), "of append-only",
        "cache breaks", "extra per 100", "robust", "fidelity, by rule",
    )  # fmt: skip
    rows = [
        [
            _format_session_name(one, drawn),
            f"{format_tokens(one.window.tokens)} ({one.window.source})",
            f"{(f := one.by_policy[main]).requests:,}",
            format_cost(f.paid),
            format_cost(f.cost),
            format_percent(f.of_paid),
            *(format_percent(one.by_policy.get(other, ReplayFigures()).of_paid) for other in others),
            format_percent(compare_policy([one], main).of_append_only),
            f"{len(f.breaks):,}",
            f"{f.extra_per_100:.1f}",
            _format_if_removed(f, f.regret.robust_share),
            format_percent(f.fidelity),
        ]
        for one in sort_by_cost(done, main)
    ]
    return format_table(f"Each session, under {main}, the dearest first", head, rows)


def _format_session_name(one: ReplayResult, drawn: set[int]) -> str:
    """The name of a session, with its title and its model in small print."""
    name = f"<bdi>{escape_text(one.short_name, 18)}</bdi>"
    if one.number in drawn:
        name = f'<a href="#s{one.number}">{name}</a>'
    small = " · ".join(f"<bdi>{escape_text(text, 60)}</bdi>" for text in (one.title, one.model) if text)
    return f"{name}<small>{small}</small>" if small else name


def format_errors(done: Sequence[ReplayResult]) -> str:
    """The errors of each file, and what is not known of it."""
    wrong = [one for one in done if one.errors or one.notes]
    if not wrong:
        return ""
    items = []
    for one in wrong:
        said = [escape_text(error, 300) for error in one.errors[:MOST_ERRORS]]
        if len(one.errors) > MOST_ERRORS:
            said.append(f"and {len(one.errors) - MOST_ERRORS:,} more")
        said += [escape_text(note, 300) for note in one.notes]
        inner = "".join(f"<li>{error}</li>" for error in said)
        items.append(f"<li><bdi>{escape_text(one.path, 200)}</bdi><ul>{inner}</ul></li>")
    return f"<ul>{''.join(items)}</ul>"


HERE: Final = Path(__file__).parent
MOST_DRAWN: Final = 60  # Most sessions that are drawn, those that cost most. All are in the table.


def format_page(
    done: Sequence[ReplayResult],
    policies: Sequence[Policy],
    now: float,
    notes: Mapping[str, str] | None = None,
) -> str:
    """The report as HTML. `notes` are by policy."""
    names = [policy.name for policy in policies]
    main = DEFAULT if DEFAULT in names else names[-1]
    wholes = {
        name: sum_figures([one.by_policy[name] for one in done if name in one.by_policy]) for name in names
    }
    known = [one for one in done if main in one.by_policy]
    costly = sorted(known, key=lambda one: -one.by_policy[main].cost.units)[:MOST_DRAWN]
    drawn = {one.number for one in costly}
    sections = [
        _format_policy_section(policies, wholes, format_windows(done, names), notes or {}),
        _format_layer_section(wholes),
        _format_regret_section(wholes),
        _format_section("wrong", "What could not be read or known", format_errors(done)),
        _format_section("sessions", "Sessions", format_sessions(done, names, main, drawn)),
        _format_drawings([one for one in known if one.number in drawn], names, main, len(known)),
    ]
    return Template((HERE / "page.html").read_text(encoding="utf-8")).substitute(
        title="Sevenfold replay",
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        about=_describe_replay(done, known, now),
        main=escape_text(main),
        tiles=_format_tiles(wholes[main], known),
        charged=escape_text(f"{CHARGED}; {LOOKS}. {GUESSED} {ASSUMED}.", 900),
        not_charged=escape_text(f"{NOT_CHARGED}. It is not free.", 600),
        by_rule=escape_text(BY_RULE, 600),
        sections="\n".join(section for section in sections if section),
    )


def _describe_replay(done: Sequence[ReplayResult], known: Sequence[ReplayResult], now: float) -> str:
    day = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y-%m-%d")
    if not known:
        return f"No session could be replayed on {day}: what is wrong with each file is below."
    formats = sorted({one.format for one in known})
    named = f"{len(known):,} recorded session{'' if len(known) == 1 else 's'}"
    broken = sum(bool(one.errors) for one in done)
    wrong = f" {broken:,} of {len(done):,} files had something wrong with them." if broken else ""
    return (
        f"{named} ({escape_text(', '.join(formats))}), replayed on {day}: what they "
        f"would have cost, and what they would have forgotten.{wrong}{_describe_left(known)}"
    )


def _describe_left(known: Sequence[ReplayResult]) -> str:
    left = sum_left(one.left for one in known)
    if not left.requests:
        return ""
    were = "request was" if left.requests == 1 else "requests were"
    paid = f", and {format_cost(left.paid)} paid for them" if left.paid else ""
    return f" {left.requests:,} {were} made on branches that were left{paid}: that is in no figure."


def _format_tiles(whole: ReplayFigures, known: Sequence[ReplayResult]) -> str:
    usage, regret = whole.usage, whole.regret
    tiles = [
        (
            "simulated cost",
            format_cost(whole.cost),
            "; ".join(filter(None, (_format_units(whole.cost), _describe_savings(whole)))),
        ),
        (
            escape_text(name_paid_cost(whole)),
            format_cost(whole.paid),
            _format_units(whole.paid) or "not recorded",
        ),
        ("requests", f"{whole.requests:,}", f"{whole.turns:,} of the sessions' own"),
        ("from the cache", format_percent(usage.hit_rate), f"{len(whole.breaks):,} cache breaks"),
        (
            "read back",
            f"{whole.extra_per_100:.1f} per 100",
            f"{regret.needed:,} of {regret.removed:,} things removed",
        ),
        (
            "robust regret",
            _format_if_removed(whole, regret.robust_share),
            f"{_format_if_removed(whole, regret.token_share)} by tokens",
        ),
        ("fidelity", format_percent(whole.fidelity), f"{len(whole.compactions):,} compactions"),
    ]
    return "\n".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{escape_text(more)}</small></dd></div>"
        for name, value, more in tiles
    )


def _format_units(cost: ReplayCost | None) -> str:
    return f"{format_tokens(cost.units)} base-price tokens" if cost is not None else ""


def _describe_savings(whole: ReplayFigures) -> str:
    """The difference to the recorded cost, for the sessions that have one."""
    if not (told := describe_difference(whole)):
        return ""
    if 0 < whole.paid_files < whole.files:
        told += f" in the {whole.paid_files:,} of {whole.files:,} sessions that say"
    elif 0 < whole.paid_requests < whole.turns:
        told += f" for the {whole.paid_requests:,} of {whole.turns:,} requests that say"
    return told


def _format_section(id: str, title: str, body: str) -> str:
    if not body:
        return ""
    return f'<section aria-labelledby="{id}"><h2 id="{id}">{escape_text(title)}</h2>\n{body}\n</section>'


def _format_policy_section(
    policies: Sequence[Policy], wholes: Mapping[str, ReplayFigures], tables: str, notes: Mapping[str, str]
) -> str:
    said = [
        (policy.name, text)
        for policy in policies
        for text in (policy.description, notes.get(policy.name, ""))
        if text
    ]
    told = "".join(f"<li><b>{escape_text(name)}</b>: {escape_text(text, 300)}</li>" for name, text in said)
    picture = draw_scatter(wholes)
    figure = f'<figure class="scatter">{picture}</figure>' if picture else ""
    body = f"<ul>{told}</ul>{tables}{figure}{format_reasons(wholes)}"
    return _format_section("policies", "Policies" if len(wholes) > 1 else "The policy", body)


def _format_layer_section(wholes: Mapping[str, ReplayFigures]) -> str:
    parts = [
        f"<h3>{escape_text(name)}</h3><figure>{draw_waterfall(f'w{n}', name, whole)}</figure>"
        f"{format_layers(name, whole)}"
        for n, (name, whole) in enumerate(wholes.items())
        if whole.layers
    ]
    note = (
        '<p class="note">In base-price tokens; green saves, red costs. The first bar is worked out '
        "backwards from what the layers are credited with: it is an estimate, and each policy has its "
        "own.</p>"
    )
    return _format_section("layers", "Cost by layer", note + "".join(parts) if parts else "")


def _format_regret_section(wholes: Mapping[str, ReplayFigures]) -> str:
    rows = [
        [
            escape_text(name),
            f"{whole.regret.removed:,}",
            f"{whole.regret.needed:,}",
            f"{whole.regret.robust:,}",
            _format_if_removed(whole, whole.regret.robust_share),
            format_percent(whole.regret.large_share),
            _format_if_removed(whole, whole.regret.token_share),
            f"{whole.extra_per_100:.1f}",
            f"{len(whole.compactions):,}",
            format_percent(whole.fidelity),
            format_percent(
                min((c.fidelity for c in whole.compactions if c.fidelity is not None), default=None)
            ),
        ]
        for name, whole in wholes.items()
    ]
    head = (
        "policy", "removed", "needed again", "beyond doubt", "robust", f"robust, {LARGE} tokens and more",
        "by tokens", "extra per 100",
        "compactions", "fidelity", "worst",
    )  # fmt: skip
    return _format_section("regret", "Regret and fidelity", format_table("What was forgotten", head, rows))


def _format_drawings(known: Sequence[ReplayResult], names: Sequence[str], main: str, every: int) -> str:
    if not known:
        return ""
    parts = [_format_legend(names, main)]
    if every > len(known):
        parts.append(f'<p class="note">The {len(known)} sessions that cost most, of {every:,}.</p>')
    for one in known:
        title = f"{one.title} · " if one.title else ""
        shown = {name: one.by_policy[name] for name in names if name in one.by_policy}
        parts.append(
            f'<figure id="s{one.number}"><h3><bdi>{escape_text(title + one.short_name)}</bdi></h3>'
            f"{draw_chart(f'c{one.number}', f'Context of {one.short_name}', shown, main)}</figure>"
        )
    return _format_section("contexts", "Context over time", "".join(parts))


def _format_legend(names: Sequence[str], main: str) -> str:
    def key(kind: str, shape: str) -> str:
        body = f'<polyline class="{kind}" points="0,5 32,5"/>'
        if shape == "area":
            body = f'<rect class="{kind}" width="32" height="10"/>'
        return f'<svg viewBox="0 0 32 10" aria-hidden="true">{body}</svg>'

    items = [
        (key("sent", "area"), "sent and paid in full or written"),
        (key("read", "area"), "read from the cache"),
        (key("main", "line"), escape_text(main)),
        (key("recorded", "line"), "as recorded"),
        (key("silence", "line"), "silence of over 5 minutes"),
        (key("miss", "area"), "less than half from the cache"),
    ]
    items += [
        (key(f"policy p{n % 6}", "line"), escape_text(name)) for n, name in enumerate(names) if name != main
    ]
    return f'<ul class="legend">{"".join(f"<li>{svg}{name}</li>" for svg, name in items)}</ul>'
