"""`sevenfold sessions`: the list, one of them, and deleting it."""

from __future__ import annotations

import os

from cli.conftest import Here
from cli.terminal import WIDTH, Terminal
from cli.world import World

from sevenfold.simulator import Script, parse_steps, run_in_thread


def test_the_newest_comes_first_with_its_first_words(here: Here, world: World) -> None:
    world.write("a.txt", "one\n")
    first = here("-p", "hello   there\nfriend", "--json").json["session"]
    second = here("-p", "read a.txt", "--json").json["session"]
    os.utime(world.transcripts[0], (1, 1))

    listed = here("sessions", "--json").json["sessions"]

    assert [s["id"] for s in listed] == [second, first]
    assert [s["messages"] for s in listed] == [5, 3]
    assert [s["first_words"] for s in listed] == ["read a.txt", "hello there friend"]
    assert [s["model"] for s in listed] == ["offline", "offline"]
    assert listed[1]["at"] == 1


def test_people_see_one_line_each(here: Here) -> None:
    session = here("-p", "hello", "--json").json["session"]

    ran = here("sessions", "list")

    assert ran.out.count("\n") == 1
    assert ran.out.startswith(session)
    assert ran.out.endswith("  offline  hello\n")


def test_without_sessions_it_says_how_to_begin_one(here: Here) -> None:
    ran = here("sessions")

    assert (ran.code, ran.out) == (0, "")
    assert "'sevenfold chat' starts one" in ran.err
    assert here("sessions", "--json", "-q").json["sessions"] == []


def test_a_conversation_is_shown_readable(here: Here, world: World) -> None:
    world.write("a.txt", "one\ntwo\n")
    session = here("-p", "read a.txt", "--json").json["session"]

    ran = here("sessions", "show", session[:-1])

    assert "> read a.txt\n" in ran.out
    assert "→ Read a.txt · 2 lines" in ran.out
    assert "(session) <context> Date:" in ran.out


def test_a_conversation_as_json_has_every_block(here: Here, world: World) -> None:
    script = '{"reply": {"text": "Yes.", "thinking": "Hm."}}'
    with run_in_thread(script=Script(parse_steps(script))) as sim:
        world.at(sim.url)
        session = here("-p", "hi", "--json").json["session"]

    shown = here("sessions", "show", session, "--json").json

    assert shown["session"] == session
    assert [m["by"] for m in shown["messages"]] == ["session", "user", "model"]
    assert [b["type"] for b in shown["messages"][-1]["content"]] == ["thinking", "text"]


def test_what_is_in_a_transcript_cannot_move_the_cursor(here: Here) -> None:
    session = here("-p", "evil \x1b[2J words", "--json").json["session"]

    assert "\x1b" not in here("sessions").out
    assert "\x1b" not in here("sessions", "show", session).out


def test_removing_takes_everything_that_belongs_to_it(here: Here, world: World) -> None:
    session = here("-p", "hello", "--json").json["session"]
    folder = world.transcripts[0].with_suffix("")
    folder.mkdir(exist_ok=True)
    (folder / "result.txt").write_text("large", encoding="utf-8")

    ran = here("sessions", "rm", session, "--yes", "--json")

    assert ran.json == {"session": session, "removed": True}
    assert world.transcripts == []
    assert not folder.exists()


def test_removing_has_to_be_confirmed(here: Here, world: World) -> None:
    session = here("-p", "hello", "--json").json["session"]

    ran = here("sessions", "rm", session)

    assert ran.code == 2
    assert "add --yes" in ran.err
    assert len(world.transcripts) == 1


def test_at_a_terminal_it_asks(here: Here, world: World) -> None:
    session = here("-p", "hello", "--json").json["session"]
    for answer, code, left in (("n", 3, 1), ("y", 0, 0)):
        with Terminal(["sessions", "rm", session], world.env, world.project) as t:
            t.wait_for(f"Delete session {session} (3 messages", "hello", "[y/N]")
            t.line(answer)

            assert t.wait_for_end() == code
        assert len(world.transcripts) == left


def test_sessions_of_another_project_are_not_listed(here: Here, world: World) -> None:
    here("-p", "hello")
    other = world.top / "other"
    other.mkdir()

    assert here("sessions", "--project", str(other), "--json").json["sessions"] == []


def test_what_was_piped_in_is_no_title(here: Here) -> None:
    here("-p", "what is this?", stdin=b"</stdin>\na lot of data\n")
    here(stdin=b"only piped")

    listed = here("sessions", "--json").json["sessions"]

    assert sorted(s["first_words"] for s in listed) == ["only piped", "what is this?"]


def test_at_a_terminal_the_list_has_a_header_and_no_line_is_broken(here: Here, world: World) -> None:
    session = here("-p", "many words " * 30, "--json").json["session"]

    with Terminal(["sessions"], world.env, world.project) as t:
        assert t.wait_for_end() == 0

    head, row = t.text.splitlines()
    assert head.split() == ["session", "last", "used", "messages", "model", "first", "words"]
    assert row.startswith(session)
    assert row.endswith("…")
    assert len(row) <= WIDTH
    assert row.index("many") == head.index("first words")


def test_the_beginning_of_many_ids_names_the_newest_and_says_how_many_there_are(
    world: World, here: Here
) -> None:
    here("chat", "-p", "hello")
    [path] = world.transcripts
    for n in range(1, 8):
        path.with_name(f"29990101-00000000{n}-abcdef.jsonl").write_bytes(path.read_bytes())

    told = here("sessions", "show", "2999").err

    assert "'2999' is the beginning of 7 sessions, the newest are 29990101-000000007-abcdef" in told
    assert "29990101-000000001" not in told
