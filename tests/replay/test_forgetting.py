"""What a replay lets go of, and what it still needs."""

from __future__ import annotations

from sevenfold.core.messages import Text, assistant, user
from sevenfold.core.transcript import Mark, Replace, Reply, Transcript
from sevenfold.layers.shared.boundary import BoundaryRecord, collect_facts, record_name
from sevenfold.layers.shared.facts import Facts, UserTurn
from sevenfold.replay.driver import forget_entries


def compacted(log: Transcript, text: str) -> None:
    """All of the view becomes one message, with a record of everything that was ever said."""
    view = log.view
    facts = collect_facts(view, view.marks)
    edit = Replace(view[0].id, view[-1].id, (user(text),))
    log.add(BoundaryRecord(facts).mark(user(text)), edit, by="Compaction")


def test_only_the_records_of_what_is_in_view_are_kept() -> None:
    log = Transcript(lambda: 0.0)
    for n in range(4):
        log.add(user(f"question {n}"), Reply(assistant(Text("ok"))))
        compacted(log, f"summary {n}")
    log.add(Mark("notes", 1), user("the newest"))
    before = log.view

    forget_entries(log)

    records = [name for name in log.view.marks if name.startswith("stands_for")]
    assert records == [record_name(log.view[0].message)]
    assert log.view.marks["notes"] == 1
    assert list(log.view) == list(before)
    said = collect_facts(log.view, log.view.marks).said
    assert [one.text for one in said] == [*(f"question {n}" for n in range(4)), "the newest"]
    assert log.entries == []


def test_what_comes_afterwards_goes_on_as_if_nothing_were_forgotten() -> None:
    logs = [Transcript(lambda: 0.0) for _ in range(2)]
    for n in range(6):
        for log in logs:
            log.add(user(f"question {n}"), Reply(assistant(Text("ok"))))
            if n % 2:
                compacted(log, f"summary {n}")
        forget_entries(logs[0])

    assert list(logs[0].view) == list(logs[1].view)
    assert collect_facts(logs[0].view, logs[0].view.marks) == collect_facts(
        logs[1].view, logs[1].view.marks
    )


def test_a_log_without_compactions_keeps_its_marks() -> None:
    log = Transcript(lambda: 0.0)
    log.add(Mark("breaker", {"failures": 1}), user("hello"))
    log.add(BoundaryRecord(Facts(said=(UserTurn("old"),))).mark(user("gone")))
    marks = dict(log.view.marks)

    forget_entries(log)

    assert log.view.marks == marks
