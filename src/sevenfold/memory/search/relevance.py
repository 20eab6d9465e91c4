"""Decides when the best memory is an answer, and when silence is the better one.

A question is judged by what it is (`QuestionTraits`) and by what the best memory has for it
(`RecallEvidence`). The rule is one weighted sum. Its weights were fitted by logistic regression on one half
of the development data, folders of chats and of coders, and are reported on the other
(`benchmarks/recall`); the two starts were then chosen on the same half. A memory that has a tenth of a long
message has more of it than one that has a tenth of a short one, so words count with the question's length.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from sevenfold.memory.text.words import find_emphasis, find_names

_AHEAD: Final = (
    r"(?i)^\W*(?:(?:ok|okay|yes|yeah|no|and|so|but|now|then|also|sure|alright|great|well|hi|hey|hello)\b"
    r"\W*)*"
)
_ASKING: Final = re.compile(
    _AHEAD + r"(?:(?:about|at|by|for|from|in|of|on|since|to|until|with) )?"
    r"(?:what|which|where|when|who|whom|whose|why|how|remind me|tell me"
    r"|(?:do|does|did|are|were|should|must|may) (?:we|our))\b"
    r"|什么|什麼|哪|谁|誰|几|幾|多少|怎么|怎麼|怎样|怎樣|为何|為何|如何"
)
"""A question that asks for something that is known, in English and in Chinese."""
_ADVICE: Final = re.compile(
    r"(?i)\b(?:advice|suggest|suggestions?|recommend|recommendations?|tips?)\b|建议|建議|推荐|推薦"
)
_PERSON: Final = re.compile(r"(?i)\b(?:i|me|my|mine)\b|我")
_PERSONAL: Final = re.compile(
    r"(?i)\b(?:my|mine|myself|for me)\b|\b(?:did|have|had|was|were|am) i\b"
    r"|\bi(?:['’](?:ve|m|d)| have| had| am| was| [a-z]+ed)\b|我"
)
"""The person speaks about himself or herself: what is theirs, what they did or have."""
_ORDER: Final = re.compile(
    _AHEAD + r"(?:please|can you|could you|can we|could we|would you|will you|let['’]?s|don['’]?t"
    r"|do(?! (?:we|i|you|they|the|these|those)\b)|go|fix|add|run|commit|push|check|implement|update|remove"
    r"|create|make|use|write|review|explain|merge|rebase|test|try|open|move|rename|revert|continue|proceed"
    r"|show|look|read|find|put|get|give|set|start|stop|delete|change|keep|rewrite|refactor|investigate"
    r"|execute|pull|post|build|deploy|install)\b"
)
"""Work for the agent: what it is about, the conversation says more often than a memory."""
_TECHNICAL: Final = re.compile(
    r"`[^`\n]+`|(?<!\w)--?[a-z][\w-]+|https?://|\w/\w+/|@\w+[./]|\b[a-z]+_[a-z_]+\b|\b[a-z]+[A-Z]\w+"
    r"|\b\w+\.(?:py|js|ts|tsx|go|rs|md|json|ya?ml|toml|sh|css|html|java|rb|c|h|cpp|env)\b"
    r"|\b(?:commit|repo|branch|merge|rebase|PR|pull request|tests?|refactor|function|codebase|lint|CI|API"
    r"|SDK|stack ?trace|compile|deploy|endpoint|docs)\b"
)
"""Talk about code: most of it belongs to the work at hand."""
_TALK: Final = 3  # Words of a prompt that speaks of code; "deploy freeze" is a search
ENOUGH: Final = 4  # Words that name a subject; from so many on a prompt says what it is about


class QuestionTraits(msgspec.Struct, frozen=True):
    """A question, apart from any answer."""

    words: int  # Those that name a subject
    plain: bool  # A search for a word, or a question that is no order to the agent
    asks: bool  # It asks for something that is known, or for advice
    personal: bool  # The person speaks about himself or herself
    orders: bool  # It gives the agent work to do
    known: bool  # It has a name that the folder knows
    unknown: bool  # It has a name that the folder does not know
    technical: bool = False  # It speaks of code

    @property
    def is_empty(self) -> bool:
        """True for "fix all", "post it", "go ahead": the conversation says what that is about."""
        return self.words == 0 or (self.words == 1 and not self.plain)


USUAL: Final = 0.3  # The nearness of a memory to a question about something else


class RecallEvidence(msgspec.Struct, frozen=True):
    """What the best memory has for a question."""

    share: float  # Its best passage by words, as a share of the most that the question could get
    covered: float  # The share of the question's words that it has, by weight
    near: float | None  # By meaning; None without vectors
    passages: int  # In the folder: among more there is always one that is a little like the question
    around: float = USUAL  # As near to the question are the folder's memories on average


class RelevanceRule(msgspec.Struct, frozen=True):
    """The weight of each trait and of each piece of evidence; an answer is shown above zero."""

    least: float  # What the best memory must cover and be near, together, for any question
    start: float
    share: float  # This and the next: for each doubling of the question's words
    covered: float
    near: float  # For how much nearer it is than the others: to talk about code all of a coder's are near
    size: float  # For each doubling of the folder
    smallest: int  # Passages that a smaller folder counts as
    known: float
    unknown: float
    asks: float
    personal: float
    orders: float
    technical: float
    thin: float  # For each word that is missing to `ENOUGH`; "what was my job?" needs no more words

    def weigh(self, question: QuestionTraits, found: RecallEvidence) -> float:
        """Above zero: show it."""
        return (
            self.start
            + (self.share * found.share + self.covered * found.covered) * math.log2(2 + question.words)
            + self.near * ((found.near or 0.0) - found.around)
            + self.size * math.log2(max(found.passages, self.smallest))
            + self.known * question.known
            + self.unknown * question.unknown
            + self.asks * question.asks
            + self.personal * question.personal
            + self.orders * question.orders
            + self.technical * question.technical
            + self.thin * max(0, ENOUGH - question.words) * (not (question.asks and question.personal))
        )


BY_MEANING: Final = RelevanceRule(
    least=0.3, start=0.4, share=4.2, covered=0.55, near=15.5, size=-0.38, smallest=100, known=1.1,
    unknown=-1.95, asks=1.55, personal=1.3, orders=-2.7, technical=-2.1, thin=-1.3,
)  # fmt: skip
BY_WORDS: Final = RelevanceRule(
    least=0.12, start=-2.1, share=5.4, covered=1.3, near=0.0, size=-0.14, smallest=1, known=1.2,
    unknown=-1.3, asks=1.8, personal=1.6, orders=-2.0, technical=-2.3, thin=-1.2,
)  # fmt: skip


def find_traits(text: str, seen: Mapping[str, bool]) -> QuestionTraits:
    """From a question and, for each of its words, whether any memory of the folder has it."""
    names = [seen[name] for name in find_names(text) if name in seen]
    personal = _PERSONAL.search(text) is not None
    asks = _ASKING.search(text) is not None or bool(_ADVICE.search(text) and _PERSON.search(text))
    orders = not asks and _ORDER.search(text) is not None
    words = sum(find_emphasis(word) == 1.0 for word in seen)
    return QuestionTraits(
        words=words,
        plain=asks or len(text.split()) == 1 or ("?" in text and not orders),
        asks=asks,
        personal=personal,
        orders=orders,
        known=any(names),
        unknown=not all(names),
        technical=words >= _TALK and _TECHNICAL.search(text) is not None,
    )


def is_worth_showing(question: QuestionTraits, found: RecallEvidence) -> bool:
    """True if an answer with this best memory is better than none."""
    if question.is_empty:
        return False
    rule = BY_WORDS if found.near is None else BY_MEANING
    return found.covered + (found.near or 0.0) >= rule.least and rule.weigh(question, found) > 0
