"""Watches a conversation from outside and holds it to the laws of layers 1 and 2, request by request."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kit import extends

from sevenfold.core.events import Added, CacheBroke, Cleared, Declined, Event, Failed, Notice, Sending
from sevenfold.core.messages import THOUGHTS, Block, Message, Text, ToolResult
from sevenfold.core.request import TTL_SECONDS, Request, encode_prefix, encode_view, has_paired_tools
from sevenfold.core.tokens import MessageSize, Usage
from sevenfold.core.transcript import Edit, Id, Pin, View
from sevenfold.layers.l1_tool_results.preview import parse_envelope
from sevenfold.layers.l2_microcompaction.candidates import CLEARED
from sevenfold.storage.results import encode_content as stored_form
from sevenfold.streaming import INTERRUPTED

MARKER: Final = re.compile(re.escape(CLEARED) + r"[\d,]+ tokens, kept in (.*) lines (\d+)-(\d+)[])]")
DELETED: Final = re.compile(r"^- .*: (/.*/([^/]+)\.(?:txt|json))$", re.M)
REGISTERED: Final = (["announced", "told", "written"], ["announced", "told", "perhaps"])
Content = str | tuple[Block, ...]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def parting(earlier: list[bytes], later: list[bytes]) -> int:
    """How many items the two begin with that are the same."""
    pairs = enumerate(zip(earlier, later, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(earlier), len(later)))


@dataclass
class Laws:
    """Is told what tools gave, what was announced, what happened and what is sent; asserts."""

    loses_thinking: bool = False
    requests: int = 0
    breaks: list[str] = field(default_factory=list)
    """Why each request that did not extend the one before did not, as it was announced."""
    stored: int = 0
    cleared: int = 0
    deleted: int = 0
    since: list[str] = field(default_factory=list)
    """What happened since the last request, in order: announced, told, written."""
    _announced: str = ""
    _last: list[bytes] = field(default_factory=list)
    _given: dict[str, Content] = field(default_factory=dict)
    _whole: dict[tuple[Id, str], Content] = field(default_factory=dict)
    """What each result in the log was when it came."""
    _checked: dict[Id, Message] = field(default_factory=dict)
    _files: dict[str, list[bytes]] = field(default_factory=dict)
    _paths: dict[str, str] = field(default_factory=dict)
    _sent: set[str] = field(default_factory=set)
    _pins: int = 0

    # --- what the watcher is told -------------------------------------------------------------------

    def given(self, use_id: str, content: Content) -> None:
        """A tool gave this."""
        self._given[use_id] = content

    def announced(self, why: str) -> None:
        """The ledger was told that the next request breaks the prefix."""
        self._announced = why
        self.since.append("announced")

    def heard(self, event: Event) -> None:
        match event:
            case Cleared(by="cache edit"):
                pass
            case Cleared():
                assert self._sent.issuperset(event.use_ids), "cleared before it could be read"
                assert self.since[-1:] == ["announced"], "announced before anything is written"
                assert event.why == self._announced
                self.since.append("told")
            case Notice(text) if "digest" in text:
                self.since.append("told")
            case Added(_, whats) if any(isinstance(what, Edit) for what in whats):
                assert self.since[-2:] == ["announced", "told"], "no edit without its announcement"
                self.since.append("written")
            case Declined() | Failed():
                raise AssertionError(f"a layer handed back what could not be written: {event}")
            case Sending(lost=lost, why=why, expected=expected) if lost:
                assert expected or why.startswith("idle for"), f"an unexpected loss: {event}"
            case CacheBroke(why=why, expected=expected):
                assert expected or why.startswith("idle for"), f"an unexpected break: {event}"
            case _:
                pass

    def resumed(self) -> None:
        """Another process goes on; what the last one was about to write may be there or not."""
        if self.since[-1:] == ["told"]:
            self.since.append("perhaps")

    # --- the laws -----------------------------------------------------------------------------------

    def asked(self, request: Request) -> None:
        """A request of the main conversation goes out."""
        assert has_paired_tools(request.view), "no request holds half a pair"
        now = encode_prefix(request)
        if not extends(self._last, now):
            assert self.since[-3:] in REGISTERED, "a break nobody registered"
            self.breaks.append(self._announced)
            self._thinking_is_bound(request, parting(self._last, now))
        else:
            assert "written" not in self.since, "an edit that changed nothing"
        self.shows_what_is_there(request.view, new=True)
        self._deleted_are_whole(request.view)
        self.requests += 1
        self.since.clear()
        self._last = now

    def shows_what_is_there(self, view: View, *, new: bool = False) -> None:
        """All that stands in the view is whole, or on disk; `new`: only what was not looked at yet."""
        self._files.clear()
        self._paths = named(view)
        for placed in view:
            if new and self._checked.get(placed.id) == placed.message:
                continue
            for result in placed.message.results:
                self._is_whole(placed.id, result)
                self._sent.add(result.tool_use_id)
            self._checked[placed.id] = placed.message

    def fork(self, request: Request) -> None:
        """A request on a copied view: it begins with all that the main conversation last sent."""
        assert has_paired_tools(request.view)
        assert extends(self._last, encode_prefix(request))

    def _thinking_is_bound(self, request: Request, same: int) -> None:
        if not self.loses_thinking:
            return
        changed = list(request.view)[max(0, same - 2) :]  # two items stand for the frame
        thoughts = [b for p in changed for b in p.message.content if isinstance(b, THOUGHTS)]
        assert thoughts == [], "thinking stands behind a change it was not made on"

    def _is_whole(self, id: Id, result: ToolResult) -> None:
        """What is shown of a result is all of it, or says where all of it is."""
        content = self._whole.setdefault((id, result.tool_use_id), self._came(result))
        if result.content == content:
            return
        text = result.text
        if pointer := parse_envelope(text):
            self.stored += 1
            assert sha(Path(pointer.path).read_bytes()) == sha(stored_form(content)[1])
        elif found := MARKER.fullmatch(text):
            self.cleared += 1
            lines = self._lines(found[1])[int(found[2]) - 1 : int(found[3])]
            assert sha(b"\n".join(lines)) == sha(words(content).encode())
        else:
            raise AssertionError(f"neither whole nor on disk: {text[:200]}")

    def _lines(self, file: str) -> list[bytes]:
        """The lines of a file; where it is named without its folder, another marker has that."""
        path = file if file.startswith("/") else self._paths[file]
        if path not in self._files:
            self._files[path] = Path(path).read_bytes().split(b"\n")
        return self._files[path]

    def _came(self, result: ToolResult) -> Content:
        """What the tool gave; what stands for nothing, or for a call that was stopped, is all there is."""
        came = self._given.get(result.tool_use_id, INTERRUPTED)
        plain = isinstance(came, str) or all(isinstance(block, Text) for block in came)
        nothing = plain and not words(came).strip()
        return result.content if nothing or result.content == INTERRUPTED else came

    def _deleted_are_whole(self, view: View) -> None:
        """What was deleted from the provider's cache is in the files that a message names."""
        if len(view.pins) == self._pins:
            return
        self._pins = len(view.pins)
        files = {found[2]: found[1] for p in view for found in DELETED.finditer(p.message.text)}
        for use_id in deleted(view.pins):
            if (at := view.result_at(use_id)) is not None:
                self.deleted += 1
                content = self._whole[view[at].id, use_id]
                assert sha(Path(files[use_id]).read_bytes()) == sha(stored_form(content)[1])


