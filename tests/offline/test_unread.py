"""A file that was not read yet is read first: for a question about it, and before it is changed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from offline.offline_project import Project, Talk, first_calls


@dataclass
class Careful(Project):
    """Refuses to overwrite what was not read, as the real tools do."""

    read: set[str] = field(default_factory=set)

    def _read(self, file_path: str, offset: int = 1, limit: int = 2000) -> str:
        text = super()._read(file_path, offset, limit)
        self.read.add(file_path)
        return text

    def _write(self, file_path: str, content: str) -> str:
        self._check(file_path, "overwriting")
        return super()._write(file_path, content)

    def _edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> str:
        self._check(file_path, "editing")
        return super()._edit(file_path, old_string, new_string, replace_all)

    def _check(self, name: str, doing: str) -> None:
        if name in self.files and name not in self.read:
            raise LookupError(f"{name} has not been read in this session; Read it before {doing} it")


class Unreadable(Careful):
    """A file that can be seen and not read."""

    def _read(self, file_path: str, offset: int = 1, limit: int = 2000) -> str:
        raise LookupError(f"{file_path} is not text")


def test_a_refused_write_is_made_again_after_a_look_at_the_file() -> None:
    talk = Talk(Careful({"notes.txt": "old\n"}, outputs={"make": "built"}))
    text = talk.ask('write "z" to notes.txt then run make')
    assert talk.rounds == [["Write"], ["Read"], ["Write"], ["Bash"]]
    assert talk.project.files["notes.txt"] == "z"
    assert "failed" not in text
    assert "Wrote notes.txt." in text


def test_a_new_file_is_written_at_once() -> None:
    talk = Talk(Careful({}))
    talk.ask('write "z" to notes.txt')
    assert talk.rounds == [["Write"]]


def test_an_edit_is_made_again_when_the_tool_has_forgotten_the_file() -> None:
    project = Careful()
    talk = Talk(project)
    talk.ask("read config.toml")
    project.read.clear()
    talk.ask("replace 8080 with 9090 in config.toml")
    assert talk.rounds == [["Read"], ["Edit"], ["Read"], ["Edit"]]
    assert "9090" in project.files["config.toml"]


def test_a_file_that_cannot_be_read_is_not_written() -> None:
    talk = Talk(Unreadable({"a.bin": "old"}))
    text = talk.ask('write "z" to a.bin then run make')
    assert talk.rounds == [["Write"], ["Read"]]
    assert "Read a.bin failed: a.bin is not text" in text
    assert "Not done because of this: Write a.bin and Bash `make`." in text


def test_without_a_tool_to_read_the_refusal_is_reported() -> None:
    talk = Talk(Careful({"notes.txt": "old\n"}), tools={"Write": {}})
    assert "has not been read" in talk.ask('write "z" to notes.txt')
    assert talk.rounds == [["Write"]]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("what port is in config.toml?", "“[server] … port = 8080”"),
        ("which host does config.toml use?", 'host = "0.0.0.0"'),
        ("config.toml 里的 host 是多少？", 'host = "0.0.0.0"'),
    ],
)
def test_a_question_about_a_file_is_answered_after_a_look_at_it(text: str, wanted: str) -> None:
    talk = Talk()
    assert wanted in talk.ask(text)
    assert talk.rounds == [["Read"]]


def test_a_file_that_was_read_is_not_read_again_for_a_question() -> None:
    talk = Talk()
    talk.ask("read config.toml")
    talk.ask("what port is in config.toml?")
    talk.ask("read config.toml and tell me the port in config.toml")
    assert talk.rounds == [["Read"], ["Read"]]


@pytest.mark.parametrize(
    "text",
    [
        "what did I say of config.toml?",
        "what did you do in config.toml?",
        "what is the use of os.path?",
        "who is Anna?",
    ],
)
def test_a_question_about_something_else_reads_nothing(text: str) -> None:
    assert first_calls(text) == []
