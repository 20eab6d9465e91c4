"""For any history and any edit of it: where no layer acts, what goes out is what came in, byte for byte."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.proxy.scripted import MARK, SYSTEM, TOOLS, Json, make_output
from sevenfold.core.errors import Mistake
from sevenfold.core.messages import ToolUse, assistant
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply
from sevenfold.proxy.body import choose_format, read_body, replace_messages
from sevenfold.proxy.conversation import PrefixLost, RelayedConversation
from sevenfold.proxy.conversations import ConversationStore
from sevenfold.proxy.keys import find_key
from sevenfold.simulator import ManualClock
from sevenfold.storage.jsonl import hold_closed_log
from sevenfold.testing import FakeClock

ROUNDS = 26  # so many that a layer clears
words = st.text(max_size=12)
blocks = st.one_of(
    words.map(lambda text: {"type": "text", "text": text}),
    st.builds(lambda text: {"type": "odd", "n": 1.50, "of": text}, words),
    st.builds(lambda text: {"type": "text", "text": text, **MARK}, words),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Json]:
    """Rounds of a user, a reply with or without calls, and their answers."""
    messages: list[Json] = []
    for n in range(draw(st.integers(1, 4))):
        content: Any = draw(st.one_of(words, st.lists(blocks, min_size=1, max_size=2)))
        messages.append({"role": "user", "content": content})
        calls = [f"t{n}-{i}" for i in range(draw(st.integers(0, 2)))]
        uses = [
            {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": draw(words)}}
            for id in calls
        ]
        messages.append({"role": "assistant", "content": [draw(blocks), *uses]})
        if calls:
            results = [{"type": "tool_result", "tool_use_id": id, "content": draw(words)} for id in calls]
            messages += [{"role": "user", "content": results}, {"role": "assistant", "content": "well"}]
    return [*messages, {"role": "user", "content": draw(words)}]


edits = st.lists(
    st.tuples(st.sampled_from(["cut", "drop", "double", "swap", "say"]), st.integers(0, 20), words),
    max_size=3,
)


def edit(messages: list[Json], edits: list[tuple[str, int, str]]) -> list[Json]:
    """A history that its owner has changed, also to one that no provider takes."""
    out = list(messages)
    for kind, n, text in edits:
        at = n % len(out)
        match kind:
            case "cut":
                out = out[: at + 1]
            case "drop":
                out = out[:at] + out[at + 1 :] or out
            case "double":
                out = [*out[:at], out[at], *out[at:]]
            case "swap":
                out[at] = {**out[at], "content": text}
            case _:
                out.append({"role": "user", "content": text})
    return out


def encode(messages: list[Json], indent: int | None = None) -> bytes:
    body = {"model": "claude-opus-5-5", "system": SYSTEM, "tools": TOOLS, "messages": messages, "more": 1.0}
    return json.dumps(body, ensure_ascii=indent is None, indent=indent).encode("utf-8", "replace")


def open_conversation(folder: Path, **more: Any) -> RelayedConversation:
    form = choose_format("/v1/messages")
    assert form is not None
    return RelayedConversation(
        "one",
        "claude-opus-5-5",
        form,
        state=folder,
        home=folder,
        results=more.pop("results", lambda: folder / "results"),
        readers=["Bash"],
        environ={"HOME": str(folder)},
        clock=FakeClock(),
        **more,
    )


@given(histories(), st.lists(edits, max_size=3), st.sampled_from([None, 1]))
def test_no_layer_acts_and_every_byte_is_the_clients(
    history: list[Json], changes: list[list[tuple[str, int, str]]], indent: int | None
) -> None:
    with TemporaryDirectory() as folder:
        conversation = open_conversation(Path(folder))
        for change in ([], *changes):
            data = encode(edit(history, change), indent)
            try:
                out = conversation.shorten(data, read_body(data))
            except Mistake:  # a call without its answer: the proxy sends the client's own bytes
                continue
            assert out.data == data
            assert not out.shortened
        conversation.close()


def make_history(rounds: int, size: int) -> list[Json]:
    messages: list[Json] = [{"role": "user", "content": "Make the reports."}]
    for n in range(rounds):
        use = {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": f"report {n}"}}
        result = {
            "type": "tool_result",
            "tool_use_id": f"t{n}",
            "content": make_output(f"report {n}", size),
        }
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return messages


def shorten_all(conversation: RelayedConversation, history: list[Json], first: int, last: int) -> bytes:
    """Every request of the rounds from first to last, answered; returns the last body that went out."""
    out, cached = b"", 0
    for n in range(first, last + 1):
        data = encode(history[: 1 + 2 * n])
        out = conversation.shorten(data, read_body(data)).data
        usage = Usage(cache_read=cached, cache_write=len(out) // 4 - cached)
        cached = len(out) // 4
        reply = assistant(ToolUse(f"t{n}", "Bash", {"command": f"report {n}"}))
        conversation.record(conversation.turn, Reply(reply, usage, "tool_use"))
    return out


def test_what_is_not_cleared_keeps_its_bytes_and_a_new_process_sends_the_same(tmp_path: Path) -> None:
    history = make_history(ROUNDS, 24_000)
    conversation = open_conversation(tmp_path)
    before = shorten_all(conversation, history, 1, ROUNDS)
    sent, own = json.loads(before)["messages"], read_body(encode(history)).messages
    whole = [at for at, message in enumerate(sent) if message == history[at]]
    conversation.close()

    again = open_conversation(tmp_path)
    after = shorten_all(again, history, ROUNDS, ROUNDS)
    again.close()

    assert after == before
    assert len(sent) == len(history)
    assert 0 < len(history) - len(whole) < ROUNDS
    assert all(bytes(own[at]) in before for at in whole)


def test_a_request_that_begins_otherwise_without_a_reason_is_not_sent(tmp_path: Path) -> None:
    """The layers' file is replaced behind our back by one that knows nothing of what was cleared."""
    history = make_history(ROUNDS, 24_000)
    conversation = open_conversation(tmp_path / "one")
    shorten_all(conversation, history, 1, ROUNDS)
    fresh = open_conversation(tmp_path / "other")
    conversation.context.close()
    conversation.context = fresh.context
    data = encode(history)

    with pytest.raises(PrefixLost, match=r"messages\[2\] differs"):
        conversation.shorten(data, read_body(data))
    conversation.close()


