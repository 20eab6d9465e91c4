"""Law 7: nobody is there to ask, and whatever path a model comes up with, nothing outside is written."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.core.messages import ToolUse
from sevenfold.session.session import Session
from sevenfold.testing import FakeClock, ScriptedModel

MEMORY = "---\nname: a\ndescription: which editor\ntype: user\n---\nThey use vim.\n"
OURS = ".memory"
"""How names begin that the memory folder uses for itself."""
PARTS = (
    *(".", "..", "...", "~", "a", "a.md", "b.md", "team", "MEMORY.md", "notes.txt", ".git", "logs"),
    *("out", "out.md", "loop", "loop.md", "gone.md", "up", "file.md", "a.md\n", "-", "*", "$HOME"),
    *("\u00e9.md", "e\u0301.md", "\uff0e\uff0e", "\u2024\u2024", "..\u200b", "\u202egpj.md", " .. "),
    *("%2e%2e", "..%2f..", "..\\..", "CON", "x" * 300, "a.md/", "\0", "a\0.md", "\udcff.md"),
)
STARTS = ("", "/", "//", "~/", "./", "../", "{memory}/", "{project}/", "{outside}/", "{link}/", "file:")
PATHS = st.builds(
    lambda start, parts: start + "/".join(parts),
    st.sampled_from(STARTS),
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=5),
)
CALLS = st.lists(st.tuples(st.sampled_from(("Write", "Edit", "Bash")), PATHS), max_size=40, min_size=15)


class Place:
    """A project, a home with a memory, links that lead out of it, and a world that must not change."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.project, self.outside = folder, folder / "project", folder / "outside"
        for one in (self.project, self.outside):
            one.mkdir()
            (one / "file.md").write_text("as it was\n", encoding="utf-8")
            (one / "a.md").write_text(MEMORY, encoding="utf-8")

    def link(self, memory: Path) -> None:
        memory.mkdir(parents=True, exist_ok=True)
        (memory / "a.md").write_text(MEMORY, encoding="utf-8")
        links = {"out": self.outside, "out.md": self.outside / "file.md", "up": Path("..")}
        links |= {"gone.md": self.outside / "new.md", "loop": memory / "loop"}
        for name, target in (links | {"loop.md": Path("loop.md")}).items():
            (memory / name).symlink_to(target)
        (self.folder / "link").symlink_to(memory)

    def world(self, memory: Path) -> dict[str, bytes | str]:
        """All there is but the memory folder itself and what the session keeps of itself."""
        found: dict[str, bytes | str] = {}
        for top, folders, files in os.walk(self.folder):
            here = Path(top)
            folders[:] = [f for f in folders if not (here / f).is_relative_to(memory)]
            for name in (*files, *folders):
                path = here / name
                if path.is_symlink():
                    found[str(path)] = str(path.readlink())
                elif path.is_file() and not path.is_relative_to(memory.parent):
                    found[str(path)] = path.read_bytes()
                elif not path.is_relative_to(memory.parent):
                    found[str(path)] = "a folder"
        return found


def use(n: int, tool: str, path: str) -> ToolUse:
    args: dict[str, Any] = {"file_path": path, "content": MEMORY}
    if tool == "Edit":
        args = {"file_path": path, "old_string": "vim", "new_string": "emacs"}
    if tool == "Bash":
        args = {"command": f"echo vim > '{path}'"}
    return ToolUse(f"u{n}", tool, args)


async def called(folder: Path, calls: list[tuple[str, str]], mode: str = "default") -> int:
    """Make all these calls; how many of them were carried out."""
    place, done = Place(folder), 0
    home = folder / "home"
    async with Session(
        ScriptedModel(["hello"]),
        place.project,
        home=home,
        environ={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
        clock=FakeClock(),
        settings={"permissions": {"mode": mode}},
    ) as session:
        memory = session.at.memory.folder
        place.link(memory)
        await session.ask("hello")
        await session.tray.drain(20)
        names = {"memory": memory, "project": place.project, "outside": place.outside}
        before = place.world(memory)
        inside = {path.name for path in memory.iterdir()}
        for n, (tool, path) in enumerate(calls):
            for name, where in {**names, "link": folder / "link"}.items():
                path = path.replace(f"{{{name}}}", str(where))
            done += not (await session.tools.hooked.call(use(n, tool, path))).is_error
        assert place.world(memory) == before
        files = (p for p in memory.rglob("*") if p.is_file() and not p.name.startswith(OURS))
        for new in (p for p in files if p.name not in inside):
            assert new.suffix == ".md", f"only memories may be written without asking: {new}"
            assert unicodedata.is_normalized("NFC", new.name)
    return done


@settings(max_examples=25)
@given(CALLS)
def test_no_path_leads_out_of_the_memory_folder(calls: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder:
        anyio.run(called, Path(folder).resolve(), calls)


def test_what_is_a_plain_memory_is_written(tmp_path: Path) -> None:
    """Else the test above would show nothing."""
    paths = ("{memory}/b.md", "{memory}/./c.md", "{memory}/x/../d.md", "{link}/e.md")
    done = anyio.run(called, tmp_path, [("Write", path) for path in paths])
    assert done >= 2


def test_where_everything_is_allowed_the_world_does_change(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        anyio.run(called, tmp_path, [("Write", "{outside}/b.md")], "bypassPermissions")
