"""Opens the session that the command line asks for."""

from __future__ import annotations

from sevenfold.cli.options import ChatOptions
from sevenfold.cli.surroundings import Surroundings, chosen_session, look
from sevenfold.protocols import Clock
from sevenfold.session import Session
from sevenfold.storage.places import find_session
from sevenfold.tools.gate import Ask


def open_session(
    options: ChatOptions,
    around: Surroundings | None = None,
    ask: Ask | None = None,
    started_by: str = "startup",
    clock: Clock | None = None,
    *,
    interactive: bool = False,
) -> Session:
    """Not entered yet. The id may be given by its beginning, or be the newest."""
    around = around or look(options.shared)
    resume = None
    if options.resume is not None:
        resume = find_session(around.scoped(), options.resume).stem
    elif options.newest:
        resume = chosen_session(around.scoped(), None).stem
    return Session(
        options.model,
        options.shared.project,
        resume=resume,
        ask=ask,
        home=around.environment.shared or around.home,
        settings=options.settings,
        environ=around.environment.variables,
        started_by=started_by,
        clock=clock,
        interactive=interactive,
    )
