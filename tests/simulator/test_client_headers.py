"""What clients add to their requests beside the conversation: header blocks and session headers."""

from __future__ import annotations

from simulator.wire import SMALL, Json, api, body, split, text, user

VERSION = "x-anthropic-billing-header: cc_version=2.1.325.{n}; cc_entrypoint=cli; cch={n}a2b3;"


def ask(n: int) -> Json:
    system = [{"type": "text", "text": VERSION.format(n=n)}, text(2_000, "s", SMALL)]
    return body(user("hi"), system=system)


def test_a_version_block_before_the_system_prompt_is_no_part_of_the_prompt() -> None:
    sim, _ = api()
    assert split(sim.answer(ask(1))) == (1, 2_000, 0)
    assert split(sim.answer(ask(2))) == (1, 0, 2_000)
    assert sim.count_tokens(ask(3)) == {"input_tokens": 2_001}


def test_it_counts_where_it_is_told_to() -> None:
    sim, _ = api(counts_headers=True)
    plain, written, read = split(sim.answer(ask(1)))
    assert (plain, read) == (1, 0)
    assert written > 2_000
    assert split(sim.answer(ask(2)))[2] == 0


def test_only_a_line_of_its_own_in_front_is_left_out() -> None:
    sim, _ = api()
    header = {"type": "text", "text": VERSION.format(n=1)}
    for system in ([text(10), header], [{"type": "text", "text": f"{header['text']}\nBe brief."}]):
        assert split(sim.answer(body(user("hi"), system=system)))[0] > 11


def test_a_header_alone_in_a_continuation_is_no_other_system_prompt() -> None:
    sim, _ = api()
    headers = {"x-api-key": "any", "anthropic-beta": "message-threads-2026-08-12"}
    first = sim.answer({**ask(1), "thread": {"type": "create"}}, headers).body["id"]
    thread = {"type": "continue", "previous_message_id": first}
    system = ask(2)["system"]
    outcome = sim.answer(body(user("on"), thread=thread, system=system[:1]), headers)
    assert split(outcome)[2] == 2_000


def test_sources_are_told_apart_by_the_headers_of_their_sessions() -> None:
    sim, _ = api()
    for headers in (
        {},
        {"X-Claude-Code-Session-Id": "s1"},
        {"x-claude-code-session-id": "s1", "x-claude-code-agent-id": "a7"},
        {"session-id": "c1", "thread-id": "t1"},
        {"session-id": "c1", "x-sevenfold-source": "named"},
    ):
        sim.answer(body(user("hi")), {"x-api-key": "any", **headers})
    assert [row.source for row in sim.ledger.rows] == ["default", "s1", "s1/a7", "c1/t1", "named"]
    assert all(row.shared is None for row in sim.ledger.rows)
