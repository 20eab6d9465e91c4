"""Work that the offline engine hands on: to an agent, to forks of itself, or as a message to somebody.

What a sentence says is read by `handing_en` and `handing_zh`; here it becomes tool calls, as far as the
request offers those tools. Where it does not, such a sentence means what it always meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from sevenfold.messages import Json
from sevenfold.models.offline.lexing import Lexed
from sevenfold.models.offline.steps import Call, trimmed
from sevenfold.models.offline.view import Conversation, Done, calls
from sevenfold.models.offline.words import is_chinese

AGENT: Final = "Agent"
SEND: Final = "SendMessage"
GENERAL: Final = "general-purpose"
FORK: Final = "fork"
EVERYONE: Final = "*"
LEAD: Final = "lead"
"""What an agent of a team calls the conversation that leads it."""
FEWEST, MOST = 3, 5
"""Words that say what an agent is for."""
MOST_CHARACTERS: Final = 20
"""The same for a text without spaces."""
PADDING: Final = ("as", "asked")
TOGETHER: Final = 5
"""Agents that are asked at once when only "several" are spoken of."""

_LISTED: Final = re.compile(r"^[ \t]*[-*][ \t]+[`*\"]*([A-Za-z0-9](?:[\w:.-]*\w)?)", re.MULTILINE)
_GIVEN: Final = re.compile(r"^\[?[Aa]gent a-\w+ \(([\w.-]+)\)", re.MULTILINE)
"""The name that an agent was given, in the result of the call that started it."""
_MARKUP: Final = re.compile(r"[`\"“”「」*]+")
_EDGE: Final = ".,;:!?。，；：！？"
_SMALL: Final = frozenset(
    re.findall(r"\w+", "a an and as at by for from in into of on or that the to with")
)


class Offer(msgspec.Struct, frozen=True):
    """Who can be asked in this conversation."""

    agents: bool = False
    messages: bool = False
    kinds: frozenset[str] = frozenset()
    """The kinds of agents that the tool lists."""
    names: frozenset[str] = frozenset()
    """The agents that have been given a name here."""
    known: frozenset[str] | None = None
    """The arguments that the tool takes; None: it does not say."""

    def kind(self, words: str) -> str | None:
        """The kind that one of these words names, as the tool spells it."""
        spelled = {kind.lower(): kind for kind in self.kinds}
        said = (word.strip(_EDGE).lower() for word in _MARKUP.sub(" ", words).split())
        return next((spelled[word] for word in said if word in spelled), None)

    def name(self, word: str) -> str | None:
        """The agent that is called so."""
        spelled = {name.lower(): name for name in self.names}
        return spelled.get(word.strip(_EDGE).lower())


class Handed(msgspec.Struct, frozen=True):
    """One piece of work for an agent."""

    prompt: str
    kind: str = GENERAL
    name: str | None = None
    background: bool = False
    worktree: bool = False
    teammate: bool = False


class Sent(msgspec.Struct, frozen=True):
    """Words for somebody."""

    to: str
    text: str


def offer_of(conversation: Conversation) -> Offer | None:
    """What this request offers; None where nobody can be asked."""
    agents, messages = AGENT in conversation.tools, SEND in conversation.tools
    if not agents and not messages:
        return None
    schema = conversation.tools.get(AGENT) or {}
    known = schema.get("properties")
    kind = known.get("subagent_type") if isinstance(known, dict) else None
    listed = kind.get("enum") if isinstance(kind, dict) else None
    kinds = {GENERAL, FORK, *_LISTED.findall(conversation.told.get(AGENT, ""))}
    kinds |= {one for one in listed if isinstance(one, str)} if isinstance(listed, list) else set()
    named = {name for done in calls(conversation) for name in _names(done)}
    return Offer(
        agents,
        messages,
        frozenset(kinds),
        frozenset(named),
        frozenset(known) if isinstance(known, dict) and known else None,
    )


def _names(done: Done) -> Iterator[str]:
    """What an agent is called: as it was asked for, or as the result says."""
    if done.use.name != AGENT:
        return
    asked = done.use.input.get("name")
    if isinstance(asked, str) and asked:
        yield asked
    if done.result and (given := _GIVEN.search(done.result.text)):
        yield given[1]


def agent_call(handed: Handed, offer: Offer) -> Call:
    wanted: Json = {
        "description": described(handed.prompt),
        "prompt": handed.prompt,
        "subagent_type": handed.kind,
        "name": handed.name,
        "run_in_background": handed.background or None,
        "isolation": "worktree" if handed.worktree else None,
        "teammate": handed.teammate or None,
    }
    taken = {
        key: value
        for key, value in wanted.items()
        if value is not None and (offer.known is None or key in offer.known)
    }
    return Call(AGENT, taken)


def message_call(sent: Sent) -> Call:
    return Call(SEND, {"to": sent.to, "message": sent.text, "summary": described(sent.text)})


def described(text: str) -> str:
    """A text in three to five of its words."""
    flat = " ".join(_MARKUP.sub(" ", text).split())
    if is_chinese(flat):
        return flat[:MOST_CHARACTERS].strip(_EDGE)
    words = flat.split(" ")[:MOST]
    while len(words) > FEWEST and words[-1].lower().strip(_EDGE) in _SMALL:
        words.pop()
    words = [*words, *PADDING] if len(words) < FEWEST else words
    return " ".join(words).strip(_EDGE)


def work_in(part: str, lexed: Lexed) -> str:
    """What is to be done, as it was written; without its quotes where all of it is quoted."""
    one = lexed.alone(trimmed(part))
    return (one.inner if one and one.kind != "code" else lexed.raw(trimmed(part))).strip()
