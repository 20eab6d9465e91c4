"""A replay as JSON for programs and as tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Final

from sevenfold.cli.wording import count, one_line, tokens
from sevenfold.messages import Json
from sevenfold.replay.caveats import CHARGED, LOOKS, NOT_CHARGED
from sevenfold.replay.figures import Cost, Figures, Left, left_in_all, total
from sevenfold.replay.outcome import Regret
from sevenfold.replay.running import Replayed

LONGEST_NAME: Final = 20
"""Of a session in a table."""
LONGEST_POLICY: Final = 60
"""Of the name of a policy there."""
FIRST_TO_GO: Final = (
    "by tokens", "sent", "hit", "compact.", "robust", "breaks", "extra/100", "requests", "fidelity", "paid",
)  # fmt: skip
"""Columns in the order in which a narrow terminal does without them."""
LEAST_CENTS: Final = 0.1
"""Smaller amounts have four digits behind the point."""
LEAST_TIME: Final = 0.001
"""Seconds of ours that are worth a word."""


# --- JSON -----------------------------------------------------------------------------------------------


def as_json(done: Sequence[Replayed], notes: Mapping[str, str]) -> Json:
    """The document that INTERFACE promises: with several policies, one object for each.

    `notes`: what is to be said of each policy, by its name.
    """
    if len(notes) == 1:
        [(name, note)] = notes.items()
        return _of_policy(done, name, note)
    return {"policies": {name: _of_policy(done, name, note) for name, note in notes.items()}}


def _of_policy(done: Sequence[Replayed], name: str, note: str) -> Json:
    whole = total([one.by_policy[name] for one in done if name in one.by_policy])
    return {
        "policy": name,
        "notes": [note] if note else [],
        "charged": f"{CHARGED}; {LOOKS}",
        "not_charged": NOT_CHARGED,
        "files": [_file(one, name) for one in done],
        "total": {"files": len(done), "failed": sum(bool(one.errors) for one in done)}
        | {key: value for key, value in _figures(whole).items() if key not in ("breaks",)}
        | {"breaks": len(whole.breaks), "break_reasons": reasons(whole)}
        | {"paid_files": whole.paid_files, "priced_files": whole.priced_files}
        | {"left_aside": _left(left_in_all(one.left for one in done))},
    }


def _file(one: Replayed, name: str) -> Json:
    known = one.by_policy.get(name, Figures())
    return {
        "path": one.path,
        "format": one.format or None,
        "session": one.session or None,
        "agent": one.agent or None,
        "title": one.title or None,
        "model": one.model or None,
        "policy": name,
        **_figures(known),
        "left_aside": _left(one.left),
        "errors": list(one.errors),
        "notes": list(one.notes),
    }


def _left(left: Left) -> Json:
    return {"requests": left.requests, "paid_cost": left.paid}


def _figures(known: Figures) -> Json:
    used = known.usage
    return {
        "requests": known.requests,
        "turns": known.turns,
        "extra_requests": known.extra,
        "beside_requests": known.beside,
        "tokens": used.prompt,
        "input": used.input,
        "cache_read": used.cache_read,
        "cache_write": used.cache_write,
        "output": used.output,
        "breaks": known.breaks,
        "simulated_cost": known.cost,
        "paid_cost": known.paid,
        "paid_requests": known.paid_requests,
        "paid_at": known.paid_at or None,
        "of_paid": _rounded(known.of_paid),
        "regret": _regret(known),
        "fidelity": _rounded(known.fidelity),
        "compactions": known.compactions,
        "layers": known.layers,
        "accounting_error": _rounded(median(known.accounting) if known.accounting else None),
        "seconds": {**_seconds(known)},
    }


def _regret(known: Figures) -> Json:
    regret: Regret = known.regret
    return {
        "cleared": regret.removed,
        "needed_again": regret.needed,
        "robust": regret.robust,
        "cleared_tokens": regret.removed_tokens,
        "needed_tokens": regret.needed_tokens,
        "share": _rounded(regret.share),
        "robust_share": _rounded(regret.robust_share),
        "token_share": _rounded(regret.token_share),
        "extra_per_100": _rounded(known.extra_per_100),
        "by_layer": {
            layer: {"cleared": gone, "needed_again": needed}
            for layer, (gone, needed) in regret.by_layer.items()
        },
    }


def _seconds(known: Figures) -> dict[str, float]:
    spent = known.spent
    return {name: round(getattr(spent, name), 4) for name in (*spent.__struct_fields__, "total")}


def reasons(known: Figures) -> dict[str, int]:
    """How often the cache broke, by why."""
    return dict(Counter(broke.reason for broke in known.breaks).most_common())


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


# --- tables -----------------------------------------------------------------------------------------------


def drawn(done: Sequence[Replayed], names: Sequence[str], width: int | None = None) -> str:
    """Tables, with the columns that a terminal so wide has room for."""
    known = [one for one in done if one.by_policy]
    if not known:
        return ""
    if len(names) == 1:
        parts = [_sessions(known, names[0], width), _summary(known, names[0])]
    else:
        parts = [_side_by_side(known, names, width), _counts(known, names)]
    return "\n\n".join(part for part in [*parts, _legend(known, names)] if part)


_Column = tuple[str, Callable[[Figures], str]]
_COLUMNS: Final[tuple[_Column, ...]] = (
    ("requests", lambda f: f"{f.requests:,}"),
    ("sent", lambda f: tokens(f.usage.prompt)),
    ("hit", lambda f: f"{f.usage.hit_rate:.0%}"),
    ("breaks", lambda f: f"{len(f.breaks):,}"),
    ("cost", lambda f: _cost(f.cost)),
    ("paid", lambda f: _cost(f.paid)),
    ("of paid", lambda f: _percent(f.of_paid)),
    ("extra/100", lambda f: f"{f.extra_per_100:.1f}"),
    ("robust", lambda f: _percent(f.regret.robust_share) if f.regret.removed else "–"),
    ("by tokens", lambda f: _percent(f.regret.token_share) if f.regret.removed else "–"),
    ("compact.", lambda f: f"{len(f.compactions):,}"),
    ("fidelity", lambda f: _percent(f.fidelity)),
)


def _sessions(known: Sequence[Replayed], name: str, width: int | None) -> str:
    rows = [[_name(one), *_cells(one.by_policy[name])] for one in known if name in one.by_policy]
    if len(rows) > 1:
        whole = total([one.by_policy[name] for one in known if name in one.by_policy])
        rows.append([f"all {len(rows):,}", *_cells(whole)])
    return _fitted(["session", *(head for head, _ in _COLUMNS)], rows, width)


def _side_by_side(known: Sequence[Replayed], names: Sequence[str], width: int | None) -> str:
    rows = []
    for name in names:
        whole = total([one.by_policy[name] for one in known if name in one.by_policy])
        rows.append([one_line(name, LONGEST_POLICY), *_cells(whole)])
    return _fitted(["policy", *(head for head, _ in _COLUMNS)], rows, width)


def _fitted(head: list[str], rows: list[list[str]], width: int | None) -> str:
    """The table without the columns that say least, as many as there is no room for."""
    table, left_out = columns(head, rows), list[str]()
    for name in FIRST_TO_GO:
        if width is None or max(map(len, table.splitlines())) <= width:
            break
        at = head.index(name)
        head, rows = head[:at] + head[at + 1 :], [row[:at] + row[at + 1 :] for row in rows]
        left_out.append(name)
        table = columns(head, rows)
    if left_out:
        table += f"\n  no room for: {', '.join(left_out)}"
    return table


def _counts(known: Sequence[Replayed], names: Sequence[str]) -> str:
    """How good our counts are, by the policy that was held against most recorded requests."""
    wholes = [total([one.by_policy[n] for one in known if n in one.by_policy]) for n in names]
    name, best = max(zip(names, wholes, strict=True), key=lambda pair: len(pair[1].accounting))
    return f"  {one_line(name, LONGEST_POLICY)}: {_off(best)}" if best.accounting else ""


def _off(whole: Figures) -> str:
    return (
        f"our count of a request is off the recorded one by {median(whole.accounting):.1%} "
        f"(median of {count(len(whole.accounting), 'request')} before anything changed)"
    )


def _cells(known: Figures) -> list[str]:
    return [cell(known) for _, cell in _COLUMNS]


def _summary(known: Sequence[Replayed], name: str) -> str:
    """What the layers did, why the cache broke, and what it took us."""
    whole = total([one.by_policy[name] for one in known if name in one.by_policy])
    rows = [
        [
            layer,
            f"{did.times:,}",
            tokens(max(0, did.tokens)),
            _signed(did.saved),
            _signed(did.cost),
            _signed(did.net),
        ]
        for layer, did in whole.layers.items()
    ]
    parts = []
    if rows:
        parts.append(columns(["layer", "times", "removed", "saved", "cost", "net"], rows))
    if whole.breaks:
        why = ", ".join(f"{reason} {n}" for reason, n in reasons(whole).items())
        parts.append(f"  cache breaks: {why}")
    if whole.accounting:
        parts.append(f"  {_off(whole)}")
    parts.append(_time(whole))
    return "\n".join(filter(None, parts))


def _time(whole: Figures) -> str:
    """What took us so long that it can be seen."""
    spent = whole.spent
    speed = f" ({whole.requests / spent.layers:,.0f} requests/s)" if spent.layers > 0 else ""
    known = (
        ("reading", spent.parsing, ""),
        ("layers", spent.layers, speed),
        ("simulator", spent.simulator, ""),
        ("tracing needs", spent.tracing, ""),
    )
    parts = [f"{name} {_took(took)}{more}" for name, took, more in known if took >= LEAST_TIME]
    return f"  our time: {', '.join(parts)}" if parts else ""


def _took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1_000 * seconds:.0f} ms"


def _legend(known: Sequence[Replayed], names: Sequence[str]) -> str:
    whole = total([one.by_policy[names[0]] for one in known if names[0] in one.by_policy])
    lines = [
        "  cost and paid: input, and output of requests that a policy adds",
        "  k and M: thousand and million base-price tokens",
        "  robust, by tokens: of what was cleared, needed again; extra/100: requests to read it back",
        f"  charged: {CHARGED}",
        f"  {LOOKS}",
        f"  not charged: {NOT_CHARGED}",
    ]
    if 0 < whole.paid_files < whole.files:
        lines.append(
            f"  paid is known for {whole.paid_files:,} of {whole.files:,} sessions: "
            "the total compares those alone"
        )
    if 0 < whole.paid_requests < whole.turns and whole.paid_files == whole.files:
        lines.append(
            f"  paid is known for {whole.paid_requests:,} of {whole.turns:,} requests: "
            "'of paid' compares those alone, and what the policy adds"
        )
    if whole.paid_at and whole.paid_files:
        lines.append(
            f"  paid is what was recorded, priced as {one_line(whole.paid_at, 40)}: not what was paid then"
        )
    if 0 < whole.priced_files < whole.files:
        lines.append(
            f"  a price is known for {whole.priced_files:,} of {whole.files:,} sessions: "
            "amounts are of those alone"
        )
    left = left_in_all(one.left for one in known)
    if left.requests:
        lines.append(
            f"  left aside: {count(left.requests, 'request')} on branches that were left, "
            f"paid {_cost(left.paid)}; they are in no other figure"
        )
    return "\n".join(lines)


def _name(one: Replayed) -> str:
    return one_line(one.called, LONGEST_NAME)


def _cost(cost: Cost | None) -> str:
    if cost is None:
        return "–"
    units = tokens(round(cost.units))
    return units if cost.amount is None else f"{units} {_amount(cost.amount, cost.currency)}"


def _signed(number: float) -> str:
    """Below nothing in the same form as above it."""
    return f"{'-' if round(number) < 0 else ''}{tokens(abs(round(number)))}"


def _amount(amount: float, currency: str | None) -> str:
    """With no more digits than it is rounded to."""
    sign = "$" if currency in (None, "USD") else f"{currency} "
    small = 0 < abs(amount) < LEAST_CENTS
    return f"{'-' if amount < 0 else ''}{sign}{abs(amount):.{4 if small else 2}f}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"


def columns(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table: the first column to the left, numbers to the right."""
    widths = [max(len(str(row[i])) for row in (head, *rows)) for i in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = [f"{row[0]:<{widths[0]}}"]
        cells += [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
