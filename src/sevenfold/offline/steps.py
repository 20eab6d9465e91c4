"""The steps that a request can ask of the offline engine, and how their arguments are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import msgspec

from sevenfold.core.messages import Json
from sevenfold.offline.conversation import OfflineConversation, PastCall, iterate_calls
from sevenfold.offline.language import LITERAL, MARK, LexedRequest, is_chinese


class ToolCallStep(msgspec.Struct, frozen=True):
    """One tool call."""

    name: str
    input: Json


class ToolCallsStep(msgspec.Struct, frozen=True):
    """Tool calls that are made together."""

    calls: tuple[ToolCallStep, ...]


class QuestionStep(msgspec.Struct, frozen=True):
    """Something to be answered from what is in view."""

    text: str


class RememberStep(msgspec.Struct, frozen=True):
    """Something the person wants remembered."""

    text: str
    lasting: bool = False  # Beyond this conversation, if there is a place for it


class ForgetStep(msgspec.Struct, frozen=True):
    """Something the person wants forgotten for good."""

    text: str


class Statement(msgspec.Struct, frozen=True):
    """A statement that asks for nothing."""

    text: str


class UnclearStep(msgspec.Struct, frozen=True):
    """Something no rule fits; `why` is the phrase that says so."""

    text: str
    why: str = "no_rule"


PlanStep: TypeAlias = ToolCallsStep | QuestionStep | RememberStep | ForgetStep | Statement | UnclearStep
StepBuilder: TypeAlias = Callable[[re.Match[str], LexedRequest], "tuple[PlanStep, ...] | None"]
StepRule: TypeAlias = tuple[re.Pattern[str], StepBuilder]
"""A pattern over the skeleton of a sentence, and what it asks for; None: it was something else."""


def compile_rules(builders: dict[str, StepBuilder], flags: int = 0) -> tuple[StepRule, ...]:
    return tuple((re.compile(pattern, flags), build) for pattern, build in builders.items())


IT: Final = MARK
"""Stands for the file that was spoken of last."""

_IT = re.compile(
    r"(?:it|that|this|(?:the|that|this|same) (?:same )?file|它|该文件|这个文件|那个文件|文件)", re.I
)
_KNOWN_NAMES = re.compile(
    r"(?:Make|Docker|Proc|Gem|Rake|Jenkins|Just)file|README|LICENSE|CHANGELOG|NOTICE|AUTHORS|COPYING"
)
_PATH = re.compile(r"~|\.{1,2}|\.[\w.-]+|.*[/\\].*|.*[\w*)\]-]\.[A-Za-z_*][\w*-]{0,11}")
_TOKEN = re.compile(rf"{LITERAL}|[^\s,，、;；]+")
_GLUE = re.compile(r"\s*(?:,?\s+and\s+|,\s*|、\s*|，\s*|\s+和\s*|\s*和\s+|\s*与\s*|\s+&\s+)", re.I)
_SPACE = re.compile(r"\s+")
_TRAILING = ".,;:!?。，；：！？"
_LANGUAGES: Final = {
    "c": "c", "css": "css", "go": "go", "html": "html", "java": "java", "javascript": "js", "json": "json",
    "markdown": "md", "python": "py", "rust": "rs", "text": "txt", "toml": "toml", "typescript": "ts",
    "yaml": "yaml",
}  # fmt: skip


def trim_punctuation(part: str) -> str:
    """Without the punctuation that ends a sentence, unless it may belong to what was said."""
    part = part.strip()
    while len(part) > 1 and part[-1] in _TRAILING and not part[-2].isspace():
        if part.endswith("..") or (part[-1] == "." and part[-2] in "/*"):
            break
        part = part[:-1].rstrip()
    return part


def find_file(part: str, lexed: LexedRequest, *, loosely: bool = False) -> str | None:
    """The file that these words name, or None. Loosely: any single word will do."""
    part = trim_punctuation(part).removeprefix("@")  # as files are named in the chat
    if _IT.fullmatch(part):
        return IT
    if lexed.alone(part):
        return lexed.value(part)
    if not part or re.search(r"\s", part) or MARK in part:
        return None
    if loosely or _PATH.fullmatch(part) or _KNOWN_NAMES.fullmatch(part):
        return part
    return None


def find_files(part: str, lexed: LexedRequest, *, loosely: bool = False) -> list[str]:
    """The files in a list such as "a.py, b.py and c.py"; what follows the list is let go."""
    found: list[str] = []
    at = 0
    while token := _TOKEN.match(part, at):
        name = find_file(token[0], lexed, loosely=loosely and token.end() == len(part))
        if name is None:
            break
        found.append(name)
        if (glue := _GLUE.match(part, token.end())) is None:
            break
        at = glue.end()
    return found


def make_reads(files: list[str], **window: int) -> tuple[PlanStep, ...] | None:
    if not files:
        return None
    calls = tuple(ToolCallStep("Read", {"file_path": name, **window}) for name in dict.fromkeys(files))
    return (ToolCallsStep(calls),)


def make_call_step(name: str, **fields: object) -> tuple[PlanStep, ...]:
    """A step of one call; fields that are not set are left out."""
    return (ToolCallsStep((ToolCallStep(name, {k: v for k, v in fields.items() if v is not None}),)),)


def make_lines_window(first: str, last: str) -> dict[str, int]:
    start, end = max(1, int(first[:9])), int(last[:9])
    return {"offset": start, "limit": max(1, end - start + 1)}


def make_kind_glob(kind: str | None) -> str | None:
    """The pattern for a kind of file: a pattern as it is, an ending, or a language."""
    if not kind:
        return None
    kind = kind.strip().rstrip(_TRAILING)
    if any(c in kind for c in "*?["):
        return kind
    if kind.startswith(".") and kind[1:].isalnum():
        return f"*{kind}"
    word = kind.lower()
    ending = _LANGUAGES.get(word, word)
    return f"*.{ending}" if ending in _LANGUAGES.values() else None


_ENDINGS: Final = frozenset(_LANGUAGES.values()) | frozenset(
    _SPACE.split(
        "bash bat cc cfg conf cpp cs csv gif gz h hpp htm ini ipynb jpeg jpg jsonl jsx kt lua"
        " pdf php png ps1 pyi rb rst scss sh sql svg swift tex tsv tsx vue xml yml zip zsh"
    )
)


def is_file_name(word: str) -> bool:
    """True if a bare word can only be a file: it has an ending that files have."""
    name, dot, ending = word.rpartition(".")
    plain = re.fullmatch(r"[\w.~/\\-]*\w", name) is not None
    return plain and bool(dot) and ending.lower() in _ENDINGS


def widen_pattern(pattern: str) -> str:
    """A file pattern that also looks into folders, unless it says where to look."""
    return pattern if "/" in pattern else f"**/{pattern}"


def make_search_pattern(words: str, lexed: LexedRequest) -> str:
    """Words to look for, as a pattern that matches exactly them."""
    return re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", lexed.value(trim_punctuation(words)))


def extract_content(part: str, lexed: LexedRequest) -> str | None:
    """Text to write, word for word: as quoted, or ended by a newline. None: it was only described."""
    literal = lexed.alone(trim_punctuation(part)) or lexed.alone(part)
    if literal and literal.kind in ("quote", "code"):
        return literal.inner
    text = literal.inner if literal else lexed.raw(part).strip()
    if literal is None and re.match(r"(?:an?|the|some|your|my)\s|一个|一段|一篇", text, re.I):
        return None
    return text if text.endswith("\n") or not text else text + "\n"


def find_commands(part: str, lexed: LexedRequest) -> list[str]:
    """The shell commands in "`a`", "`a` and `b`", or words as they stand."""
    part = part.strip()
    literals = re.match(rf"{LITERAL}(?:(?:\s*,)?\s*(?:and|和|,|、)\s*{LITERAL})*", part)
    if literals and part.startswith(MARK):
        found = [lexed.value(m) for m in re.findall(LITERAL, literals[0])]
        quoted = [lexed.alone(m) for m in re.findall(LITERAL, literals[0])]
        if all(q and q.kind in ("code", "fence", "shell") for q in quoted) or literals[0] == part:
            return [command.strip() for command in found]
    return [lexed.raw(trim_punctuation(part))]


AGENT: Final = "Agent"
SEND: Final = "SendMessage"
GENERAL: Final = "general-purpose"
FORK: Final = "fork"
EVERYONE: Final = "*"
LEAD: Final = "lead"  # The name that an agent of a team has for the conversation that leads it
FEWEST, MOST = 3, 5  # Words that say what an agent is for
MOST_CHARACTERS: Final = 20  # The same for a text without spaces
PADDING: Final = ("as", "asked")
TOGETHER: Final = 5  # Agents that are asked at once when only "several" are spoken of

_LISTED: Final = re.compile(r"^[ \t]*[-*][ \t]+[`*\"]*([A-Za-z0-9](?:[\w:.-]*\w)?)", re.MULTILINE)
_GIVEN: Final = re.compile(r"^\[?[Aa]gent a-\w+ \(([\w.-]+)\)", re.MULTILINE)
"""The name that an agent was given, in the result of the call that started it."""
_MARKUP: Final = re.compile(r"[`\"“”「」*]+")
_SMALL: Final = re.compile("an?|and|as|at|by|for|from|in|into|of|on|or|that|the|to|with")


class AgentOffer(msgspec.Struct, frozen=True):
    """The agents that can be asked in this conversation."""

    agents: bool = False
    messages: bool = False
    kinds: frozenset[str] = frozenset()  # The kinds of agents that the tool lists
    names: frozenset[str] = frozenset()  # The agents that have been given a name here
    known: frozenset[str] | None = None  # The arguments that the tool takes; None: it does not say

    def kind(self, words: str) -> str | None:
        """The kind that one of these words names, as the tool spells it."""
        spelled = {kind.lower(): kind for kind in self.kinds}
        said = (word.strip(_TRAILING).lower() for word in _MARKUP.sub(" ", words).split())
        return next((spelled[word] for word in said if word in spelled), None)

    def name(self, word: str) -> str | None:
        """The agent that is called so."""
        spelled = {name.lower(): name for name in self.names}
        return spelled.get(word.strip(_TRAILING).lower())


class AgentTask(msgspec.Struct, frozen=True):
    """One piece of work for an agent."""

    prompt: str
    kind: str = GENERAL
    name: str | None = None
    background: bool = False
    worktree: bool = False
    teammate: bool = False


class MessageStep(msgspec.Struct, frozen=True):
    """Words for somebody."""

    to: str
    text: str


def find_agent_offer(conversation: OfflineConversation) -> AgentOffer | None:
    """The agents that this request offers; None where there are none."""
    agents, messages = AGENT in conversation.tools, SEND in conversation.tools
    if not agents and not messages:
        return None
    known = (conversation.tools.get(AGENT) or {}).get("properties")
    kind = known.get("subagent_type") if isinstance(known, dict) else None
    listed = kind.get("enum") if isinstance(kind, dict) else None
    kinds = {GENERAL, FORK, *_LISTED.findall(conversation.told.get(AGENT, ""))}
    kinds |= {one for one in listed if isinstance(one, str)} if isinstance(listed, list) else set()
    named = {name for done in iterate_calls(conversation) for name in _names(done)}
    takes = frozenset(known) if isinstance(known, dict) and known else None
    return AgentOffer(agents, messages, frozenset(kinds), frozenset(named), takes)


def _names(done: PastCall) -> Iterator[str]:
    """The names of an agent: as it was asked for, or as the result says."""
    if done.use.name != AGENT:
        return
    asked = done.use.input.get("name")
    if isinstance(asked, str) and asked:
        yield asked
    if done.result and (given := _GIVEN.search(done.result.text)):
        yield given[1]


def make_agent_call(handed: AgentTask, offer: AgentOffer) -> ToolCallStep:
    wanted: Json = {
        "description": shorten_description(handed.prompt),
        "prompt": handed.prompt,
        "subagent_type": handed.kind,
        "name": handed.name,
        "run_in_background": handed.background or None,
        "isolation": "worktree" if handed.worktree else None,
        "teammate": handed.teammate or None,
    }
    known = wanted if offer.known is None else offer.known
    return ToolCallStep(AGENT, {k: v for k, v in wanted.items() if v is not None and k in known})


def make_message_call(sent: MessageStep) -> ToolCallStep:
    summary = shorten_description(sent.text)
    return ToolCallStep(SEND, {"to": sent.to, "message": sent.text, "summary": summary})


def shorten_description(text: str) -> str:
    """A text in three to five of its words."""
    flat = " ".join(_MARKUP.sub(" ", text).split())
    if is_chinese(flat):
        return flat[:MOST_CHARACTERS].strip(_TRAILING)
    words = flat.split(" ")[:MOST]
    while len(words) > FEWEST and _SMALL.fullmatch(words[-1].lower().strip(_TRAILING)):
        words.pop()
    words = [*words, *PADDING] if len(words) < FEWEST else words
    return " ".join(words).strip(_TRAILING)


def extract_work(part: str, lexed: LexedRequest) -> str:
    """The work as it was written; without its quotes where all of it is quoted."""
    one = lexed.alone(trim_punctuation(part))
    return (one.inner if one and one.kind != "code" else lexed.raw(trim_punctuation(part))).strip()
