"""The read-only classifier: what it lets through is run for real, what is hostile it refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tools.shell_samples import NOT_READ_ONLY, READ_ONLY

from sevenfold.tools.readonly_commands import QUIET_GIT, READ_ONLY_COMMANDS
from sevenfold.tools.shell import (
    LONGEST,
    classify_command,
    classify_within,
    find_doubtful_spans,
    split_compound,
)

BASH = shutil.which("bash")
EXTRACTION = frozenset({"ls", "find", "grep", "cat", "stat", "wc", "head", "tail"})
BUILTINS = frozenset({"[", "type", "command"})


def test_there_are_enough_samples_to_mean_something() -> None:
    assert len(set(NOT_READ_ONLY)) >= 170
    assert len(set(READ_ONLY)) >= 80


@pytest.mark.parametrize("command", READ_ONLY)
def test_an_ordinary_look_around_is_read_only(command: str) -> None:
    verdict = classify_command(command)
    assert verdict.read_only, verdict.why


@pytest.mark.parametrize("command", NOT_READ_ONLY)
def test_whatever_may_act_is_not_read_only(command: str) -> None:
    verdict = classify_command(command)
    assert not verdict.read_only
    assert verdict.why
    assert "\n" not in verdict.why or "\n" in command


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("ls && rm x", "`rm`"),
        ("find . -delete", "-delete"),
        ("sort --outp=x a", "--outp"),
        ("ls > f", "> f"),
        ("echo $(touch x)", "a command substitution"),
        ("ls & pwd", "`&`"),
        ("echo $SECRET", "$SECRET"),
        ("find *", "`*`"),
        ("x=1 ls", "a variable assignment"),
        ("ls\u200b", "U+200B"),
        ("git -c a=b log", "-c"),
        ("uniq a b", "`b`"),
    ],
)
def test_the_reason_names_what_stands_in_the_way(command: str, named: str) -> None:
    assert named in classify_command(command).why


def test_a_command_of_the_greatest_length_is_still_judged() -> None:
    command = "echo " + "a" * (LONGEST - 5)
    assert classify_command(command).read_only
    assert not classify_command(command + "a").read_only


@pytest.mark.parametrize(
    "command",
    [
        "sed -n '" + " " * 9_000 + "x' a",
        "printf '%" + "0" * 9_000 + "'",
        "echo " + "{" * 9_000,
        "echo " + "'a'" * 3_000,
        "ls" + " \\\n" * 3_000,
        "ls " + "| ls " * 1_900,
        "ls;" * 3_000,
        "! " * 4_500 + "ls",
    ],
)
def test_a_pathological_command_gets_an_answer(command: str) -> None:
    verdict, found = classify_command(command), split_compound(command)

    assert verdict.why
    assert found is not None or not verdict.read_only, "what cannot be taken apart is not read-only"


# --- only some commands ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["ls -la", "find . -name '*.md' | head -3", "grep -rn foo . 2>/dev/null", "cat a && wc -l a"]
)
def test_commands_on_the_given_list_pass(command: str) -> None:
    assert classify_within(command, EXTRACTION).read_only


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "ls; pwd",
        "cat a | sort",
        "/bin/echo x",
        "timeout 5 ls",
        "ls | xargs cat",
        "rm x",
        "find . -delete",
        "[ -f x ]",
        "ls > f",
    ],
)
def test_commands_off_the_given_list_do_not(command: str) -> None:
    assert not classify_within(command, EXTRACTION).read_only


def test_a_name_on_the_given_list_is_not_enough() -> None:
    assert not classify_within("rm x", frozenset({"rm"})).read_only
    assert not classify_within("timeout 5 rm x", frozenset({"timeout", "rm"})).read_only


def test_what_a_runner_runs_must_be_on_the_given_list_too() -> None:
    assert classify_within("timeout 5 ls", frozenset({"timeout", "ls"})).read_only
    assert not classify_within("timeout 5 ls", frozenset({"timeout"})).read_only
    assert not classify_within("ls | xargs cat", frozenset({"ls", "xargs"})).read_only


def test_git_can_be_left_out_for_a_folder_that_is_not_trusted() -> None:
    untrusted = READ_ONLY_COMMANDS - {"git"}
    assert classify_within("ls", untrusted).read_only
    assert not classify_within("ls; git status", untrusted).read_only


# --- the parts of a compound command --------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git status", ("git status",)),
        ("git   status", ("git status",)),
        ("git \"push\" 'origin'", ("git push origin",)),
        ("npm test && git push", ("npm test", "git push")),
        ("a; b | c || d", ("a", "b", "c", "d")),
        ("a\nb", ("a", "b")),
        ("(a; b) && { c; }", ("a", "b", "c")),
        ("! a", ("a",)),
        ("npm test 2>&1 | tail -5", ("npm test", "tail -5")),
        ("npm test > /dev/null", ("npm test",)),
        ("git commit -m 'two words'", ("git commit -m 'two words'",)),
        ('git commit -m "a; rm x"', ('git commit -m "a; rm x"',)),
        ("echo $X", ("echo $X",)),
        ("rm *.pyc", ("rm *.pyc",)),
        ("[ -f x ] && rm x", ("[ -f x ]", "rm x")),
        ("python < x.py", ("python < x.py",)),
        ("python <<< 'x'", ("python <<< 'x'",)),
        ("(python; ls) < x.py", ("python < x.py", "ls < x.py")),
        ("ls # a comment", ("ls",)),
        ('git status "a"#b; rm x', ('git status "a"#b', "rm x")),
        ("./run.sh --fast", ("./run.sh --fast",)),
    ],
)
def test_the_parts_are_the_simple_commands(command: str, expected: tuple[str, ...]) -> None:
    assert split_compound(command) == expected


@pytest.mark.parametrize(
    "command",
    [
        "",
        "git status $(rm x)",
        'git status "$(rm x)"',
        "git status `rm x`",
        "git status <(rm x)",
        "git status > f",
        "git status >/dev/null -x",
        "git status & rm x",
        "X=1 git status",
        "$X status",
        "'git' status",
        "g\\it status",
        "time git status",
        "coproc rm x",
        "for f in a; do rm $f; done",
        "if true; then rm x; fi",
        "f() { rm x; }",
        "export X=1",
        "cat <<EOF\nx\nEOF",
        "git status 'unclosed",
        "git status\u00a0x",
        "git status ${x:=y}",
        "git sta\\\ntus",
        "git status \\ -x",
        "[[ -f x ]]",
        "((x))",
    ],
)
def test_parts_that_are_not_certain_are_none(command: str) -> None:
    assert split_compound(command) is None


# --- properties -----------------------------------------------------------------------------------

# A comment at the end swallows whatever is appended, as it does in bash.
OPEN_ENDED = [command for command in READ_ONLY if "#" not in command]
SUFFIXES = [
    "; rm -rf x",
    ";rm -rf x",
    "\nrm -rf x",
    " && touch x",
    "&&touch x",
    " || touch x",
    " | tee x",
    "|tee x",
    " |& tee x",
    " & touch x",
    " &",
    " > f",
    ">f",
    " >> f",
    " 2> f",
    " &> f",
    " >| f",
    " > /dev/null > f",
    " $(touch x)",
    "$(touch x)",
    ' "$(touch x)"',
    " `touch x`",
    "`touch x`",
    " <(touch x)",
    " ${x:=$(touch x)}",
    " $((a[$(touch x)]))",
    " \\\n; touch x",
    " # c\ntouch x",
    " < /dev/tcp/localhost/1",
    "\u00a0x",
]
PREFIXES = [
    "rm x; ",
    "rm x\n",
    "touch x && ",
    "x=1 ",
    "PATH=. ",
    "> f ",
    "eval ",
    "sudo ",
    "env ",
    "time ",
    "$(touch x) ",
    "f() { rm x; }; ",
    "coproc ",
    "alias ls=rm; ",
    "! rm x; ",
]


@given(st.sampled_from(OPEN_ENDED), st.sampled_from(SUFFIXES))
@settings(max_examples=600)
def test_nothing_harmful_can_be_appended_to_a_harmless_command(command: str, suffix: str) -> None:
    assert not classify_command(command + suffix).read_only


@given(st.sampled_from(READ_ONLY), st.sampled_from(PREFIXES))
@settings(max_examples=300)
def test_nothing_harmful_can_be_put_before_a_harmless_command(command: str, prefix: str) -> None:
    assert not classify_command(prefix + command).read_only


@given(st.lists(st.sampled_from(READ_ONLY), min_size=1, max_size=4), st.integers(0, 4))
@settings(max_examples=150)
def test_one_harmful_command_among_harmless_ones_is_enough(commands: list[str], at: int) -> None:
    lines = [*commands[:at], "touch x", *commands[at:]]
    assert not classify_command("\n".join(lines)).read_only


@given(st.text(max_size=60))
@settings(max_examples=300)
@example("\ud800")
@example("ls \x00")
def test_any_text_gets_a_verdict(text: str) -> None:
    verdict = classify_command(text)
    assert verdict.read_only or verdict.why
    assert not (verdict.read_only and split_compound(text) is None)


# --- the same with a real bash --------------------------------------------------------------------


def _run(command: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    assert BASH is not None
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [BASH, "--noprofile", "--norc", "-c", command],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8", **QUIET_GIT},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a repository, a changed file, and files whose names are options."""
    if BASH is None or shutil.which("git") is None:
        pytest.skip("bash and git are needed")
    folder = tmp_path_factory.mktemp("shell") / "sample"
    for name, text in {
        "a.txt": "foo:1\nbar:2\nbaz:3\nfoo:1\n",
        "b.txt": "bar:2\nqux:4\n",
        "with space.txt": "x\n",
        "data.json": '{"items": [{"name": "one"}, {"name": "two"}]}\n',
        "src/a.py": "foo = 1\n",
        "src/b.py": "bar = 2\n",
        "docs/a.md": "# foo\n",
        "-delete": "",
        "-exec": "",
        "-o": "",
        "-i": "",
        "--output=f": "",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git = "git -c user.name=x -c user.email=x@example.org"
    made = _run(
        f"git init -q -b main && git config user.name x && git config user.email x@example.org"
        f" && git add . && {git} commit -qm one && echo more >> a.txt && {git} commit -qam two"
        " && git tag v1 && echo changed >> b.txt && touch src/a.py",
        folder,
    )
    assert made.returncode == 0, made.stderr
    return folder


def _snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [folder, *folder.rglob("*")]
    }


