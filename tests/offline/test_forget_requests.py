"""What the offline engine forgets, ignores, notes in a log, and learns, by rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from offline.offline_project import Project, Talk

from sevenfold.core.messages import make_context_message, user
from sevenfold.layers.l5_durable_memory.prompt import format_memory_prompt, format_opening
from sevenfold.memory.agent_writes import drop_memory_wish, is_memory_ignored
from sevenfold.offline.conversation import OfflineConversation
from sevenfold.offline.extraction import extract_facts
from sevenfold.offline.language import find_typed_sentences
from sevenfold.offline.reply import RULES

FOLDER = "/home/me/.sevenfold/projects/p/memory"
SYSTEM = format_memory_prompt(Path(FOLDER), Path(FOLDER).parent)
INDEX = (
    "- [deploy-day](deploy-day.md) — Deploys happen on Mondays\n"
    "- [tabs](tabs.md) — Use tabs, never spaces\n"
    "- [tab-width](tab-width.md) — Tabs are four columns wide\n"
)


def talk(index: str = INDEX, **files: str) -> Talk:
    """A conversation that opens with an index."""
    stored = {f"{FOLDER}/{name}.md": text for name, text in files.items()}
    said = format_opening(index, "") or ""
    return Talk(
        rules=RULES,
        system=SYSTEM,
        project=Project(stored),
        messages=[user(make_context_message(said).text)],
    )


@pytest.mark.parametrize(
    "said",
    [
        "forget that deploys happen on Mondays",
        "Please forget about the day of deploys.",
        "delete the memory about deploys",
        "forget what I said about deploys on Mondays",
    ],
)
def test_the_memory_that_shares_most_words_is_read_and_written_empty(said: str) -> None:
    conversation = talk(**{"deploy-day": "Deploys happen on Mondays."})
    conversation.ask(said)

    path = f"{FOLDER}/deploy-day.md"
    assert conversation.calls == [
        ("Read", {"file_path": path}),
        ("Write", {"file_path": path, "content": ""}),
    ]


def test_what_nobody_remembers_cannot_be_forgotten() -> None:
    conversation = talk()
    said = conversation.ask("forget that the office has a cat")

    assert conversation.calls == []
    assert "no memory about “the office has a cat”" in said


def test_of_two_that_fit_equally_none_is_removed() -> None:
    conversation = talk()
    said = conversation.ask("forget about the tabs")

    assert conversation.calls == []
    assert "tabs.md, tab-width.md" in said


@pytest.mark.parametrize("said", ["forget it", "did you forget the deploys on Mondays?"])
def test_other_forgetting_removes_nothing(said: str) -> None:
    conversation = talk()
    conversation.ask(said)

    assert conversation.calls == []


def test_in_chinese_too() -> None:
    index = "- [发布日](发布日.md) — 每周一发布新版本\n"
    conversation = talk(index, 发布日="每周一发布新版本")
    conversation.ask("忘掉每周一发布新版本")

    assert [name for name, _ in conversation.calls] == ["Read", "Write"]


# --- ignored --------------------------------------------------------------------------------------------


def test_ignored_memory_is_not_quoted() -> None:
    assert "Mondays" in talk().ask("When do deploys happen?")
    said = talk().ask("Ignore memory. When do deploys happen?")

    assert "Mondays" not in said


@pytest.mark.parametrize(
    ("typed", "ignored"),
    [
        (["Ignore memory for this question"], True),
        (["how are you?", "please ignore your memories"], True),
        (["don't use memory here"], True),
        (["work without memory"], True),
        (["忽略记忆，回答我"], True),
        (["use your memory again", "ignore memory"], False),
        (["do not ignore memory"], False),
        (["ignore memory leaks in the test"], False),
        (["ignore memory usage for now"], False),
        (["what is in memory?"], False),
        ([], False),
    ],
)
def test_memory_is_set_aside_until_it_is_wanted_again(typed: list[str], ignored: bool) -> None:
    assert is_memory_ignored(typed) is ignored


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("Use memory again: when do we deploy?", "when do we deploy?"),
        ("when do we deploy? You may use your memory now.", "when do we deploy? You may"),
        ("do not ignore memory, when do we deploy?", "when do we deploy?"),
        ("use memory limits of 2 GB for the job", "use memory limits of 2 GB for the job"),
        ("Use memory again.", ""),
    ],
)
def test_a_wish_that_memory_be_used_is_no_part_of_the_question(typed: str, asked: str) -> None:
    assert drop_memory_wish(typed) == asked


# --- the daily log --------------------------------------------------------------------------------------


def assistant(project: Project | None = None) -> Talk:
    system = format_memory_prompt(Path(FOLDER), Path(FOLDER).parent, logs=True)
    day = user(make_context_message("Date: 2026-11-03").text)
    return Talk(rules=RULES, system=system, messages=[day], project=project or Project({}))


LOG = f"{FOLDER}/logs/2026/11/2026-11-03.md"


def test_where_a_log_is_kept_what_is_to_be_remembered_goes_there() -> None:
    conversation = assistant()
    said = conversation.ask("remember that we never mock the database")
    conversation.ask("remember that deploys happen on Mondays")

    assert conversation.project.files == {
        LOG: "# 2026-11-03\n\n- we never mock the database\n- deploys happen on Mondays\n"
    }
    assert "saved this to memory" in said


def test_a_log_that_others_began_is_read_and_only_added_to() -> None:
    class Careful(Project):
        """Refuses to replace what was not read, as the tool does."""

        read = False

        def _read(self, file_path: str, offset: int = 1, limit: int = 2000) -> str:
            self.read = True
            return super()._read(file_path, offset, limit)

        def _write(self, file_path: str, content: str) -> str:
            if file_path in self.files and not self.read:
                raise LookupError(f"{file_path} has not been read; Read it first")
            assert content.startswith(self.files.get(file_path, ""))
            return super()._write(file_path, content)

    conversation = assistant(Careful({LOG: "# 2026-11-03\n\n- 09:00 began\n"}))
    conversation.ask("remember that we never mock the database")

    assert conversation.project.files[LOG] == (
        "# 2026-11-03\n\n- 09:00 began\n- we never mock the database\n"
    )


# --- learned --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "type"),
    [
        ("I always want commit messages in the imperative.", "feedback"),
        ("I want short answers from now on.", "feedback"),
        ("We ship 4.2 next Friday.", "project"),
        ("We will launch the beta by next Tuesday.", "project"),
    ],
)
def test_a_wish_for_all_work_is_feedback_and_a_date_is_of_the_project(said: str, type: str) -> None:
    conversation = OfflineConversation((user(make_context_message("Date: 2026-11-03").text), user(said)))
    [one] = extract_facts(find_typed_sentences(conversation, 0, 2))

    assert one.type == type
