"""Agent definitions: what people write in them is understood; what is wrong is said and harms nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.core.errors import Mistake
from sevenfold.layers.l7_agents.definitions import (
    BUILT_IN,
    DESCRIPTION,
    LARGEST,
    MOST,
    AgentDefinition,
    AgentDefinitions,
    choose_definition,
    explain_bad_name,
    find_definitions,
    fit_definition,
    list_definition_folders,
    parse_definition,
)

Put = Callable[..., Path]
TOOLS = ("Read", "Write", "Edit", "Bash", "Grep", "Glob", "Agent", "mcp__db__query", "mcp__db__list")


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Writes a definition; the folder is the user's unless another is named."""

    def write(name: str, text: str | bytes, folder: str = "home/agents") -> Path:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.fixture
def find(tmp_path: Path) -> Callable[[], AgentDefinitions]:
    return lambda: find_definitions(list_definition_folders(tmp_path / "home", tmp_path / "tree"))


def only(found: AgentDefinitions) -> AgentDefinition:
    [one] = [one for one in found.definitions.values() if one.path is not None]
    return one


FULL = """---
name: reviewer
description: Reads a change and says what is wrong with it
tools: Read, Grep, Bash
model: claude-haiku-5-5
memory: project
background: true
isolation: worktree
maxTurns: 12
---

You review changes.
"""


def test_every_key_is_understood(put: Put, find: Callable[[], AgentDefinitions]) -> None:
    path = put("r.md", FULL)
    found = find()
    assert found.problems == ()
    assert only(found) == AgentDefinition(
        name="reviewer",
        description="Reads a change and says what is wrong with it",
        prompt="You review changes.",
        tools=("Read", "Grep", "Bash"),
        model="claude-haiku-5-5",
        memory="project",
        background=True,
        isolation="worktree",
        max_turns=12,
        path=path,
    )


def test_what_is_left_out_is_as_the_session_has_it(put: Put, find: Callable[[], AgentDefinitions]) -> None:
    put("plain.md", "---\nname: plain\ndescription: d\nmodel: inherit\n---\nwork")
    one = only(find())
    assert (one.tools, one.model, one.memory, one.isolation) == (None, None, None, None)
    assert (one.background, one.max_turns, one.without) == (False, 0, ())


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("tools: Read, Grep", ("Read", "Grep")),
        ("tools: [Read, Grep]", ("Read", "Grep")),
        ("tools: ['Read', \"Grep\"]", ("Read", "Grep")),
        ("tools:\n  - Read\n  - Grep", ("Read", "Grep")),
        ("Tools: Read,Grep,Read", ("Read", "Grep")),
        ("tools: *", None),
        ('tools: "*"', None),
        ("tools: ['*']", None),
        ("tools: []", ()),
        ("tools:", ()),
        ("tools: Read, Bash(git *), Grep", ("Read", "Grep")),
        ("tools: Read, Agent(a, b)", ("Read",)),
    ],
)
def test_tools_are_a_list_or_a_text_and_never_more_than_was_written(
    put: Put, find: Callable[[], AgentDefinitions], written: str, meant: tuple[str, ...] | None
) -> None:
    put("a.md", f"---\nname: a\ndescription: d\n{written}\n---\nwork")
    found = find()
    assert only(found).tools == meant
    clear = meant is None or (meant != () and "(" not in written)
    assert bool(found.problems) is not clear


@pytest.mark.parametrize("key", ["maxTurns", "max-turns", "max_turns", "MaxTurns", "max turns"])
def test_keys_may_be_spelled_as_other_programs_do(
    put: Put, find: Callable[[], AgentDefinitions], key: str
) -> None:
    put("a.md", f"---\nname: a\ndescription: d\n{key}: 3\n---\nwork")
    found = find()
    assert (only(found).max_turns, found.problems) == (3, ())


ELSEWHERE = """color: red
effort: high
initialPrompt: begin
mcpServers: [github]
skills:
  - lint
permissionMode: default"""