def _missing(command: str) -> list[str]:
    names = {Path(part.split()[0]).name for part in split_compound(command) or ()}
    return [name for name in names if name not in BUILTINS and shutil.which(name) is None]


@pytest.mark.real
def test_what_is_judged_read_only_changes_nothing_when_it_runs(sample: Path) -> None:
    before = _snapshot(sample)
    home = _snapshot(sample.parent / "home")
    ran = 0
    for command in READ_ONLY:
        if _missing(command):
            continue
        done = _run(command, sample)
        assert done.returncode in {0, 1, 2}, (command, done.stderr)
        assert b"syntax error" not in done.stderr, command
        assert _snapshot(sample) == before, command
        ran += 1
    assert _snapshot(sample.parent / "home") == home
    assert ran >= 0.9 * len(READ_ONLY)


@pytest.mark.real
def test_the_run_would_notice_a_change(sample: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(sample, copy)
    for command in ["touch a.txt", "find . -name b.txt -delet?", "sort -o a.txt a.txt", "uniq a.txt out"]:
        before = _snapshot(copy)
        _run(command, copy)
        assert _snapshot(copy) != before, command


# Pieces of which hostile commands are made; the harm they can do is a file called `harm`.
PIECES = [
    *["ls", "cat", "echo", "sort", "uniq", "find", "touch harm", "a.txt", "-delete", "-o", "harm"],
    *[" ", " ", " ", "\n", "\\\n", "\\", "'", '"', "`", "$(", ")", "(", "{", "}", ";", "&", "|"],
    *["&&", "||", ">", "<", ">&", "<<", "<<<", "2>&1", "/dev/null", "#", "!", "*", "[", "]", "-"],
    *["$", "~", ",", "..", "=", "\t", "EOF", "harm=1", "if", "then", "fi", "$'", '$"', "[ -f "],
    *["\\'", '\\"', "\\;", " # ", " \\\n", " ; ", " | ", "''", '""', "touch", ":"],
]


HEAPS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)

