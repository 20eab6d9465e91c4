"""Why the cache missed, as the provider tells those who ask with `diagnostics.previous_message_id`."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from sevenfold.simulator.prefix import Prompt
from sevenfold.simulator.problems import Json

KEPT: Final = 64
"""How many requests back the simulator remembers."""


class Diagnostics:
    """Prompts of the last requests, by the id of the message that answered them."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[str, Prompt]] = OrderedDict()

    def remember(self, message_id: str, model: str, prompt: Prompt) -> None:
        self._known[message_id] = model, prompt
        if len(self._known) > KEPT:
            self._known.popitem(last=False)

    def explain(self, asked: Json | None, model: str, prompt: Prompt) -> Json | None:
        """None when there is nothing to say: not asked, a first turn, or only something appended."""
        previous = (asked or {}).get("previous_message_id")
        if previous is None:
            return None
        if previous not in self._known:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        old_model, before = self._known[previous]
        shared = 0 if old_model != model else prompt.shared(before)
        if shared == len(before):
            return None
        reason = _reason(old_model != model, prompt, before, shared)
        if reason == "unavailable":
            return {"cache_miss_reason": {"type": reason}}
        missed = before.tokens - before.before(shared)
        return {"cache_miss_reason": {"type": reason, "cache_missed_input_tokens": missed}}


def _reason(model_changed: bool, prompt: Prompt, before: Prompt, shared: int) -> str:
    if model_changed:
        return "model_changed"
    if shared < before.tools_end or prompt.tools_end != before.tools_end:
        return "tools_changed"
    if shared < before.system_end or prompt.system_end != before.system_end:
        return "system_changed"
    if prompt.settings != before.settings:
        return "unavailable"
    return "messages_changed"