def test_what_other_programs_have_in_their_files_is_no_reason_to_complain(
    put: Put, find: Callable[[], AgentDefinitions]
) -> None:
    put("a.md", f"---\nname: a\ndescription: d\n{ELSEWHERE}\n---\nwork")
    found = find()
    assert only(found).name == "a"
    assert (found.problems, found.every) == ((), ())


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("permissionMode: plan", "permissionMode"),
        ("permission-mode: bypassPermissions", "permission-mode"),
        ("hooks:\n  PreToolUse:\n    - matcher: Bash", "hooks"),
    ],
)
def test_what_would_hold_an_agent_back_elsewhere_is_said_not_to(
    put: Put, find: Callable[[], AgentDefinitions], line: str, key: str
) -> None:
    path = put("a.md", f"---\nname: a\ndescription: d\n{line}\n---\nwork")
    found = find()
    [short], [full] = found.problems, found.every
    assert short.startswith(f"{path.parent}: not applied: {key} in a.md; the rules and hooks of")
    assert full.startswith(f"{path}: not applied: {key}; the rules and hooks of the session hold")


def test_unknown_keys_are_one_line_for_a_folder_and_one_for_each_file_in_the_list(
    put: Put, find: Callable[[], AgentDefinitions]
) -> None:
    for number in range(5):
        head = f"name: a{number}\ndescription: d\ncolour: red\nkey{number}: x\nk\u202e: y"
        path = put(f"a{number}.md", f"---\n{head}\n---\nwork")
    put("b.md", "---\nname: b\ndescription: d\nmood: good\n---\nwork", "tree/.claude/agents")
    found = find()
    [first, second] = found.problems
    assert first.startswith(f"{path.parent}: nothing is done with colour, key0, ")
    assert " in a0.md, a1.md, a2.md and 2 more; 'sevenfold agents list' shows all" in first
    assert first.isprintable()
    assert "mood in b.md; " in second
    assert second.endswith("; 'sevenfold agents list' shows all")
    assert len(found.every) == 6
    assert found.every[4].startswith(f"{path}: nothing is done with colour, key4, ")
    assert "the keys are name, description, tools" in found.every[4]


def test_much_that_is_wrong_is_few_lines_at_the_beginning_of_a_session(
    put: Put, find: Callable[[], AgentDefinitions]
) -> None:
    for number in range(40):
        put(f"a{number:02}.md", f"---\nname: a{number}\nmemory: global\n---\nwork")
        put(f"a{number:02}.md", f"---\nname: a{number}\ndescription: d\n---\nx", "tree/.claude/agents")
    found = find()
    assert len(found.every) == 80
    assert len(found.problems) == 4
    assert found.problems[3].endswith("77 more to be mended; 'sevenfold agents list' shows all")
    assert len(found.notes) == 4
    assert "37 more stand in place of others" in found.notes[3]


def test_without_a_name_it_is_called_like_its_file(put: Put, find: Callable[[], AgentDefinitions]) -> None:
    put("db-expert.md", "---\ndescription: Knows the database\n---\nwork")
    found = find()
    assert (only(found).name, found.problems) == ("db-expert", ())


def test_without_a_description_it_is_said_and_can_be_used(
    put: Put, find: Callable[[], AgentDefinitions]
) -> None:
    put("a.md", "---\nname: a\n---\nwork")
    found = find()
    assert only(found).prompt == "work"
    assert "no description" in found.problems[0]


def test_a_text_without_any_head_is_a_definition_too(
    put: Put, find: Callable[[], AgentDefinitions]
) -> None:
    put("poet.md", "Write in verse.")
    put("README.md", "What these files are for.")
    found = find()
    assert only(found).prompt == "Write in verse."
    assert "does not begin with '---'" in found.problems[0]


