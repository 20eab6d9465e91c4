"""Counts the functions and files of Sevenfold that six common actions enter.

    PYTHONPATH=tests python -m architecture.walks [WALK ...] [--files]

Each walk runs in a process of its own. A function counts once, when it is first entered. Class bodies,
comprehensions and lambdas do not count, nor do functions called while a module is imported. A change of
file is counted between two functions in the order in which they were first entered. `--files` also lists
the files.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from architecture.source import PACKAGE, ROOT

Walk = Callable[[Path], "FunctionCounter"]


class _Depths(threading.local):
    """How deep the current thread is in imports, and in calls of the function that is looked into."""

    imports = 0
    inside = 0


@dataclass
class FunctionCounter:
    """The functions entered while it counts, in order. With `inside`, only during calls of that one."""

    inside: str = ""
    codes: dict[CodeType, None] = field(default_factory=dict)
    _depths: _Depths = field(default_factory=_Depths)

    @contextmanager
    def count(self) -> Iterator[None]:
        sys.setprofile(self._profile)
        threading.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @property
    def functions(self) -> list[CodeType]:
        return [code for code in list(self.codes) if _is_counted(code)]

    @property
    def files(self) -> list[str]:
        return sorted({_get_file(code) for code in self.functions})

    @property
    def file_changes(self) -> int:
        return sum(_get_file(a) != _get_file(b) for a, b in pairwise(self.functions))

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        code, step = frame.f_code, {"call": 1, "return": -1}.get(event, 0)
        if code.co_name == "<module>":
            self._depths.imports += step
        if code.co_qualname == self.inside:
            self._depths.inside += step
        if step == 1 and not self._depths.imports and (self._depths.inside or not self.inside):
            self.codes.setdefault(code)


def _is_counted(code: CodeType) -> bool:
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")
    return is_function and code.co_filename.startswith(str(PACKAGE))


def _get_file(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(PACKAGE))


def walk_chat(folder: Path) -> FunctionCounter:
    """`sevenfold chat -p`, without a model: one Read and the answer."""
    project = _enter_project(folder)
    (project / "README.md").write_text("# Tally\n\nCounts words in files.\n", encoding="utf-8")
    return _run_command("chat", "-p", "What is in README.md?")


def walk_first_recall(folder: Path) -> FunctionCounter:
    """The first `Memory.recall` of a process."""
    return _recall(folder, 1)


def walk_second_recall(folder: Path) -> FunctionCounter:
    """`Memory.recall` when the index is at hand."""
    return _recall(folder, 2)


def walk_add(folder: Path) -> FunctionCounter:
    """`Memory.add` in a folder that holds a few memories."""
    counter = FunctionCounter()
    with _open_memory(folder) as memory, counter.count():
        memory.add(type="feedback", name="no-mocks", description="Tests use a real SQL", body="No mocks.")
    return counter


def walk_large_result(folder: Path) -> FunctionCounter:
    """A tool result of 250 KB through layer 1 alone."""
    from sevenfold.core.clock import run_sync
    from sevenfold.core.messages import ToolUse, assistant
    from sevenfold.session.session import Session
    from sevenfold.testing import ScriptedModel

    counter = FunctionCounter(inside="ToolResults.intake")
    call = assistant(ToolUse("u1", "Bash", {"command": "seq -w 1 42000"}))

    async def ask() -> None:
        settings = {"permissions": {"mode": "bypassPermissions"}}
        model = ScriptedModel([call, "done", *["nothing"] * 20])
        async with Session(model, _enter_project(folder), settings=settings) as session:
            with counter.count():
                await session.ask("count")

    run_sync(ask)
    return counter


def walk_full_window(folder: Path) -> FunctionCounter:
    """The turn in which the window is full and the notes of the session stand in for the conversation."""
    from flows.test_compaction_hooks import Mind, Place

    from sevenfold.core.clock import run_sync
    from sevenfold.core.events import Compacted

    place = Place(folder)
    last: list[FunctionCounter] = []

    async def fill() -> None:
        async with place.session(Mind()) as session:
            while not place.of(Compacted):
                last[:] = [FunctionCounter()]
                with last[0].count():
                    await session.ask("question " + "fill " * 700)
                await session.tray.drain(5)

    run_sync(fill)
    assert [compacted.by for compacted in place.of(Compacted)] == ["notes"]
    return last[0]


def walk_dream(folder: Path) -> FunctionCounter:
    """`sevenfold dream --now` without a model: two memories that say the same become one."""
    with _open_memory(folder) as memory:
        saved = memory.add(type="user", name="ada", description="Who Ada is", body="Ada maintains it.")
    text = "---\nname: {}\ndescription: Indent with tabs\ntype: feedback\n---\n\nIndent with tabs.\n"
    for name in ("tabs", "tabs-too"):
        saved.path.with_name(f"{name}.md").write_text(text.format(name), encoding="utf-8")
    return _run_command("dream", "--now")


WALKS: dict[str, Walk] = {
    "chat": walk_chat,
    "first-recall": walk_first_recall,
    "second-recall": walk_second_recall,
    "add": walk_add,
    "large-result": walk_large_result,
    "full-window": walk_full_window,
    "dream": walk_dream,
}


def _enter_project(folder: Path) -> Path:
    """Make a home and a project, and go there as a user would."""
    project = folder / "project"
    for path in (folder / "home", project):
        path.mkdir()
    variables = {"HOME": str(folder / "home"), "SEVENFOLD_HOME": str(folder / "sevenfold")}
    os.environ.clear()
    os.environ.update({**variables, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})
    os.chdir(project)
    return project


def _run_command(*words: str) -> FunctionCounter:
    from sevenfold.cli.main import main

    counter = FunctionCounter()
    with redirect_stdout(StringIO()), counter.count():
        code = main(words)
    assert code == 0
    return counter


def _open_memory(folder: Path) -> Any:
    from sevenfold import Memory

    memory = Memory.open(_enter_project(folder))
    for name, about in (("rig", "Where the test rig stands"), ("sql", "How we test SQL")):
        memory.add(type="project", name=name, description=about, body=f"{about}: in room 4.12.")
    return memory


def _recall(folder: Path, times: int) -> FunctionCounter:
    with _open_memory(folder) as memory:
        for _ in range(times):
            counter = FunctionCounter()
            with counter.count():
                assert memory.recall("how do we test SQL?")
    return counter


def count_walk(name: str) -> dict[str, Any]:
    """Run one walk in a new process: its functions, changes of file, and the files it entered."""
    ran = subprocess.run(
        [sys.executable, "-m", "architecture.walks", name, "--json"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    counted: dict[str, Any] = json.loads(ran.stdout)
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("walk", nargs="*", choices=[[], *WALKS])
    parser.add_argument("--files", action="store_true", help="list the files of each walk")
    parser.add_argument("--json", action="store_true", help="run one walk in this process")
    options = parser.parse_args()
    if options.json:
        with tempfile.TemporaryDirectory() as folder:
            counter = WALKS[options.walk[0]](Path(folder).resolve())
            os.chdir("/")
        sums = {"functions": len(counter.functions), "file_changes": counter.file_changes}
        print(json.dumps({**sums, "files": counter.files}))
        return
    print(f"{'walk':14} {'functions':>9} {'files':>6} {'changes':>8}")
    for name in options.walk or WALKS:
        counted = count_walk(name)
        print(f"{name:14} {counted['functions']:9} {len(counted['files']):6} {counted['file_changes']:8}")
        if options.files:
            print("\n".join(f"    {file}" for file in counted["files"]))


if __name__ == "__main__":
    main()
