"""`sevenfold replay`: replays files and prints tables or JSON, or writes an HTML report."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import Prices
from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import (
    format_count,
    format_tokens,
    print_message,
    print_result,
    print_warning,
    to_one_line,
)
from sevenfold.cli.startup import read_command_context
from sevenfold.core.errors import Mistake
from sevenfold.core.messages import Json
from sevenfold.recordings.finder import (
    ReplayFile,
    find_copied_requests,
    find_repeated_reads,
    find_replay_files,
    read_first_requests,
)
from sevenfold.recordings.windows import WindowSource
from sevenfold.replay.comparison import (
    APPEND_ONLY,
    PolicyComparison,
    compare_policy,
    count_window_sources,
    group_by_window,
    sort_by_cost,
    sort_policies,
)
from sevenfold.replay.costs import find_wanted_model
from sevenfold.replay.outcome import LARGE, ReplayRegret
from sevenfold.replay.policies import (
    BUILT_IN,
    DEFAULT,
    LAYERS,
    Policy,
    describe_unheeded,
    exclude_layers,
    find_useless_exclusions,
    list_active_layers,
    load_policy,
)
from sevenfold.replay.results import (
    ASSUMED,
    CHARGED,
    LOOKS,
    NOT_CHARGED,
    LeftBranches,
    ReplayCost,
    ReplayFigures,
    compute_cost_share,
    sum_figures,
    sum_left,
)
from sevenfold.replay.runner import (
    FileProgress,
    ReplayJob,
    ReplayProgress,
    ReplayResult,
    end_on_sigterm,
    replay_files,
)

DIRECT, PROXY = "direct", "proxy"
"""Policies of a replay as the proxy: the client alone, and the client through it."""


class PolicyChoice(msgspec.Struct, frozen=True):
    """A policy to replay: a row of the table."""

    policy: Policy
    note: str = ""  # Settings of the policy that have no effect; empty for most


def choose_policies(
    names: Sequence[str], left_out: Sequence[str], *, compare: bool
) -> tuple[PolicyChoice, ...]:
    """The policies; when they are compared, each layer that is left out makes one more."""
    wanted = BUILT_IN if compare and not names and not left_out else names or (DEFAULT,)
    # All are compared with append-only.
    base = [PolicyChoice(load_policy(APPEND_ONLY))] if compare and APPEND_ONLY not in wanted else []
    plain = [(load_policy(name), name not in BUILT_IN) for name in wanted]
    each: list[Sequence[str]] = [(), *([word] for word in left_out)] if compare else [left_out]
    out = [_make_choice(one, less, own=own) for one, own in plain for less in each]
    _check_exclusions([one for one, _ in plain], left_out)
    twice = [name for name, n in Counter(one.policy.name for one in out).items() if n > 1]
    if twice:
        raise Mistake(f"the policy {twice[0]!r} is named twice; leave one of them out")
    return (*base, *out)


def choose_proxy_policies(shared: SharedOptions, wanted: ReplayOptions) -> tuple[PolicyChoice, ...]:
    """The recorded client alone, and with the layers that the proxy has; both compact as recorded."""
    from sevenfold.proxy.conversation import make_relay_settings
    from sevenfold.proxy.keys import READING_TOOLS

    if wanted.policies or wanted.without or wanted.compare:
        raise Mistake("--as proxy has its own two policies: leave out --policy, --without and --compare")
    around = read_command_context(shared)

    def make(name: str, description: str, readers: Sequence[str]) -> PolicyChoice:
        settings = around.load_settings(make_relay_settings(readers)).settings
        policy = Policy(
            name=name,
            description=description,
            cache_ttl="recorded",
            system_ttl="recorded",
            compactions="recorded",
            flags=settings.flags,
            tool_results=settings.tool_results,
            micro=settings.micro if readers else replace(settings.micro, thinking_replies=0),
            notes=settings.notes,
            compaction=settings.compaction,
        )
        return PolicyChoice(policy)

    return (
        make(DIRECT, "The client alone, as it was recorded.", ()),
        make(PROXY, "The same client through 'sevenfold proxy'.", sorted(READING_TOOLS)),
    )


def describe_promise(done: Sequence[ReplayResult]) -> str:
    """What the proxy would have saved, in one line."""
    found = [one for one in done if {DIRECT, PROXY} <= one.by_policy.keys()]
    direct, through = (sum_figures([one.by_policy[name] for one in found]) for name in (DIRECT, PROXY))
    share = compute_cost_share(through.cost, direct.cost)
    if share is None:
        return "no session that could be priced"
    would, instead = _format_cost(through.cost), _format_cost(direct.cost)
    again = format_count(through.extra, "request")
    change = f"{share - 1:+.1%}"
    return f"through the proxy {would} instead of {instead} ({change}); {again} to read things again"


def _make_choice(one: Policy, left_out: Sequence[str], *, own: bool) -> PolicyChoice:
    less = exclude_layers(one, left_out)
    said = [describe_unheeded(one)] if own else []
    if vain := find_useless_exclusions(one, left_out):
        are = "is" if len(vain) == 1 else "are"
        same = f", so this is {one.name} itself" if len(vain) == len(left_out) else ""
        said.append(f"{', '.join(vain)} {are} off in {one.name}{same}")
    return PolicyChoice(less, "; ".join(text for text in said if text))


def _check_exclusions(policies: Sequence[Policy], left_out: Sequence[str]) -> None:
    """Raise `Mistake` for a layer that is off in every policy: leaving it out changes nothing."""
    for word in left_out:
        if all(find_useless_exclusions(one, [word]) for one in policies):
            known = [name for name in LAYERS if any(list_active_layers(one)[name] for one in policies)]
            names = ", ".join(one.name for one in policies)
            raise Mistake(
                f"{word} is off in {names}, so leaving it out changes nothing; "
                f"what is on there is {', '.join(known)}, and flags of theirs"
            )


PAGES: Final = (b"<!doctype html", b"<html")  # A file that begins like this may be overwritten
DEVICES: Final = Path("/dev")  # Nothing in this folder may be replaced


def check_report(path: Path, sessions: Sequence[str]) -> None:
    """Raise `Mistake` if the report cannot be written there; called before the replay, which is long."""
    real = path.expanduser()
    if real.is_dir():
        raise Mistake(f"{path}: that is a folder; name the file to write the report to")
    if not real.parent.is_dir():
        raise Mistake(f"{path}: there is no such folder to write the report to")
    among_devices = any(DEVICES in one.parents for one in (real.absolute(), real.resolve()))
    if not real.exists() and not among_devices:
        return
    if among_devices or not real.is_file():
        raise Mistake(f"{path}: that is no regular file; name a file to write the report to")
    if any(_is_same_file(real, Path(session)) for session in sessions):
        raise Mistake(f"{path}: that is one of the sessions; name another file for the report")
    if not _is_page(real):
        raise Mistake(
            f"{path}: there is a file that is no HTML page, and it is left as it is; "
            "name another one for the report"
        )


def _is_same_file(path: Path, session: Path) -> bool:
    try:
        return path.samefile(session)
    except OSError:
        return False


def _is_page(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(1_024).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    except OSError:
        return False
    return not head or head.startswith(PAGES)


def write_report(
    shared: SharedOptions,
    path: Path,
    done: Sequence[ReplayResult],
    policies: Sequence[Policy],
    notes: Mapping[str, str],
) -> None:
    from sevenfold.core.clock import SystemClock
    from sevenfold.replay.report.page import format_page
    from sevenfold.storage.files import write_atomic

    write_atomic(path, format_page(done, policies, SystemClock().now(), notes).encode("utf-8"))
    failed = sum(bool(one.errors) and not one.by_policy for one in done)
    lacks = f", without {format_count(failed, 'file')} that could not be replayed" if failed else ""
    print_message(shared, f"wrote {path}{lacks}")


LONGEST_NAME: Final = 20  # Characters of a session's name in a table
LONGEST_POLICY: Final = 60  # Characters of a policy's name in a table
LARGE_COLUMN: Final = f"robust ≥{LARGE}"
FIRST_TO_GO: Final = (  # Columns that a narrow terminal leaves out, the first ones first
    "by tokens", "sent", "dreams", "recall", "hit", "compact.", "robust", "breaks", LARGE_COLUMN, "window",
    "summaries/100", "extra/100", "requests", "fidelity", "dearer", "paid",
)  # fmt: skip
LEAST_CENTS: Final = 0.1  # Smaller amounts have four digits behind the point
LEAST_TIME: Final = 0.001  # Shorter times (seconds) of ours are not shown


def replay_to_json(done: Sequence[ReplayResult], notes: Mapping[str, str]) -> Json:
    """The JSON document: with several policies, one object for each. `notes` are by policy."""
    if len(notes) == 1:
        [(name, note)] = notes.items()
        return _policy_to_json(done, name, note)
    return {"policies": {name: _policy_to_json(done, name, note) for name, note in notes.items()}}


def _policy_to_json(done: Sequence[ReplayResult], name: str, note: str) -> Json:
    compared = compare_policy(done, name)
    whole = compared.figures
    return {
        "policy": name,
        "notes": [note] if note else [],
        "charged": f"{CHARGED}; {LOOKS}",
        "assumed": ASSUMED,
        "not_charged": NOT_CHARGED,
        "files": [_file_to_json(one, name) for one in done],
        "total": {"files": len(done), "failed": sum(bool(one.errors) for one in done)}
        | {key: value for key, value in _figures_to_json(whole).items() if key not in ("breaks",)}
        | {"breaks": len(whole.breaks), "break_reasons": count_break_reasons(whole)}
        | _comparison_to_json(compared)
        | {"windows": [_window_to_json(tokens, of, name) for tokens, of in group_by_window(done).items()]}
        | {"paid_files": whole.paid_files, "priced_files": whole.priced_files}
        | {"left_aside": _left_to_json(sum_left(one.left for one in done))},
    }


def _comparison_to_json(compared: PolicyComparison) -> Json:
    return {
        "of_append_only": _round_share(compared.of_append_only),
        "compared_files": compared.compared,
        "dearer_files": compared.dearer,
    }


def _window_to_json(tokens: int, done: Sequence[ReplayResult], name: str) -> Json:
    """The figures of the sessions that had this window."""
    compared = compare_policy(done, name)
    figures = compared.figures
    return {
        "window": tokens,
        "files": len(done),
        "sources": count_window_sources(done),
        "turns": figures.turns,
        "simulated_cost": figures.cost,
        "paid_cost": figures.paid,
        "of_paid": _round_share(figures.of_paid),
        "summaries_per_100": _round_share(figures.summaries_per_100),
        "regret": _regret_to_json(figures),
        **_comparison_to_json(compared),
    }


def _file_to_json(one: ReplayResult, name: str) -> Json:
    return {
        "path": one.path,
        "format": one.format or None,
        "session": one.session or None,
        "agent": one.agent or None,
        "title": one.title or None,
        "model": one.model or None,
        "window": one.window.tokens if one.by_policy else None,
        "window_source": one.window.source if one.by_policy else None,
        "policy": name,
        **_figures_to_json(one.by_policy.get(name, ReplayFigures())),
        "of_append_only": _round_share(compare_policy([one], name).of_append_only),
        "left_aside": _left_to_json(one.left),
        "errors": list(one.errors),
        "notes": list(one.notes),
    }


def _left_to_json(left: LeftBranches) -> Json:
    return {"requests": left.requests, "paid_cost": left.paid}


def _figures_to_json(known: ReplayFigures) -> Json:
    used, spent = known.usage, known.spent
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
        "recall_cost": known.recalled,
        "dream_cost": known.dreamt,
        "paid_requests": known.paid_requests,
        "paid_at": known.paid_at or None,
        "of_paid": _round_share(known.of_paid),
        "regret": _regret_to_json(known),
        "fidelity": _round_share(known.fidelity),
        "compactions": known.compactions,
        "summaries_per_100": _round_share(known.summaries_per_100),
        "layers": known.layers,
        "accounting_error": _round_share(median(known.accounting) if known.accounting else None),
        "seconds": {name: round(getattr(spent, name), 4) for name in (*spent.__struct_fields__, "total")},
    }


def _regret_to_json(known: ReplayFigures) -> Json:
    regret: ReplayRegret = known.regret
    return {
        "cleared": regret.removed,
        "needed_again": regret.needed,
        "robust": regret.robust,
        "cleared_tokens": regret.removed_tokens,
        "needed_tokens": regret.needed_tokens,
        "share": _round_share(regret.share),
        "robust_share": _round_share(regret.robust_share),
        "large_cleared": regret.large_removed,
        "large_needed": regret.large_needed,
        "large_share": _round_share(regret.large_share),
        "token_share": _round_share(regret.token_share),
        "extra_per_100": _round_share(known.extra_per_100),
        "by_layer": {
            layer: {"cleared": gone, "needed_again": needed}
            for layer, (gone, needed) in regret.by_layer.items()
        },
    }


def count_break_reasons(known: ReplayFigures) -> dict[str, int]:
    """The number of cache breaks by reason."""
    return dict(Counter(broke.reason for broke in known.breaks).most_common())


def _round_share(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def format_replay_tables(
    done: Sequence[ReplayResult], names: Sequence[str], width: int | None = None
) -> str:
    """Tables, with as many columns as the terminal has room for; sessions with other windows apart."""
    known = [one for one in done if one.by_policy]
    if not known:
        return ""
    if len(names) == 1:
        parts = [_format_sessions(known, names[0], width), _summarise_policy(known, names[0])]
    else:
        groups = group_by_window(known)
        parts = [_format_group(of, names, width, tokens) for tokens, of in groups.items()]
        if len(groups) > 1:
            parts.append(_format_group(known, names, width))
        parts.append(_describe_counts(known, names))
    return "\n\n".join(part for part in [*parts, _format_legend(known, names)] if part)


_Column = tuple[str, Callable[[PolicyComparison], str]]
_COLUMNS: Final[tuple[_Column, ...]] = (
    ("requests", lambda c: f"{c.figures.requests:,}"),
    ("sent", lambda c: format_tokens(c.figures.usage.prompt)),
    ("hit", lambda c: f"{c.figures.usage.hit_rate:.0%}"),
    ("breaks", lambda c: f"{len(c.figures.breaks):,}"),
    ("cost", lambda c: _format_part(_format_cost(c.figures.cost), c.figures.priced_files, c.figures.files)),
    ("paid", lambda c: _format_part(_format_cost(c.figures.paid), c.figures.paid_files, c.figures.files)),
    ("of paid", lambda c: _format_share(c.figures.of_paid)),
    ("of append-only", lambda c: _format_share(c.of_append_only)),
    ("dearer", lambda c: f"{c.dearer:,} of {c.compared:,}" if c.compared else "–"),
    ("extra/100", lambda c: f"{c.figures.extra_per_100:.1f}"),
    ("robust", lambda c: _format_regret(c.figures, c.figures.regret.robust_share)),
    (LARGE_COLUMN, lambda c: _format_share(c.figures.regret.large_share)),
    ("by tokens", lambda c: _format_regret(c.figures, c.figures.regret.token_share)),
    ("summaries/100", lambda c: f"{c.figures.summaries_per_100:.1f}"),
    ("compact.", lambda c: f"{len(c.figures.compactions):,}"),
    ("fidelity", lambda c: _format_share(c.figures.fidelity)),
    ("recall", lambda c: format_tokens(round(c.figures.recalled))),
    ("dreams", lambda c: format_tokens(round(c.figures.dreamt))),
)
BESIDE_BASE: Final = ("of append-only", "dearer")  # Columns that need append-only in the same run


def _format_part(cost: str, known: int, files: int) -> str:
    """A cost that is known for some of the sessions alone says so beside it."""
    return f"{cost} ({known:,} of {files:,})" if 0 < known < files else cost


def _format_regret(known: ReplayFigures, share: float) -> str:
    return _format_share(share) if known.regret.removed else "–"


def _format_sessions(known: Sequence[ReplayResult], name: str, width: int | None) -> str:
    """A row for each session, the dearest first; then one for each window, and one for all."""
    found = sort_by_cost(known, name)
    rows = [
        [
            to_one_line(one.short_name, LONGEST_NAME),
            _format_window(one),
            *_format_cells(compare_policy([one], name)),
        ]
        for one in found
    ]
    groups = group_by_window(found)
    if len(groups) > 1:
        for tokens, of in groups.items():
            size = format_tokens(tokens)
            rows.append([f"all {len(of):,} in {size}", size, *_format_cells(compare_policy(of, name))])
    if len(rows) > 1:
        rows.append([f"all {len(found):,}", "", *_format_cells(compare_policy(found, name))])
    return _format_fitting(["session", "window"], rows, width)


def _format_window(one: ReplayResult) -> str:
    size = format_tokens(one.window.tokens)
    return size if one.window.source is WindowSource.RECORDED else f"{size} {one.window.source}"


def _format_group(
    known: Sequence[ReplayResult], names: Sequence[str], width: int | None, window: int = 0
) -> str:
    """A row for each policy, the cheapest first, under a line that says which sessions these are."""
    compared = {name: compare_policy(known, name) for name in names}
    rows = [
        [to_one_line(name, LONGEST_POLICY), *_format_cells(compared[name])]
        for name in sort_policies(compared)
    ]
    sources = ", ".join(f"{source} {n:,}" for source, n in count_window_sources(known).items())
    size = f" in a window of {format_tokens(window)}" if window else ""
    head = f"  {format_count(len(known), 'session')}{size} (window: {sources})"
    return f"{head}\n{_format_fitting(['policy'], rows, width)}"


def _sum_policy(done: Sequence[ReplayResult], name: str) -> ReplayFigures:
    return sum_figures([one.by_policy[name] for one in done if name in one.by_policy])


def _format_fitting(first: list[str], rows: list[list[str]], width: int | None) -> str:
    """The table without columns that say nothing, and the least important ones there is no room for."""
    head, left_out = [*first, *(name for name, _ in _COLUMNS)], list[str]()
    for name in BESIDE_BASE:
        at = head.index(name)
        if all(row[at] == "–" for row in rows):
            head, rows = _drop_column(head, rows, at)
    table = format_columns(head, rows)
    for name in FIRST_TO_GO:
        if width is None or max(map(len, table.splitlines())) <= width:
            break
        if name in head:
            head, rows = _drop_column(head, rows, head.index(name))
            left_out.append(name)
            table = format_columns(head, rows)
    if left_out:
        table += f"\n  no room for: {', '.join(left_out)}"
    return table


def _drop_column(head: list[str], rows: list[list[str]], at: int) -> tuple[list[str], list[list[str]]]:
    return head[:at] + head[at + 1 :], [row[:at] + row[at + 1 :] for row in rows]


def _describe_counts(known: Sequence[ReplayResult], names: Sequence[str]) -> str:
    """The error of our token counts, for the policy that was compared with most recorded requests."""
    wholes = [_sum_policy(known, name) for name in names]
    name, best = max(zip(names, wholes, strict=True), key=lambda pair: len(pair[1].accounting))
    return (
        f"  {to_one_line(name, LONGEST_POLICY)}: {_describe_count_error(best)}" if best.accounting else ""
    )


def _describe_count_error(whole: ReplayFigures) -> str:
    return (
        f"our count of a request is off the recorded one by {median(whole.accounting):.1%} "
        f"(median of {format_count(len(whole.accounting), 'request')} before anything changed)"
    )


def _format_cells(compared: PolicyComparison) -> list[str]:
    return [cell(compared) for _, cell in _COLUMNS]


def _summarise_policy(known: Sequence[ReplayResult], name: str) -> str:
    """The work of the layers, the reasons of cache breaks, and our own time."""
    whole = _sum_policy(known, name)
    rows = [
        [
            layer,
            f"{did.times:,}",
            format_tokens(max(0, did.tokens)),
            _format_signed(did.saved),
            _format_signed(did.cost),
            _format_signed(did.net),
        ]
        for layer, did in whole.layers.items()
    ]
    parts = []
    if rows:
        parts.append(format_columns(["layer", "times", "removed", "saved", "cost", "net"], rows))
    if whole.breaks:
        why = ", ".join(f"{reason} {n}" for reason, n in count_break_reasons(whole).items())
        parts.append(f"  cache breaks: {why}")
    if whole.accounting:
        parts.append(f"  {_describe_count_error(whole)}")
    parts.append(_describe_time(whole))
    return "\n".join(filter(None, parts))


def _describe_time(whole: ReplayFigures) -> str:
    spent = whole.spent
    speed = f" ({whole.requests / spent.layers:,.0f} requests/s)" if spent.layers > 0 else ""
    known = (
        ("reading", spent.parsing, ""),
        ("layers", spent.layers, speed),
        ("simulator", spent.simulator, ""),
        ("tracing needs", spent.tracing, ""),
    )
    parts = [
        f"{name} {f'{took:.1f} s' if took >= 1 else f'{1_000 * took:.0f} ms'}{more}"
        for name, took, more in known
        if took >= LEAST_TIME
    ]
    return f"  our time: {', '.join(parts)}" if parts else ""


def _format_legend(known: Sequence[ReplayResult], names: Sequence[str]) -> str:
    whole = _sum_policy(known, names[0])
    lines = [
        "  cost and paid: input, and output of requests that a policy adds",
        "  k and M: thousand and million base-price tokens",
        "  robust, by tokens: of what was cleared, needed again; extra/100: requests to read it back",
        "  fidelity: of summaries by rule; those that models wrote in recordings have 61.5 % on average",
        f"  {LARGE_COLUMN}: the same for tool results of at least {LARGE} tokens",
        "  window: as recorded, else that of the model; dearer: cost over 2 % more than append-only",
        f"  charged: {CHARGED}",
        f"  {LOOKS}",
        f"  {ASSUMED}",
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
            f"  paid is what was recorded, priced as {to_one_line(whole.paid_at, 40)}: "
            "not what was paid then"
        )
    if 0 < whole.priced_files < whole.files:
        lines.append(
            f"  a price is known for {whole.priced_files:,} of {whole.files:,} sessions: "
            "amounts, and percent of them, are of those alone"
        )
    left = sum_left(one.left for one in known)
    if left.requests:
        lines.append(
            f"  left aside: {format_count(left.requests, 'request')} on branches that were left, "
            f"paid {_format_cost(left.paid)}; they are in no other figure"
        )
    return "\n".join(lines)


def _format_cost(cost: ReplayCost | None) -> str:
    if cost is None:
        return "–"
    units = format_tokens(round(cost.units))
    return units if cost.amount is None else f"{units} {_format_amount(cost.amount, cost.currency)}"


def _format_signed(number: float) -> str:
    """Tokens in the same form below zero as above it."""
    return f"{'-' if round(number) < 0 else ''}{format_tokens(abs(round(number)))}"


def _format_amount(amount: float, currency: str | None) -> str:
    sign = "$" if currency in (None, "USD") else f"{currency} "
    small = 0 < abs(amount) < LEAST_CENTS
    return f"{'-' if amount < 0 else ''}{sign}{abs(amount):.{4 if small else 2}f}"


def _format_share(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"


def format_columns(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table: the first column to the left, numbers to the right."""
    widths = [max(len(str(row[i])) for row in (head, *rows)) for i in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = [f"{row[0]:<{widths[0]}}"]
        cells += [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


FEW: Final = 2_000_000  # Fewer bytes are replayed by one process: it is faster than starting others
LONGEST_PATH: Final = 300  # Characters of a path, or of a policy's name, in a sentence
MOST_NAMED: Final = 5  # Files that are named before a note on all of them
MOST_SAID: Final = 10  # Files whose errors are printed; JSON and the report have all


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    paths: tuple[Path, ...]
    policies: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    compare: bool = False
    price: str | None = None
    html: Path | None = None
    jobs: int | None = None
    host: str | None = None  # The proxy: its policy and the client's own way are compared


def run_replay(shared: SharedOptions, wanted: ReplayOptions) -> int:
    if wanted.host is not None:
        rows = choose_proxy_policies(shared, wanted)
    else:
        rows = choose_policies(wanted.policies, wanted.without, compare=wanted.compare)
    policies, notes = tuple(r.policy for r in rows), {r.policy.name: r.note for r in rows}
    prices = read_command_context(shared).load_settings().settings.prices
    if wanted.price is not None:
        find_wanted_model(Prices.load(prices), wanted.price)
    files = list(find_replay_files(wanted.paths))
    if wanted.html is not None:
        check_report(wanted.html, [found.path for found in files])
    _check_paths(wanted.paths)
    done = _replay_all(shared, wanted, files, policies, prices)
    if not done:
        raise Mistake("there is no session in what was named; name files, or folders that have some")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print_result(shared, format_replay_tables(done, list(notes), width), replay_to_json(done, notes))
    if wanted.host is not None:
        print_message(shared, describe_promise(done))
    if wanted.html is not None and any(one.by_policy for one in done):
        write_report(shared, wanted.html.expanduser(), done, policies, notes)
    elif wanted.html is not None:
        print_warning(f"nothing was replayed: {wanted.html} was not written")
    return _print_errors(shared, done, notes)


def _check_paths(paths: Sequence[Path]) -> None:
    """Raise `Mistake` if none of the paths exists; one among others is an error of that path alone."""
    if not any(map(os.path.lexists, paths)):
        named = to_one_line(", ".join(map(str, paths)), LONGEST_PATH)
        raise Mistake(f"{named}: there is no such file or folder, so there is nothing to replay")


def _replay_all(
    shared: SharedOptions,
    wanted: ReplayOptions,
    files: Sequence[ReplayFile],
    policies: tuple[Policy, ...],
    prices: Path | None,
) -> list[ReplayResult]:
    size = sum(found.size for found in files)
    at_once = min(wanted.jobs or _count_cores(), len(files))
    if wanted.jobs is None and size < FEW:
        at_once = 1
    shows = sys.stderr.isatty() and not shared.quiet and not shared.no_color
    progress = ReplayProgress(sys.stderr, len(files), size) if shows else None
    done: list[ReplayResult] = []

    def show_progress(so_far: FileProgress) -> None:
        if progress is not None:
            progress.update_file(so_far.number, files[so_far.number].size * so_far.share, so_far.requests)

    try:
        if progress is not None:
            progress.start()
        with end_on_sigterm():
            firsts = read_first_requests(files)
            reads, copied = find_repeated_reads(firsts.values()), find_copied_requests(firsts)
            drawn, none = wanted.html is not None, frozenset[str]()
            jobs = [
                ReplayJob(n, one, policies, wanted.price, prices, drawn, reads, copied.get(one.path, none))
                for n, one in enumerate(files)
            ]
            with closing(
                replay_files(jobs, at_once, tell=show_progress)
            ) as answers:  # an interrupt ends them
                for one in answers:
                    done.append(one)
                    if progress is not None:
                        requests = sum(f.requests for p in (one, *one.agents) for f in p.by_policy.values())
                        progress.add_file(files[one.number].size, requests, one.number)
    finally:
        if progress is not None:
            progress.end()
    return _sort_results(done)


def _sort_results(done: Sequence[ReplayResult]) -> list[ReplayResult]:
    """The sessions in the order of the files, each of a file's sub-agents behind it."""
    known = sorted((one for one in done if not one.passed_over), key=lambda one: one.number)
    each = [part for one in known for part in (replace(one, agents=()), *one.agents)]
    return [replace(one, number=n) for n, one in enumerate(each)]


def _count_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _print_errors(shared: SharedOptions, done: Sequence[ReplayResult], notes: Mapping[str, str]) -> int:
    """Print the errors file by file; returns the exit code."""
    wrong = [one for one in done if one.errors]
    if shared.json:
        return 1 if wrong else 0
    for one in wrong[:MOST_SAID]:
        more = f" (and {len(one.errors) - 1} more)" if len(one.errors) > 1 else ""
        print_warning(f"{to_one_line(one.path, LONGEST_PATH)}: {one.errors[0]}{more}")
    if len(wrong) > MOST_SAID:
        print_warning(f"and {format_count(len(wrong) - MOST_SAID, 'more file')}")
    by_note: dict[str, list[str]] = {}
    for one in done:
        for note in one.notes:
            by_note.setdefault(note, []).append(to_one_line(one.short_name, LONGEST_NAME))
    for note, files in by_note.items():
        more = (
            f" and {format_count(len(files) - MOST_NAMED, 'more file')}" if len(files) > MOST_NAMED else ""
        )
        print_message(shared, f"{', '.join(files[:MOST_NAMED])}{more}: {note}")
    for name, note in notes.items():
        if note:
            print_message(shared, f"policy {to_one_line(name, LONGEST_PATH)}: {note}")
    return 1 if wrong else 0
