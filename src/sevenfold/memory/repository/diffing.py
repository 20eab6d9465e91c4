"""Two states of a file side by side, as a unified diff that a person can read."""

from __future__ import annotations

from sevenfold.errors import StorageFailure

_NONE = "/dev/null"


def unified(file: str, old: bytes | None, new: bytes | None) -> str:
    """What changed in one file; None is a file that is not there."""
    if old == new:
        return ""
    import pygit2

    try:
        made = pygit2.Patch.create_from(old or b"", new or b"", file, file)
        data = made.data
    except (ValueError, pygit2.GitError) as error:
        raise StorageFailure(f"{file} could not be compared: {error}") from error
    text = data.decode("utf-8", "replace")
    head = f"--- {file if old is not None else _NONE}\n+++ {file if new is not None else _NONE}\n"
    at = text.find("\n@@ ")
    if at >= 0:
        return head + text[at + 1 :]
    if "Binary" in text:
        return f"{head}(not text: it is not shown)\n"
    return f"{head}(empty)\n"
