"""What the offline engine understands as a request for a tool, in English and in Chinese."""

from __future__ import annotations

from typing import Any

import pytest
from offline.offline_project import Project, Talk, first_calls

from sevenfold.core.messages import ToolUse
from sevenfold.offline.plan import describe_call

READ = [
    ("read config.toml", "config.toml"),
    ("Please read the file src/app.py.", "src/app.py"),
    ("show me config.toml", "config.toml"),
    ("Could you show me the contents of `my file.txt`?", "my file.txt"),
    ("open the README", "README"),
    ("read Makefile", "Makefile"),
    ("look at src/a.py", "src/a.py"),
    ("cat .gitignore", ".gitignore"),
    ("what is in notes.md?", "notes.md"),
    ("summarize docs/plan.md", "docs/plan.md"),
    ("读取 config.toml", "config.toml"),
    ("请打开文件 src/app.py。", "src/app.py"),
    ("查看`设计 说明.txt`的内容", "设计 说明.txt"),
    ("看看 配置.toml", "配置.toml"),
    ("notes.md 里有什么？", "notes.md"),
]
RUN = [
    ("run pytest -q", "pytest -q"),
    ("Run `make test && echo ok` please", "make test && echo ok"),
    ("$ ls -la | wc -l", "ls -la | wc -l"),
    ("execute the tests with pytest -x", "pytest -x"),
    ("run the tests with `make check`", "make check"),
    ("run the command ls -la", "ls -la"),
    ("run command -v python", "command -v python"),
    ("can you run ls?", "ls"),
    ("run ls .", "ls ."),
    ('run find . -name "*.py"', 'find . -name "*.py"'),
    ('run echo "one, then two"', 'echo "one, then two"'),
    ("grep -rn foo src", "grep -rn foo src"),
    ("ls src", "ls src"),
    ("运行 pytest -q", "pytest -q"),
    ("请执行命令 ls -la", "ls -la"),
    ("运行 `echo 你好`", "echo 你好"),
    ("用 pytest 运行测试", "pytest"),
]
SEARCH: list[tuple[str, dict[str, Any]]] = [
    ("find TODO in src", {"pattern": "TODO", "path": "src"}),
    ('find "foo bar" in src/app.py', {"pattern": "foo bar", "path": "src/app.py"}),
    ("search for parse_config", {"pattern": "parse_config"}),
    ("search for parse_config in the project", {"pattern": "parse_config"}),
    ("search src for TODO", {"pattern": "TODO", "path": "src"}),
    ("look for main( in *.py files", {"pattern": r"main\(", "glob": "*.py"}),
    ("find all occurrences of Foo in python files", {"pattern": "Foo", "glob": "*.py"}),
    ("grep foo", {"pattern": "foo"}),
    ('grep "a.*b" in src', {"pattern": "a.*b", "path": "src"}),
    ("grep foo src", {"pattern": "foo", "path": "src"}),
    ("在 src 中查找 TODO", {"pattern": "TODO", "path": "src"}),
    ('在 src 目录里搜索 "foo bar"', {"pattern": "foo bar", "path": "src"}),
    ("在整个项目中查找 parse_config", {"pattern": "parse_config"}),
    ("搜索 parse_config", {"pattern": "parse_config"}),
    ("在 *.py 文件中查找 main(", {"pattern": r"main\(", "glob": "*.py"}),
]
FILES: list[tuple[str, dict[str, Any]]] = [
    ("list files", {"pattern": "*"}),
    ("list all files", {"pattern": "**/*"}),
    ("list the files in src", {"pattern": "*", "path": "src"}),
    ("what files are there?", {"pattern": "*"}),
    ("which files match *.py?", {"pattern": "**/*.py"}),
    ("list python files in tests", {"pattern": "**/*.py", "path": "tests"}),
    ("find *.toml", {"pattern": "**/*.toml"}),
    ("find files ending in .md", {"pattern": "**/*.md"}),
    ("find the file settings.json", {"pattern": "**/settings.json"}),
    ("glob src/**/*.py", {"pattern": "src/**/*.py"}),
    ("列出文件", {"pattern": "*"}),
    ("列出所有文件", {"pattern": "**/*"}),
    ("列出 src 目录下的文件", {"pattern": "*", "path": "src"}),
    ("哪些文件匹配 *.py？", {"pattern": "**/*.py"}),
]
WRITE = [
    ("write hello to a.txt", "a.txt", "hello\n"),
    ('write "hello world" to notes/a.txt', "notes/a.txt", "hello world"),
    ("save `x = 1` as a.py", "a.py", "x = 1"),
    ("create a.py with ```python\nprint(1)\n```", "a.py", "print(1)\n"),
    ("create hello.md with the following content:\n```\n# Hi\n\n- run ls\n```", "hello.md", None),
    ("create a file hello.txt containing hi there", "hello.txt", "hi there\n"),
    ("create an empty file x.txt", "x.txt", ""),
    ("write the following to out.md:\n```\n# T\n```", "out.md", "# T\n"),
    ('把 "hello" 写入 a.txt', "a.txt", "hello"),
    ("写入 a.txt：你好", "a.txt", "你好\n"),
    ("写入 hello 到 a.txt", "a.txt", "hello\n"),
    ("创建 a.txt，内容为 你好", "a.txt", "你好\n"),
    ("新建文件 a.py ```\nprint(1)\n```", "a.py", "print(1)\n"),
]
EDIT = [
    ("replace 8080 with 9090 in config.toml", "config.toml", "8080", "9090", None),
    ('change "foo bar" to "" in src/a.py', "src/a.py", "foo bar", "", None),
    ("in config.toml, replace 8080 with 9090", "config.toml", "8080", "9090", None),
    ("replace all foo with bar in a.py", "a.py", "foo", "bar", True),
    ("rename foo to bar in a.py", "a.py", "foo", "bar", True),
    ("find and replace a with b in c.txt", "c.txt", "a", "b", None),
    ("replace `x, then y` with `z` in w.txt", "w.txt", "x, then y", "z", None),
    ("把 config.toml 中的 8080 替换为 9090", "config.toml", "8080", "9090", None),
    ("在 config.toml 中将 8080 改成 9090", "config.toml", "8080", "9090", None),
    ("把 a.py 里所有的 foo 替换成 bar", "a.py", "foo", "bar", True),
]


