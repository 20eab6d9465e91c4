"""Letters and frames: each rule is one case, and each says what to do."""

from __future__ import annotations

import pytest

from sevenfold.core.errors import Refused
from sevenfold.layers.l7_agents.mailbox import (
    LONGEST_TEXT,
    Letter,
    LetterFrame,
    PlanApprovalRequest,
    PlanApprovalResponse,
    ShutdownRequest,
    ShutdownResponse,
    TooLong,
    check_agent_name,
    check_frame,
    check_letter,
    encode_letter,
    make_letter,
    name_frame_kind,
    parse_frame,
    parse_letter,
    read_approval,
    read_frame_text,
    summarise_text,
)
from sevenfold.testing import FakeClock

ASKED = ShutdownRequest("r1", "all is done")


@pytest.mark.parametrize(
    ("frame", "sender", "to", "rule"),
    [
        (ASKED, "lead", "*", "shutdown_request is never sent to all: name one agent"),
        (
            ASKED,
            "lead",
            "uds:abc",
            "shutdown_request stays inside the team: other sessions take plain messages only",
        ),
        (
            ASKED,
            "lead",
            "bridge:abc",
            "shutdown_request stays inside the team: other sessions take plain messages only",
        ),
        (
            ShutdownRequest(" "),
            "lead",
            "ada",
            "shutdown_request needs a request_id of at most 64 characters",
        ),
        (
            ShutdownRequest("r" * 65),
            "lead",
            "ada",
            "shutdown_request needs a request_id of at most 64 characters",
        ),
        (
            ShutdownResponse("r1", True),
            "ada",
            "bob",
            "shutdown_response goes to the lead only: send it to 'lead'",
        ),
        (
            ShutdownResponse("r1", False, " "),
            "ada",
            "lead",
            "shutdown_response with approve=false needs a reason",
        ),
        (
            PlanApprovalResponse("r1", True),
            "ada",
            "bob",
            "only the lead approves plans: 'ada' is not 'lead'",
        ),
        (
            PlanApprovalResponse("r1", False),
            "lead",
            "ada",
            "plan_approval_response with approve=false needs feedback",
        ),
        (
            PlanApprovalRequest("r1", "x" * 16_001),
            "ada",
            "lead",
            "plan_approval_request says more than 16,000 characters: write them to a file",
        ),
    ],
)
def test_a_frame_that_breaks_a_rule_is_refused_by_that_rule(
    frame: LetterFrame, sender: str, to: str, rule: str
) -> None:
    with pytest.raises(Refused) as refused:
        check_frame(frame, sender, to, "lead")
    assert str(refused.value) == rule


@pytest.mark.parametrize(
    ("frame", "sender", "to"),
    [
        (ASKED, "lead", "ada"),
        (ShutdownResponse("r1", True), "ada", "lead"),
        (ShutdownResponse("r1", False, "not finished"), "ada", "lead"),
        (PlanApprovalRequest("r1", "first this, then that"), "ada", "lead"),
        (PlanApprovalResponse("r1", True), "lead", "ada"),
        (PlanApprovalResponse("r1", False, "smaller steps"), "lead", "ada"),
    ],
)
def test_a_frame_that_keeps_the_rules_passes(frame: LetterFrame, sender: str, to: str) -> None:
    check_frame(frame, sender, to, "lead")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"type": "idle"}, "and not 'idle'"),
        ({"type": "reboot"}, "shutdown_response, plan_approval_request"),
        ({}, "and not 'None'"),
        ({"type": "shutdown_response", "request_id": "r"}, "is not complete"),
        ({"type": "shutdown_request", "request_id": 7}, "is not complete"),
    ],
)
def test_a_frame_that_is_none_says_what_is_wrong(fields: dict[str, object], why: str) -> None:
    with pytest.raises(Refused, match=why):
        parse_frame(fields)


def test_a_frame_says_its_kind_its_words_and_whether_it_agrees() -> None:
    frame = parse_frame(
        {"type": "plan_approval_response", "request_id": "r", "approve": False, "feedback": "no"}
    )

    assert (name_frame_kind(frame), read_frame_text(frame), read_approval(frame)) == (
        "plan_approval_response",
        "no",
        False,
    )
    assert (read_frame_text(PlanApprovalRequest("r", "plan")), read_frame_text(ASKED)) == (
        "plan",
        "all is done",
    )
    assert read_approval(ASKED) is None


