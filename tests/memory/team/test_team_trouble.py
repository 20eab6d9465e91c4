"""A remote that is gone, says no or is faster, a git that dies: said clearly, and nothing is lost."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

import pytest
from memory.team.clones import Clone, alike, environment, git, remote_of, settle, still, team_of

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake, Refused
from sevenfold.memory.dreams.lock import is_alive
from sevenfold.memory.team.git import (
    Behind,
    GitFailed,
    RemoteAddress,
    TeamGit,
    make_git_error,
    parse_address,
    strip_credentials,
)
from sevenfold.memory.team.team import Team

pytestmark = pytest.mark.real
REMOTE = RemoteAddress("/remote", "/remote")


def test_a_remote_that_is_gone_is_said_and_the_next_sync_carries_everything(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    away = tmp_path / "away.git"
    remote_of(tmp_path).rename(away)
    ann.say("a.md", "x")
    for _ in range(2):
        synced = ann.team.sync()
        assert synced.offline == f"{remote_of(tmp_path)}: there is no git repository"
    status = ann.team.status()
    assert status.ahead == ("a.md",)
    assert status.offline == synced.offline
    away.rename(remote_of(tmp_path))
    settle([ann, bob])
    assert "a.md" in bob.files()


def test_a_push_that_a_hook_rejects_is_said_with_its_words(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    hook = remote_of(tmp_path) / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'only on\x1b[2J weekdays' >&2\nexit 1\n", "utf-8")
    hook.chmod(0o755)
    ann.say("a.md", "x")
    synced = ann.team.sync()
    assert synced.offline is not None
    assert "did not accept the push: pre-receive hook declined" in synced.offline
    assert "weekdays" in synced.offline
    assert synced.offline.isprintable()
    hook.unlink()
    settle([ann, bob])
    assert "a.md" in bob.files()


def test_somebody_who_is_faster_is_merged_and_the_push_tried_again(tmp_path: Path) -> None:
    """The git on this PATH lets another member push first."""
    ann, bob = team_of(tmp_path, "ann", "bob")
    tools = tmp_path / "tools"
    tools.mkdir()
    wrapper = tools / "git"
    wrapper.write_text(
        "#!/bin/sh\n"
        f'case " $* " in *" push "*) if mkdir {tmp_path}/once 2>/dev/null; then\n'
        f"  while [ ! -e {tmp_path}/pushed ]; do sleep 0.02; done\nfi;; esac\n"
        f'PATH="{os.environ["PATH"]}" exec git "$@"\n',
        "utf-8",
    )
    wrapper.chmod(0o755)
    slow = environment(tmp_path)
    slow["PATH"] = f"{tools}:{slow['PATH']}"
    ann.team = Team(ann.store, SystemClock(), slow)
    ann.say("a.md", "from ann")
    bob.say("b.md", "from bob")
    done = []
    thread = threading.Thread(target=lambda: done.append(ann.team.sync()))
    thread.start()
    while not (tmp_path / "once").exists():
        time.sleep(0.01)
    bob.sync()
    (tmp_path / "pushed").touch()
    thread.join()

    [synced] = done
    assert (synced.offline, synced.pushed, synced.pulled) == (None, ("a.md",), ("b.md",))
    settle([ann, bob])
    log = git(remote_of(tmp_path), "log", "--format=%s", "main").splitlines()
    assert log[:2] == ["added a.md", "added b.md"]


def test_a_lock_that_a_dead_git_left_in_the_remote_is_named_and_not_touched(tmp_path: Path) -> None:
    [ann] = team_of(tmp_path, "ann")
    lock = remote_of(tmp_path) / "refs/heads/main.lock"
    lock.touch()
    ann.say("a.md", "x")
    waited = list[float]()
    synced = Team(ann.store, SystemClock(), environment(tmp_path), pause=waited.append).sync()
    assert len(waited) == 7
    assert synced.offline is not None
    assert f"is locked by {lock}" in synced.offline
    assert lock.exists()
    lock.unlink()
    assert ann.sync().pushed == ("a.md",)


def test_all_members_at_once_lose_nothing(tmp_path: Path) -> None:
    clones = team_of(tmp_path, "ann", "bob", "eve")
    for clone in clones:
        clone.say(f"{clone.name}.md", clone.name)
    threads = [threading.Thread(target=clone.team.sync) for clone in (*clones, *clones)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settle(clones)
    assert clones[0].topics() == {"first.md", "ann.md", "bob.md", "eve.md"}


def test_what_a_git_that_died_left_locked_and_half_done_is_cleared(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    for file in ("shallow.lock", "refs/team/tip.lock", "HEAD.lock", "objects/pack/tmp_pack_x"):
        (bob.repository / file).write_bytes(b"")
    ann.say("a.md", "x")
    ann.sync()
    assert bob.anew().sync().pulled == ("a.md",)
    assert list(bob.repository.rglob("tmp_*")) == []


@pytest.mark.parametrize("damage", ["empty", "gone", "no tip"])
def test_a_damaged_repository_of_ours_is_made_anew(tmp_path: Path, damage: str) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("rules.md", "one\ntwo\nthree\nfour")
    settle([ann, bob])
    bob.write("rules.md", bob.read("rules.md").replace("one", "1"))
    bob.sync()
    ann.say("mine.md", "x")
    store = ann.repository / "objects"
    if damage == "no tip":
        (bob.repository / "refs/team/tip").write_text("0" * 40, "ascii")
    for path in store.rglob("*"):
        if path.is_file() and damage != "no tip":
            path.chmod(0o600)
            path.write_bytes(b"")
            if damage == "gone":
                path.unlink()
    ann = ann.anew()
    settle([ann, bob])
    still([ann, bob])
    assert "1\n" in ann.read("rules.md")
    assert bob.topics() == {"first.md", "rules.md", "mine.md"}


def test_a_branch_that_is_gone_removes_nothing_here_and_can_be_begun_again(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    git(remote_of(tmp_path), "update-ref", "-d", "refs/heads/main")
    synced = ann.team.sync()
    assert synced.offline is not None
    assert "has no branch 'main' any more" in synced.offline
    assert "first.md" in ann.files()
    assert ann.team.init(str(remote_of(tmp_path)), tmp_path).pushed == ("first.md",)
    settle([ann, bob])


def test_a_sync_that_is_stopped_ends_at_once_and_another_does_the_rest(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("a.md", "x")
    ann.team.stop()
    synced = ann.team.sync()
    assert synced.offline is not None
    assert "stopped" in synced.offline
    ann = ann.anew()
    settle([ann, bob])
    assert alike([ann, bob])


def test_a_git_that_outlived_its_sync_is_ended_by_the_next(tmp_path: Path) -> None:
    """The git on this PATH hangs in its first fetch; the thread that waits for it is left alone."""
    ann, bob = team_of(tmp_path, "ann", "bob")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "git").write_text(
        f'#!/bin/sh\ncase " $* " in *" fetch "*) touch {tmp_path}/hangs; while :; do sleep 1; done;; esac\n'
        f'PATH="{os.environ["PATH"]}" exec git "$@"\n',
        "utf-8",
    )
    (tools / "git").chmod(0o755)
    pid = os.fork()
    if pid == 0:  # a process that dies without a chance to clean up
        slow = environment(tmp_path)
        Team(ann.store, SystemClock(), {**slow, "PATH": f"{tools}:{slow['PATH']}"}).sync()
        os._exit(0)
    while not (tmp_path / "hangs").exists():
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    left = int((ann.store.local / "team" / "running").read_text("ascii"))
    assert is_alive(left)
    bob.say("b.md", "y")
    bob.sync()
    assert ann.anew().sync().pulled == ("b.md",)
    assert not is_alive(left)


def test_without_git_it_says_what_to_install(tmp_path: Path) -> None:
    ann = Clone(tmp_path, "ann")
    team = Team(ann.store, SystemClock(), {"PATH": str(tmp_path), "HOME": str(tmp_path)})
    with pytest.raises(Mistake, match="install git"):
        team.init(str(remote_of(tmp_path)), tmp_path)


# --- addresses and messages -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "--upload-pack=touch pwned",
        "-oProxyCommand=x",
        "ext::sh -c touch% pwned",
        "fd::7",
        "transport::address",
        "ssh://-oProxyCommand=x/y",
        "-x@host:path",
        "ann@-host:path",
        "javascript://x/y",
    ],
)
def test_addresses_that_could_run_something_are_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(Refused):
        Clone(tmp_path, "ann").team.join(address, tmp_path)
    assert list(tmp_path.rglob("pwned")) == []


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:9/x.git", "git://127.0.0.1:9/x.git", "HTTP://127.0.0.1:9/x"]
)
def test_addresses_that_protect_nothing_are_refused_unless_allowed(tmp_path: Path, address: str) -> None:
    ann = Clone(tmp_path, "ann")
    with pytest.raises(Refused, match="teamPlainRemotes"):
        ann.team.join(address, tmp_path)
    assert not ann.team.joined

    allowed = Team(ann.store, SystemClock(), environment(tmp_path), plain=True)
    with pytest.raises(GitFailed) as failed:
        allowed.join(address, tmp_path)
    assert "refused as" not in str(failed.value)


def test_a_team_that_was_joined_over_such_an_address_is_not_reached_any_more(tmp_path: Path) -> None:
    ann = Clone(tmp_path, "ann")
    ann.team.init(str(tmp_path / "remote.git"), tmp_path)
    files = [file for file in ann.store.local.rglob("*") if file.is_file()]
    remote = str(tmp_path / "remote.git")
    (state,) = [file for file in files if file.suffix == ".json" and remote in file.read_text("utf-8")]
    state.write_text(state.read_text("utf-8").replace(remote, "http://127.0.0.1:9/x"), "utf-8")

    assert "teamPlainRemotes" in str(ann.team.sync().offline)


@pytest.mark.parametrize("address", ["", "  ", "a\nb", "x" * 3_000, "https:///x", "file://host/x"])
def test_what_is_no_address_is_a_mistake(tmp_path: Path, address: str) -> None:
    with pytest.raises(Mistake):
        parse_address(address, tmp_path)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://ann:tok3n@host/x.git", "https://host/x.git"),
        ("https://tok3n@host/x.git?access_token=abc", "https://host/x.git"),
        ("ssh://git@host:2222/x.git", "ssh://git@host:2222/x.git"),
        ("git@host:team/x.git", "git@host:team/x.git"),
        ("../x.git", "/top/x.git"),
        ("file:///srv/x.git", "file:///srv/x.git"),
    ],
)
def test_an_address_is_shown_without_what_is_secret_in_it(given: str, shown: str) -> None:
    assert parse_address(given, Path("/top/below")).shown == shown


def test_the_words_of_git_are_told_without_credentials() -> None:
    said = "fatal: unable to frob 'https://ann:tok3n@host/x.git/': weird\n"
    error = make_git_error(said, RemoteAddress("https://host/x.git"))
    assert "tok3n" not in str(error)
    assert "weird" in str(error)
    assert strip_credentials("see https://ann:tok3n@host/") == "see https://host/"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("ssh: Could not resolve hostname x: Name or service not known", "was not found"),
        ("fatal: unable to access 'https://x/': Could not resolve host: x", "was not found"),
        ("ssh: connect to host x port 22: Connection refused", "cannot be reached"),
        ("git@x: Permission denied (publickey).", "refused access"),
        ("fatal: could not read Username for 'https://x': terminal prompts disabled", "access"),
        ("Host key verification failed.", "host key is not known"),
        ("fatal: detected dubious ownership in repository at '/x'", "safe.directory"),
        ("fatal: mismatched algorithms: client sha1; server sha256", "SHA-256"),
        ("", "it said nothing"),
    ],
)
def test_what_git_says_becomes_a_sentence_with_the_fix(said: str, told: str) -> None:
    assert told in str(make_git_error(said, REMOTE))


def test_a_push_that_came_too_late_is_known_as_such() -> None:
    said = "!\tabc:refs/heads/main\t[rejected] (fetch first)\nerror: failed to push some refs"
    assert isinstance(make_git_error(said, REMOTE, pushing=True), Behind)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://bob:it's-me@host/x", "https://host/x"),
        ("https://bob:p@ss@host/x", "https://host/x"),
        ("HTTPS://bob:pass@host/x", "https://host/x"),
        ("https://bob:pa/ss@host/x", "https://[hidden]"),
        ("https://host/x?token=pass#pass", "https://host/x"),
        ("https://host/x#pass", "https://host/x"),
        ("bob:pass@host:x", "host:x"),
        ("ann@host:x?token=pass", "ann@host:x"),
    ],
)
def test_a_password_is_not_told_however_it_is_written(given: str, shown: str) -> None:
    address = parse_address(given, Path("/top"))
    assert address.shown == shown
    said = f"fatal: unable to frob '{address.given}/': weird\nfatal: pass"
    error = str(make_git_error(f"remote: {address.given}\n{said}", address, pushing=True))
    assert not any(word in error for word in ("it's-me", "p@ss", "pass", "ss@"))


def test_what_could_never_be_pushed_to_is_refused_with_the_way_out(tmp_path: Path) -> None:
    ann = Clone(tmp_path, "ann")
    work = tmp_path / "work"
    work.mkdir()
    git(work / ".git", "init", "-q")
    git(tmp_path / "odd.git", "init", "-q", "--bare", "--object-format=sha256")
    inside = Team(ann.store, SystemClock(), environment(tmp_path), project=tmp_path / "project")
    for remote, team, why in (
        ("work", ann.team, "git clone --bare"),
        ("work/.git", ann.team, f"git clone --bare {work} {work}.git"),
        ("odd.git", ann.team, "--object-format=sha1"),
        ("github.com/acme/mem", ann.team, "https://github.com/acme/mem or git@github.com:acme/mem"),
        ("project/mem.git", inside, "inside the project"),
    ):
        for act in (team.init, team.join):
            with pytest.raises(Mistake, match=re.escape(why)):
                act(remote, tmp_path)
    assert not ann.team.joined


def test_a_sync_that_is_stopped_waits_no_longer_for_its_next_try(tmp_path: Path) -> None:
    program = TeamGit(tmp_path / "ours", tmp_path / "state", environment(tmp_path))
    threading.Timer(0.05, program.stop).start()
    with pytest.raises(GitFailed, match="stopped"):
        program.pause(600)
    with pytest.raises(GitFailed, match="stopped"):
        program.go_on()
