"""Reads a reply from a copy of the bytes that go to the client; what it cannot read it leaves alone."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sevenfold.context.formats import WireFormat
from sevenfold.core.errors import ModelFailure, SevenfoldError
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.models.anthropic_stream import AnthropicAssembly
from sevenfold.models.failures import ProviderInfo, ServerRefusal
from sevenfold.models.http import ReplyAssembly
from sevenfold.models.openai_stream import OpenAiAssembly
from sevenfold.models.sse import SseEvent, SseParser
from sevenfold.proxy.body import RelayedMessages, RelayedResponses

MOST_KEPT: Final = 16 << 20  # Bytes of a reply in one piece
MOST_OF_ERROR: Final = 1 << 16
WHOLE: Final = ("response.completed", "response.incomplete")
"""Events of the Responses API that have the whole reply."""
_ANY: Final = ProviderInfo("the provider", "", "", "")
_UNREADABLE: Final = (SevenfoldError, zlib.error, ValueError, TypeError, LookupError, RecursionError)


def _fail(refusal: ServerRefusal) -> ModelFailure:
    return ModelFailure("the provider sent an error in its reply")


def _assemble(form: WireFormat, model: str) -> ReplyAssembly | None:
    """Puts the events of a stream together; None where the last event has the whole reply."""
    if isinstance(form, RelayedResponses):
        return None
    if isinstance(form, RelayedMessages):
        return AnthropicAssembly(_ANY, _fail, model)
    return OpenAiAssembly(_ANY, _fail, Transcript(lambda: 0.0).view, model)


class ReplyCopy:
    """The reply to one request, put together beside the relay."""

    def __init__(self, form: WireFormat, model: str, status: int, headers: Mapping[str, str]) -> None:
        self._form, self._assembly = form, _assemble(form, model)
        self._response: Any = None
        self._streams = headers.get("content-type", "").startswith("text/event-stream")
        self._unpack = zlib.decompressobj(47) if headers.get("content-encoding") == "gzip" else None
        self._readable = headers.get("content-encoding", "identity") in ("identity", "gzip", "")
        self._ok = status == 200
        self._parser = SseParser()
        self._whole = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Take in bytes of the body as they arrive."""
        if not self._readable:
            return
        try:
            data = self._unpack.decompress(chunk) if self._unpack else chunk
            if self._streams and self._ok:
                for event in self._parser.feed(data):
                    self._take(event)
                return
            self._whole += data
            self._readable = len(self._whole) <= (MOST_KEPT if self._ok else MOST_OF_ERROR)
        except _UNREADABLE:
            self._readable = False

    def read_reply(self) -> Reply | None:
        """The reply, now that all of it is here; None if it cannot be read or was cut."""
        if not self._ok or not self._readable:
            return None
        try:
            if not self._streams:
                return self._form.decode_reply(msgspec.json.decode(self._whole, type=dict[str, Any]))
            if (last := self._parser.rest()) is not None:
                self._take(last)
            if self._assembly is None:
                return self._form.decode_reply(self._response) if self._response else None
            if not self._assembly.complete:
                return None
            self._assembly.finish()
            return self._assembly.reply()
        except _UNREADABLE:
            return None

    def _take(self, event: SseEvent) -> None:
        if self._assembly is not None:
            self._assembly.feed(event)
        elif event.name in WHOLE:
            self._response = msgspec.json.decode(event.data)["response"]

    @property
    def error_text(self) -> str:
        """The body of an error, to be read by our own code and by nobody else."""
        return "" if self._ok else self._whole.decode("utf-8", "replace")
