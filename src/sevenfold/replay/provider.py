"""What a provider would have charged: its prompt cache, over the real token counts of a recording."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from time import process_time
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.messages import Message, Text, ToolResult, ToolUse, to_wire
from sevenfold.request import TTL_SECONDS, Request, sendable
from sevenfold.simulator.prefix import Prompt
from sevenfold.simulator.promptcache import PromptCache
from sevenfold.tokens import Usage
from sevenfold.transcript import Id, Placed

SCOPE: Final = ("replay", "model")
MINIMUM: Final = 1_024
SLACK: Final = 100
"""Tokens by which shares of the first request may be off."""
SYSTEM: Final = ("system", 0, 0, "text")
_encode: Final = msgspec.json.Encoder().encode


class Provider:
    """Answers what a request would read from the cache, write to it, and send plain."""

    def __init__(self, unseen: int, weigh: Callable[[Placed], int], known: int = 0) -> None:
        self._unseen = unseen
        self._known = known
        """So many of them the provider had in its cache before the first request."""
        self._weigh = weigh
        self._cache = PromptCache()
        self._last: Prompt | None = None
        self._placed: list[Placed] = []
        self._blocks: list[int] = []
        """Where the blocks of each message begin."""
        self._prompt = Prompt()
        self._begin()
        self.seconds = 0.0

    @property
    def unseen(self) -> int:
        """Tokens before the first message."""
        return self._unseen

    @unseen.setter
    def unseen(self, tokens: int) -> None:
        if tokens != self._unseen:
            self._unseen = tokens
            self._begin()

    def reweigh(self, since: Id, changed: Callable[[Message], bool]) -> None:
        """Tokens of such messages since that entry are counted otherwise from now on.

        What is in the cache stays there, and only from the first of them on is the rest worked out again.
        """
        first: int | None = None
        for n in range(len(self._placed) - 1, -1, -1):
            if (placed := self._placed[n]).id < since:
                break
            if changed(placed.message):
                first = n
        if first is not None:
            self._cut(first)

    def ask(self, request: Request, now: float) -> Usage:
        """The usage of this request, without its output; what it marks is kept from then on."""
        began = process_time()
        prompt = self._asked(request)
        if self._last is None:
            self._cache.write(SCOPE, self._had(prompt), MINIMUM, now)
        verdict = self._cache.look(SCOPE, prompt, MINIMUM, now)
        self._cache.write(SCOPE, prompt, MINIMUM, now)
        self._last = prompt
        self.seconds += process_time() - began
        return verdict.usage()

    def answered(self, now: float) -> None:
        """A prefix lives from the end of the reply: recorded sessions read it that long."""
        if self._last is not None:
            began = process_time()
            self._cache.look(SCOPE, self._last, MINIMUM, now)
            self.seconds += process_time() - began

    def _had(self, prompt: Prompt) -> Prompt:
        """What of the first request others had sent before."""
        most = self._known + SLACK
        end = max((n for n, tokens in enumerate(prompt.upto, 1) if tokens <= most), default=1)
        ttl = prompt.marks[0][1]
        return Prompt(
            prompt.digests[:end], prompt.upto[:end], prompt.places[:end], [(end - 1, ttl)]
        )

    def _begin(self) -> None:
        """Nothing but what stands before the messages."""
        stable = min(self._known, self._unseen)
        self._placed.clear()
        self._blocks.clear()
        digests = [b"system", b"%d" % self._unseen]
        self._prompt = Prompt(digests, [stable, self._unseen], [SYSTEM, SYSTEM])

    def _asked(self, request: Request) -> Prompt:
        self._follow(request)
        ttl, head = (int(TTL_SECONDS[t]) for t in (request.frame.ttl, request.frame.head_ttl))
        known, view = self._prompt, request.view
        marks = [(0, head), (1, head)]
        for at in sorted(at for id in request.breakpoints if (at := view.where(id)) is not None):
            end = self._blocks[at + 1] if at + 1 < len(self._blocks) else len(known)
            marks.append((end - 1, ttl))
        return Prompt(known.digests, known.upto, known.places, marks)

    def _follow(self, request: Request) -> None:
        """Hashes and weights of the view; only what differs from the last one is worked out."""
        view, same = request.view, 0
        for old, new in zip(self._placed, view, strict=False):
            if old is not new:
                break
            same += 1
        if same < len(self._placed):
            self._cut(same)
        prompt = self._prompt
        for at in range(same, len(view)):
            placed = view[at]
            digest = _digest(prompt.digests[-1], placed.message)
            tokens, weight = prompt.upto[-1], self._weigh(placed)
            self._placed.append(placed)
            self._blocks.append(len(prompt))
            for n, block in enumerate(placed.message.content):
                prompt.digests.append(digest + b"%d" % n)
                prompt.upto.append(tokens)
                prompt.places.append(("messages", at, 0, _kind(block)))
            prompt.upto[-1] = tokens + weight

    def _cut(self, same: int) -> None:
        """Go back to these messages. The lists belong to an earlier request too: new ones are made."""
        end, old = self._blocks[same], self._prompt
        del self._placed[same:], self._blocks[same:]
        self._prompt = Prompt(old.digests[:end], old.upto[:end], old.places[:end])


def _digest(before: bytes, message: Message) -> bytes:
    """Of a prefix with this message at its end; what would be sent as the same bytes gives the same.

    Texts are encoded one by one and let go: an encoder of whole messages leaves a second copy of each
    text that is not ASCII with the text, for as long as the session is held.
    """
    hashed = blake2b(before + message.role.encode(), digest_size=16)
    for block in sendable(message).content:
        text, rest = "", block
        if isinstance(block, Text):
            text, rest = block.text, replace(block, text="")
        elif isinstance(block, ToolResult) and isinstance(block.content, str):
            text, rest = block.content, replace(block, content="")
        data = text.encode("utf-8", "surrogatepass")
        hashed.update(b"%d:" % len(data) + _encode(to_wire(rest)))
        hashed.update(data)
    return hashed.digest()


def _kind(block: object) -> str:
    if isinstance(block, ToolUse):
        return "tool_use"
    return "tool_result" if isinstance(block, ToolResult) else "text"