def named(view: View) -> dict[str, str]:
    """Files that some marker in the view names with their folder, by their bare names."""
    found = (MARKER.fullmatch(r.text) for p in view for r in p.message.results if len(r.text) < 500)
    return {Path(m[1]).name: m[1] for m in found if m and m[1].startswith("/")}


def words(content: Content) -> str:
    return ToolResult("", content).text


def deleted(pins: tuple[Pin, ...]) -> Iterator[str]:
    for pin in pins:
        yield from pin.payload["delete"]


class Counting:
    """What a provider with a faithful cache would report for each request."""

    def __init__(self) -> None:
        self._view, self._at, self._life = View(), 0.0, 0.0

    def usage(self, request: Request, now: float) -> Usage:
        view, frame = request.view, request.frame.tokens
        read = 0
        if len(self._view) and now - self._at < self._life:
            kept = self._view.size
            if view.buffer is not self._view.buffer:
                same = parting(encode_view(self._view), encode_view(view))
                kept = sum((view[i].size for i in range(same)), MessageSize())
            read = frame + kept.tokens()
        self._view, self._life = view, TTL_SECONDS[request.frame.ttl]
        return Usage(0, frame + view.size.tokens() - read, read, output=40)

    def answered(self, now: float) -> None:
        """The reply is complete: what it was made from is kept from now on."""
        self._at = now