@pytest.mark.parametrize(
    "head",
    [
        "name: a\ndescription: Use it: always, when <example>user: hi</example>\ntools: Read",
        "name: a\ndescription: 'never closed\ntools: Read",
        "name: a\n\tdescription: tabs\ntools: Read",
        "name: a\ndescription: d\ntools: Read\n\nA body that begins without the closing line.",
    ],
)
def test_a_broken_head_is_said_and_what_can_be_read_counts(
    put: Put, find: Callable[[], AgentDefinitions], head: str
) -> None:
    path = put("a.md", f"---\n{head}\n---\nwork")
    found = find()
    assert only(found).name == "a"
    assert only(found).tools == ("Read",)
    assert any(str(path) in said and "not quite YAML" in said for said in found.problems)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("memory: global", "use user or project or local"),
        ("isolation: remote", "use worktree"),
        ("background: maybe", "use true or false"),
        ("maxTurns: many", "a number from 1"),
        ("maxTurns: 0", "a number from 1"),
        ("maxTurns: -3", "a number from 1"),
        (f"maxTurns: {'9' * 5000}", "a number from 1"),
        ("maxTurns: ٣", "a number from 1"),
        ("tools:\n  Read: yes", "not a list of names"),
        ("model:\n  a: b", "is not a text"),
    ],
)
def test_a_value_that_makes_no_sense_is_said_and_does_not_count(
    put: Put, find: Callable[[], AgentDefinitions], line: str, said: str
) -> None:
    put("a.md", f"---\nname: a\ndescription: d\n{line}\n---\nwork")
    found = find()
    one = only(found)
    assert (one.memory, one.isolation, one.background, one.max_turns) == (None, None, False, 0)
    assert any(said in problem for problem in found.problems)
    assert all(len(problem) < 400 for problem in found.problems)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no text below"),
        (b"---\nname: a\ndescription: d\n---\n\n  \n", "no text below"),
        (b"\x7fELF\0\0\0\1", "not a text file"),
        (b"---\nname: a\n---\n" + b"x" * LARGEST, "larger than 65,536 bytes"),
    ],
    ids=["empty", "no body", "binary", "huge"],
)
def test_what_cannot_be_a_definition_is_left_out_with_the_reason(
    put: Put, find: Callable[[], AgentDefinitions], data: bytes, said: str
) -> None:
    path, _ = put("bad.md", data), put("good.md", FULL)
    found = find()
    assert only(found).name == "reviewer"
    [problem] = found.problems
    assert problem.startswith(f"{path} is left out: ")
    assert said in problem


def test_bytes_that_are_no_characters_are_said(put: Put, find: Callable[[], AgentDefinitions]) -> None:
    put("a.md", b"---\nname: a\ndescription: d\n---\nna\xefve")
    found = find()
    assert "na\ufffdve" in only(found).prompt
    assert "UTF-8" in found.problems[0]


def test_a_definition_saved_by_a_windows_editor_is_read(
    put: Put, find: Callable[[], AgentDefinitions]
) -> None:
    put("a.md", FULL.replace("\n", "\r\n").encode("utf-8-sig"))
    put("b.md", FULL.replace("reviewer", "second").encode("utf-16"))
    found = find()
    assert {"reviewer", "second"} <= set(found.definitions)
    assert found.problems == ()


def test_a_link_out_of_the_folder_is_left_out(
    put: Put, find: Callable[[], AgentDefinitions], tmp_path: Path
) -> None:
    good = put("good.md", FULL)
    (tmp_path / "secret.md").write_text(FULL.replace("reviewer", "thief"), encoding="utf-8")
    (good.parent / "out.md").symlink_to(tmp_path / "secret.md")
    (good.parent / "nowhere.md").symlink_to(tmp_path / "absent.md")
    (good.parent / "round.md").symlink_to(good.parent / "round.md")
    os.mkfifo(good.parent / "pipe.md")
    (good.parent / "folder.md").mkdir()
    found = find()
    assert only(found).name == "reviewer"
    said = "\n".join(found.every)
    assert len(found.every) == 5
    assert "leads out of its folder" in said
    assert "leads nowhere" in said
    assert "no ordinary file" in said
    assert "it is a folder" in said


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/b", "a\u202eb", "-x", "x" * 65, "fork", "Fork", "~", "a\\b"]
)
def test_a_name_that_cannot_be_one_falls_back_to_the_file(
    put: Put, find: Callable[[], AgentDefinitions], name: str
) -> None:
    put("plain.md", f"---\nname: '{name}'\ndescription: d\n---\nwork")
    found = find()
    assert only(found).name == "plain"
    assert "cannot be called" in found.problems[0]
    assert "\u202e" not in found.problems[0]


@pytest.mark.parametrize("stem", ["fork", "-x", "a\u200bb"])
def test_a_file_whose_own_name_is_odd_is_left_out(
    put: Put, find: Callable[[], AgentDefinitions], stem: str
) -> None:
    put(f"{stem}.md", "---\ndescription: d\n---\nwork")
    found = find()
    assert found.definitions == BUILT_IN
    assert all(said.isprintable() for said in found.problems)
    assert "give it another name" in found.problems[-1]


@pytest.mark.parametrize("name", ["Code Reviewer", "plugin:agent", "数据库-专家", "a.b_c"])
def test_ordinary_names_of_all_sorts_are_taken(
    put: Put, find: Callable[[], AgentDefinitions], name: str
) -> None:
    put("x.md", f"---\nname: {name}\ndescription: d\n---\nwork")
    found = find()
    assert (only(found).name, found.problems) == (name, ())