def test_a_layer_that_fails_is_logged_without_a_word_of_the_body(tmp_path: Path) -> None:
    def fail() -> Path:
        raise ValueError("a SECRET word")

    conversation = open_conversation(tmp_path, results=fail)
    data = encode(make_history(1, 300_000))

    out = conversation.shorten(data, read_body(data))
    conversation.close()

    assert out.failures
    assert all(line.endswith("failed: ValueError") for line in out.failures)


def find_id(store: ConversationStore, messages: list[Json], **headers: str) -> str:
    data = encode(messages)
    body, form = read_body(data), choose_format("/v1/messages")
    assert form is not None
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return store.find(find_key(names, body, TOOLS), body, form, ["Bash"]).id


def test_a_conversation_is_found_by_session_agent_and_model_or_by_its_beginning(tmp_path: Path) -> None:
    def open_store() -> ConversationStore:
        environ = {"HOME": str(tmp_path)}
        clock: Any = ManualClock()
        return ConversationStore(tmp_path, home=tmp_path, claude=tmp_path, environ=environ, clock=clock)

    history = make_history(2, 10)
    longer = [*history, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "More."}]
    marked = [{"role": "user", "content": [{"type": "text", "text": "Make the reports.", **MARK}]}]
    store = open_store()

    claude = find_id(store, history, x_claude_code_session_id="s1")
    agent = find_id(store, history, x_claude_code_session_id="s1", x_claude_code_agent_id="a1")
    other = find_id(store, history, x_claude_code_session_id="s2")
    codex = find_id(store, history, session_id="s1", thread_id="t1")
    plain = find_id(store, marked)

    assert len({claude, agent, other, codex, plain}) == 5
    assert find_id(store, longer) == plain
    assert find_id(store, longer, x_claude_code_session_id="s1") == claude
    store.close()
    again = open_store()
    assert find_id(again, longer, x_claude_code_session_id="s1") == claude
    assert find_id(again, longer[2:], x_claude_code_session_id="s1") != claude
    again.close()


