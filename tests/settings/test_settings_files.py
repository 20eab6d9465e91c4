"""Settings as text: what is wrong is named by line and column, and git is never asked by running it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.core.errors import SettingsError
from sevenfold.settings.checks import check_document
from sevenfold.settings.files import is_outside, is_tracked, parse_document, read_document

NAME = "settings.json"


def wrong(text: str) -> str:
    with pytest.raises(SettingsError) as raised:
        check_document(parse_document(text, NAME))
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  "model": "x",\n}', 'settings.json:3:1: expected another item, or no comma before "}"'),
        ('{\n  "model" "x"\n}', 'settings.json:2:11: expected ":", found "\\"x\\""'),
        ("{\n  // mine\n}", "settings.json:2:3: expected a key in double quotes"),
        ("{'model': 1}", "Use double quotes."),
        ('{"memoryEnabled": True}', 'found "True}". Write true.'),
        ('{"maxSteps": NaN}', "settings.json:1:14: expected a value"),
        ('{"maxSteps": 1', 'expected "}" or ",", the file ends here'),
        ('{"a": "\n"}', "settings.json:1:8: expected a proper value (invalid control character at)"),
        ('{"a": "\\ud800"}', "halves of characters"),
        ('{"a": 1} x', "expected nothing more after the end"),
        ("", "settings.json:1:1: expected a value, the file ends here"),
        ("[]", "settings.json:1: settings are an object"),
        ('{"a": ' + "[" * 100_000, "at most 40 levels"),
        ('{"a": ' + "9" * 10_000 + "}", "a smaller number"),
    ],
)
def test_a_syntax_error_names_its_place_and_what_was_found(text: str, said: str) -> None:
    assert said in wrong(text)


def test_a_comment_is_explained() -> None:
    assert wrong('{"model": "x" # mine\n}').endswith("JSON has no comments: remove it.")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9999, 9999) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=4), json_values, max_size=4), st.sampled_from([None, 2]))
def test_what_the_standard_reader_reads_is_read_the_same(values: object, indent: int | None) -> None:
    import json

    text = json.dumps(values, indent=indent)

    document = parse_document(text, NAME)

    assert document.values == json.loads(text)
    for key, line in document.lines.items():
        if key and isinstance(key[-1], str) and len(key) == 1:
            assert json.dumps(key[-1]) in text.splitlines()[line - 1]


@given(st.text(max_size=60))
def test_any_text_is_either_read_or_refused_in_a_sentence(text: str) -> None:
    said = ""
    try:
        parse_document(text, NAME)
    except SettingsError as error:
        said = str(error)

    assert said == "" or (said.startswith(NAME) and said.isprintable())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{\n"permissions": {\n"deny": [],\n"allow": "Bash(ls:*)"}}',
            "settings.json:4: permissions.allow must be a list of strings; got a string. "
            'Write ["Bash(ls:*)"].',
        ),
        (
            '{"permissions": {\n"allow": [\n"Read",\n7]}}',
            "settings.json:4: permissions.allow[1] must be a string of 1 or more characters; "
            'got a number. Write ["Bash(ls:*)"].',
        ),
        (
            '{"permissions": {"deny": [\n"Read(",\n"Bash(rm:*)"]}}',
            "settings.json:2: the permission rule 'Read(' cannot be understood",
        ),
        ('{"maxSteps": 0}', "must be a whole number of at least 1; got 0. Write 100."),
        ('{"maxSteps": true}', "maxSteps must be a whole number of at least 1; got true."),
        ('{"maxSteps": 1e400}', "maxSteps must be a whole number"),
        ('{"window": "big"}', "must be a whole number of at least 1 or null; got a string."),
        ('{"memoryEnabled": "true"}', "must be true or false; got a string. Write true."),
        ('{"cacheTtl": "1 h"}', 'must be one of "1h", "5m"; got "1 h". Write "1h".'),
        ('{"autoCompactPercent": 120}', "a number above 0 and up to 100; got 120."),
        ('{"anthropicBaseUrl": "example.com"}', "begins with http:// or https://"),
        ('{"env": {\n"A": 1}}', "settings.json:2: env.A must be a string; got a number."),
        ('{"hooks": []}', "hooks must be an object; got a list."),
        ('{"hooks": {"Stop": [{}]}}', 'hooks.Stop[0] has no "hooks"; add it.'),
        ('{"hooks": {"Stop": [{"hooks": [{}]}]}}', 'hooks.Stop[0].hooks[0] has no "command"'),
        (
            '{"hooks": {"Stop": [{"matcher": "(", "hooks": []}]}}',
            "hooks.Stop[0].matcher is not a regular expression",
        ),
        ('{"flags": {"dream": 0}}', "flags.dream must be true or false; got a number."),
        ('{"memoryDirectory": "x"}', "a string of 3 or more characters"),
        ('{"maxSteps": 0, "window": 0}', "(and 1 more in this file)"),
    ],
)
def test_a_wrong_value_names_file_line_type_and_fix(text: str, said: str) -> None:
    assert said in wrong(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n"modle": "x"}', 'settings.json:2: modle is not a setting; did you mean "model"?'),
        ('{"cleanupPeriodDays": 20}', 'did you mean "cleanupDays"?'),
        ('{"maxsteps": 3}', 'did you mean "maxSteps"?'),
        ('{"hooks": {"PreTooUse": []}}', 'did you mean "PreToolUse"?'),
        ('{"flags": {"dreams": true}}', 'did you mean "dream"?'),
        ('{"zzz": 1}', "settings.json:1: zzz is not a setting; it is ignored."),
        ('{"model": "a",\n"model": "b"}', "settings.json:2: model is written twice"),
        (
            '{"hooks": {"Stop": [{"hooks": [{"type": "prompt", "prompt": "ok?"}]}]}}',
            "hooks.Stop[0].hooks[0].type: only commands are run",
        ),
    ],
)
def test_what_can_be_overlooked_is_a_warning_with_a_suggestion(text: str, said: str) -> None:
    assert any(said in warning for warning in check_document(parse_document(text, NAME)))


def test_a_schema_key_for_editors_is_no_mistake() -> None:
    assert check_document(parse_document('{"$schema": "https://example.com/s.json"}', NAME)) == []


def test_a_hostile_key_cannot_write_to_the_terminal() -> None:
    (warning,) = check_document(parse_document('{"\\u001b[2Jboo\\u202e": 1}', NAME))

    assert warning.isprintable()
    assert "boo" in warning


def test_ten_thousand_unknown_keys_do_not_fill_the_screen() -> None:
    text = "{" + ",".join(f'"k{n}": 1' for n in range(10_000)) + "}"

    warnings = check_document(parse_document(text, NAME))

    assert len(warnings) == 21
    assert warnings[-1] == "settings.json: 9980 more keys are ignored."


@pytest.mark.parametrize("name", ["allow", "ask", "deny"])
def test_more_rules_than_anybody_writes_are_a_mistake(name: str) -> None:
    def rules(count: int) -> str:
        return json.dumps({"permissions": {name: [f"Read(x{n})" for n in range(count)]}})

    assert check_document(parse_document(rules(500), NAME)) == []
    assert f"settings.json:1: permissions.{name} has over 500 rules." in wrong(rules(501))


def test_a_file_that_is_not_there_is_no_file(tmp_path: Path) -> None:
    assert read_document(tmp_path / NAME) is None


def test_a_byte_order_mark_is_read_over(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b'\xef\xbb\xbf{"model": "x"}')

    document = read_document(tmp_path / NAME)

    assert document is not None
    assert document.values == {"model": "x"}


def test_what_is_not_text_or_too_large_or_no_file_is_refused_by_name(tmp_path: Path) -> None:
    latin, large, pipe = tmp_path / "latin", tmp_path / "large", tmp_path / "pipe"
    latin.write_bytes(b'{\n"model": "\xe9"}')
    large.write_bytes(b" " * 1_000_001)
    os.mkfifo(pipe)

    for path, said in ((latin, ":2: this is not UTF-8"), (large, "larger"), (pipe, "not a file")):
        with pytest.raises(SettingsError, match=said) as raised:
            read_document(path)
        assert str(path) in str(raised.value)


def test_an_unreadable_file_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()

    with pytest.raises(SettingsError, match=NAME):
        read_document(tmp_path / NAME)


def test_links_out_of_the_project_are_seen(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "file").touch()
    (root / "file").touch()
    (root / "out").symlink_to(outside / "file")
    (root / "folder").symlink_to(outside)
    (root / "in").symlink_to(root / "file")
    (root / "dangling").symlink_to(root / "later")
    (root / "loop").symlink_to(root / "loop")

    bad = ["out", "folder/file", "dangling", "loop"]
    assert [is_outside(root / name, root) for name in bad] == [True] * 4
    assert [is_outside(root / name, root) for name in ("in", "file", "none")] == [False] * 3


# --- what git tracks ------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> None:
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder)}
    quiet |= {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(
        ["git", *words],
        cwd=folder,
        check=True,
        capture_output=True,
        env={"PATH": os.environ["PATH"], **quiet},
    )


def repository(root: Path, *init: str, files: int = 40) -> Path:
    """A repository with some files in it; the local settings are there and not added yet."""
    (root / ".sevenfold").mkdir(parents=True)
    local = root / ".sevenfold" / "settings.local.json"
    local.write_text("{}", encoding="utf-8")
    git(root, "init", *init)
    for n in range(files):
        (root / f"{'long-' * n}file-{n}.txt").write_text(str(n), encoding="utf-8")
    git(root, "add", "--", ":!.sevenfold")
    return local


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("init", [(), ("--object-format=sha256",)])
@pytest.mark.real
@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_a_file_is_tracked_once_it_is_added(tmp_path: Path, version: int, init: tuple[str]) -> None:
    local = repository(tmp_path / "repo", *init)
    root = tmp_path / "repo"
    git(root, "update-index", "--index-version", str(version))
    if version == 3:  # git only writes it where an entry needs it
        (root / "later.txt").touch()
        git(root, "add", "--intent-to-add", "later.txt")
    assert (root / ".git" / "index").read_bytes()[7] == version

    before = is_tracked(local)
    git(root, "add", "-f", str(local))

    assert (before, is_tracked(local)) == (False, True)


@pytest.mark.real
@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_tracked_in_a_subfolder_a_worktree_and_a_split_index(tmp_path: Path) -> None:
    top = tmp_path / "repo"
    local = repository(top / "sub", files=3)
    shutil.rmtree(top / "sub" / ".git")
    git(top, "init")
    git(top, "add", "-f", ".")
    git(top, "commit", "-m", "all")
    git(top, "worktree", "add", str(tmp_path / "tree"))
    git(top, "update-index", "--split-index")

    assert list((top / ".git").glob("sharedindex.*"))
    assert is_tracked(local)
    assert is_tracked(tmp_path / "tree" / "sub" / ".sevenfold" / "settings.local.json")
    assert not is_tracked(tmp_path / "tree" / "sub" / ".sevenfold" / "other.json")


@pytest.mark.real
@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_a_name_that_only_differs_in_case_counts_as_the_same(tmp_path: Path) -> None:
    local = repository(tmp_path)
    (tmp_path / ".Sevenfold").mkdir()
    (tmp_path / ".Sevenfold" / "Settings.LOCAL.json").write_text("{}", encoding="utf-8")
    git(tmp_path, "add", "-f", ".Sevenfold")

    assert is_tracked(local)


@pytest.mark.real
@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_a_folder_that_is_a_tracked_link_makes_what_is_in_it_tracked(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "settings.local.json").write_text("{}", encoding="utf-8")
    root = tmp_path / "repo"
    root.mkdir()
    (root / ".sevenfold").symlink_to(tmp_path / "elsewhere")
    git(root, "init")
    git(root, "add", "-f", ".sevenfold")

    assert is_tracked(root / ".sevenfold" / "settings.local.json")


@pytest.mark.real
@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_asking_runs_nothing_that_the_repository_names(tmp_path: Path) -> None:
    local = repository(tmp_path / "repo")
    ran = tmp_path / "ran"
    for key in ("core.fsmonitor", "core.sshCommand", "core.editor", "core.pager"):
        git(tmp_path / "repo", "config", key, f"touch {ran}")

    is_tracked(local)

    assert not ran.exists()


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"junk",
        b"DIRC\0\0\0\x09\0\0\0\0",
        b"DIRC\0\0\0\x02\xff\xff\xff\xff" + b"\1" * 90,
        b"DIRC\0\0\0\x04\0\0\0\x01" + b"\0" * 60 + b"\0\x05" + b"\xff" * 40,
    ],
)
def test_an_index_that_cannot_be_read_counts_as_tracking_everything(tmp_path: Path, index: bytes) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(index)

    assert is_tracked(tmp_path / ".sevenfold" / "settings.local.json")


@given(st.binary(max_size=200))
def test_no_index_breaks_the_reader(data: bytes) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        (Path(folder) / ".git").mkdir()
        (Path(folder) / ".git" / "index").write_bytes(b"DIRC\0\0\0\x02\0\0\0\x01" + data)

        assert is_tracked(Path(folder) / "x") in (True, False)


def test_a_git_file_that_leads_nowhere_counts_as_tracking_everything(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /no/such/place", encoding="utf-8")

    assert is_tracked(tmp_path / ".sevenfold" / "settings.local.json")


def test_without_a_repository_nothing_is_tracked(tmp_path: Path) -> None:
    assert not is_tracked(tmp_path / ".sevenfold" / "settings.local.json")