def test_later_folders_go_before_earlier_ones_and_that_is_said(
    put: Put, find: Callable[[], AgentDefinitions]
) -> None:
    user = put("a.md", "---\nname: x\ndescription: user\n---\nwork")
    other = put("b.md", "---\nname: X\ndescription: other\n---\nwork", "tree/.claude/agents")
    own = put("c.md", "---\nname: x\ndescription: own\n---\nwork", "tree/.sevenfold/agents")
    found = find()
    assert only(found).description == "own"
    assert found.problems == ()
    assert found.notes == (
        f"{other} stands in place of {user}: the agent 'X'",
        f"{own} stands in place of {other}: the agent 'x'",
    )


def test_what_is_built_in_can_be_replaced(put: Put, find: Callable[[], AgentDefinitions]) -> None:
    put("e.md", "---\nname: explore\ndescription: mine\n---\nwork")
    found = find()
    assert found.definitions["explore"].prompt == "work"
    assert "the built-in agent 'explore'" in found.notes[0]
    assert "explore" in BUILT_IN
    assert BUILT_IN["explore"].prompt != "work"


def test_two_of_one_name_in_a_folder_are_a_problem(put: Put, find: Callable[[], AgentDefinitions]) -> None:
    first = put("a.md", "---\nname: x\ndescription: first\n---\nwork")
    second = put("b.md", "---\nname: x\ndescription: second\n---\nwork")
    found = find()
    assert only(found).description == "first"
    [said] = found.problems
    assert said.startswith(f"{second} is left out")
    assert str(first) in said


def test_a_folder_that_is_the_users_and_the_projects_is_read_once(tmp_path: Path, put: Put) -> None:
    put("a.md", FULL, "me/.claude/agents")
    found = find_definitions(list_definition_folders(tmp_path / "me/.claude", tmp_path / "me"))
    assert (only(found).name, found.notes, found.problems) == ("reviewer", (), ())


def test_without_a_tree_nothing_of_the_project_is_loaded(tmp_path: Path, put: Put) -> None:
    put("a.md", FULL, "tree/.sevenfold/agents")
    put("b.md", FULL, "tree/.claude/agents")
    assert find_definitions(list_definition_folders(tmp_path / "home", None)) == AgentDefinitions(
        dict(BUILT_IN)
    )