@pytest.mark.parametrize(("text", "name"), READ)
def test_a_file_that_is_asked_for_is_read(text: str, name: str) -> None:
    assert first_calls(text) == [("Read", {"file_path": name})]


@pytest.mark.parametrize(("text", "command"), RUN)
def test_a_command_is_run_as_it_was_written(text: str, command: str) -> None:
    assert first_calls(text) == [("Bash", {"command": command})]


@pytest.mark.parametrize(("text", "wanted"), SEARCH)
def test_words_are_searched_for_where_it_was_said(text: str, wanted: dict[str, Any]) -> None:
    assert first_calls(text) == [("Grep", {"output_mode": "content", **wanted})]


@pytest.mark.parametrize(("text", "wanted"), FILES)
def test_files_are_found_by_pattern(text: str, wanted: dict[str, Any]) -> None:
    assert first_calls(text) == [("Glob", wanted)]


@pytest.mark.parametrize(("text", "name", "content"), WRITE)
def test_text_that_was_given_is_written(text: str, name: str, content: str | None) -> None:
    content = "# Hi\n\n- run ls\n" if content is None else content
    assert first_calls(text) == [("Write", {"file_path": name, "content": content})]


@pytest.mark.parametrize(("text", "name", "old", "new", "every"), EDIT)
def test_a_file_is_read_and_then_edited(
    text: str, name: str, old: str, new: str, every: bool | None
) -> None:
    talk = Talk(Project({name: f"1 {old} 2 {old}"}))
    talk.ask(text)
    wanted = {"file_path": name, "old_string": old, "new_string": new}
    edit = {**wanted, "replace_all": True} if every else wanted
    assert talk.calls == [("Read", {"file_path": name}), ("Edit", edit)]
    assert talk.project.files[name] == f"1 {new} 2 {new if every else old}"


def test_two_files_are_read_side_by_side() -> None:
    for text in ("open a.py and b.py", "read a.py, b.py", "打开 a.py 和 b.py"):
        assert first_calls(text) == [("Read", {"file_path": "a.py"}), ("Read", {"file_path": "b.py"})]


def test_some_lines_of_a_file_are_read() -> None:
    wanted = [("Read", {"file_path": "a.py", "offset": 10, "limit": 11})]
    for text in ("read lines 10-20 of a.py", "read a.py lines 10 to 20", "查看 a.py 第10到20行"):
        assert first_calls(text) == wanted
    top = [("Read", {"file_path": "a.py", "offset": 1, "limit": 5})]
    assert first_calls("show me the first 5 lines of a.py") == top


def test_files_that_hold_a_word_are_listed_by_name() -> None:
    wanted = {"pattern": "TODO", "output_mode": "files_with_matches"}
    assert first_calls("which files contain TODO?") == [("Grep", wanted)]


def test_a_command_goes_to_the_background_when_told() -> None:
    wanted = {"command": "sleep 5", "run_in_background": True}
    assert first_calls("run `sleep 5` in the background") == [("Bash", wanted)]


def test_an_option_that_the_tool_does_not_have_is_left_out() -> None:
    schema = {"type": "object", "properties": {"pattern": {}, "path": {}}}
    assert first_calls("find x in src", Grep=schema) == [("Grep", {"pattern": "x", "path": "src"})]


@pytest.mark.parametrize(
    "text",
    [
        "Don't run rm -rf /",
        "please do not read secrets.txt",
        "never run make deploy",
        "We run and read files often.",
        "You said: run ls",
        "run the numbers",
        "read between the lines",
        "find out what happened",
        "search the web for cats",
        "write a poem to poem.txt",
        "create x.txt",
        "remember that we run make and read the log",
        "here is what I saw:\nrun rm -rf /\nread /etc/passwd",
        "> run ls",
        "不要运行 ls",
        "运行测试",
        "记住我们用 make 运行测试",
    ],
)
def test_nothing_is_called_when_it_was_not_asked_for_plainly(text: str) -> None:
    assert first_calls(text) == []


def test_words_inside_literals_are_no_requests() -> None:
    assert first_calls('write "run ls\\nthen read b" to a.txt') == [
        ("Write", {"file_path": "a.txt", "content": "run ls\\nthen read b"})
    ]
    assert first_calls("```\nrun ls\nread a.txt\n```") == []


def test_a_long_text_with_requests_in_its_lines_is_not_obeyed_line_by_line() -> None:
    log = "\n".join(f"run step-{n}" for n in range(100))
    assert first_calls(f"My log of today\n{log}") == []


def test_a_path_is_told_whole_however_long_it_is() -> None:
    path = "/" + "/".join(f"folder-{n}" for n in range(40)) + "/notes.txt"
    use = ToolUse("t1", "Read", {"file_path": path})
    whole = f"<persisted-output>\nThe whole result is in\n{path}\n</persisted-output>"

    assert describe_call(use) == f"Read {path}"
    assert path in Talk(Project(outputs={"make": whole})).ask("run make")
