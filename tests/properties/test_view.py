"""The incremental view against a naive fold, over random logs."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.core.messages import (
    THOUGHTS,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from sevenfold.core.request import Frame, Request, encode_message, encode_prefix, encode_view
from sevenfold.core.tokens import MessageSize, Usage, measure_message
from sevenfold.core.transcript import (
    Entry,
    Id,
    Mark,
    Pin,
    Replace,
    Reply,
    Results,
    Transcript,
    Undo,
    Unthink,
    View,
)

Pair = tuple[Id, Message]


def counting(entries: list[Entry]) -> list[Entry]:
    """The entries that count: an undo does, unless a later undo that counts names it."""
    if not entries:
        return []
    *before, last = entries
    if isinstance(last.what, Undo):
        return [*counting([e for e in before if e.id not in last.what.ids]), last]
    return [*counting(before), last]


def naive(entries: list[Entry]) -> list[Pair]:
    """Everything from the start, plain lists, no cleverness."""
    out: list[Pair] = []
    for entry in counting(entries):
        out = _folded(out, entry)
    return out


def naive_pins(entries: list[Entry]) -> list[Pin]:
    shown = {id for id, _ in naive(entries)}
    pins = [e.what for e in counting(entries) if isinstance(e.what, Pin)]
    return [pin for pin in pins if pin.after in shown]


def _folded(out: list[Pair], entry: Entry) -> list[Pair]:
    what = entry.what
    if isinstance(what, Message):
        return [*out, (entry.id, what)]
    if isinstance(what, Reply):
        return [*out, (entry.id, what.message)]
    ids = [i for i, _ in out]
    if isinstance(what, Replace) and what.first in ids and what.last in ids:
        a, b = ids.index(what.first), _last(ids, what.last)
        return [*out[:a], *((entry.id, m) for m in what.by), *out[b + 1 :]] if a <= b else out
    if isinstance(what, Unthink) and what.first in ids:
        a = ids.index(what.first)
        return out[:a] + [(i, _thoughtless(m)) for i, m in out[a:]]
    if isinstance(what, Results):
        return [(i, _shown(m, what.shown)) for i, m in out]
    return out


def _last(ids: list[Id], id: Id) -> int:
    return len(ids) - 1 - ids[::-1].index(id)


def _thoughtless(message: Message) -> Message:
    return Message(message.role, tuple(b for b in message.content if not isinstance(b, THOUGHTS)))


def _shown(message: Message, shown: dict[str, str]) -> Message:
    def instead(block: Any) -> Any:
        if isinstance(block, ToolResult) and block.tool_use_id in shown:
            return ToolResult(block.tool_use_id, shown[block.tool_use_id], block.is_error)
        return block

    return Message(message.role, tuple(instead(b) for b in message.content))


KINDS = [
    "say",
    "say",
    "reply",
    "reply",
    "results",
    "replace",
    "snip",
    "unthink",
    "undo",
    "mark",
    "pin",
    "fork",
    "peek",
]
OPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 40), st.integers(0, 40)), max_size=45)


def apply(t: Transcript, op: str, a: Id, b: Id) -> None:
    n = len(t.entries)
    if op == "say":
        t.add(user(f"message {n} " * (n % 5 + 1)))
    elif op == "reply":
        said = assistant(Thinking("t", "s"), Text(f"reply {n}"), ToolUse(f"u{n}", "Read", {"n": n}))
        t.add(Reply(said, Usage(input=n * 10 + 1)), by="model")
        t.add(Message("user", (ToolResult(f"u{n}", f"result {n}"),)), by="tools")
    elif op == "results":
        t.add(Results({f"u{a}": "[cleared]", f"u{b}": "[cleared]"}), by="clearing")
    elif op == "replace":
        by = (user(f"summary {n}"), assistant(Thinking("t", "s"), Text("restored")))
        t.add(Replace(a, b, by[: 1 + n % 2]), by="compaction")
    elif op == "snip":
        t.add(Replace(a, b, ()), by="snip")
    elif op == "unthink":
        t.add(Unthink(a))
    elif op == "undo":
        t.add(Undo(frozenset({a})))
    elif op == "mark":
        t.add(Mark("k", n))
    elif op == "pin":
        t.add(Pin(a, {"type": "cache_edits", "delete": [n]}, frees=n))
    elif op == "fork":
        child = Transcript.on(t.view, lambda: 0.0)
        child.add(user("of the child only"))
        child.add(Undo(frozenset({child.entries[-1].id})))
        assert child.view.messages == t.view.messages
    elif op == "peek":
        t.view.after(Entry(10_000, 0.0, user("never added")))


@settings(max_examples=300)
@given(OPS)
def test_the_incremental_view_is_the_naive_one_whatever_happens(ops: list[tuple[str, int, int]]) -> None:
    disk: list[bytes] = []
    t = Transcript(lambda: 0.0, disk.append)
    handed_out: list[tuple[View, list[Any]]] = []
    for op, x, y in ops:
        n = len(t.entries)
        apply(t, op, min(x, y) % (n + 1), max(x, y) % (n + 1))
        handed_out.append((t.view, list(t.view)))

        assert [(p.id, p.message) for p in t.view] == naive(t.entries)
        assert t.view.size == sum((measure_message(p.message) for p in t.view), MessageSize())
        assert [p for p in t.view.pins if t.view.where(p.after) is not None] == naive_pins(t.entries)
        assert encode_view(t.view) == [encode_message(m) for m in t.view.messages]

    assert all(list(view) == was for view, was in handed_out), "a view handed out changed"
    again = Transcript.load(b"".join(disk), lambda: 0.0)
    assert again.view == t.view
    assert again.view.tokens == t.view.tokens
    assert not again.problems


@settings(max_examples=200)
@given(OPS, st.integers(0, 40))
def test_results_shown_otherwise_on_a_fork_or_an_earlier_view_touch_nobody_else(
    ops: list[tuple[str, int, int]], which: int
) -> None:
    t = Transcript(lambda: 0.0)
    kept: list[tuple[View, list[Any], list[bytes]]] = []
    for op, x, y in ops:
        n = len(t.entries)
        apply(t, op, min(x, y) % (n + 1), max(x, y) % (n + 1))
        kept.append((t.view, list(t.view), list(encode_view(t.view))))
        early = kept[which % len(kept)][0]
        there = [r.tool_use_id for m in early.messages for r in m.results] or ["u0"]
        shown = {there[x % len(there)]: "[gone]", there[y % len(there)]: "{}" * x}
        edit = Entry(10_000, 0.0, Results(shown))
        child = Transcript.on(early, lambda: 0.0)
        child.add(user("of the child"))
        child.add(edit.what)
        own = (user("of the child"),)
        edits = ((early, early.after(edit), ()), (t.view, t.view.after(edit), ()))
        for base, edited, more in (*edits, (early, child.view, own)):
            assert edited.messages == (*(_shown(m, shown) for m in base.messages), *more)
            assert edited.size == sum((measure_message(p.message) for p in edited), MessageSize())
            assert encode_view(edited) == [encode_message(m) for m in edited.messages]
            assert all(edited.where(p.id) is not None for p in edited)
            assert all(edited.result_at(use) == last_result(edited, use) for use in shown)

    for view, was, wires in kept:
        assert list(view) == was
        assert list(encode_view(view)) == wires


def test_an_id_that_comes_again_in_one_of_two_views_does_not_move_it_in_the_other() -> None:
    t = Transcript(lambda: 0.0)
    t.add(user("go"))
    t.add(Reply(assistant(ToolUse("u", "Read", {}))), by="model")
    t.add(Message("user", (ToolResult("u", "first"),)), by="tools")
    other = Transcript.on(t.view, lambda: 0.0)
    other.add(Results({"u": "[gone]"}))
    forked = other.view.after(Entry(90, 0.0, Results({"u": "[gone too]"})))
    other.add(Reply(assistant(ToolUse("u", "Read", {}))), by="model")
    other.add(Message("user", (ToolResult("u", "second"),)), by="tools")
    for n in range(4):
        forked = forked.after(Entry(91 + n, 0.0, user(f"{n}")))

    assert other.view.result_at("u") == 4
    assert forked.result_at("u") == 2
    assert t.view.result_at("u") == 2


def last_result(view: View, use: str) -> int | None:
    places = [i for i, p in enumerate(view) if any(r.tool_use_id == use for r in p.message.results)]
    return places[-1] if places else None


@given(OPS)
def test_a_request_read_back_from_disk_is_the_same_bytes(ops: list[tuple[str, int, int]]) -> None:
    disk: list[bytes] = []
    t = Transcript(lambda: 0.0, disk.append)
    for op, x, y in ops:
        n = len(t.entries)
        apply(t, op, min(x, y) % (n + 1), max(x, y) % (n + 1))
    again = Transcript.load(b"".join(disk), lambda: 0.0)

    assert encode_prefix(Request(Frame("m"), again.view)) == encode_prefix(Request(Frame("m"), t.view))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.sampled_from(["", "  ", "\n"]))
def test_a_block_nobody_knows_survives_a_round_trip_byte_for_byte(
    fields: dict[str, Any], space: str
) -> None:
    import json

    from sevenfold.core.messages import parse_message

    raw = json.dumps({**fields, "type": "from_tomorrow"}, ensure_ascii=False)
    raw = raw.replace("{", "{" + space, 1)
    try:
        content = f"[{raw}]".encode()
    except UnicodeEncodeError:  # half a character: it cannot be in a file in the first place
        return
    disk: list[bytes] = []
    Transcript(lambda: 0.0, disk.append).add(parse_message("user", content))
    view = Transcript.load(b"".join(disk), lambda: 0.0).view

    assert view[0].message.content == (Opaque("from_tomorrow", raw),)
    assert encode_view(view) == [b'{"role":"user","content":[' + raw.encode() + b"]}"]
