"""Whole files: all or nothing, private, and every refusal a sentence."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sevenfold.core.errors import StorageFailure
from sevenfold.storage.files import (
    TEMPORARY,
    TemporaryFile,
    append_synced,
    make_private_dir,
    make_storage_failure,
    read_bounded,
    read_head,
    read_if_there,
    write_atomic,
    write_new,
)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def in_a_child(script: str, *args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, args)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_a_written_file_holds_the_bytes_and_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert mode_of(path) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["settings.json"]


def test_an_asked_mode_is_set_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        write_atomic(tmp_path / "shared", b"x", 0o644)
    finally:
        os.umask(old)
    assert mode_of(tmp_path / "shared") == 0o644


def test_without_a_mode_the_file_keeps_its_own(tmp_path: Path) -> None:
    path = tmp_path / "script"
    path.write_bytes(b"old")
    path.chmod(0o755)
    write_atomic(path, b"new", mode=None)
    assert (path.read_bytes(), mode_of(path)) == (b"new", 0o755)


def test_without_a_mode_a_new_file_gets_what_new_files_get(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_atomic(tmp_path / "new", b"", mode=None)
    assert mode_of(tmp_path / "new") == mode_of(tmp_path / "plain")


def test_a_link_is_written_through_and_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_where_asked_a_link_is_neither_written_nor_read_nor_taken_for_a_folder(tmp_path: Path) -> None:
    outside, link = tmp_path / "key", tmp_path / "link"
    outside.write_bytes(b"secret")
    link.symlink_to(outside)
    with pytest.raises(StorageFailure, match=r"link.*symbolic link"):
        write_atomic(link, b"gotcha", nofollow=True)
    with pytest.raises(StorageFailure, match=r"link.*symbolic link"):
        read_bounded(link, 100, nofollow=True)
    assert outside.read_bytes() == b"secret"
    folder = tmp_path / "folder-link"
    folder.symlink_to(tmp_path)
    with pytest.raises(StorageFailure, match="symbolic link"):
        make_private_dir(folder, nofollow=True)
    assert make_private_dir(folder) == folder


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"old")
    ran = in_a_child(
        """
        import resource, sys
        from pathlib import Path
        from sevenfold.core.errors import StorageFailure
        from sevenfold.storage.files import write_atomic, write_new
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        for write in (write_atomic, write_new):
            path = Path(sys.argv[1]) / ("kept" if write is write_atomic else "fresh")
            try:
                write(path, b"x" * 5000)
            except StorageFailure as error:
                print(error)
        """,
        tmp_path,
    )
    lines = ran.stdout.splitlines()
    assert len(lines) == 2, ran.stderr
    assert all("larger than this system allows" in line for line in lines)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


def test_missing_permission_is_said_with_the_path() -> None:
    """Run as somebody else where we are root, since root may do everything."""
    ran = in_a_child(
        """
        import os, tempfile
        from pathlib import Path
        from sevenfold.core.errors import StorageFailure
        from sevenfold.storage.files import make_private_dir, read_bounded, write_atomic
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            (place / "secret").write_bytes(b"x")
            (place / "secret").chmod(0)
            place.chmod(0o555)
            if os.getuid() == 0:
                os.seteuid(65534)
            for attempt in (
                lambda: write_atomic(place / "new", b""),
                lambda: make_private_dir(place / "a" / "b"),
                lambda: read_bounded(place / "secret", 10),
            ):
                try:
                    attempt()
                    print("it worked")
                except StorageFailure as error:
                    print(error)
            if os.getuid() == 0:
                os.seteuid(0)
            place.chmod(0o755)
        """
    )
    written, made, read = ran.stdout.splitlines()
    assert "new could not be written: permission denied" in written
    assert "a/b could not be made: permission denied" in made
    assert "secret could not be read: permission denied" in read
    assert all("chmod" in line for line in (written, made, read))


def test_a_kill_at_any_moment_leaves_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for wait in range(1, 9):
        child = subprocess.Popen(
            [
                sys.executable,
                "-c",
                textwrap.dedent(
                    """
                    import sys
                    from pathlib import Path
                    from sevenfold.storage.files import write_atomic
                    n = 0
                    while True:
                        n += 1
                        write_atomic(Path(sys.argv[1]), b"%d\\n" % n * 20_000)
                        print(n, flush=True)
                    """
                ),
                str(path),
            ],
            stdout=subprocess.PIPE,
        )
        assert child.stdout
        with child.stdout:
            for _ in range(wait):
                acknowledged = int(child.stdout.readline())
            child.kill()
            child.wait()
        lines = path.read_bytes().split()
        assert len(lines) == 20_000
        assert len(set(lines)) == 1
        assert int(lines[0]) >= acknowledged
    left = [p.name for p in tmp_path.iterdir() if p != path]
    assert all(name.startswith(TEMPORARY) for name in left)


def test_a_new_file_is_written_once_and_never_through_a_dangling_link(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    assert write_new(path, b"first")
    assert not write_new(path, b"second")
    assert (path.read_bytes(), mode_of(path)) == (b"first", 0o600)
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "elsewhere")
    assert not write_new(dangling, b"x")
    assert not (tmp_path / "elsewhere").exists()


def test_new_folders_are_private_and_old_ones_are_left_alone(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir(0o755)
    made = make_private_dir(old / "a" / "b")
    assert mode_of(old) == 0o755
    assert {mode_of(made), mode_of(made.parent)} == {0o700}
    assert make_private_dir(made) == made


def test_a_file_where_a_folder_is_needed_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailure, match=r"a part of the path is a file"):
        make_private_dir(tmp_path / "file" / "below")
    with pytest.raises(StorageFailure, match=r"a part of the path is a file"):
        make_private_dir(tmp_path / "file")


def test_a_file_is_read_up_to_its_bound_and_refused_beyond(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    assert read_head(path, 3) == b"123"
    with pytest.raises(StorageFailure, match=r"f could not be read: it is larger than 4 bytes"):
        read_bounded(path, 4)


def test_only_a_file_that_is_not_there_reads_as_none(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    assert read_if_there(tmp_path / "f", 10) == b"x"
    assert read_if_there(tmp_path / "nothing", 10) is None
    assert read_if_there(tmp_path / "f" / "below", 10) is None
    with pytest.raises(StorageFailure, match="folder where a file is needed"):
        read_if_there(tmp_path, 10)
    with pytest.raises(StorageFailure, match="nothing could not be read: it does not exist"):
        read_bounded(tmp_path / "nothing", 10)


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageFailure, match="pipe or a device"):
        read_bounded(tmp_path / "pipe", 10)


def test_writing_into_a_missing_folder_or_onto_a_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageFailure, match="its folder does not exist"):
        write_atomic(tmp_path / "no" / "file", b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageFailure, match="it is a folder where a file is needed"):
        write_atomic(tmp_path / "folder", b"")


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "chmod"),
        (errno.EIO, "check the disk"),
        (errno.ENAMETOOLONG, "shorter"),
        (errno.ENXIO, "check the path"),
    ],
)
def test_every_refusal_is_one_sentence_with_the_path_and_a_fix(code: int, fix: str) -> None:
    error = make_storage_failure(OSError(code, os.strerror(code)), Path("/x/y"))
    assert str(error).startswith("/x/y could not be written: ")
    assert fix in str(error)
    assert "\n" not in str(error)


# --- temporary files ----------------------------------------------------------------------------------


def test_a_temporary_file_takes_the_place_of_another_whole(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with TemporaryFile(tmp_path) as new:
        new.write(b"ne")
        new.write(b"w")
        assert (tmp_path / "a").read_bytes() == b"old"
        new.move_to(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert ((tmp_path / "a").read_bytes(), mode_of(tmp_path / "a")) == (b"new", 0o600)


@pytest.mark.parametrize("finished", [True, False])
def test_a_temporary_file_that_is_not_moved_is_removed(tmp_path: Path, finished: bool) -> None:
    with TemporaryFile(tmp_path) as new:
        new.write(b"half")
        if finished:
            new.finish()
    assert list(tmp_path.iterdir()) == []


def test_in_an_open_folder_all_names_are_those_of_that_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    at = os.open(tmp_path / "folder", os.O_RDONLY | os.O_DIRECTORY)
    (tmp_path / "folder").rename(tmp_path / "moved")
    with TemporaryFile(dir_fd=at, prefix=".mine-") as new:
        assert [path.name[:6] for path in (tmp_path / "moved").iterdir()] == [".mine-"]
        new.write(b"x")
        new.move_to("a")
    assert write_new(tmp_path / "folder" / "b", b"y", dir_fd=at)
    assert not write_new(tmp_path / "folder" / "b", b"z", dir_fd=at)
    os.close(at)
    assert {path.name: path.read_bytes() for path in (tmp_path / "moved").iterdir()} == {
        "a": b"x",
        "b": b"y",
    }


def test_bytes_are_appended_and_never_through_a_link(tmp_path: Path) -> None:
    append_synced(tmp_path / "a", b"1\n")
    append_synced(tmp_path / "a", b"2\n")
    assert ((tmp_path / "a").read_bytes(), mode_of(tmp_path / "a")) == (b"1\n2\n", 0o600)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="link"):
        append_synced(tmp_path / "link", b"3\n")