def test_folders_that_are_not_there_or_not_folders_harm_nothing(
    tmp_path: Path, find: Callable[[], AgentDefinitions]
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/agents").write_text("a file", encoding="utf-8")
    assert find() == AgentDefinitions(dict(BUILT_IN))


def test_more_files_than_anybody_has_are_not_all_read(
    put: Put, find: Callable[[], AgentDefinitions]
) -> None:
    for number in range(MOST + 3):
        put(f"a{number:03}.md", f"---\nname: a{number}\ndescription: d\n---\nwork")
    found = find()
    assert len(found.definitions) == MOST + len(BUILT_IN)
    assert f"only the first {MOST}" in found.problems[0]


def test_a_description_is_one_line_of_a_bounded_length(
    put: Put, find: Callable[[], AgentDefinitions]
) -> None:
    put("a.md", f'---\nname: a\ndescription: "Use it.\\\\n\\\\n{"word " * 500}"\n---\nwork')
    text = only(find()).description
    assert text.startswith("Use it. word")
    assert len(text) <= DESCRIPTION
    assert "\n" not in text


def test_the_built_in_agents_are_as_promised() -> None:
    assert BUILT_IN["general-purpose"].tools is None
    assert BUILT_IN["explore"].tools == ("Read", "Grep", "Glob", "Bash")
    for one in BUILT_IN.values():
        assert one.description
        assert 300 < len(one.prompt) < 2_500


def test_an_agent_is_found_in_any_case_and_what_comes_close_is_named() -> None:
    assert choose_definition(BUILT_IN, "Explore") is BUILT_IN["explore"]
    said = (
        "there is no agent of the kind 'explorer'; did you mean 'explore'? Those there are: "
        "general-purpose, explore"
    )
    with pytest.raises(Mistake) as error:
        choose_definition(BUILT_IN, "explorer")
    assert str(error.value) == said
    with pytest.raises(Mistake, match=r"'q'; those there are: general-purpose, explore, fork\Z"):
        choose_definition(BUILT_IN, "q", also=["fork"])
    with pytest.raises(Mistake, match=r"'forks'; did you mean 'fork'\? Those there are: "):
        choose_definition(BUILT_IN, "forks", also=["fork"])


def test_a_mistake_about_a_kind_is_short_however_many_there_are() -> None:
    many = {f"kind-{n}": AgentDefinition(name=f"kind-{n}", prompt="p") for n in range(3_000)}
    with pytest.raises(Mistake, match=r", kind-39 and 2,960 more\Z") as error:
        choose_definition(many, "x\n" * 9999)
    assert len(str(error.value)) < 600


def fit(model: str = "claude-opus-5-5", **fields: Any) -> tuple[AgentDefinition, tuple[str, ...]]:
    one = AgentDefinition(name="a", prompt="p", **fields)
    return fit_definition(one, TOOLS, model)


def test_a_missing_tool_is_said_and_left_out() -> None:
    one, said = fit(tools=("Read", "Grpe", "WebFetch"))
    assert one.tools == ("Read",)
    assert said == ("the agent 'a': no tool here is called Grpe, WebFetch; did you mean Grep?",)


def test_a_tool_that_is_to_be_denied_and_is_not_there_is_said_to_deny_nothing() -> None:
    one, said = fit(tools=("Read", "Write"), without=("Wirte",))
    assert one.tools == ("Read", "Write")
    assert said == (
        "the agent 'a': Wirte in its disallowedTools denies nothing, for no tool here is called so; "
        "did you mean Write?",
    )
    assert fit(without=("Write",))[1] == ()


def test_when_every_tool_is_missing_there_is_none_and_not_all_of_them() -> None:
    one, said = fit(tools=("WebFetch",))
    assert one.tools == ()
    assert len(said) == 1


def test_tools_are_found_whatever_they_are_called_elsewhere() -> None:
    one, said = fit(tools=("read", "Task", "mcp__db__*", "mcp__db"))
    assert (one.tools, said) == (("Read", "Agent", "mcp__db__query", "mcp__db__list"), ())


def test_tools_that_are_never_to_be_had_are_taken_out_of_all() -> None:
    one, _ = fit(without=("Write", "edit", "mcp__db"))
    assert one.tools == ("Read", "Bash", "Grep", "Glob", "Agent")
    assert fit(tools=("Read", "Write"), without=("Write",))[0].tools == ("Read",)
    assert fit()[0].tools is None


def test_a_model_that_is_only_a_size_is_one_of_the_same_provider() -> None:
    one, said = fit_definition(
        AgentDefinition(name="a", prompt="p", model="haiku"), TOOLS, "claude-opus-5-5"
    )
    assert (one.model, said) == ("claude-haiku-5-5", ())
    one, said = fit_definition(AgentDefinition(name="a", prompt="p", model="haiku"), TOOLS, "offline")
    assert one.model is None
    assert "the same model" in said[0]
    one, said = fit_definition(AgentDefinition(name="a", prompt="p", model="openai:x"), TOOLS, "offline")
    assert (one.model, said) == ("openai:x", ())


PIECES = st.sampled_from(
    ["name:", "tools:", "maxTurns:", "memory:", "description:", "background:", "model:", "---", "...",
     "- ", "Read", "user", "text", "!!x", "&a", "*a", "*", "[", "]", ",", ":", '"', "'", "{", "}", "9",
     "#", ">", "|", "\ufeff", "é", "\ud800", "\x00", "\u2028", "\x1b[2J", "\n", "\r", "\t", " "]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join))
@settings(max_examples=150)
def test_whatever_a_file_holds_it_is_a_definition_or_a_reason(text: str) -> None:
    path = Path("/agents/a.md")
    read = parse_definition(text, path)
    left_out = [said for said in read.problems if " is left out: " in said]
    assert (read.definition is None) is bool(left_out), "its file can always give it a name"
    assert all(said.startswith("/agents/a.md") and said.isprintable() for said in read.problems)
    if read.definition is not None:
        assert explain_bad_name(read.definition.name) == ""
        assert read.definition.prompt.strip()
        assert all(tool in text for tool in read.definition.tools or ())
        assert read.definition.tools is None or "tools:" in text
        assert read.definition.max_turns in (0, *map(int, re.findall(r"[0-9]+", text)))
