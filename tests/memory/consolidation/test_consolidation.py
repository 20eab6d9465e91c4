"""Consolidation by rule: what is the same becomes one, what is newer counts, and nothing else goes."""

from __future__ import annotations

import datetime
import gzip
import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.memory.consolidation.consolidation import consolidate_folder
from sevenfold.memory.consolidation.staged_memories import ConsolidationReport
from sevenfold.memory.dreams.commit import commit_dream
from sevenfold.memory.dreams.losses import find_lost_facts
from sevenfold.memory.dreams.stage import stage_folder
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index import HOOK, LINES, format_pointer, list_exceeded_limits, read_index
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.topic_file import TYPES, Origin, Type, encode_new_topic, read_topic
from sevenfold.testing import FakeClock

DATA = Path(__file__).parents[4] / "shared/data/memory_files_dev.jsonl.gz"


def at(day: str) -> float:
    return datetime.datetime.fromisoformat(f"{day}T12:00").timestamp()


NOW = at("2026-11-15")
JANUARY, MARCH = "2026-01-10", "2026-03-20"


class Folder:
    """A memory folder that is filled by a test and looked at afterwards."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.place.mkdir()

    def add(
        self,
        name: str,
        body: str,
        *,
        told: str = "",
        type: Type = "project",
        origin: str = "",
        of: str = MARCH,
    ) -> str:
        file = f"{name}.md"
        source = Origin(session="s", date=origin, author="user") if origin else None
        data = encode_new_topic(
            file, name=name, description=told or name, type=type, body=body, origin=source
        )
        return self.put(file, data, of)

    def put(self, file: str, data: bytes | str, of: str = MARCH) -> str:
        path = self.place / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        os.utime(path, (at(of), at(of)))
        return file

    def dream(self, modified: Mapping[str, float] | None = None) -> ConsolidationReport:
        return consolidate_folder(self.place, NOW, modified or {})

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.place.rglob("*") if path.is_file())
        return {path.relative_to(self.place).as_posix(): path.read_bytes() for path in found}

    def topics(self) -> dict[str, bytes]:
        return {file: data for file, data in self.files().items() if file != "MEMORY.md"}

    def text(self, file: str) -> str:
        return (self.place / file).read_text("utf-8")

    def body(self, file: str) -> str:
        return read_topic((self.place / file).read_bytes(), file).body

    @property
    def everything(self) -> str:
        return "\n".join(data.decode("utf-8", "replace") for data in self.topics().values())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "memory")


# --- the same twice -----------------------------------------------------------------------------------


def test_two_memories_that_say_the_same_become_one_with_all_that_both_said(folder: Folder) -> None:
    folder.add("tabs", "The user prefers tabs over spaces.\n\n**Why:** diffs.", of=JANUARY)
    folder.add("tabs-again", "User prefers tabs over spaces. This holds for Makefiles too.")
    report = folder.dream()
    assert [(one.file, one.into) for one in report.merged] == [("tabs-again.md", "tabs.md")]
    body = folder.body("tabs.md")
    assert body.count("tabs over spaces") == 1
    assert "**Why:** diffs." in body
    assert "This holds for Makefiles too." in body
    assert "tabs-again.md" not in folder.files()


def test_what_comes_from_the_other_memory_does_not_slip_under_a_heading(folder: Folder) -> None:
    folder.add("hall", "The north hall holds forty racks.\n\n## Keys\n\nAnn has them.", of=JANUARY)
    folder.add("hall-2", "The north hall holds forty racks. It is cooled with water.")
    folder.dream()
    body = folder.body("hall.md")
    assert body.endswith("Ann has them.\n\n## From hall-2\n\n- It is cooled with water.")


def test_links_and_lines_of_the_index_lead_to_the_memory_that_is_kept(folder: Folder) -> None:
    folder.add("tabs", "The user prefers tabs over spaces.", of=JANUARY)
    folder.add("tabs-again", "The user prefers tabs over spaces.")
    for name in ("x", "y", "z"):
        folder.add(name, f"Room {name} has [[tabs]].")
    folder.add("style", "See [[tabs-again]], [it](tabs-again.md) and [[tabs-again|that]].")
    folder.add("list", "- [[tabs-again]]\n- `[[tabs-again]]` in code stays")
    folder.put("MEMORY.md", "- [again](tabs-again.md) — the user prefers tabs\n")
    folder.dream()
    assert folder.body("style.md") == "See [[tabs]], [it](tabs.md) and [[tabs|that]]."
    assert folder.body("list.md") == "- [[tabs|tabs-again]]\n- `[[tabs-again]]` in code stays"
    assert "(tabs.md)" in folder.text("MEMORY.md")
    assert "again.md" not in folder.text("MEMORY.md")


def test_what_others_link_to_is_kept_even_if_it_is_younger(folder: Folder) -> None:
    folder.add("a", "Ann runs the billing service alone.", of=JANUARY)
    folder.add("b", "Ann runs the billing service alone.")
    folder.add("c", "Ask her: [[b]].")
    assert [(one.file, one.into) for one in folder.dream().merged] == [("a.md", "b.md")]


def test_unknown_keys_of_both_are_kept(folder: Folder) -> None:
    head = "---\nname: {}\ndescription: Ann runs billing\ntype: project\n{}---\n\n"
    body = "Ann runs the billing service alone.\n"
    first = head.format("a", "x-color: red\nlevel: 3\n") + body
    second = head.format("b", "x-shape:\n  - round\n  - flat\nlevel: 4\n") + body
    folder.put("a.md", first, JANUARY)
    folder.put("b.md", second)
    folder.dream()
    text = folder.text("a.md")
    assert "x-color: red\nlevel: 3\n" in text
    assert "x-shape:\n  - round\n  - flat\n" in text
    assert "- level: 4" in folder.body("a.md")


def test_the_origin_of_the_kept_memory_stays(folder: Folder) -> None:
    folder.add("a", "Ann runs the billing service alone.", origin=JANUARY)
    folder.add("b", "Ann runs the billing service alone.", origin=MARCH)
    folder.dream()
    topic = read_topic((folder.place / "a.md").read_bytes(), "a.md")
    assert topic.origin == Origin(session="s", date=JANUARY, author="user")


def test_a_fuller_description_is_taken_over(folder: Folder) -> None:
    folder.add("a", "Ann runs the billing service alone.", told="Billing is run by Ann", of=JANUARY)
    told = "Billing is run by Ann, who sits in Oslo"
    folder.add("b", "Ann runs the billing service alone.", told=told)
    folder.dream()
    assert read_topic((folder.place / "a.md").read_bytes(), "a.md").description == told


def test_what_only_a_line_of_the_index_said_moves_into_the_memory(folder: Folder) -> None:
    folder.add("a", "Ann runs the billing service alone.", of=JANUARY)
    folder.add("b", "Ann runs the billing service alone.")
    folder.put("MEMORY.md", "- [a](a.md) — billing\n- [b](b.md) — her deputy is Zoltan Quade\n")
    folder.dream()
    assert "Zoltan Quade" in folder.body("a.md")
    assert folder.text("MEMORY.md") == "- [a](a.md) — billing\n"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The import needs 12 GB of memory on the host.", "The import needs 16 GB of memory on the host."),
        ("Ann reviews every change to the parser.", "Bob reviews every change to the parser."),
        ("Bob reports to Ann in the billing team.", "Ann reports to Bob in the billing team."),
        ("Always squash commits before the merge.", "Never squash commits before the merge."),
        ("Squash commits before the merge.", "Do not squash commits before the merge."),
        ("Run the slow tests on Friday.", "Run the slow tests on Monday."),
        ("The flag for the new search is on.", "The flag for the new search is off."),
        ("The tool for the parser is written in C.", "The tool for the parser is written in C++."),
        ("Plan B covers the whole migration.", "Plan C covers the whole migration."),
        ("The review of 2026-03-01 found two bugs.", "The review of 2026-04-01 found two bugs."),
        ("The user likes coffee.", "The user's boss likes coffee."),
        ("Run the slow tests with -x first.", "Run the slow tests with -q first."),
        ("We might move the archive to S3.", "We move the archive to S3."),
        ("导入需要12GB内存。", "导入需要16GB内存。"),
        ("提交前要合并。", "提交前不要合并。"),
    ],
)
def test_a_number_a_name_a_day_or_a_not_makes_two_memories(folder: Folder, one: str, other: str) -> None:
    folder.add("first", one, told="first")
    folder.add("second", other, told="second")
    report = folder.dream()
    assert not report.merged
    assert not report.superseded
    assert folder.body("first.md") == one
    assert folder.body("second.md") == other


def test_numbered_memories_are_of_two_things(folder: Folder) -> None:
    folder.add("sprint-12", "The retro was short and good.", told="retro")
    folder.add("sprint-13", "The retro was short and good.", told="retro")
    assert not folder.dream().merged


def test_memories_of_different_types_stay_apart(folder: Folder) -> None:
    folder.add("a", "Ann runs the billing service alone.", type="user")
    folder.add("b", "Ann runs the billing service alone.", type="project")
    assert not folder.dream().merged


# --- the newer counts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Quarry runs on port 8080.", "Quarry runs on port 9090."),
        ("Deploys of Quarry happen on Friday.", "Deploys of Quarry happen on Tuesday."),
        ("The lead for Quarry is Ann.", "The lead for Quarry is Bob."),
        ("Quarry uses MySQL for storage.", "Quarry uses Postgres for storage."),
        ("The deadline for Quarry is 2026-12-01.", "The deadline for Quarry is 2027-01-15."),
        ("Quarry is hosted on AWS.", "Quarry is hosted on Hetzner."),
        ("The office of Quarry is in Berlin.", "The office of Quarry moved to Munich."),
        ("We use Quarry for the build.", "We no longer use Quarry."),
        ("Ann is the manager of Quarry.", "Bob is the manager of Quarry."),
        ("Orders of Quarry go by post.", "Orders of Quarry no longer go by post; we use mail."),
        ("Backups of Quarry are kept for 30 days.", "Backups of Quarry are kept for 90 days."),
        ("The kiln of Quarry reaches 1200 degrees.", "The kiln of Quarry reaches 1280 degrees."),
        ("Hall 2 of Quarry stays at 20 degrees.", "Hall 2 of Quarry stays at 80 degrees."),
        ("Quarry的端口是8080。", "Quarry的端口是9090。"),
        ("Quarry网关监听端口8080。", "Quarry网关监听端口9090。"),
        ("Quarry的截止日期是12月1日。", "Quarry的截止日期改到1月15日。"),
        ("Quarry的负责人是Ann。", "Quarry的负责人改为Bob。"),
    ],
)
@pytest.mark.parametrize("dated", ["origin", "file"])
def test_of_two_values_the_newer_counts(folder: Folder, old: str, new: str, dated: str) -> None:
    by_origin = dated == "origin"
    folder.add("quarry", old, origin=JANUARY if by_origin else "", of=MARCH if by_origin else JANUARY)
    folder.add("quarry-news", new, origin=MARCH if by_origin else "")
    report = folder.dream()
    assert new in folder.everything
    assert old not in folder.everything
    (told,) = [one for one in report.superseded if one.old == old]
    assert told.new.rstrip(".") == new.rstrip(".")
    assert told.by == "quarry-news.md"
    assert report.explained[old].reason == "superseded"
    assert report.explained[old].evidence == "quarry-news.md"


@pytest.mark.parametrize(
    "new",
    [
        "Quarry now runs on port 9090.",
        "Quarry runs on port 9090 instead of 8080.",
        "Since 2026-03-15, Quarry runs on port 9090.",
        "Quarry runs on port 9090 (2026-03-15).",
        "Quarry moved from port 8080 to port 9090.",
    ],
)
def test_a_sentence_may_say_itself_that_it_is_new(folder: Folder, new: str) -> None:
    folder.add("quarry", "Quarry runs on port 8080.\n\nIt is kept in Oslo.", of="2026-03-10")
    folder.add("quarry-news", new, of="2026-03-10")
    folder.dream()
    assert new in folder.everything
    assert "Quarry runs on port 8080." not in folder.everything
    assert "It is kept in Oslo." in folder.everything


def test_since_a_day_counts_for_what_was_written_later(folder: Folder) -> None:
    folder.add("a-quarry", "Since 2026-03-01, Quarry runs on port 9090.", of="2026-03-20")
    folder.add("z-quarry", "Quarry runs on port 8080.", of="2026-03-10")
    folder.dream()
    assert "8080" not in folder.everything
    assert "port 9090" in folder.everything


def test_what_else_the_older_memory_says_stays(folder: Folder) -> None:
    folder.add("quarry", "Quarry runs on port 8080.\n\n- It needs 7 GB.\n- Ann wrote it.", of=JANUARY)
    folder.add("quarry-port", "Quarry runs on port 9090.")
    folder.dream()
    body = folder.body("quarry.md")
    assert body == "Quarry runs on port 9090.\n\n- It needs 7 GB.\n- Ann wrote it."


def test_within_one_memory_only_the_sentence_itself_can_be_newer(folder: Folder) -> None:
    folder.add("quarry", "- Quarry runs on port 8080.\n- Quarry runs on port 9090.")
    folder.add("hatch", "- Hatch runs on port 8080.\n- Since 2026-03-01, Hatch runs on port 9090.")
    folder.dream()
    assert folder.body("quarry.md").count("port") == 2
    assert folder.body("hatch.md") == "- Since 2026-03-01, Hatch runs on port 9090."


def test_without_a_sign_of_which_is_newer_both_stay_and_are_named(folder: Folder) -> None:
    folder.add("quarry", "Quarry runs on port 8080.")
    folder.add("quarry-other", "Quarry runs on port 9090.")
    report = folder.dream()
    assert not report.superseded
    assert not report.merged
    (one,) = report.unclear
    assert {one.text, one.other} == {"Quarry runs on port 8080.", "Quarry runs on port 9090."}


def test_what_holds_from_a_later_day_on_replaces_nothing_yet(folder: Folder) -> None:
    folder.add("quarry", "Quarry runs on port 8080.", of=JANUARY)
    folder.add("quarry-plan", "From 2026-12-24, Quarry runs on port 9090.")
    report = folder.dream()
    assert not report.superseded
    assert "Quarry runs on port 8080." in folder.everything


def test_a_now_that_was_said_before_the_other_sentence_decides_nothing(folder: Folder) -> None:
    folder.add("quarry", "Quarry now runs on port 9090.", of=JANUARY)
    folder.add("quarry-other", "Quarry runs on port 8080.")
    assert not folder.dream().superseded


def test_an_old_origin_is_no_proof_against_a_file_that_was_edited_since(folder: Folder) -> None:
    folder.add("quarry", "Quarry runs on port 9090.", origin=JANUARY, of="2026-10-01")
    folder.add("quarry-other", "Quarry runs on port 8080.", origin=MARCH, of=MARCH)
    assert not folder.dream().superseded


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The user likes jazz.", "The user likes rock."),
        ("Quarry supports JSON.", "Quarry supports YAML."),
        ("We use port 80 for Quarry.", "We use port 80 for Hatch."),
        ("The Quarry service runs on port 80.", "The Hatch service runs on port 81."),
        ("Use tabs for tests of Quarry.", "Use words for docs of Quarry."),
        ("Issue 12 of Quarry is closed.", "Issue 13 of Quarry is closed."),
        ("Gate 4 of Quarry opens at dusk.", "Gate 7 of Quarry opens at dusk."),
        ("In 2024 Quarry drew 300 people a day.", "In 2025 Quarry drew 420 people a day."),
        ("The outage of Quarry lasted 40 minutes.", "The outage of Quarry lasted 55 minutes."),
        ("Quarry is slow.", "Quarry is green."),
        ("Ann is the lead.", "Ann is on vacation."),
        ("The script is called from ci.sh.", "The script is called from deploy.sh."),
        ("用户喜欢爵士乐。", "用户喜欢摇滚乐。"),
        ("备用编号是A-1。", "主要编号是A-2。"),
    ],
)
def test_what_can_both_be_true_both_stays(folder: Folder, one: str, other: str) -> None:
    folder.add("quarry", one, of=JANUARY)
    folder.add("quarry-more", other)
    report = folder.dream()
    assert not report.superseded
    assert one in folder.everything
    assert other in folder.everything


def test_the_same_words_about_another_subject_are_another_fact(folder: Folder) -> None:
    folder.add("billing", "The default branch of the repository is main.", of=JANUARY)
    folder.add("website", "The default branch of the repository is trunk.")
    report = folder.dream()
    assert not report.superseded
    assert not report.merged


# --- days ---------------------------------------------------------------------------------------------


def test_relative_days_become_dates_against_the_origin(folder: Folder) -> None:
    folder.add("demo", "The demo of Quarry is tomorrow.", origin="2026-10-10", of="2026-11-01")
    report = folder.dream()
    assert "2026-10-11" in folder.body("demo.md")
    (told,) = report.dated
    assert told.before == "The demo of Quarry is tomorrow."
    assert "2026-10-10" in told.against


def test_a_day_in_the_name_counts_before_the_time_of_the_file(folder: Folder) -> None:
    folder.add("session-2026-10-05", "Quarry went down yesterday.", of="2026-11-01")
    folder.add("news", "Hatch went down yesterday.", of="2026-11-01")
    folder.dream()
    assert "2026-10-04" in folder.body("session-2026-10-05.md")
    assert "2026-10-31" in folder.body("news.md")


@pytest.mark.parametrize(
    "body",
    [
        "Deploys of Quarry happen on Friday.",
        "None of them pays tomorrow, but all will.",
        "Ann said “see you tomorrow”.",
        "Run `date -d tomorrow` first.",
        "部署日是周五。",
    ],
)
def test_what_is_no_day_of_its_own_stays(folder: Folder, body: str) -> None:
    folder.add("note", body)
    assert not folder.dream().dated
    assert folder.body("note.md") == body


def test_a_chinese_date_does_not_run_into_the_word_before_it(folder: Folder) -> None:
    folder.add("note", "Quarry昨天停机了。", of="2026-11-01")
    folder.dream()
    assert folder.body("note.md") == "Quarry 2026-10-31停机了。"


# --- what is over -------------------------------------------------------------------------------------


def test_a_project_long_past_its_date_moves_to_the_archive_with_the_reason(folder: Folder) -> None:
    folder.add("freeze", "The merge freeze begins on 2026-03-05.", of=JANUARY)
    folder.add("other", "Wait for [[freeze]] and read [it](freeze.md).")
    folder.put("MEMORY.md", "- [freeze](freeze.md) — merge freeze, see Zoltan Quade\n")
    report = folder.dream()
    assert [(one.file, one.to) for one in report.archived] == [("freeze.md", "archive/freeze.md")]
    body = folder.body("archive/freeze.md")
    assert "The merge freeze begins on 2026-03-05." in body
    assert "Archived on 2026-11-15" in body
    assert "Zoltan Quade" in body
    assert "freeze.md" not in folder.text("MEMORY.md")
    assert folder.body("other.md") == "Wait for [[freeze]] and read [it](archive/freeze.md)."


@pytest.mark.parametrize("type", ["user", "feedback", "reference"])
def test_only_projects_are_archived(folder: Folder, type: Type) -> None:
    folder.add("freeze", "The merge freeze begins on 2026-03-05.", type=type, of=JANUARY)
    assert not folder.dream().archived


@pytest.mark.parametrize(
    "body",
    [
        "On 2025-03-05 we decided to use Postgres.",
        "The freeze begins on 2026-03-05 and the next one on 2027-01-05.",
        "The merge freeze begins on 2026-10-05.",
        "Quarry needs 7 GB; measured 2025-03-05.",
    ],
)
def test_what_may_still_hold_is_not_archived(folder: Folder, body: str) -> None:
    folder.add("note", body, of="2025-01-01")
    assert not folder.dream().archived


def test_a_project_that_calls_itself_done_waits_half_a_year(folder: Folder) -> None:
    folder.add("done-long-ago", "Status: done\n\nQuarry was moved to rack 7.", of="2026-03-01")
    folder.add("just-done", "Status: done\n\nHatch was moved to rack 8.", of="2026-10-01")
    assert [one.file for one in folder.dream().archived] == ["done-long-ago.md"]


# --- the index ----------------------------------------------------------------------------------------


def test_the_index_has_a_line_for_each_memory_and_none_to_nowhere(folder: Folder) -> None:
    folder.add("a", "Ann runs the billing service.")
    folder.add("b", "Bob owns a boat.")
    folder.put("MEMORY.md", "# Mine\n\n- [a](a.md) — Ann\n- [gone](gone.md) — was here\nProse stays.\n")
    report = folder.dream()
    text = folder.text("MEMORY.md")
    assert text.startswith("# Mine\n\n- [a](a.md) — Ann\n")
    assert "Prose stays." in text
    assert "gone.md" not in text
    assert "(b.md)" in text
    assert any("gone.md" in said for said in report.index)


def test_a_line_whose_file_was_renamed_points_to_it_again(folder: Folder) -> None:
    folder.add("billing-lead", "Ann runs the billing service.")
    folder.put("MEMORY.md", "- [Lead](old/Billing_Lead.md) — ask before noon\n")
    folder.dream()
    assert folder.text("MEMORY.md") == "- [Lead](billing-lead.md) — ask before noon\n"


def test_a_long_line_keeps_a_hook_and_its_memory_gets_the_rest(folder: Folder) -> None:
    folder.add("a", "Ann runs the billing service.")
    hook = "She told Zoltan Quade that rack 4711 must move before the audit, " + "and more " * 15
    folder.put("MEMORY.md", f"- **[a](a.md)** — {hook}end\n")
    folder.dream()
    (line,) = folder.text("MEMORY.md").splitlines()
    assert len(line) <= HOOK
    assert line.startswith("- **[a](a.md)** — She told")
    assert f"{hook}end." in folder.body("a.md")


def test_a_long_line_that_its_memory_says_already_adds_nothing(folder: Folder) -> None:
    text = "She told Zoltan that rack 4711 must move before the audit " + "and more " * 15 + "end."
    folder.add("a", text)
    before = folder.body("a.md")
    folder.put("MEMORY.md", f"- [a](a.md) — {text}\n")
    folder.dream()
    assert folder.body("a.md") == before


def test_a_full_index_keeps_the_newest_and_the_files_stay(folder: Folder) -> None:
    days = [datetime.date(2026, 1, 1) + datetime.timedelta(days=n) for n in range(260)]
    for n, day in enumerate(days):
        folder.add(f"m{n}", f"Rack {n * 7919 + 13} holds box {n * 104_729 + 7}.", of=day.isoformat())
    folder.dream()
    text = folder.text("MEMORY.md")
    pointed = {one.file for one in read_index(text).pointers}
    assert not list_exceeded_limits(text)
    assert len(pointed) == LINES - 1
    assert pointed == {f"m{n}.md" for n in range(61, 260)}
    assert text.endswith("\n- 61 more memories are not listed here; recall finds them\n")
    assert folder.dream().index == ()
    assert len(folder.topics()) == 260


def test_hand_written_lines_that_do_not_fit_are_kept_in_a_memory(folder: Folder) -> None:
    sections = [f"## Part {n}\n\n" + f"Fact {n} is told here. " * 60 + "\n" for n in range(30)]
    folder.put("MEMORY.md", "# Mine\n\n" + "\n".join(sections))
    folder.dream()
    text = folder.text("MEMORY.md")
    assert not list_exceeded_limits(text)
    assert "## Part 0" in text
    everything = text + folder.everything
    assert all(section.strip() in everything for section in sections)


def test_a_file_that_was_not_copied_keeps_its_line(folder: Folder) -> None:
    folder.add("a", "Ann runs the billing service.")
    folder.put("MEMORY.md", "- [a](a.md) — Ann\n- [held](held.md) — by hand\n")
    folder.dream({"held.md": NOW})
    assert "- [held](held.md) — by hand\n" in folder.text("MEMORY.md")


# --- daily logs ---------------------------------------------------------------------------------------


class Lesson(msgspec.Struct, frozen=True):
    type: Type
    name: str
    description: str
    body: str


def learn(text: str, when: float) -> Sequence[Lesson]:
    """Remembers what begins with a star; knows when it was said."""
    if not text.startswith("*"):
        return []
    day = datetime.datetime.fromtimestamp(when).strftime("%Y-%m-%d %H:%M")
    return [Lesson("user", f"lesson {text[1:9]}", text[1:], f"{text[1:]} (noted {day})")]


LOG = "logs/2026/11/2026-11-10.md"
NOTED = "# 2026-11-10\n\n- 09:15 *Ann sings in a choir\n  every week\n- 09:20 lunch\n"


def test_a_log_is_distilled_into_memories(folder: Folder) -> None:
    folder.put(LOG, NOTED)
    report = consolidate_folder(folder.place, NOW, {}, logs=[LOG], learn=learn)
    (one,) = report.learned
    topic = read_topic((folder.place / one.file).read_bytes(), one.file)
    assert topic.body == "Ann sings in a choir\nevery week (noted 2026-11-10 09:15)"
    assert topic.origin == Origin(date="2026-11-10", author="dream")
    assert topic.type == "user"
    assert folder.text(LOG) == NOTED
    assert f"({one.file})" in folder.text("MEMORY.md")
    again = consolidate_folder(folder.place, NOW, {}, logs=[LOG], learn=learn)
    assert not again.learned
    assert not again.changed


def test_without_somebody_to_learn_or_named_logs_they_are_left_alone(folder: Folder) -> None:
    folder.put(LOG, NOTED)
    assert not consolidate_folder(folder.place, NOW, {}, logs=[LOG]).learned
    assert not consolidate_folder(folder.place, NOW, {}, learn=learn).learned


# --- what is never touched ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"---\nname: x\ndescription: y\ntype: project\n---\n\nThe demo is tomorrow \xff\xfe.\n",
        b"---\nname: x\ndescription: never closed\nThe demo is tomorrow.\n",
        b"\xff\xfeT\x00h\x00e\x00",
        b"\x00\x01 The demo is tomorrow.",
        b"",
    ],
)
def test_a_file_that_is_not_whole_text_stays_byte_for_byte(folder: Folder, data: bytes) -> None:
    folder.put("odd.md", data)
    folder.put("odd-2.md", data)
    folder.dream()
    assert folder.files()["odd.md"] == data
    assert folder.files()["odd-2.md"] == data


def test_line_breaks_marks_and_remarks_of_a_changed_file_stay(folder: Folder) -> None:
    text = (
        "\ufeff---\r\nname: demo\r\n# a remark\r\ndescription: the demo\r\ntype: project\r\n"
        "x-odd: [1, 2]\r\n---\r\n\r\nThe demo of Quarry is tomorrow.\r\n\r\n* as it is  \r\n"
    )
    folder.put("demo.md", text, "2026-11-01")
    folder.dream()
    expected = text.replace("tomorrow", "2026-11-02")
    assert folder.files()["demo.md"].decode() in (expected, expected.replace(" is 2026", " is on 2026"))


def test_team_logs_and_archive_are_read_only(folder: Folder) -> None:
    same = "---\nname: {}\ndescription: d\ntype: project\n---\n\nThe demo is tomorrow.\n"
    kept = [
        folder.put("team/a.md", same.format("a")),
        folder.put("team/b.md", same.format("b")),
        folder.put("archive/c.md", same.format("c")),
        folder.put("logs/2026/03/2026-03-01.md", "- 09:00 tomorrow\n"),
        folder.put("picture.png", b"\x89PNG"),
    ]
    before = folder.files()
    folder.dream()
    after = folder.files()
    assert {file: after[file] for file in kept} == {file: before[file] for file in kept}


def test_nothing_outside_the_folder_is_read_or_written(folder: Folder, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = outside / "secret.md"
    secret.write_text("The demo is tomorrow.", encoding="utf-8")
    (folder.place / "way-out").symlink_to(outside)
    (folder.place / "link.md").symlink_to(secret)
    folder.put("MEMORY.md", "- [out](../outside/secret.md) — out\n- [link](link.md) — in\n")
    folder.add("a", "Ann runs the billing service. See [[../outside/secret]].")
    folder.dream()
    assert [path.name for path in outside.iterdir()] == ["secret.md"]
    assert secret.read_text("utf-8") == "The demo is tomorrow."
    assert (folder.place / "link.md").is_symlink()


def test_a_folder_that_is_not_there_is_no_trouble(tmp_path: Path) -> None:
    assert consolidate_folder(tmp_path / "none", NOW, {}) == ConsolidationReport()
    assert not (tmp_path / "none").exists()


def test_a_memory_in_which_one_sentence_was_replaced_keeps_its_time(folder: Folder) -> None:
    folder.add("quarry", "Quarry runs on port 8080.\n\nAnn wrote it.", of=JANUARY)
    folder.add("quarry-port", "Quarry runs on port 9090.", of=MARCH)
    folder.dream()
    assert folder.body("quarry.md") == "Quarry runs on port 9090.\n\nAnn wrote it."
    assert (folder.place / "quarry.md").stat().st_mtime == at(JANUARY)


LONG_AGO, LATELY = "2026-10-26", "2026-11-13"
OLD, NEW = "The dev server listens on port 8080.", "The dev server listens on port 9090."


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (("Dev server", OLD), ("Dev server", NEW)),
        ((OLD.rstrip("."), OLD), (NEW.rstrip("."), NEW)),
        (("Dev server port 8080", OLD), ("Dev server port 9090", NEW)),
        (
            ("Port 8080", "Dev server port is 8080. Run make."),
            ("Port 9090", "Dev server port is 9090. Run make."),
        ),
        (("API port 8080", "Use port 8080 for the API"), ("API port 9090", "Use port 9090 for the API")),
        (("端口 8080", "开发服务器的端口是 8080。"), ("端口 9090", "开发服务器的端口是 9090。")),
    ],
)
@pytest.mark.parametrize("hook", ["", "my own words: 8080"])
def test_of_two_memories_that_disagree_the_newer_one_stays_whole(
    folder: Folder, older: tuple[str, str], newer: tuple[str, str], hook: str
) -> None:
    folder.add("port-old", older[1], told=older[0], of=LONG_AGO)
    folder.add("port-new", newer[1], told=newer[0], of=LATELY)
    if hook:
        lines = [f"- [old](port-old.md) — {hook}\n", "- [new](port-new.md) — the port\n"]
        (folder.place / "MEMORY.md").write_text("".join(lines), "utf-8")
    report = folder.dream()
    assert [(one.file, one.into) for one in report.merged] == [("port-old.md", "port-new.md")]
    everything = "".join(path.read_text("utf-8") for path in folder.place.rglob("*.md"))
    assert "8080" not in everything
    assert folder.body("port-new.md").startswith(newer[1])
    assert (folder.place / "port-new.md").stat().st_mtime == at(LATELY)


def test_a_memory_that_would_contradict_itself_stays_as_it_is(folder: Folder) -> None:
    text = f"{OLD}\n\nOpen http://localhost:8080 to see it."
    folder.add("port-old", text, told="Dev server", of=LONG_AGO)
    folder.add("port-new", NEW, told="Dev server", of=LATELY)
    report = folder.dream()
    assert folder.body("port-old.md") == text
    assert folder.body("port-new.md") == NEW
    assert [(one.file, one.other_file) for one in report.unclear] == [("port-old.md", "port-new.md")]


def test_a_sentence_that_was_replaced_is_as_new_as_what_took_its_place(folder: Folder) -> None:
    for name, port, day in (("port-a", 8080, JANUARY), ("port-b", 9090, LATELY), ("port-c", 7070, MARCH)):
        body = f"The dev server listens on port {port}.\n\nIt was set up in {day}."
        folder.add(name, body, told="Dev server", of=day)
    folder.dream()
    assert "8080" not in folder.everything
    assert "7070" not in folder.everything


# --- together with the transaction --------------------------------------------------------------------


def test_a_commit_accepts_every_account_of_what_is_gone(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "memory")
    folder.add("tabs", "The user prefers tabs over spaces.", type="user", of=JANUARY)
    folder.add("tabs-2", "User prefers tabs over spaces. Ann agrees.", type="user")
    folder.add("quarry", "Quarry runs on port 8080.\n\nAnn wrote it.", of=JANUARY)
    folder.add("quarry-news", "Quarry now runs on port 9090.")
    folder.add("freeze", "The merge freeze begins on 2026-03-05.", of=JANUARY)
    folder.add("demo", "The demo of Hatch is tomorrow.", of="2026-11-14")
    store = MemoryStore(FolderBackend(folder.place, tmp_path / "state"), FakeClock(NOW))
    staged = stage_folder(store)
    report = consolidate_folder(staged.folder, NOW, store.modified())
    outcome = commit_dream(store, staged, Author("dream", "s"), report.explained)
    assert outcome.kept == ()
    assert outcome.conflicts == ()
    assert outcome.lost == ()
    assert {one.into for one in outcome.merged} == {"tabs.md", "quarry.md"}
    assert [one.fact.text for one in outcome.superseded] == ["Quarry runs on port 8080."]
    assert [(one.file, one.into) for one in outcome.archived] == [("freeze.md", "archive/freeze.md")]
    staged = stage_folder(store)
    assert not consolidate_folder(staged.folder, NOW, store.modified()).changed


# --- whatever the folder holds ------------------------------------------------------------------------

NAMES = st.sampled_from(["Quarry", "Hatch", "Ann", "端口", "the parser", "billing 7"])
SENTENCES = st.sampled_from(
    [
        "{} runs on port {}.",
        "{} now runs on port {}.",
        "The lead for {} is number {}.",
        "{} needs {} GB.",
        "We no longer use {} since build {}.",
        "{} was seen in rack {} yesterday.",
        "The deadline for {} is 2026-02-{:02}.",
        "**Why:** {} broke {} builds.",
        "{}的版本是{}。",
        "```\n{} {}\n```",
        "| {} | {} |",
        "## {} {}",
        "- {} likes item {}",
    ]
)


@st.composite
def memories(draw: st.DrawFn) -> list[tuple[str, Type, str, str, int]]:
    count = draw(st.integers(1, 8))
    found: list[tuple[str, Type, str, str, int]] = []
    for at_ in range(count):
        lines = [
            draw(SENTENCES).format(draw(NAMES), draw(st.integers(1, 28)))
            for _ in range(draw(st.integers(1, 4)))
        ]
        body = draw(st.sampled_from(["\n\n", " ", "\n- "])).join(lines)
        name = f"{draw(st.sampled_from(['port', 'quarry', 'ann', 'note']))}-{'abcdefgh'[at_]}"
        type = draw(st.sampled_from(TYPES))
        told = draw(st.one_of(st.just(lines[0]), st.text(max_size=40)))
        found.append((name, type, told, body, draw(st.integers(1, 300))))
    return found


def _day(days: int) -> str:
    return (datetime.date(2026, 11, 14) - datetime.timedelta(days=days)).isoformat()


@settings(max_examples=150, deadline=None)
@given(memories(), st.text(max_size=200))
def test_whatever_is_there_nothing_goes_without_an_account_and_a_second_dream_is_idle(
    tmp_path_factory: pytest.TempPathFactory, some: list[tuple[str, Type, str, str, int]], index: str
) -> None:
    folder = Folder(tmp_path_factory.mktemp("any") / "memory")
    for name, type, told, body, days in some:
        folder.add(name, body, told=told, type=type, of=_day(days))
    folder.put("MEMORY.md", index.encode("utf-8", "replace"))
    before = folder.topics()
    report = folder.dream()
    after = folder.topics()
    told_of = {" ".join(one.old.split()).rstrip(".。") for one in report.superseded}
    for fact in find_lost_facts(before, after):
        assert " ".join(fact.text.split()).rstrip(".。") in told_of, fact
    assert not list_exceeded_limits(folder.text("MEMORY.md"))
    assert all(not Path(file).is_absolute() and ".." not in Path(file).parts for file in after)
    assert folder.dream().changed == ()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.binary(max_size=300))
def test_bytes_of_any_kind_do_no_harm(
    tmp_path_factory: pytest.TempPathFactory, some: list[bytes], index: bytes
) -> None:
    folder = Folder(tmp_path_factory.mktemp("bytes") / "memory")
    for number, data in enumerate(some):
        folder.put(f"file-{'abcde'[number]}.md", data)
    folder.put("MEMORY.md", index)
    before = folder.topics()
    folder.dream()
    assert find_lost_facts(before, folder.topics()) == []
    assert folder.dream().changed == ()


@pytest.mark.skipif(not DATA.exists(), reason="the shared memory files are not beside this checkout")
def test_real_folders_lose_nothing_and_need_no_second_dream(tmp_path: Path) -> None:
    found: dict[str, Folder] = {}
    rows: dict[str, list[tuple[str, str]]] = defaultdict(list)
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["kind"] in ("memory-dir", "agent-memory"):
                path = PurePosixPath(row["path"])
                rows[f"{row['repo']}/{path.parent}"].append((path.name, row["text"]))
    for number, (name, files) in enumerate(sorted(rows.items())):
        if len(files) <= 20:
            found[name] = Folder(tmp_path / str(number))
            for file, text in files:
                found[name].put(file, text)
    for name, folder in found.items():
        before = folder.topics()
        report = folder.dream()
        assert report.merged == (), name
        assert report.superseded == (), name
        assert find_lost_facts(before, folder.topics()) == [], name
        assert not list_exceeded_limits(folder.text("MEMORY.md")) if "MEMORY.md" in folder.files() else True
        assert folder.dream().changed == (), name


def test_the_line_of_a_retold_memory_says_the_new_description(folder: Folder) -> None:
    folder.add("quarry", "It is in Oslo.", told="Quarry runs on port 8080", of=JANUARY)
    folder.add("quarry-port", "Quarry runs on port 9090.")
    old = read_topic((folder.place / "quarry.md").read_bytes(), "quarry.md")
    folder.put("MEMORY.md", format_pointer(old) + "\n")
    folder.dream()
    assert "8080" not in folder.text("MEMORY.md")
    assert "9090" in folder.text("MEMORY.md")


@pytest.mark.parametrize(
    ("told", "again"),
    [
        ("Staging port is 5433", "Staging: port is 5433"),
        ("Deploys; only on Fridays", "Deploys. Only on Fridays"),
        ("CI/CD pipeline", "CI-CD pipeline"),
        ("Staging port = 5433", "Staging port: 5433."),
    ],
)
def test_the_same_sentence_is_one_memory_where_descriptions_differ_in_marks(
    tmp_path: Path, told: str, again: str
) -> None:
    folder = Folder(tmp_path / "memory")
    folder.add("staging", "The staging server listens on port 5433 and not on 5432.", told=told)
    folder.add("staging-server", "The staging server listens on port 5433, and not on 5432", told=again)
    [merged] = folder.dream().merged
    assert {merged.file, merged.into} == {"staging.md", "staging-server.md"}
    [data] = folder.topics().values()
    assert data.decode().count("listens on port") == 1


@pytest.mark.parametrize(
    ("told", "again", "name"),
    [("Port 54.33", "Port 54 33", "staging-b"), ("Staging port", "Staging: port", "staging-3")],
)
def test_marks_within_numbers_and_numbered_names_tell_two_memories_apart(
    tmp_path: Path, told: str, again: str, name: str
) -> None:
    folder = Folder(tmp_path / "memory")
    folder.add("staging-2", "It is kept for the tests.", told=told)
    folder.add(name, "It is kept for the tests.", told=again)
    folder.dream()
    assert len(folder.topics()) == 2
