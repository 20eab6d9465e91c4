"""Old thinking leaves the view before a request on a cold cache, which writes everything anew."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import ClassVar

from sevenfold.core.events import Cleared
from sevenfold.core.messages import THOUGHTS, Message
from sevenfold.core.protocols import Change, Fit
from sevenfold.core.request import Request, find_open_loop
from sevenfold.core.tokens import MessageSize, Pressure, measure_message
from sevenfold.core.transcript import PlacedMessage, Unthink, View
from sevenfold.layers.parts import LayerParts
from sevenfold.layers.shared.boundary import has_thinking


class OldThinking:
    """Drops thinking older than `micro.thinkingReplies` replies. The main conversation only.

    Not where thinking is bound to what stands before it, nor where the provider leaves it out by itself.
    """

    label: ClassVar[str] = "OldThinking"

    def __init__(self, parts: LayerParts) -> None:
        self._parts, self._keep = parts, parts.settings.micro.thinking_replies

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        if pressure.warm or not self._keep or self._parts.conversation.capabilities.loses_thinking:
            return ()
        price = self._parts.prices.of(request.frame.model)
        if price is not None and not price.keeps_thinking:
            return ()
        old = find_old_thinking(request.view, self._keep)
        if not old:
            return ()
        freed = request.view.calibration.tokens(sum(map(_measure_thinking, old), MessageSize()))
        why = f"the cache is cold: thinking of {len(old)} older replies, {freed:,} tokens, left the view"
        self._parts.expect(why)
        self._parts.emit(Cleared("thinking", (), freed, 0, float(freed), 0.0, why))
        return (Unthink(old[0].id, old[-1].id),)


def find_old_thinking(view: View, keep: int) -> list[PlacedMessage]:
    """The replies with thinking before the newest `keep`; none of a tool loop that is still going on."""
    replies = (at for at in range(len(view) - 1, -1, -1) if view[at].message.role == "assistant")
    newest = next(islice(replies, keep - 1, None), 0)
    end = min(newest, find_open_loop(view))
    return [view[at] for at in range(end) if has_thinking(view[at])]


def _measure_thinking(placed: PlacedMessage) -> MessageSize:
    kept = tuple(block for block in placed.message.content if not isinstance(block, THOUGHTS))
    return placed.size - measure_message(Message("assistant", kept))


_check: type[Fit] = OldThinking
