"""Copies of the conversations that a provider holds as threads: a client sends only what is new of them.

While no layer changes what the provider holds, the client's requests go out as they came. A change is sent
as a whole conversation that begins another thread; the client continues that one by the id of its reply.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from sevenfold.context.formats import strip_cache_marks
from sevenfold.core.messages import make_wire_message
from sevenfold.core.transcript import Reply
from sevenfold.proxy.body import NO_RAW, ClientBody, decode_raw

MOST_HELD: Final = 64  # Responses that can be continued; a client continues the newest
_encode: Final = msgspec.json.Encoder().encode


class ThreadCopies:
    """The conversation up to each response, as the client knows it."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, ClientBody] = OrderedDict()

    def complete(self, body: ClientBody) -> ClientBody | None:
        """The whole request that continues a thread; None if its beginning was not seen here."""
        known = self._held.get(str(read_thread(body).get("previous_message_id")))
        if known is None:
            return None
        return replace(
            body,
            messages=[*known.messages, *body.messages],
            system=known.system if body.system is NO_RAW else body.system,
            tools=known.tools if body.tools is NO_RAW else body.tools,
        )

    def hold(self, whole: ClientBody, reply: Reply) -> None:
        """Keep the conversation under the id of the reply."""
        id = reply.diagnostics.get("message_id")
        if whole.thread is NO_RAW or not isinstance(id, str):
            return
        said = [_strip(raw) for raw in whole.messages]
        if reply.message.content:
            said.append(Raw(_encode(make_wire_message(reply.message))))
        previous = str(read_thread(whole).get("previous_message_id"))
        self._held.pop(previous, None)  # each response is continued once
        self._held[id] = replace(whole, messages=said)
        while len(self._held) > MOST_HELD:
            self._held.popitem(last=False)


def read_thread(body: ClientBody) -> dict[str, Any]:
    """The field `thread`; empty where there is none, or none that we know."""
    told = decode_raw(body.thread)
    return told if isinstance(told, dict) else {}


def is_continued(body: ClientBody) -> bool:
    """True if the request has only the messages since an earlier response."""
    return read_thread(body).get("type") == "continue"


def _strip(raw: Raw) -> Raw:
    """The message without its marks: they count in the request that sends them."""
    if b'"cache_control"' not in bytes(raw):
        return raw
    return Raw(_encode(strip_cache_marks(decode_raw(raw))))