# The words of all samples, by program: ordinary and hostile ones are thrown together anew.
# Setting the clock or the name of the machine is not tried out.
WORDS = {
    program: sorted({word for line in lines for word in line.split()[1:]})
    for program in sorted({command.split()[0] for command in READ_ONLY})
    if program in READ_ONLY_COMMANDS - {"date", "hostname"}
    if (lines := [line for line in [*READ_ONLY, *NOT_READ_ONLY] if line.split()[:1] == [program]])
    if any(line.split()[1:] for line in lines)
}
SHUFFLED = st.sampled_from(sorted(WORDS)).flatmap(
    lambda program: st.lists(st.sampled_from(WORDS[program]), max_size=5).map(
        lambda words: " ".join([program, *words])
    )
)
GIT_SHUFFLED = st.lists(st.sampled_from(WORDS["git"]), min_size=1, max_size=4).map(
    lambda words: " ".join(["git", *words])
)


def _check_against_bash(command: str, folder: Path) -> None:
    if not classify_command(command).read_only or _missing(command):
        return
    before = _snapshot(folder)
    done = _run(command, folder)
    assert _snapshot(folder) == before, command
    assert b"command not found" not in done.stderr, command


@pytest.mark.real
@given(command=HEAPS)
@settings(max_examples=150)
def test_no_heap_of_pieces_is_misjudged(sample: Path, command: str) -> None:
    _check_against_bash("ls " + command, sample)


@pytest.mark.real
@given(command=SHUFFLED | GIT_SHUFFLED)
@settings(max_examples=150)
def test_no_mix_of_known_words_is_misjudged(sample: Path, command: str) -> None:
    _check_against_bash(command, sample)


@pytest.mark.soak
@pytest.mark.real
@given(command=HEAPS | SHUFFLED | GIT_SHUFFLED)
@settings(max_examples=10_000, derandomize=False)
def test_thousands_of_hostile_commands_are_not_misjudged(sample: Path, command: str) -> None:
    _check_against_bash(command, sample)


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("ls -l", []),
        ("ls && touch a; cat b", ["touch a"]),
        (f"echo {'word ' * 3_000}$(curl x | sh) end", ["$(curl x | sh)"]),
        ("echo `rm x` ünï $(rm y)", ["`rm x`", "$(rm y)"]),
        ("cat a > b; ls", ["> b"]),
        ("npm test 2>/dev/null", ["npm test"]),
        ("(ls; rm x) > y", ["rm x", "> y"]),
        ("for i in a; do rm $i; done", ["for i in a; do rm $i; done"]),
        ("echo 'x", [" 'x"]),
    ],
)
def test_the_parts_that_cause_a_question_are_found(command: str, parts: list[str]) -> None:
    assert [command[start:end] for start, end in find_doubtful_spans(command)] == parts