def open_store_at(folder: Path, clock: FakeClock) -> ConversationStore:
    return ConversationStore(folder, home=folder, claude=folder, environ={"HOME": str(folder)}, clock=clock)


def test_conversations_that_nobody_goes_on_with_are_removed(tmp_path: Path) -> None:
    clock = FakeClock(1_700_000_000.0)
    store = open_store_at(tmp_path, clock)
    old, new, held = (make_files(tmp_path, name) for name in ("old-1", "new-1", "old-2"))
    for path, days in ((old, 31), (new, 29), (held, 31)):
        os.utime(path, (clock.now() - days * 86_400,) * 2)

    with hold_closed_log(held):  # by another proxy
        store.remove_old()

    left = ["new-1", "new-1.jsonl", "old-2", "old-2.jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_a_proxy_that_runs_for_long_removes_them_too_and_not_what_it_has_open(tmp_path: Path) -> None:
    clock = FakeClock(1_700_000_000.0)
    store = open_store_at(tmp_path, clock)
    history = make_history(2, 10)
    id = find_id(store, history, x_claude_code_session_id="s1")
    old, mine = make_files(tmp_path, "old-1"), make_files(tmp_path, id)
    for path in (old, mine, *tmp_path.glob("*.json")):
        os.utime(path, (clock.now(),) * 2)
    clock.time += 31 * 86_400

    assert find_id(store, history, x_claude_code_session_id="s1") == id

    assert (old.exists(), mine.exists()) == (False, True)
    store.close()


def test_the_index_of_a_key_stays_as_long_as_one_of_its_conversations(tmp_path: Path) -> None:
    clock = FakeClock(1_700_000_000.0)
    store, history = open_store_at(tmp_path, clock), make_history(2, 10)
    ids = [find_id(store, history[at:], x_claude_code_session_id="s1") for at in (0, 2)]
    store.close()
    old = clock.now() - 31 * 86_400
    first, second = (make_files(tmp_path, id) for id in ids)
    for path in (first, *tmp_path.glob("*.json")):
        os.utime(path, (old, old))
    os.utime(second, (clock.now(),) * 2)

    again = open_store_at(tmp_path, clock)
    again.remove_old()

    assert (first.exists(), second.exists()) == (False, True)
    assert find_id(again, history[2:], x_claude_code_session_id="s1") == ids[1]
    again.close()


def test_two_proxies_give_no_two_conversations_one_name(tmp_path: Path) -> None:
    clock, history = FakeClock(1_700_000_000.0), make_history(2, 10)
    one, other = open_store_at(tmp_path, clock), open_store_at(tmp_path, clock)

    first = find_id(one, history, x_claude_code_session_id="s1")
    second = find_id(other, history[2:], x_claude_code_session_id="s1")
    third = find_id(one, history[4:], x_claude_code_session_id="s1")

    assert len({first, second, third}) == 3
    one.close()
    other.close()


def make_files(folder: Path, id: str) -> Path:
    (folder / id / "results").mkdir(parents=True)
    (folder / id / "results" / "cleared.txt").touch()
    path = folder / f"{id}.jsonl"
    path.touch()
    return path


MESSAGES = '[{"role": "user"}, {"role": "tool"}]'


@pytest.mark.parametrize(
    "body",
    [
        '{"model": "m", "messages" : [ {"role": "user"} , {"role": "tool"} ], "x": 1.0}',
        f'{{"model": "m", "first": {{"role": "user"}}, "messages": {MESSAGES}}}',
        f'{{"model": "m", "messages": {MESSAGES}, "last": [{{"role": "tool"}}]}}',
        f'{{"model": "m", "y": {{"messages": [{{"role": "user"}}]}}, "messages": {MESSAGES}}}',
        f'{{"model": "m", "x": {json.dumps(MESSAGES)}, "messages": {MESSAGES}}}',
    ],
)
def test_other_messages_take_the_place_of_the_messages_alone(body: str) -> None:
    data = body.encode()

    out = json.loads(replace_messages(data, read_body(data).messages, [b"7", b"8", b"9"]))

    assert out == {**json.loads(data), "messages": [7, 8, 9]}
