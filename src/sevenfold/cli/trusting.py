"""`sevenfold trust`: which folders may bring settings that do more than restrict."""

from __future__ import annotations

from pathlib import Path

from sevenfold.cli.options import Shared
from sevenfold.cli.output import result, say
from sevenfold.cli.surroundings import environment_of
from sevenfold.errors import Mistake
from sevenfold.storage.places import find
from sevenfold.trust import Trust


def trust(shared: Shared, path: Path | None, revoke: bool) -> int:
    """Trust or stop trusting the project that this folder belongs to."""
    if path is not None and not (path := path.expanduser()).is_dir():
        raise Mistake(f"{path} {'is not a folder' if path.exists() else 'does not exist'}")
    environment = environment_of(shared)
    known = Trust(environment.home)
    root = find(path or shared.project, environment.home).root
    if revoke:
        return _revoke(shared, known, root)
    folder = known.add(root)
    say(shared, f"{folder} is trusted; its settings may now bring hooks, permissions and addresses")
    return _told(shared, known, folder, trusted=True)


def _revoke(shared: Shared, known: Trust, root: Path) -> int:
    known.revoke(root)
    if (wider := known.covering(root)) is not None:
        raise Mistake(
            f"{root} is trusted because {wider} is; run: sevenfold trust --revoke {wider}"
        )
    say(shared, f"{root} is not trusted; its settings can only restrict")
    return _told(shared, known, root, trusted=False)


def _told(shared: Shared, known: Trust, folder: Path, *, trusted: bool) -> int:
    listed = known.list()
    value = {"path": str(folder), "trusted": trusted, "all": [str(path) for path in listed]}
    result(shared, "\n".join(str(path) for path in listed), value)
    return 0
