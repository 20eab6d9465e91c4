"""`sevenfold context`: the content of the window by kind and by author, and what the layers saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import Price, Prices, read_user_limits
from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import format_count, format_money, format_percent, format_tokens, print_result
from sevenfold.cli.startup import find_chosen_session, read_command_context, read_transcript
from sevenfold.core.messages import Document, Image, Message, Opaque, Text, ToolResult, ToolUse
from sevenfold.core.request import Frame
from sevenfold.core.tokens import MessageSize, Thresholds, count_bytes, measure_message
from sevenfold.core.transcript import PlacedMessage, Transcript, View
from sevenfold.layers.savings import LayerSavings, compute_savings, count_rereads
from sevenfold.layers.shared.boundary import Boundary, find_last_boundary
from sevenfold.session.commands import read_notes
from sevenfold.settings.schema import Settings

BAR: Final = 60  # Characters of the bar
FREE: Final = "·"
MARGIN: Final = "▒"
RESERVED: Final = "░"
PEOPLE: Final = ("user", "model", "tools")

KINDS: Final = (
    ("system", "S"),
    ("tools", "T"),
    ("user words", "u"),
    ("assistant words", "a"),
    ("thinking", "k"),
    ("tool calls", "c"),
    ("tool results", "r"),
    ("context blocks", "x"),
    ("images and documents", "i"),
    ("other", "o"),
)
_LETTER: Final = dict(KINDS)


class WindowPart(msgspec.Struct, frozen=True):
    """The share of one kind of content."""

    kind: str
    tokens: int
    percent: float  # Of the whole window
    tool: str = ""  # The name of the tool, for results


class WindowReport(msgspec.Struct, frozen=True):
    session: str
    model: str
    window: int
    used: int
    free: int  # Tokens left before the window is compacted
    margin: int  # Between the point where it is compacted and the point where no request is sent
    reserved: int  # Kept for the reply
    messages: int
    parts: tuple[WindowPart, ...]
    by: dict[str, int]  # Tokens by author: the session itself, the user, the model, its tools, each layer
    estimated: bool  # True if no reply has reported the real size yet
    saved: tuple[LayerSavings, ...] = ()  # The tokens and money that each layer saved; simulated
    read_again: int = 0  # Cleared results that the model asked for again
    currency: str = "USD"
    compacted: Boundary | None = None  # The last compaction, if there was one
    notes: str | None = None  # The path of the notes on this session, if there are any


def measure_window(
    session: str,
    frame: Frame,
    view: View,
    thresholds: Thresholds,
    saved: Sequence[LayerSavings] = (),
    currency: str = "USD",
) -> WindowReport:
    """Measure everything that the next request would send, and what the layers kept out of it."""
    sizes: Counter[tuple[str, str, str]] = Counter()
    count_tokens = view.calibration.tokens
    sizes["system", "", "frame"] = count_tokens(MessageSize(text=sum(map(count_bytes, frame.system))))
    schemas = MessageSize(json=len(msgspec.json.encode(frame.tools))) if frame.tools else MessageSize()
    sizes["tools", "", "frame"] = count_tokens(schemas)
    names = {use.id: use.name for placed in view for use in placed.message.tool_uses}
    for placed in view:
        for kind, tool, size in _measure_blocks(placed, names):
            sizes[kind, tool, placed.by or "other"] += count_tokens(size)
    reported = view.reported is not None
    used = view.tokens if reported else sum(sizes.values())
    exact = _scale_sizes(used, sizes)
    t = thresholds
    return WindowReport(
        session=session,
        model=frame.model,
        window=t.window,
        used=used,
        free=max(0, t.auto_compact - used),
        margin=max(0, t.effective - max(t.auto_compact, used)),
        reserved=max(0, t.window - max(t.effective, used)),
        messages=len(view),
        parts=_sum_by_kind(exact, t.window),
        by=_sum_by_author(exact),
        estimated=not reported,
        saved=tuple(saved),
        read_again=count_rereads(view),
        currency=currency,
        compacted=find_last_boundary(view),
    )


def measure_savings(transcript: Transcript, price: Price | None) -> tuple[LayerSavings, ...]:
    return compute_savings(transcript.entries, transcript.view.calibration, price)


def _measure_blocks(placed: PlacedMessage, names: dict[str, str]) -> Iterable[tuple[str, str, MessageSize]]:
    ours = placed.by not in PEOPLE
    for block in placed.message.content:
        size = measure_message(Message(placed.message.role, (block,)))
        match block:
            case Text() if placed.message.role == "assistant":
                yield "assistant words", "", size
            case Text():
                yield "context blocks" if ours else "user words", "", size
            case ToolUse():
                yield "tool calls", "", size
            case ToolResult(id):
                yield "tool results", names.get(id, "unknown"), size
            case Image() | Document():
                yield "images and documents", "", size
            case Opaque():
                yield "other", "", size
            case _:
                yield "thinking", "", size


def _scale_sizes(total: int, sizes: Counter[tuple[str, str, str]]) -> Counter[tuple[str, str, str]]:
    """The estimates scaled to what the provider counted; rounding loses nothing."""
    whole = sum(sizes.values())
    if not whole:
        return Counter()
    scaled: Counter[tuple[str, str, str]] = Counter()
    seen = given = 0
    for key, size in sizes.items():
        seen += size
        upto = round(seen * total / whole)
        scaled[key] = upto - given
        given = upto
    return scaled


def _sum_by_kind(exact: Counter[tuple[str, str, str]], window: int) -> tuple[WindowPart, ...]:
    merged: Counter[tuple[str, str]] = Counter()
    for (kind, tool, _), n in exact.items():
        merged[kind, tool] += n
    order = [name for name, _ in KINDS]
    keys = sorted(merged, key=lambda key: (order.index(key[0]), -merged[key], key[1]))
    return tuple(
        WindowPart(kind, merged[kind, tool], round(100 * merged[kind, tool] / window, 2), tool)
        for kind, tool in keys
        if merged[kind, tool]
    )


def _sum_by_author(exact: Counter[tuple[str, str, str]]) -> dict[str, int]:
    merged: Counter[str] = Counter()
    for (_, _, by), n in exact.items():
        merged[by] += n
    return dict(merged.most_common())


def format_window(window: WindowReport) -> str:
    """The window for people: a bar, then every kind with its tokens and its share."""
    head = (
        f"{window.session}  {window.model}  {format_count(window.messages, 'message')}\n"
        f"{'about ' if window.estimated else ''}{format_tokens(window.used)} of "
        f"{format_tokens(window.window)} tokens "
        f"({format_percent(window.used / window.window)})"
    )
    rows = [(_LETTER[p.kind], f"{p.kind}: {p.tool}" if p.tool else p.kind, p.tokens) for p in window.parts]
    rows += [
        (FREE, "free", window.free),
        (MARGIN, "margin of auto-compact", window.margin),
        (RESERVED, "reserved for the reply", window.reserved),
    ]
    width = max(len(name) for _, name, _ in rows)
    lines = [
        f"  {sign}  {name:<{width}}  {format_tokens(n):>7}  {format_percent(n / window.window):>4}"
        for sign, name, n in rows
    ]
    by = ", ".join(f"{name} {format_tokens(n)}" for name, n in window.by.items())
    lines += [f"  by: {by}"] if by else []
    if window.compacted is not None:
        lines.append(
            f"  last compacted ({window.compacted.trigger}), {describe_boundary(window.compacted)}"
        )
    lines.append(f"  notes: {window.notes or 'none yet'}")
    lines += format_savings(window.saved, window.currency, window.read_again)
    return "\n".join([head, f"[{format_bar(window)}]", *lines])


def describe_boundary(boundary: Boundary) -> str:
    """`summary: 120.3k → 14k tokens · fidelity 93%`"""
    sizes = f"{format_tokens(boundary.tokens_before)} → {format_tokens(boundary.tokens_after)} tokens"
    score = "" if boundary.fidelity is None else f" · fidelity {format_percent(boundary.fidelity)}"
    return f"{boundary.by}: {sizes}{score}"


def format_savings(saved: Sequence[LayerSavings], currency: str, again: int = 0) -> list[str]:
    """The savings of each layer, a line each; nothing when no layer has acted."""
    lines = [
        f"  layer {one.layer}, {one.what} ({one.times:,}): {format_tokens(one.tokens_now)} kept out now, "
        f"{format_tokens(one.tokens_so_far)} not sent so far{_describe_gain(one.cost, currency)}"
        for one in saved
    ]
    if again:
        lines.append(f"  asked for again after it was cleared: {format_count(again, 'result')}")
    if saved:
        lines.append("  (what was saved is simulated: estimated tokens at listed prices)")
    return lines


def _describe_gain(cost: float | None, currency: str) -> str:
    if cost is None:
        return ""
    return f", {format_money(abs(cost), currency)} {'saved' if cost >= 0 else 'lost by it'}"


def format_bar(window: WindowReport, width: int = BAR) -> str:
    """A bar in which each kind has its share of the characters, and at least one."""
    parts = Counter[str]()
    for part in window.parts:
        parts[_LETTER[part.kind]] += part.tokens
    for sign, n in ((FREE, window.free), (MARGIN, window.margin), (RESERVED, window.reserved)):
        parts[sign] += n
    shown = {sign: n for sign, n in parts.items() if n > 0}
    whole = sum(shown.values()) or 1
    cells = {sign: max(1, round(width * n / whole)) for sign, n in shown.items()}
    while cells and sum(cells.values()) != width:  # the largest share absorbs the rounding
        cells[max(cells, key=lambda sign: cells[sign])] += 1 if sum(cells.values()) < width else -1
    return "".join(sign * n for sign, n in cells.items())


def show_window(shared: SharedOptions, session: str | None) -> int:
    """Show the window of a session from what is on disk; no model is needed."""
    around = read_command_context(shared)
    path = find_chosen_session(around.find_session_places(), session)
    transcript, settings = read_transcript(path), around.load_settings().settings
    view = transcript.view
    frame = msgspec.convert(view.marks.get("frame") or {"model": "unknown"}, Frame)
    price = Prices.load(settings.prices).of(frame.model)
    window = measure_window(
        path.stem,
        frame,
        view,
        _find_thresholds(frame.model, settings),
        measure_savings(transcript, price),
        price.currency if price else "USD",
    )
    if found := read_notes(path):
        window = replace(window, notes=str(found.path))
    print_result(shared, format_window(window), window)
    return 0


def _find_thresholds(model: str, settings: Settings) -> Thresholds:
    from sevenfold.models import find_capabilities
    from sevenfold.offline import NAME, OfflineEngine

    own, said = read_user_limits(settings.prices)(model), settings.window
    known = find_capabilities(model, betas=settings.betas, window=said, own=own)
    able = OfflineEngine(known.window).capabilities if model == NAME else known
    return Thresholds.of(
        able.window,
        able.max_output,
        compact_percent=settings.auto_compact_percent,
        block_limit=settings.block_limit,
    )
