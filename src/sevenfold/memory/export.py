"""Writes memories to another folder: the files, or their whole history as an ordinary git repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from sevenfold.core.errors import Mistake, StorageFailure
from sevenfold.memory.backend import MemoryBackend, RevisionLog
from sevenfold.memory.history.revisions import Revision, encode_path
from sevenfold.storage.files import make_private_dir, write_atomic
from sevenfold.storage.git import GitProgram

BRANCH: Final = "refs/heads/main"
_LARGEST: Final = 1 << 30


def export_files(backend: MemoryBackend, folder: Path) -> int:
    """Copy every file to an empty folder; returns their number."""
    _require_empty(folder)
    make_private_dir(folder)
    with backend.opened() as memories:
        files = memories.list().files
        for file in files:
            make_private_dir((folder / file).parent)
            write_atomic(folder / file, memories.read(file, _LARGEST)[0])
    return len(files)


def _require_empty(folder: Path) -> None:
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise Mistake(f"{folder} is not empty; name a folder that is new or empty")


def export_to_git(history: RevisionLog, folder: Path) -> int:
    """Write all revisions to a new repository in an empty folder; returns their number."""
    _require_empty(folder)
    program = shutil.which("git")
    if program is None:
        raise Mistake("git is not installed; install it, or export without --git")
    git = GitProgram(program, {"HOME": str(folder)})
    make_private_dir(folder)
    _run(git, folder, "init", "--quiet", "--initial-branch=main")
    with subprocess.Popen(
        git.command(["fast-import", "--quiet", "--date-format=raw"]),
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=git.environment, cwd=folder,
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stderr
        try:
            count = _write_revisions(history, process.stdin)
            process.stdin.close()
        except BrokenPipeError:
            count = 0
        said = process.stderr.read().decode("utf-8", "replace").strip()
        if process.wait() != 0:
            raise StorageFailure(f"git could not write {folder}: {said or 'it gave no reason'}")
    if count:
        _run(git, folder, "reset", "--quiet", "--hard", "main")
    return count


def _run(git: GitProgram, folder: Path, *words: str) -> None:
    done = subprocess.run(
        git.command(words), cwd=folder, env=git.environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise StorageFailure(f"git could not write {folder}: {done.stderr.strip()}")


def _write_revisions(history: RevisionLog, out: IO[bytes]) -> int:
    revisions = history.log(limit=sys.maxsize)
    for revision in reversed(revisions):
        kind, seconds = revision.author.kind, max(0, int(revision.at))
        out.write(
            f"commit {BRANCH}\n"
            f"author {kind} <{kind}@sevenfold.invalid> {seconds} +0000\n"
            f"committer Sevenfold <history@sevenfold.invalid> {seconds} +0000\n".encode()
        )
        _write_data(out, make_commit_message(revision).encode("utf-8", "replace"))
        # Removed files come first, so that a file may become a folder.
        for change in sorted(revision.files, key=lambda change: change.action != "removed"):
            path = _quote(encode_path(change.file))
            data = history.file_at(revision.id, change.file)
            if data is None:
                out.write(b"D %s\n" % path)
            else:
                out.write(b"M 100644 inline %s\n" % path)
                _write_data(out, data)
    return len(revisions)


def _write_data(out: IO[bytes], data: bytes) -> None:
    out.write(b"data %d\n%s\n" % (len(data), data))


def _quote(path: bytes) -> bytes:
    inner = b"".join(
        b"\\%03o" % byte if byte < 32 or byte > 126 or byte in b'"\\' else bytes([byte]) for byte in path
    )
    return b'"%s"' % inner


def make_commit_message(revision: Revision) -> str:
    """A sentence, and `Key: value` lines for programs."""
    return f"{revision.summary}\n\n" + "".join(f"{key}: {value}\n" for key, value in _trailers(revision))


def _trailers(revision: Revision) -> Iterator[tuple[str, str]]:
    author, taken = revision.author, revision.takes_back
    yield "Author-Kind", author.kind
    if author.session:
        yield "Session", author.session
    if author.reason:
        yield "Reason", author.reason
    yield "Revision", revision.id
    if taken is not None:
        file = f" {json.dumps(taken.file)}" if taken.file else ""
        yield "Redoes" if taken.redo else "Undoes", f"{taken.first}-{taken.last}{file}"