def test_a_letter_becomes_an_entry_and_an_entry_the_same_letter() -> None:
    plain = make_letter("lead", "look at the tests", "tests", FakeClock(1_700_000_000.5))
    framed = make_letter("lead", "", "end", FakeClock(), ASKED)

    assert list(encode_letter(plain)) == ["id", "from", "text", "timestamp", "read", "summary"]
    assert encode_letter(plain)["timestamp"] == "2023-11-14T22:13:20.500Z"
    assert parse_letter(encode_letter(plain)) == plain
    assert parse_letter(encode_letter(framed)) == framed


def test_what_is_odd_about_an_entry_is_read_as_well_as_can_be() -> None:
    entry = {"id": "a1", "from": "x", "text": "t", "timestamp": 0, "frame": {"type": "new"}, "z": 1}

    letter = parse_letter(entry)

    assert letter.timestamp == "1970-01-01T00:00:00.000Z"
    assert letter.frame is None
    assert not letter.read
    assert parse_letter({**entry, "timestamp": 1e300}).timestamp == ""
    assert parse_letter({**entry, "timestamp": None, "summary": 3}).summary == ""


@pytest.mark.parametrize(
    ("letter", "why"),
    [
        (Letter(id="a", sender="x", text=" \n"), "the message is empty: say something"),
        (
            Letter(id="a", sender="x", text="y" * (LONGEST_TEXT + 1)),
            "the message has 32,001 characters and may have 32,000: write it to a file and send the path",
        ),
        (
            Letter(id="a", sender="x", text="y", summary="z" * 201),
            "the summary is longer than 200 characters: say it shorter",
        ),
        (Letter(id="../a", sender="x", text="y"), "'../a' cannot be the id of a message"),
        (Letter(id="a", sender=" ", text="y"), "a message needs a sender of at most 200 characters"),
    ],
)
def test_what_cannot_be_sent_says_why(letter: Letter, why: str) -> None:
    with pytest.raises(Refused) as refused:
        check_letter(letter)
    assert str(refused.value) == why


def test_too_long_is_told_apart_from_other_refusals() -> None:
    with pytest.raises(TooLong):
        check_letter(Letter(id="a", sender="x", text="y" * (LONGEST_TEXT + 1)))
    check_letter(Letter(id="a", sender="x", text="y" * LONGEST_TEXT))


@pytest.mark.parametrize(
    "name",
    [
        *("ada", "Bob-2", "code reviewer", "研究员", "a.b_c", "x" * 64, "lead", "Мария", "Léa"),
        *("plead", "leads", "ecosystem", "fork-1", "a11", "mainframe", "superuser", "domain-expert"),
    ],
)
def test_plain_names_are_names(name: str) -> None:
    assert check_agent_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        ".",
        ".hidden",
        "a/b",
        "a\\b",
        "a\0b",
        "a\nb",
        "x" * 65,
        "研" * 64 + "x",
        "uds:abc",
        "bridge:x",
        "*",
        "a<b",
        'a"b',
        "con",
        "a ",
        "ad\u200ba",
        "a\u202eb",
        "a／b",
        "User",
        "system",
        "human",
        "the user",
        "User 1",
        "user-2",
        "User1",
        "TheUser",
        "us\u0435r",
        "\u043c\u0430in",
        "\u03c5s\u03b5r",
        "ｕｓｅｒ",
        "usér",
        "ma1n",
        "Iead",
        "team lead",
        "LEAD",
        "Main",
        "command-line",
        "Command Line",
        "unknown",
        "fork",
        "you",
    ],
)
def test_names_that_mean_a_place_or_somebody_else_are_refused(name: str) -> None:
    with pytest.raises(Refused, match="cannot be the name of an agent"):
        check_agent_name(name)


def test_a_message_that_nobody_summed_up_is_listed_by_how_it_begins() -> None:
    assert summarise_text(" the build\n is red ") == "the build is red"
    assert summarise_text("x" * 60) == "x" * 60
    assert summarise_text("word " * 40) == f"{'word ' * 11}word…"
    assert len(summarise_text("y" * 500)) == 60


def test_a_team_may_be_called_what_an_agent_may_not() -> None:
    assert check_agent_name("user", "a team") == "user"
