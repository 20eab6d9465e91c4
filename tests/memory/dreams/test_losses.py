"""What is still said in other words, what is gone, and what counts as an account of it."""

from __future__ import annotations

import pytest

from sevenfold.memory.dreams.losses import (
    FilesAfterDream,
    LossReason,
    StatementIndex,
    add_plain_keys,
    find_lost_facts,
)
from sevenfold.memory.dreams.statements import read_facts


def lost(before: dict[str, str], after: dict[str, str]) -> list[str]:
    old = {file: text.encode() for file, text in before.items()}
    new = {file: text.encode() for file, text in after.items()}
    return [fact.text for fact in find_lost_facts(old, new)]


@pytest.mark.parametrize("key", ["name: carol", "metadata:"])
def test_a_line_that_slipped_into_the_frontmatter_is_a_fact_too(key: str) -> None:
    before = f"---\n{key}\n- The billing service is tracked under 1000450.\n---\n\nCarol keeps it.\n"
    [gone] = lost({"carol.md": before}, {"carol.md": "---\nname: carol\n---\n\nCarol keeps it.\n"})
    assert "1000450" in gone


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Ann prefers tabs over spaces.", "- Ann **prefers** `tabs` over spaces"),
        ("The staging database listens on port 5432.", "## Staging\n- The database listens on port 5432"),
        ("The deadline is March 13, 2026.", "The deadline is 2026-03-13."),
        ("The deadline is next Friday.", "The deadline is 2026-03-13."),
        ("The budget is 12,500 euros a year.", "Each year the budget is 12500 euros."),
        (
            "Carol approves every release of the billing service.",
            "Every release of the billing service: Carol approves.",
        ),
        ("数据库端口是 5432，由运维团队维护。", "运维团队维护数据库，端口是 5432。"),
        ("Logs are in `/var/log/acme/app.log`.", "| Logs | /var/log/acme/app.log |"),
        ("One paragraph that\nis wrapped over lines.", "- One paragraph that is wrapped over lines."),
    ],
)
def test_what_is_said_in_other_words_is_still_there(before: str, after: str) -> None:
    assert lost({"a.md": before}, {"b.md": after}) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Ann prefers tabs over spaces.", "Ann prefers spaces over tabs."),
        ("Never mock the database in tests.", "Mock the database in tests."),
        ("Mock the mail server in tests.", "Never mock the mail server in tests."),
        ("The staging database listens on port 5432.", "The staging database listens on port 6432."),
        ("The deadline is next Friday.", "The deadline moved."),
        ("The release is on 2026-03-13.", "The release is next Friday."),
        ("Carol approves every release.", "Someone approves every release."),
        ("Logs are in /var/log/acme/app.log on the host.", "Logs are in /var/log/acme on the host."),
        ("Tests run on Python 3.11 and 3.12.", "Tests run on Python 3.11."),
        ("部署在每周五下午三点。", "部署在每周一上午九点。"),
        ("不要在周五部署服务。", "可以在周五部署服务。"),
    ],
)  # fmt: skip
def test_what_says_something_else_is_not_the_same(before: str, after: str) -> None:
    assert lost({"a.md": before}, {"a.md": after}) == [before]


def test_the_same_short_words_about_something_else_do_not_count() -> None:
    ports = {"staging.md": "- port 5432", "production.md": "- port 5432"}

    assert lost(ports, {"production.md": "- port 5432"}) == ["port 5432"]
    assert lost(ports, {"production.md": "- port 5432", "db.md": "## Staging\n\n- port 5432"}) == []


def test_descriptions_and_unknown_keys_of_the_frontmatter_are_said_too() -> None:
    text = (
        "---\nname: deploys\ndescription: Deploys run from the bastion host\npriority: above all else\n"
        "type: project\n---\n"
    )

    assert lost({"a.md": text}, {}) == ["Deploys run from the bastion host", "priority: above all else"]


def test_a_heading_with_nothing_under_it_and_a_bare_name_are_said_too() -> None:
    assert lost({"a.md": "# The office moved to Porto in 2024\n"}, {}) == [
        "The office moved to Porto in 2024"
    ]
    assert lost({"a.md": "---\nname: the office is in Porto\n---\n"}, {}) == ["the office is in Porto"]


def test_bytes_that_are_no_text_are_only_there_when_they_are_the_same() -> None:
    before = {"a.md": b"\x00\x01\x02"}

    assert [fact.file for fact in find_lost_facts(before, {"b.md": b"some text"})] == ["a.md"]
    assert find_lost_facts(before, {"b.md": b"\x00\x01\x02"}) == []


def account(before: str, after: dict[str, str], told: dict[str, LossReason]) -> str:
    """How the one statement of `old.md` is accounted for, empty when it is not."""
    (one,) = read_facts(before.encode(), "old.md")
    known = [*after, "old.md", "logs/2026/03/2026-03-05.md", "session-7"]
    there = FilesAfterDream(
        {file: text.encode() for file, text in after.items()}, lambda: StatementIndex({}), known
    )
    found = there.account(one, told)
    return found.how if found else ""


OLD = "The staging database listens on port 5432 (2026-01-10)."
NEW = {"new.md": "Since 2026-03-05 the staging database listens on port 6432."}


@pytest.mark.parametrize("evidence", ["new.md", "logs/2026/03/2026-03-05.md", "session:session-7"])
def test_a_newer_value_with_evidence_supersedes_an_old_one(evidence: str) -> None:
    told = LossReason("superseded", evidence, "new.md")

    assert account(OLD, NEW, {"old.md": told}) == "superseded"
    assert account(OLD, NEW, {OLD: told}) == "superseded"
    assert account(OLD, NEW, dict(add_plain_keys({f"- **{OLD}**": told}))) == "superseded"


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (NEW, {}),
        (NEW, {"old.md": LossReason("superseded", "", "new.md")}),
        (NEW, {"old.md": LossReason("superseded", "no-such-file.md", "new.md")}),
        ({"new.md": "Lunch is at noon."}, {"old.md": LossReason("superseded", "new.md", "new.md")}),
        (
            {"new.md": "On 2025-06-01 the staging database listened on port 4432."},
            {"old.md": LossReason("superseded", "new.md", "new.md")},
        ),
        (NEW, {"old.md": LossReason("merged", "new.md", "new.md")}),
        (NEW, {"old.md": LossReason("stale", "new.md", "new.md")}),
    ],
)  # fmt: skip
def test_without_evidence_or_a_newer_statement_there_is_no_account(
    after: dict[str, str], told: dict[str, LossReason]
) -> None:
    assert account(OLD, after, told) == ""


def test_a_denial_with_evidence_contradicts() -> None:
    told = {"old.md": LossReason("contradicted", "session-7", "new.md")}

    assert account("We deploy on Fridays.", {"new.md": "We never deploy on Fridays."}, told) == (
        "contradicted"
    )


def test_a_merge_that_is_named_may_be_worded_more_freely_but_keeps_numbers() -> None:
    said = "Releases of the payment gateway are tagged by Carol after 3 reviews."
    told = {"old.md": LossReason("merged", "new.md", "new.md")}

    free = {"new.md": "Carol tags payment gateway releases. They need 3 reviews."}
    assert account(said, free, told) == "merged"
    assert account(said, {"new.md": "Carol tags payment gateway releases."}, told) == ""
