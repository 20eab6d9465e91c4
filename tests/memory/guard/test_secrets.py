"""The guard finds secrets in whatever dress they come, and never says what they are."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.guard.secret_cases import NOT_SECRETS, TOKENS, Draw, Secret, secrets
from benchmarks.guard.texts import memory_files
from sevenfold.core.errors import Refused
from sevenfold.memory.folder.files import StateFolder
from sevenfold.memory.guard.guard import Guard, Quarantine
from sevenfold.memory.guard.secret_formats import find_tokens
from sevenfold.memory.guard.secrets import find_secrets
from sevenfold.testing import FakeClock

ALL = list(secrets())


def kinds(text: str) -> list[str]:
    return [found.what for found in find_secrets(text)]


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.kind)
def test_every_kind_of_secret_is_found_in_every_dress(case: Secret) -> None:
    assert find_secrets(case.text)


@pytest.mark.parametrize("text", NOT_SECRETS)
def test_what_only_looks_like_a_secret_is_let_through(text: str) -> None:
    assert find_secrets(text) == []


@pytest.mark.parametrize("case", ALL[::7] + ALL[-41:], ids=lambda case: case.kind)
def test_nothing_that_is_produced_holds_the_secret(
    case: Secret, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    verdict = Guard().check(case.text, source="web")
    with pytest.raises(Refused) as refused:
        Quarantine(StateFolder(tmp_path), FakeClock()).put(
            "a.md", case.text.encode(), "web", verdict.findings, author="agent"
        )
    said = [
        repr(verdict),
        verdict.explanation,
        msgspec.json.encode(verdict).decode(),
        str(refused.value),
        repr(refused.value),
        repr(refused.value.__context__),
        caplog.text,
        *(f"{path}{path.read_bytes()!r}" for path in tmp_path.rglob("*") if path.is_file()),
        repr(list(find_tokens(case.text))),
    ]
    assert verdict.action == "refuse"
    for part in (case.value, case.value[4:], case.value[: len(case.value) // 2]):
        if len(part) > 4:
            assert all(part not in text for text in said)


def test_a_finding_says_what_and_where_and_shows_at_most_the_public_beginning() -> None:
    token = TOKENS["GitHub personal"](Draw(1))
    [found] = find_secrets(f"# Deploy\n\nWe use {token} there.\n")
    assert (found.kind, found.what, found.where) == ("secret", "GitHub token", "line 3")
    assert "ghp_…" in found.why
    assert token[4:8] not in found.why


def test_the_explanation_says_what_to_do_instead() -> None:
    token = TOKENS["GitHub personal"](Draw(1))
    assert Guard().check(f"one\ntwo\n{token}").explanation == (
        "refused: line 3 looks like a GitHub token; save where it is kept instead of the secret itself"
    )


def test_of_a_password_not_even_the_beginning_is_shown() -> None:
    value = "hunt" + "er2"
    [found] = find_secrets(f"The password is {value}.")
    assert found.what == "password"
    assert "hun" not in repr(found)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_lines_are_counted_as_editors_count_them(newline: str) -> None:
    token = TOKENS["npm"](Draw(2))
    text = newline.join(["１ ｆｕｌｌ\u200bwidth", "", "", f"`{token}`", ""])
    assert [found.where for found in find_secrets(text)] == ["line 4"]


def test_several_secrets_are_told_in_the_order_of_their_lines() -> None:
    d = Draw(3)
    text = "\n".join((f"password: {d.mixed(12)}", TOKENS["npm"](d), f"see {TOKENS['GitLab personal'](d)}"))
    assert kinds(text) == ["password", "npm token", "GitLab token"]
    assert "and 2 more" in Guard().check(text).explanation


def test_a_key_of_several_lines_is_one_finding() -> None:
    assert kinds(Draw(4).pem("OPENSSH PRIVATE KEY")) == ["private key"]


def test_a_documented_example_is_no_secret_but_a_real_key_beside_it_is() -> None:
    example = "AKIA" + "IOSFODNN7EXAMPLE"
    real = TOKENS["AWS key id"](Draw(5))
    assert kinds(f"like {example}") == []
    assert kinds(f"like {example}, but {real}") == ["AWS access key"]


def test_an_ellipsis_after_a_whole_token_does_not_make_it_an_example() -> None:
    token = TOKENS["GitHub personal"](Draw(6))
    assert kinds(f"it was {token}...") == ["GitHub token"]
    assert kinds(f"it was {token[:12]}...") == []


def test_the_default_password_of_a_container_on_this_machine_is_no_secret() -> None:
    weak, host = "postgres", "db.acme.io"
    assert kinds(f"postgres://postgres:{weak}@localhost:5432/app") == []
    assert kinds(f"postgres://postgres:{weak}@{host}:5432/app") == ["password in a URL"]


@given(st.text(), st.text(), st.sampled_from(sorted(TOKENS)), st.integers(0, 9_999))
def test_a_token_is_found_wherever_it_stands_in_a_text(
    before: str, after: str, kind: str, seed: int
) -> None:
    value = TOKENS[kind](Draw(seed))
    found = find_secrets(f"{before}\n {value} \n{after}")
    assert found
    assert all(value[6:] not in repr(one) for one in found)


@given(st.text(max_size=400))
def test_any_text_can_be_searched_and_lines_exist(text: str) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    for found in find_secrets(text):
        assert 1 <= int(found.where.removeprefix("line ")) <= lines


def test_lone_surrogates_and_nul_bytes_are_searched_like_any_text() -> None:
    token = TOKENS["Stripe live"](Draw(7))
    assert kinds(f"\ud800 \x00 {token} \udfff") == ["Stripe key"]
    assert Guard().check("\ud800 fine").passed


def test_bytes_that_are_no_utf8_are_searched_too() -> None:
    token = TOKENS["Stripe live"](Draw(7))
    assert Guard().check(b"\xff\xfe " + token.encode()).action == "refuse"


def test_threads_may_share_the_guard() -> None:
    guard, cases = Guard(), ALL[:60]
    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda case: guard.check(case.text).action, cases * 4))
    assert set(verdicts) == {"refuse"}


def test_a_text_that_is_too_large_is_refused_unread() -> None:
    verdict = Guard(largest=1_000).check("é" * 501)
    assert verdict.action == "refuse"
    assert [found.kind for found in verdict.findings] == ["size"]
    assert verdict.explanation.startswith("refused: it has 1,002 bytes and a memory may have 1,000")
    assert Guard(largest=1_000).check("é" * 500).passed


ISOLATED = """
import json, sys
import sevenfold.memory.guard.guard
before = set(sys.modules)
from sevenfold.memory.guard.secrets import find_secrets
found = find_secrets(sys.argv[1])
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps({"found": len(found), "foreign": sorted(new - sys.stdlib_module_names - {"sevenfold"})}))
"""


def test_searching_imports_nothing_but_the_standard_library() -> None:
    token = Draw(8).hex(32) + "-us12"
    run = subprocess.run(
        [sys.executable, "-c", ISOLATED, f"our {token} key"], capture_output=True, check=True
    )
    assert run.stderr == b""
    assert json.loads(run.stdout) == {"found": 1, "foreign": []}


def test_in_real_memory_files_only_the_three_with_real_tokens_raise_an_alarm() -> None:
    rows = memory_files()
    if not rows:
        pytest.skip("the shared memory files are not beside this checkout")
    alarms = [number for number, _, text in rows if find_secrets(text)]
    assert alarms == [168, 173, 174]
