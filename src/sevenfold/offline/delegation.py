"""Work that a request hands to other agents, and what they send back: letters and notices.

These are told and quoted, never obeyed: whatever a letter says about itself, the user did not type it.
One thing is answered: the lead of a team may ask an agent to end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import unescape
from itertools import pairwise
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import Json, Text
from sevenfold.offline import chinese as handing_zh
from sevenfold.offline import english as handing_en
from sevenfold.offline.conversation import (
    LETTER,
    NOTICE,
    AddedPart,
    OfflineConversation,
    PastCall,
    PersonRequest,
    iterate_calls,
    parse_arrival,
)
from sevenfold.offline.language import LexedRequest
from sevenfold.offline.phrases import Language, format_phrase
from sevenfold.offline.steps import (
    AGENT,
    LEAD,
    SEND,
    AgentOffer,
    AgentTask,
    MessageStep,
    ToolCallsStep,
    ToolCallStep,
    extract_work,
    make_agent_call,
    make_message_call,
)

LONGEST: Final = 1_200  # Characters of one that are told
MOST: Final = 5
_SENDER: Final = tuple(re.compile(rf'\b{key}="([^"]*)"') for key in ("from", "name", "agent", "id"))
_FRAME: Final = re.compile(r'\bkind="(\w+)" request_id="([^"]+)"')
_SHUTDOWN: Final = "shutdown_request"
_STATUS: Final = re.compile(r'\bstatus="([^"]*)"')
_REMARK: Final = re.compile(r"\A\s*[^\n]*\bnot the user[^\n]*(?:\n---)?(?:\n|\Z)", re.I)
_BEGUN: Final = re.compile(r"\[still running|Agent \S+ \([^()\n]*\)[^.\n]*\bin the background\.")
_FACTS: Final = re.compile(r"\n?^\[(?:agent|from) [^\n]*\]\s*\Z", re.MULTILINE)
"""The facts that the program has put before and behind the words themselves."""
_FINDS: Final = (
    r"\b(?:find|found|say|said|says|report(?:ed)?|writes?|wrote|tell|told|answer(?:ed)?|come\s+(?:up|back)"
    r"|discover(?:ed)?|learn(?:ed)?|return(?:ed)?|repl(?:y|ied)|send|sent|want(?:ed)?|do|done)\b"
)
_ASKED: Final = re.compile(
    rf"\b(?:what|anything|how)\b.*\b(?P<who>agents?|forks?|teammates?)\b.*{_FINDS}"
    r"|\b(?:news|word|reports?|messages?|letters?|answers?|results?)\s+(?:from|of)\s+"
    r"(?:the\s+|an?\s+|my\s+|your\s+)?(?:\w+\s+){0,2}(?:agents?|forks?|teammates?)\b"
    r"|(?:代理|智能体|分叉|agent|队友).{0,8}(?:找到|发现|说|报告|回答|回复|查到|得到|做)了?.{0,3}(?:什么|哪些|啥)"
    r"|(?:代理|智能体|队友).{0,4}(?:的?(?:消息|报告|结果|回复))",
    re.I,
)
_ASKED_NAME: Final = rf"\b(?:what|anything)\b.*(?<![\w-]){{name}}(?![\w-]).*{_FINDS}"
_ASKED_FROM: Final = r"\b(?:news|word|reports?|messages?|letters?)\s+(?:from|of)\s+{name}(?![\w-])"
_ASKED_ZH: Final = r"(?<![\w-]){name}\s*.{{0,4}}(?:找到|发现|说|报告|回答|回复|写).{{0,3}}(?:什么|哪些|啥)"


class AgentArrival(msgspec.Struct, frozen=True):
    """Words of another agent, and where they stand."""

    at: int
    who: str
    text: str
    status: str = ""  # Of an agent whose end, or rest, is told; empty for a letter
    kind: str = ""  # Of a letter that means something to the program, too
    request: str = ""  # By what an answer to it is known


def find_arrivals(conversation: OfflineConversation, since: int = 0) -> Iterator[AgentArrival]:
    """The arrivals from this message on, in order."""
    for at, message in enumerate(conversation.messages[since:], since):
        if message.role != "user":
            continue
        for block in message.content:
            if isinstance(block, Text) and (part := parse_arrival(block.text)):
                yield make_arrival(at, part)


def make_arrival(at: int, part: AddedPart) -> AgentArrival:
    found = (m[1] for key in _SENDER if (m := key.search(part.attributes)) and m[1].strip())
    status = _STATUS.search(part.attributes) if part.tag == NOTICE else None
    who = unescape(next(found, "")) or ("somebody" if part.tag == LETTER else "an agent")
    told = status[1] if status else ("" if part.tag == LETTER else "done")
    frame = _FRAME.search(part.attributes) if part.tag == LETTER else None
    kind, request = (frame[1], unescape(frame[2])) if frame else ("", "")
    words = _FACTS.sub("", _REMARK.sub("", part.text)).strip()
    return AgentArrival(at, who, words, told, kind, request)


def find_news(conversation: OfflineConversation, ask: PersonRequest | None) -> list[AgentArrival]:
    """The arrivals since the last words of this engine; in a fork, since its own work began."""
    since = _ended(conversation, 0) + 1
    if ask is not None and ask.directive:
        since = max(since, ask.at + 1)
    return list(find_arrivals(conversation, since))


def answer_shutdown(
    conversation: OfflineConversation, ask: PersonRequest | None
) -> tuple[ToolCallStep, ...]:
    """The answer to a lead that asks this agent to end: nothing is left to do, so it agrees."""
    if SEND not in conversation.tools:
        return ()
    news = [one for one in find_news(conversation, ask) if one.kind == _SHUTDOWN and one.who == LEAD]
    asked = [one.request for one in news if one.request]
    answered = {_answers_to(done) for done in iterate_calls(conversation)}
    frames: list[Json] = [
        {"type": "shutdown_response", "request_id": request, "approve": True}
        for request in dict.fromkeys(asked)
        if request not in answered
    ]
    ending = {"to": LEAD, "summary": "ending as asked"}
    return tuple(ToolCallStep(SEND, {**ending, "frame": frame}) for frame in frames)


def _answers_to(done: PastCall) -> str:
    """The request that this call has answered; also when it failed, so that it is not tried for ever."""
    frame = done.use.input.get("frame") if done.use.name == SEND else None
    return str(frame.get("request_id", "")) if isinstance(frame, dict) else ""


def is_over(conversation: OfflineConversation, ask: PersonRequest) -> bool:
    """True if this request was answered: words without calls came after it."""
    return _ended(conversation, ask.at + 1) >= 0


def _ended(conversation: OfflineConversation, since: int) -> int:
    """The place of the last reply without calls; -1: nowhere from there on."""
    for at in reversed(range(since, len(conversation.messages))):
        message = conversation.messages[at]
        if message.role == "assistant" and not message.tool_uses:
            return at
    return -1


def describe_arrival(language: Language, one: AgentArrival) -> str:
    """One of them in words: who, and what."""
    phrase = f"agent_{one.status}" if one.status else "letter"
    phrase = phrase if phrase in _KNOWN else "agent_done"
    return format_phrase(language, phrase, who=one.who, text=_cut(one.text) or "—")


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


_KNOWN: Final = ("letter", "agent_done", "agent_failed", "agent_stopped", "agent_idle")


def answer_about_agent(conversation: OfflineConversation, question: str, language: Language) -> str | None:
    """The answer to "what did the agent find?"; None: that is not what was asked, or nobody said."""
    known = [*find_arrivals(conversation), *_answers(conversation)]
    named = {one.who for one in known if _asks_of(question, re.escape(one.who))}
    general = _ASKED.search(question)
    if not known or not (named or general):
        return None
    chosen = [one for one in known if not named or one.who in named]
    plural = len(named) > 1 or bool(general and (general["who"] or "").lower().endswith("s"))
    chosen.sort(key=lambda one: one.at)
    return "\n\n".join(describe_arrival(language, one) for one in chosen[-MOST if plural else -1 :])


def _asks_of(question: str, name: str) -> bool:
    forms = (_ASKED_NAME, _ASKED_FROM, _ASKED_ZH)
    return any(re.search(form.format(name=name), question, re.I) for form in forms)


def _answers(conversation: OfflineConversation) -> Iterator[AgentArrival]:
    """The answers of agents that were waited for: they stand in the results of the calls."""
    for done in iterate_calls(conversation):
        if done.use.name == AGENT and done.result and not done.failed and not is_background_start(done):
            who = done.use.input.get("name") or done.use.input.get("description") or AGENT
            yield AgentArrival(done.at, str(who), extract_agent_answer(done), "done")


def extract_agent_answer(done: PastCall) -> str:
    """The answer of an agent that was waited for, without what the program adds."""
    return _cut(_FACTS.sub("", done.result.text if done.result else "").strip())


def is_background_start(done: PastCall) -> bool:
    """True if the result only says that an agent has begun, or that a fork is of no use to this one."""
    begun = done.use.input.get("run_in_background") is True
    return begun or bool(done.result and _BEGUN.match(done.result.text))


class DelegatedStep(msgspec.Struct, frozen=True):
    """The calls, made together, and how many pieces of the request they came from."""

    step: ToolCallsStep
    pieces: int


def plan_handover(pieces: Sequence[str], lexed: LexedRequest, offer: AgentOffer) -> DelegatedStep | None:
    """The work that the first of these pieces hands to others, with the pieces that belong to it."""
    piece = " ".join(pieces[0].split())  # literals are marks here: no space in them is lost
    found = handing_en.parse_handover(piece, lexed, offer)
    if found is None:
        found = handing_zh.parse_handover(piece, lexed, offer)
    if found is None:
        return None
    if isinstance(found, MessageStep):
        return DelegatedStep(ToolCallsStep((make_message_call(found),)), 1) if found.text else None
    more = _more(pieces, bool(found))
    like = found[0] if found else _announced(piece, lexed, offer)
    works = [*found, *(replace(like, prompt=extract_work(part, lexed), name=None) for part in more)]
    calls = tuple(make_agent_call(one, offer) for one in works if one.prompt)
    return DelegatedStep(ToolCallsStep(calls), 1 + len(more)) if calls else None


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


def _announced(piece: str, lexed: LexedRequest, offer: AgentOffer) -> AgentTask:
    """The way to do the work below a heading: read off the heading with some work in it."""
    whole = f"{piece.rstrip()} x"
    found = handing_en.parse_handover(whole, lexed, offer) or handing_zh.parse_handover(whole, lexed, offer)
    return found[0] if isinstance(found, list) and found else AgentTask("x")
