"""What a provider would have charged: its prompt cache, over the real token counts of a recording."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from sevenfold.messages import ToolResult, ToolUse
from sevenfold.request import TTL_SECONDS, Request, encoded
from sevenfold.simulator.prefix import Prompt
from sevenfold.simulator.promptcache import PromptCache
from sevenfold.tokens import Usage
from sevenfold.transcript import Placed

SCOPE: Final = ("replay", "model")
MINIMUM: Final = 1_024
SYSTEM: Final = ("system", 0, 0, "text")


class Provider:
    """Answers what a request would read from the cache, write to it, and send plain."""

    def __init__(self, unseen: int, weigh: Callable[[Placed], int], known: int = 0) -> None:
        self.unseen = unseen
        """Tokens before the first message."""
        self._known = known
        """So many of them the provider had in its cache before the first request."""
        self._weigh = weigh
        self._cache = PromptCache()
        self._last: Prompt | None = None
        self._placed: list[Placed] = []
        self._digests: list[bytes] = []
        self._tokens: list[int] = []

    def ask(self, request: Request, now: float) -> Usage:
        """The usage of this request, without its output; what it marks is kept from then on."""
        prompt = self._prompt(request)
        if self._last is None:
            first = Prompt(prompt.digests[:1], prompt.upto[:1], prompt.places[:1], prompt.marks[:1])
            self._cache.write(SCOPE, first, MINIMUM, now)
        verdict = self._cache.look(SCOPE, prompt, MINIMUM, now)
        self._cache.write(SCOPE, prompt, MINIMUM, now)
        self._last = prompt
        return verdict.usage()

    def answered(self, now: float) -> None:
        """A prefix lives from the end of the reply: recorded sessions read it that long."""
        if self._last is not None:
            self._cache.look(SCOPE, self._last, MINIMUM, now)

    def _prompt(self, request: Request) -> Prompt:
        self._follow(request)
        ttl = int(TTL_SECONDS[request.frame.ttl])
        marked = {request.view.where(id) for id in request.breakpoints}
        rest = b"%d" % self.unseen
        stable = min(self._known, self.unseen)
        prompt = Prompt(
            [b"system", rest], [stable, self.unseen], [SYSTEM, SYSTEM], [(0, ttl), (1, ttl)]
        )
        tokens = self.unseen
        for at, placed in enumerate(self._placed):
            digest = self._digests[at]
            for block in placed.message.content:
                kind = "tool_use" if isinstance(block, ToolUse) else "text"
                kind = "tool_result" if isinstance(block, ToolResult) else kind
                prompt.digests.append(digest + b"%d" % len(prompt.digests))
                prompt.upto.append(tokens)
                prompt.places.append(("messages", at, 0, kind))
            tokens += self._tokens[at]
            prompt.upto[-1] = tokens
            if at in marked:
                prompt.marks.append((len(prompt.digests) - 1, ttl))
        return prompt

    def _follow(self, request: Request) -> None:
        """Hashes and weights of the view; only what differs from the last one is worked out."""
        view, same = request.view, 0
        for old, new in zip(self._placed, view, strict=False):
            if old is not new:
                break
            same += 1
        del self._placed[same:], self._digests[same:], self._tokens[same:]
        wires = encoded(view)
        for at in range(same, len(view)):
            before = self._digests[at - 1] if at else b"%d" % self.unseen
            digest = blake2b(before + wires[at], digest_size=16).digest()
            self._placed.append(view[at])
            self._digests.append(digest)
            self._tokens.append(self._weigh(view[at]))
