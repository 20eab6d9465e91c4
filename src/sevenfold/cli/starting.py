"""Opens the session that the command line asks for."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from sevenfold.cli.options import ChatOptions
from sevenfold.cli.surroundings import Surroundings, chosen_session, look
from sevenfold.errors import Mistake, NoKey
from sevenfold.events import Notice
from sevenfold.messages import Block
from sevenfold.models.capabilities import LOCAL, OFFLINE, connected_capabilities, family
from sevenfold.protocols import Capabilities, Clock, Model
from sevenfold.request import Request
from sevenfold.session import Session
from sevenfold.storage.places import find_session
from sevenfold.tools.gate import Ask
from sevenfold.transcript import Reply


class OutOfReach:
    """A model whose key is missing: it can be named and measured, but not asked."""

    def __init__(self, name: str, capabilities: Capabilities, why: Mistake) -> None:
        self.name, self.capabilities, self._why = name, capabilities, why

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        raise self._why
        yield ""  # what makes it a stream


_check: type[Model] = OutOfReach


class Looking(Session):
    """A session for one command: most of them ask nobody, so a model out of reach does no harm."""

    def connect(self, name: str) -> Model:
        try:
            return super().connect(name)
        except NoKey as error:
            if self._open:
                raise
            self.emit(Notice(f"{error}; what asks no model works without"))
            name = name.strip().removeprefix("anthropic:")  # as the model itself is called
            return OutOfReach(name, connected_capabilities(name, self.at.access), error)


def unknown(session: Session) -> str:
    """What to say of a model that no table of ours or of the user's knows; empty for the others."""
    name = session.model.name
    own = session.at.access.limits_of(name)
    if family(name) or own.window or session.settings.window or name.startswith(LOCAL):
        return ""
    if name == OFFLINE or session.ledger.prices.of(name) is not None:
        return ""
    window = session.model.capabilities.window
    return (
        f"nothing is known of {name}: its window is taken to be {window:,} tokens, and what it costs is "
        "not counted; 'window' and 'prices' in the settings say what they are"
    )


def open_session(
    options: ChatOptions,
    around: Surroundings | None = None,
    ask: Ask | None = None,
    started_by: str = "startup",
    clock: Clock | None = None,
    *,
    interactive: bool = False,
    looking: bool = False,
) -> Session:
    """Not entered yet. The id may be given by its beginning, or be the newest."""
    around = around or look(options.shared)
    resume = None
    if options.resume is not None:
        resume = find_session(around.scoped(), options.resume).stem
    elif options.newest:
        resume = chosen_session(around.scoped(), None).stem
    kind = Looking if looking else Session
    return kind(
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
