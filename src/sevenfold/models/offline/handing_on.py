"""The sentences of a request that hand work to others, as one step of the plan each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from sevenfold.models.offline import handing_en, handing_zh
from sevenfold.models.offline.handing import (
    Handed,
    Offer,
    Sent,
    agent_call,
    message_call,
    work_in,
)
from sevenfold.models.offline.lexing import Lexed
from sevenfold.models.offline.steps import Calls


class HandedOn(msgspec.Struct, frozen=True):
    """The calls, made together, and how many pieces of the request they came from."""

    step: Calls
    pieces: int


def handed_on(pieces: Sequence[str], lexed: Lexed, offer: Offer) -> HandedOn | None:
    """What the first of these pieces hands to others, with the pieces that belong to it."""
    piece = " ".join(pieces[0].split())  # literals are marks here: no space in them is lost
    found = handing_en.handed_over(piece, lexed, offer)
    if found is None:
        found = handing_zh.handed_over(piece, lexed, offer)
    if found is None:
        return None
    if isinstance(found, Sent):
        return HandedOn(Calls((message_call(found),)), 1) if found.text else None
    more = _more(pieces, bool(found))
    like = found[0] if found else _announced(piece, lexed, offer)
    works = [*found, *(_like(like, part, lexed) for part in more)]
    calls = tuple(agent_call(one, offer) for one in works if one.prompt)
    return HandedOn(Calls(calls), 1 + len(more)) if calls else None


def _more(pieces: Sequence[str], begun: bool) -> list[str]:
    """The pieces in which a list goes on: all of them below a heading, else up to one without semicolon."""
    if not begun:
        return list(pieces[1:])
    more: list[str] = []
    for before, piece in pairwise(pieces):
        if not before.rstrip().endswith(("；", ";")):
            break
        more.append(piece)
    return more


def _announced(piece: str, lexed: Lexed, offer: Offer) -> Handed:
    """How the work below a heading is to be done: read off the heading with some work in it."""
    whole = f"{piece.rstrip()} x"
    found = handing_en.handed_over(whole, lexed, offer) or handing_zh.handed_over(
        whole, lexed, offer
    )
    return found[0] if isinstance(found, list) and found else Handed("x")


def _like(one: Handed, part: str, lexed: Lexed) -> Handed:
    return msgspec.structs.replace(one, prompt=work_in(part, lexed), name=None)
