"""The words by which a sentence is known to state something that should be remembered.

Each cue is looked for in a sentence without its quotations. They are narrow on purpose: a memory that
is wrong costs more than one that is missing.
"""

from __future__ import annotations

import math
import re
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.memory.topic_file import Type
from sevenfold.offline.language import TypedSentence, find_terms, split_sentences

Kind: TypeAlias = Literal[
    "remember", "feedback", "correction", "confirmation", "pointer", "deadline", "decision",
    "preference", "habit", "role", "constraint", "state", "detail", "plan", "event", "fact",
]  # fmt: skip
TYPE_OF: Final[dict[Kind, Type]] = {
    "remember": "project", "deadline": "project", "decision": "project", "detail": "project",
    "plan": "project", "event": "project", "fact": "project", "pointer": "reference",
    "feedback": "feedback", "correction": "feedback", "confirmation": "feedback",
    "preference": "user", "habit": "user", "role": "user", "constraint": "user", "state": "user",
}  # fmt: skip


class MemoryCue(msgspec.Struct, frozen=True):
    """The words by which a kind is known."""

    kind: Kind
    pattern: re.Pattern[str]
    unless: re.Pattern[str] | None = None
    alone: bool = False  # Only where nobody works on files: there, `let's use a list` is about the task


class ExtractedFact(msgspec.Struct, frozen=True):
    """One thing to remember."""

    kind: Kind
    type: Type
    text: str  # The memory as a statement that anyone can read
    quote: str  # The words it rests on, as they were typed
    day: str  # On which it was said; empty when the conversation does not tell
    number: int  # Of the message
    why: str = ""
    forgets: bool = False  # True if this is to be forgotten instead
    team: bool = False  # True if they said that it is for the team


_OFTEN: Final = (
    r"(?:\s+(?:really|also|still|just|usually|always|often|mostly|generally|personally|actually|definitely"
    r"|absolutely|honestly|strongly|much|do|particularly|especially|currently|now|already|finally|recently"
    r"|totally|truly|simply|kind of|sort of|normally|typically))*"
)
_I: Final = rf"\bI{_OFTEN}\s+"
_IM: Final = rf"\b(?:I['’]m|I am){_OFTEN}\s+"
_IVE: Final = rf"\b(?:I['’]ve|I have){_OFTEN}\s+"
_WE: Final = r"\b(?:we|the team|my team|our team)(?:\s+(?:have|all|just|finally|also|already)|['’]ve)*\s+"
_VAGUE: Final = (
    r"(?:this|that|it|these|those|them|the (?:idea|sound|plan|look|way|approach)|your|how|what"
    r"|to (?:see|know|hear))\b"
)
_PEOPLE: Final = (
    r"(?:wife|husband|spouse|partner|fianc[ée]e?|girlfriend|boyfriend|son|daughter|kids?|children|baby|mom"
    r"|mum|mother|dad|father|parents|sister|brother|boss|manager|team|company|colleagues?|coworkers?"
    r"|friends?|dog|cat|doctor|roommate|client|customers?|landlord|coach|teacher|professor|advisor|family)"
)
_MEASURED: Final = (
    r"(?:(?:current|final|target|starting|new|main|primary|overall|total|monthly|weekly|daily|long-term"
    r"|usual|preferred|maximum|max) )*(?:weight|height|waist|hips?|budget|goals?|target|age|birthday"
    r"|salary|income|schedule|job|role|title|time ?zone|commute|background|major|degree|diet|bmi|pace"
    r"|level|experience|hobby|hobbies|working hours|work hours|office|employer|profession|native language"
    r"|mother tongue|savings|rent|limit|deadline|priority|strategy|challenge|focus|score|deposit|mileage"
    r"|heart rate|body fat)"
)
_EVENT: Final = (
    r"(?:freeze|deadline|release|launch|go-?live|cut-?over|demo|audit|migration|exam|trip|flight|meeting"
    r"|appointment|review|interview|presentation|sprint|milestone|beta|wedding|race|marathon|conference"
    r"|due date|kick-?off|retro|offsite|maintenance window|vacation|holiday|leave|surgery|check-?up|call"
    r"|hearing|test|party|concert|workshop|session|event|rollout|shutdown|sunset|embargo|hand-?over"
    r"|booking|reservation|delivery)"
)
_DATE: Final = (
    r"(?:\d{4}-\d{2}-\d{2}|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\btomorrow\b|\btonight\b"
    r"|\bnext (?:week|month)|\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?"
    r"|aug(?:ust)?|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.? \d{1,2}|\b\d{1,2}(?:st"
    r"|nd|rd|th)\b|\bend of (?:the|this|next)\b|\bin (?:a|two|three|four|\d+) (?:days?|weeks?|months?)\b"
    r"|\b\d{1,2}/\d{1,2}\b|\bQ[1-4]\b)"
)
_WAYS: Final = (
    r"(?:answers?|repl(?:y|ies)|responses?|explanations?|code|comments?|commits?|tests?|summar(?:y|ies)"
    r"|messages?|output|tone|formatt?(?:ing)?|bullet points?|emojis?|pull requests?|prs?|docs?|docstrings?"
    r"|type hints?|names?|naming|language|branch(?:es)?)"
)
_LASTING: Final = (
    r"(?:from now on|going forward|in (?:the )?future|every time|each time|whenever|any ?more|any longer"
    r"|ever again|as a rule|by default|in general|at all times|next time|always|never)"
)
_HERE: Final = (
    r"\b(?:this (?:one|file|function|line|test|time|case|bug|error|branch|commit|pr|change|part|step"
    r"|section)|that (?:one|file|function|line|test|part)|yet|for now|right now|(?<!from )now|here|above"
    r"|below|it|first,?|just this once|today|line \d+|the (?:last|previous|first|second|third"
    r"|other) (?:one|part|option|point))\b"
)


_SPECIFIC: Final = r"(?-i:\d|(?<=[a-z,;:] )[A-Z][a-z]{2,})"
"""A number or a name: who speaks of themselves and gives one, states a fact."""
_PASSING: Final = (
    r"\b(?:you|your|you['’]re|feel\w*|felt|worried|tired|stress\w*|excited|hop(?:e|ing)|glad|drain\w*"
    r"|frustrat\w*|relie[fv]\w*|appreciate|thanks?|maybe|might|guess|perhaps|wonder\w*|nervous|curious"
    r"|sounds?|understand|know|remember|suppose|error|exception|bug|function|code|script|compile\w*"
    r"|terminal|api|repo|server|query|option|right now|ready|want to (?:see|know|ask|talk)|need to (?:see"
    r"|know|ask|talk)|assistant|ai|chatgpt|if|for now|I need an?|I need \d+|next version)\b"
)
"""Words about the moment, or about the work at hand."""


def _cues(
    kind: Kind, *patterns: str, unless: str = "", alone: bool = False, flags: int = re.IGNORECASE
) -> list[MemoryCue]:
    not_when = re.compile(unless, flags) if unless else None
    return [MemoryCue(kind, re.compile(one, flags), not_when, alone) for one in patterns]


CUES: Final[tuple[MemoryCue, ...]] = (
    *_cues(
        "feedback",
        rf"^(?:please |and |so )*(?:do not|don['’]?t|never|stop|quit|avoid)\s+\w+.*\b{_LASTING}\b",
        rf"^(?:please )?{_LASTING}[,:]?\s+(?:please )?(?!I\b|we\b|you\b|is\b|was\b|had\b|been\b|mind\b)\w+",
        r"^(?:please )?(?:always|never)\s+(?!been\b|mind\b|had\b|was\b|wanted\b|thought\b)\w+",
        r"^(?:please )?stop\s+\w+ing\s+(?!to\b|about\b|what\b|this\b|that\b|me\b)\w+(?!.*\b(?:and"
        r"|just|already)\b)",
        rf"^(?:please )?(?:keep|make)\s+(?:your |the |all |all your )?{_WAYS}\s+\w+",
        r"^(?:please )?use\s+\S+(?:\s+\S+){0,3}\s+(?:instead of|rather than)\s+\S+",
        r"^(?:please )?use\s+\S+(?:\s+\S+){0,2},\s*not\s+\S+",
        rf"{_I}(?:prefer|like|love|hate|dislike)\s+(?:when you|it when you|you to|that you)\s+\w+",
        rf"{_I}(?:want|need|expect)\s+you\s+to\s+(?=.*\b{_LASTING}\b)",
        rf"{_I}(?:prefer|hate|dislike)\s+(?:\w+\s+){{0,3}}{_WAYS}\b",
        r"\bI\s+(?:always|never|generally|usually|normally|only)\s+(?:want|need|expect|like)\s+"
        rf"(?:to\s+(?:see|have|get)\s+)?(?:\w+\s+){{0,3}}{_WAYS}\b",
        rf"{_I}(?:want|expect)\s+(?:\w+\s+){{0,3}}{_WAYS}\b(?=.*\b{_LASTING}\b)",
        r"\byou (?:should|must|need to|have to) (?:always|never)\b",
        unless=_HERE,
    ),
    *_cues(
        "correction",
        r"^(?:do not|don['’]?t|never)\s+(?!worry|mind|forget|think|know|understand|need|want|have|see|get"
        r"|care|be\b)\w+\s+\w+",
        unless=rf"{_HERE}|\b(?:that|this|those|these|so|like)\s*[.!]?$",
    ),
    *_cues(
        "confirmation",
        r"\b(?:keep (?:doing|going|writing|working|using|explaining|formatting|it up"
        r"|answering)\b.*\blike (?:that|this)|keep doing (?:that|this|it|exactly)|exactly how I (?:want"
        r"|like|need)|that['’]?s (?:exactly )?(?:how|the way) I (?:want|like|prefer)|(?:always"
        r"|please) (?:do it|keep it) (?:like|this way|that way))",
    ),
    *_cues(
        "pointer",
        r"\b(?:tracked|logged|filed|documented|described|kept|stored|hosted|published|posted|reported"
        r"|announced|collected|maintained|managed)\s+(?:in|on|at|under|via)\s+(?:the |our "
        r"|a )?(?=.*(?:[A-Z]|#\w|https?:))",
        r"\b(?:dashboards?|docs?|documentation|wiki|board|tracker|runbooks?|specs?|designs?|mock-?ups?"
        r"|figma|tickets?|bugs?|issues|channel|logs|metrics|alerts|playbooks?|roadmap|backlog|calendar"
        r"|spreadsheet|registry|staging|handbook|style guide)\b[^.]{0,40}\b(?:is|are|lives?|can be found"
        r"|sits?|goes?|go)\s+(?:at|in|on|under|to|here:)\s+(?=.*(?:[A-Z#…]|https?:))",
        r"\b(?:is|are) (?:at|on|here:?) https?://\S+",
        unless=r"^(?:look|check|see|go|open|read|visit|use|fetch|click|try)\b",
    ),
    *_cues(
        "deadline",
        rf"\b{_EVENT}s?\b[^.]{{0,60}}\b(?:is|are|starts?|begins?|ends?|moved|pushed|postponed|rescheduled"
        rf"|due|will be|on|by|for|until|happens?)\b[^.]{{0,40}}{_DATE}",
        rf"\b(?:due|deadline)\b[^.]{{0,40}}{_DATE}",
        rf"\b(?:must|has to|have to|needs? to)\s+(?:be\s+)?\w+[^.]{{0,50}}\b(?:by|before"
        rf"|until)\s+[^.]{{0,20}}{_DATE}",
        rf"{_DATE}[^.]{{0,30}}\b(?:is|are)\s+(?:the|our|my)\s+(?:\w+\s+)?{_EVENT}",
        rf"{_WE}(?:will\s+|are\s+going\s+to\s+)?(?:ship|release|launch|deploy|freeze|publish|deliver"
        rf"|migrate|demo|go live)\b(?=.*(?:\d|\b(?:next|this|by|tomorrow)\b)).{{0,40}}{_DATE}",
    ),
    *_cues(
        "decision",
        rf"{_WE}(?:decided|agreed|chose|settled|picked|opted|standardi[sz]ed|committed"
        r"|(?:switched|migrated|moved) (?:to|from|off|away))\b",
        r"\bwe(?:['’]re| are) (?:going with|moving|migrating|switching|standardi[sz]ing|sticking"
        r"|dropping|sunsetting)\b",
        r"\b(?:the|our) (?:decision|agreement) (?:is|was)\b",
        r"\bwe (?:no longer|don['’]t) (?:support|use|deploy|ship|allow|accept)\b",
        rf"\bI(?:['’]ve| have)?{_OFTEN}\s+(?:decided|chosen|chose|settled|opted|committed)\b",
        unless=r"\b(?:not decided|haven['’]t|undecided|yet to)\b",
    ),
    *_cues(
        "preference",
        rf"{_I}(?:prefer|enjoy|adore|hate|dislike|detest|favou?r)\s+(?!{_VAGUE})\w+",
        rf"{_I}(?:like|love)\s+(?!{_VAGUE}|the\b|having\b|being\b|options?\b|…)\w+",
        rf"{_I}(?:don['’]t|do not|can['’]t|cannot)\s+(?:really |particularly )?(?:like|enjoy|stand"
        rf"|tolerate)\s+(?!{_VAGUE})\w+",
        r"\bmy (?:favou?rite|preferred|preference)\b",
        rf"{_IM}(?:not )?(?:a (?:big |huge )?fan of|into|passionate about|fond of"
        rf"|obsessed with)\s+(?!{_VAGUE})\w+",
        rf"{_IM}(?:not )?(?:really |exactly )?an? (?:morning|night|early|people|cat|dog"
        rf"|\w+) (?:person|lover|owl|bird)\b",
        unless=r"\bwould you\b|\bI(?:['’]d| would)\b",
    ),
    *_cues(
        "habit",
        r"\bI\s+(?:usually|always|never|often|rarely|typically|normally|generally|mostly|tend to)\s+\w+",
        r"\bI\s+(?:work|go|run|swim|train|study|commute|wake|sleep|eat|drink|cook|cycle|practi[cs]e|read"
        r"|play|lift|walk|do|take|have|meet|get|use)\b[^.]{0,60}\b(?:every|each|on (?:week(?:day|end)s"
        r"|\w+days)|\d+(?:-\d+)? times|daily|per week|a week|twice|once a)\b",
        unless=r"\b(?:never (?:mind|seen|heard|knew|thought)|I always thought)\b",
    ),
    *_cues(
        "role",
        rf"{_IM}(?:an?|the)\s+(?!bit\b|little\b|lot\b|tad\b|few\b|fan\b|mess\b|idiot\b|fool\b|failure\b"
        r"|burden\b|wreck\b|one\b|only\b|same\b|loss\b|big fan\b|huge fan\b)\w+",
        rf"{_I}(?:work|live|teach|lead|manage|own|founded|study|studied|graduated|majored|speak|maintain"
        r"|moved to|grew up|was born|specialize|specialise)\b",
        r"\b(?:my name is|call me|I go by)\s+[A-Z]",
        rf"{_IM}(?:from|based in|new to|unfamiliar with|not familiar with|familiar with|experienced (?:in"
        r"|with)|fluent in|good at|allergic|vegetarian|vegan|diabetic|lactose|gluten|pregnant|married"
        r"|divorced|retired|left-handed|colou?r-?blind|dyslexic|responsible for|in charge of"
        r"|\d{2}(?: years old)?\b(?!%))",
        rf"{_IVE}(?:never (?:used|tried|worked|written|been|done|had)|been \w+ing\b.*\b(?:for|since)\b"
        r"|worked (?:as|with|in|at|for)|(?:about |over |around )?\d+\+? years)",
        r"\bI have\s+(?:an?|two|three|four|2|3|4)\s+(?:\w+\s+)?(?:injury|allergy|condition|dogs?|cats?"
        r"|daughters?|sons?|kids?|children|degree|phd|background|disability|sister|brother)\b",
        rf"\bmy (?:\w+ )?{_PEOPLE}(?:,? [A-Z]\w+,?)?\s+(?:is|are|has|have|lives?|works?|loves?|likes?"
        r"|named|wants?|prefers?|hates?|needs?|will|always|never|often|usually)\b",
        rf"\bmy {_MEASURED}\b[^.]{{0,40}}?\s(?:is|are|was|will be|=)\s+\S+",
        unless=r"\b(?:I wish|as if|like I['’]?m|feel(?:s|ing)? like)\b|\bI['’]m (?:a|an) (?:idiot"
        r"|failure|mess)",
    ),
    *_cues(
        "constraint",
        rf"{_I}(?:can['’]t|cannot|can only|could only|must not|must avoid|need to avoid"
        r"|have to avoid)\s+(?:really )?(?:eat|drink|have|use|do|work|attend|travel|afford|exceed|train"
        r"|exercise|cook|study|spend|lift|drive|fly|install|deploy)\b",
        r"\bI only have\s+\w+",
        rf"{_I}(?:don['’]t|do not)\s+have\s+(?:access to|a car|a gym|a license|admin|equipment"
        rf"|an oven|internet)\b",
        r"\b(?:no|without any) (?:transfers|layovers|dairy|gluten|nuts|meat|alcohol)\b",
        rf"{_IM}(?:not able|unable|not allowed)\s+to\b",
    ),
    *_cues(
        "state",
        r"\bmy (?:\w+ ){1,3}(?:is|are|was|were|isn['’]t|aren['’]t|has|have)\s+(?:now |still "
        r"|already |currently |about |around |probably )*"
        r"(?!what\b|how\b|why\b|if\b|whether\b|that\b|fine\b|so\b)\w+",
        rf"{_IM}(?:using|on)\s+(?!it\b|this\b|that\b|my way\b|board\b|track\b|the\b)\w+",
        rf"{_I}(?:struggle|learn better|work best|focus better|feel comfortable|get (?:nervous"
        rf"|anxious|bored|distracted))\b",
        unless=r"\bmy (?:\w+ )?(?:guess|question|point|understanding|bad|mind|brain|head|patience|energy"
        r"|mood|memory|heart|fault|mistake|apologies|thoughts?|opinion|feeling|concern|request|message"
        r"|idea|code|file|script|function|test|branch|terminal|query|prompt|essay|answer|text)s?\b",
        alone=True,
    ),
    *_cues(
        "detail",
        r"^(?:\d+[.)]\s*)?\*{0,2}[A-Z][\w/&' -]{2,40}:\*{0,2}\s+(?=.*\d|\S+(?:\s+\S+){2})\S+",
        alone=True,
    ),
    *_cues(
        "plan",
        rf"{_I}(?:plan|intend|aim|hope|am aiming)\s+(?:to|on|for)\s+\w+",
        rf"{_IM}(?:planning|aiming|hoping|training|preparing|saving|aiming)\s+(?:to|on|for|a)\s+\w+",
        r"\bmy (?:\w+ )?(?:plan|goal|aim|objective|target|dream|ambition) is\b",
        rf"{_I}(?:want|wanted|would like|need)\s+to\s+(?:lose|gain|learn|build|become|improve|reach|save"
        r"|finish|complete|run|travel|visit|get better|quit|stop|reduce|increase|buy|move|switch|write"
        r"|create|master|pass|achieve|keep|avoid|include|prioriti[sz]e|experience|maintain|start)\b",
        r"\bI(?:['’]m| am) (?:visiting|travell?ing|flying|leaving|moving|attending|hosting"
        r"|getting married|starting|taking)\b",
        r"\b(?:let['’]s|I['’]ll|I will|we['’]ll|we will|I['’]m going to|I am going to"
        r"|I['’]d like to)\s+(?:definitely |probably |just |also )?(?:go with|stick (?:with|to)|aim for"
        r"|schedule|plan (?:for|on)|book|choose|prioriti[sz]e|focus on|commit to|switch to|skip|postpone"
        r"|pause|drop)\s+(?!that\b|this\b|it\b|you\b|those\b|these\b|getting\b|the (?:first|second"
        r"|last) one\b)\w+",
        r"\b(?:works? (?:best|better|well|perfectly)|(?:is|are|would be) (?:best|better|perfect"
        r"|ideal|non-negotiable|a must)) for me\b",
        alone=True,
    ),
    *_cues(
        "event",
        r"\bI(?:['’]ve| have)?(?:\s+(?:just|already|finally|recently|successfully|also"
        r"|officially))*\s+(?:booked|bought|ordered|downloaded|signed up|registered|scheduled|submitted"
        r"|uploaded|completed|finished|quit|missed|joined|received|passed|hired|paid|documented|set up"
        r"|applied|accepted|cancell?ed|installed|enrolled|reached|hit|lost|gained|ran|practi[cs]ed"
        r"|reviewed|secured|confirmed|wrapped up|organi[sz]ed|tested|implemented|built|drafted|read"
        r"|watched|visited|added|created|collected|moved|opened|transferred|started|mailed"
        r"|recovered from)\s+\w+",
        r"\bI(?:['’]ve got| have| got)\s+(?:an?|my|another)\s+(?:\w+\s+){0,3}" + _EVENT + r"\b",
        alone=True,
    ),
    *_cues(
        "fact",
        rf"^(?=.*\bmy\b)(?=.*{_SPECIFIC})",
        rf"^(?=.*\b(?:I|we|our)\b)(?=.*{_SPECIFIC})",
        unless=_PASSING,
        alone=True,
    ),
)


# --- what a sentence without such words is worth ----------------------------------------------------------

WEAK: Final = ("state", "detail", "plan", "event", "fact")
"""Kinds whose words do not tell what lasts: the worth of the whole sentence decides."""
LIMIT: Final = 1.0  # From this worth on a sentence is saved
BESIDE: Final = 0.0  # From this worth on a sentence is added to another one about the same, or a cue counts
WORTH: Final = Path(__file__).with_name("worth.toml")


@cache
def load_weights() -> dict[str, float]:
    """How much each trait of a sentence says."""
    return msgspec.toml.decode(WORTH.read_bytes(), type=dict[str, float])


_NAME: Final = re.compile(r"(?<=[a-z,;:] )[A-Z][a-z]{2,}")
_NUMBER: Final = re.compile(r"\d[\d,.:-]*")
_QUOTED: Final = re.compile(r"[“\"‘`][^”\"’`]{3,}[”\"’`]|\*\*")
_LABEL: Final = re.compile(r"[-*\d.) ]*\*{0,2}[A-Z][\w/&' -]{2,40}:\*{0,2}\s")
_TIME: Final = (
    r"\d{4}-\d\d-\d\d|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day|\b\d{1,2}(?::\d\d)? ?[ap]m\b"
    r"|\btomorrow\b|\bnext week\b"
)
_CHOICE: Final = re.compile(
    r"\b(?:decided|confirm(?:ed|ing)?|(?:go|going|went) (?:with|ahead)|stick(?:ing)? (?:with|to)|choose"
    r"|chose|chosen|finali[sz]\w+|lock(?:ed)? (?:in|down)|settled?|agreed|proceed(?:ing)? with|approved?"
    r"|select(?:ed)?|prioriti[sz]e\w*|picked?|opt(?:ed|ing)? for|switch(?:ed|ing)? to|keep(?:ing)?"
    r"|focus(?:ing)? on|schedul\w+|book(?:ed)?|let['’]s)\b",
    re.IGNORECASE,
)
_REACTION: Final = re.compile(
    r"\b(?:sounds?|looks?|feels?|seems?|makes sense|appealing|perfect|great|helpful|nice|awesome|amazing"
    r"|fantastic|wonderful|glad|happy|excited|thanks?|worried|nervous|relie[fv]\w*|smart"
    r"|good (?:idea|point|call|thing)|exactly what|understand\w*|confus\w*|awkward|tired|drain\w*"
    r"|exhaust\w*|stuck|crazy|overwhelm\w*|not sure|eager|terrified|struggl\w+|felt|noticed)\b",
    re.IGNORECASE,
)
_FELT: Final = (
    r"\b(?:stress\w*|worr\w+|anxi\w+|frustrat\w*|annoy\w*|scared|afraid|sad|angry|guilty|proud|hope"
    r"|hopefully|pressure|feel\w*|good|excellent|brilliant|love|exactly|better|best|interesting|cool|clear"
    r"|useful)\b"
)
_MOMENT: Final = re.compile(
    r"\b(?:right now|at the moment|just now|this (?:morning|afternoon"
    r"|evening)|for now|so far|already there|on my way|almost|about to|in a (?:minute|second|moment))\b"
    r"|\b(?:is|are|am|['’]s|['’]m|was|were)\s+(?:now |all |fully |still |just )*(?:charg\w+|ready|done|open"
    r"|closed|running|late|full|empty|off|broken|down|up|dead|asleep|awake|hungry|busy|free|here|back|home"
    r"|plugged in|loading|waiting|gone|missing|finished|working(?! (?:as|at|for|in|on|with)\b))\s*[.!]*$",
    re.IGNORECASE,
)
"""A state that has passed by the next session."""
_TODAY: Final = re.compile(r"\b(?:currently|today|tonight|yesterday)\b", re.IGNORECASE)
_STEP: Final = re.compile(
    r"\b(?:I|we)(?:['’]ve| have|['’]ll| will)?(?: just| then| also| now| first| next)*\s+(?:opened|open"
    r"|clicked?|pressed|restarted|typed|pasted|copied|scrolled|refreshed|logged (?:in|out)|tried|tested"
    r"|checked|looked|ran|re-?ran|hit|selected|saved|closed|reloaded|rebooted|installed)\b"
    r"|^(?:first|then|next|after that|second|third|finally)\b,?\s+(?:I|we)\b",
    re.IGNORECASE,
)
_WORK: Final = (
    r"(?:conduct|figure out|find|write|create|make|give|show|tell|explain|list|generate|draft|summari[sz]e"
    r"|analy[sz]e|compare|describe|provide|act as|translate|rewrite|revise|suggest|recommend|design|develop"
    r"|build|calculate|solve|answer|convert|come up|pretend|imagine|assume|refactor|rename|implement"
    r"|paraphrase|proofread|fix|improve|edit|expand|shorten|simulate|organi[sz]e|format|name)\b"
)
_ORDERED: Final = re.compile(
    r"(?:^|[.!?\n]\s*|\b(?:can|could|would|will) you (?:please )?|\bplease "
    rf"|\b(?:I|we)(?:['’]d| would)? (?:want|need|like) (?:you to|an?) ){_WORK}",
    re.IGNORECASE,
)
_END: Final = 300  # Characters of a reply in which a question is put to the user
_SET_OFF: Final = re.compile(r"\*\*(.+?)\*\*|[\"“‘'](\w[^\"”’'\n]{2,60})[\"”’']")
_NOTED: Final = re.compile(
    r"\W*(?:got it|understood|great|perfect|excellent|thank|that['’]s|okay|you['’]re|I understand|fantastic"
    r"|wonderful|absolutely|noted|certainly|of course|sounds)",
    re.IGNORECASE,
)
"""A reply that begins so takes note of what was said."""
_SELF: Final = re.compile(r"\b(?:I|my|me)\b")
_TRAITS: Final = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "my": r"\b(?:my|our)\b",
        "dates": _TIME,
        "units": r"\d\s?(?:%|kg|km|lbs|g|am|pm|hours?|minutes?|mins?|days?|weeks?|months?|years?|yen|jpy"
        r"|usd|dollars?|k)\b|[$€£¥]\s?\d",
        "people": rf"\b{_PEOPLE}\b",
        "duty": r"\b(?:must|has to|have to|should|needs? to|always|never|only|every|cannot|can['’]t)\b",
        "past": r"\b(?:\w{3,}ed|was|were|had|went|got|did|took|made|found|felt|wrote|bought|ran)\b",
        "moment": r"\b(?:today|tonight|now|currently|yesterday|this (?:week|morning|evening)|recently"
        r"|lately)\b",
        "points": r"\b(?:this|that|it|those|these|them|one)\b",
        "asks": r"\b(?:help|show|tell|give|explain|suggest|walk me|guide|find|look into|check|see)\b",
        "turns": r"\b(?:but|however|though)\b",
        "reaction": rf"{_REACTION.pattern}|{_FELT}",
    }.items()
}
_PLAIN: Final = re.compile(r"(?:I|my|we|our)\b[^,;–—]*$", re.IGNORECASE)
_PLAIN_WORDS: Final = 12


class TakenUp(msgspec.Struct, frozen=True):
    """What a reply of the assistant is about."""

    terms: frozenset[str]
    sentences: tuple[frozenset[str], ...]
    set_off: frozenset[str]  # Of what stands in bold or in quotation marks: names, options, values


@lru_cache(maxsize=4)  # Each sentence of a message asks for the replies before and after it
def _read_reply(text: str) -> TakenUp:
    sentences = tuple(frozenset(find_terms(one)) for one in split_sentences(text))
    marked = " . ".join(bold or quoted for bold, quoted in _SET_OFF.findall(text))
    return TakenUp(frozenset().union(*sentences), sentences, frozenset(find_terms(marked)))


@lru_cache(maxsize=4)  # Asked for each sentence of a message, and of its conversation's opening
def _has_order(message: str) -> bool:
    return _ORDERED.search(message) is not None


@lru_cache(maxsize=2)
def _count_self(message: str) -> float:
    """How often its writer speaks of themselves, in ten words."""
    return 10 * len(_SELF.findall(message)) / (len(message.split()) + 5)


def find_traits(one: TypedSentence, kind: Kind | None) -> dict[str, float]:
    """The traits of a sentence, each with how often or how much it has it."""
    own = frozenset(find_terms(one.text))
    before, after, share = _read_reply(one.answered), _read_reply(one.reply), 1 / max(1, len(own))
    specific = _NAME.search(one.text) or _NUMBER.search(one.text) or _QUOTED.search(one.text)
    traits = {
        "base": 1.0,
        "names": min(3, len(_NAME.findall(one.text))),
        "numbers": min(2, len(_NUMBER.findall(one.text))),
        "quotes": bool(_QUOTED.search(one.text)),
        "label": bool(_LABEL.match(one.text)),
        "choice": bool(specific and _CHOICE.search(one.core)),
        "taken up": share * len(own & before.terms),
        "takes a point up": min(6, max((len(own & said) for said in before.sentences), default=0)),
        "takes a name up": share * len(own & before.set_off),
        "answers": "?" in one.answered[-_END:],
        "said again": share * len(own & after.terms),
        "said again at once": min(6, max((len(own & said) for said in after.sentences), default=0)),
        "set off again": min(4, len(own & after.set_off)),
        "acknowledged": bool(_NOTED.match(one.reply)),
        "asked on": "?" in one.reply[-_END:],
        "opens": one.message == one.opening,
        "leads": one.place == 0,
        "closes": one.place == one.last,
        "words": math.log(len(one.core.split()) or 1),
        "sentences": math.log(one.last + 1),
        "of oneself": _count_self(one.message),
        "exclaims": "!" in one.text,
        "task beside": _has_order(one.message),
        "lasting": kind is not None and kind not in WEAK,
        **{name: bool(pattern.search(one.core)) for name, pattern in _TRAITS.items()},
        **{name: name == kind for name in WEAK},
    }
    return {name: float(value) for name, value in traits.items()}


def compute_worth(one: TypedSentence, kind: Kind | None) -> float:
    """How surely a sentence of a conversation about plans will matter later."""
    weights = load_weights()
    return sum(weights[name] * value for name, value in find_traits(one, kind).items())


def is_passing(one: TypedSentence) -> bool:
    """True for a state of the moment, or a step of the work."""
    return bool(_MOMENT.search(one.core) or _STEP.search(one.core))


def is_of_today(one: TypedSentence) -> bool:
    """True if it says that it holds for the day: a cue alone does not make it last."""
    return _TODAY.search(one.core) is not None


def is_material(one: TypedSentence) -> bool:
    """True if the conversation opens with an order for a text or a program: this is what it is about."""
    return _has_order(one.opening)


def is_plain(one: TypedSentence) -> bool:
    """True for a short sentence about the speaker that stands for itself."""
    plain = _PLAIN.match(one.core) is not None and len(one.core.split()) <= _PLAIN_WORDS
    return plain and not _REACTION.search(one.core)


_VERY: Final = r"(?:更|最|比较|非常|很|特别|一直|都|还是|真的|不太|不|也|只|就)*"
_PEOPLE_ZH: Final = (
    r"(?:老婆|老公|妻子|丈夫|爱人|女朋友|男朋友|女儿|儿子|孩子|妈妈|爸爸|母亲|父亲|父母|姐姐|妹妹|哥哥|弟弟|老板|领导|团队"
    r"|公司|同事|朋友|客户|狗|猫|室友|导师)"
)
_EVENT_ZH: Final = (
    r"(?:上线|发布|截止|评审|冻结|封版|会议|开会|面试|考试|婚礼|航班|演示|交付|验收|迁移|体检|手术|搬家|答辩|比赛|出差|旅行"
    r"|假期|预约|发版|提测|培训|割接|deadline|DDL)"
)
_DATE_ZH: Final = (
    r"(?:[上下本这]*个?(?:周|星期|礼拜)[一二三四五六日天末]|[明后]天|大后天|今晚|\d{1,2}月\d{1,2}[日号]|\d{4}-\d{2}-\d{2}"
    r"|\d{1,2}[日号]|月底|年底|下个?月|下周|季度末)"
)
_HERE_ZH: Final = r"这[个次行里]|那[个次行里]|现在|先别|暂时|今天|刚才"
_cues_zh = partial(_cues, flags=0)

CHINESE_CUES: Final[tuple[MemoryCue, ...]] = (
    *_cues_zh(
        "feedback",
        r"^(?:请你?)?(?:以后|今后|从现在(?:开始|起)|从今以后|下次|每次)[^，。]{0,12}?(?:不要|别|不用|不能|要|请|先|用|都|必须|只|尽量)",
        r"^(?:请你?)?(?:不要|别)再\S+",
        r"^(?:请你?)?(?:总是|始终|永远|一律|务必|绝不|绝对不要|千万别|千万不要)\S+",
        r"^(?:请你?)?(?:都)?用\S{1,20}[，,]?\s*(?:不要|别|而不是)用?\S+",
        r"^我(?:希望|要求|想让|喜欢)你(?:以后|每次|总是|都|尽量|不要|别|用)\S+",
        unless=_HERE_ZH,
    ),
    *_cues_zh("correction", r"^(?:不要|别)(?!担心|急|客气|忘|说了)\S{2,}", unless=_HERE_ZH),
    *_cues_zh(
        "confirmation",
        r"(?:就这样|以后(?:都|就)(?:这样|这么)|保持这样|继续这样|就这么(?:做|办)|正是我(?:想)?要的(?:方式|风格|样子))",
    ),
    *_cues_zh(
        "pointer",
        r"(?:文档|看板|仪表盘|监控|面板|缺陷|bug|Bug|问题|工单|任务|设计稿|日志|规范|需求|接口文档|排期|告警|频道|群)[^，。]{0,12}"
        r"(?:在|放在|记录在|跟踪在|提到|都在|位于|记在)[^，。]{0,20}(?:https?:|[A-Z]|#|…|飞书|钉钉|语雀|企业微信|腾讯文档)",
        unless=r"^(?:看|打开|查|去|请)",
    ),
    *_cues_zh(
        "deadline",
        rf"{_EVENT_ZH}[^。]{{0,16}}(?:定在|改到|推迟到|提前到|安排在|延期到|是|在|于|为|到){_DATE_ZH}",
        rf"{_DATE_ZH}[^，。]{{0,10}}(?:前|之前|以前)?(?:要|必须|得|需要|就|开始|有)?[^，。]{{0,6}}{_EVENT_ZH}",
        rf"{_DATE_ZH}(?:前|之前|以前)(?:必须|要|得|需要)\S+",
        unless=r"每[周天月]",
    ),
    *_cues_zh(
        "decision",
        r"(?:我们?|团队|大家)(?:已经|最终|最后|一致|都|刚刚?)*(?:决定|商定|敲定|选定|约定|定下来?|说好|确定)(?!不了|不下)\S+",
        r"(?:方案|结论|决定)(?:是|为)\S+",
        unless=r"还没|没有决定|不确定|待定",
    ),
    *_cues_zh(
        "preference",
        rf"我{_VERY}(?:喜欢|偏好|偏爱|倾向于?|热爱|讨厌|反感|爱吃|爱喝|爱看|受不了|爱)(?!这|那|你|它|上)\S{{2,}}",
        r"我的?(?:最爱|爱好|偏好|口味)(?:是)?\S+",
    ),
    *_cues_zh(
        "habit", r"我(?:一般|通常|平时|习惯|总是|经常|从不|从来不|每天|每周|每晚|每个?周末|往往)\S{2,}"
    ),
    *_cues_zh(
        "role",
        r"我是(?!说|想|不是|问|觉得|指|因为|来|要|在|否|用|怕|真|认|很|有|打算|个?傻|个?笨)(?:一[个名位]|个|名|做|搞)?[^，。]{2,}",
        r"我叫\S+",
        r"我在[^，。]{1,16}(?:工作|上班|读书|上学|任职|实习|做[^，。]{1,10})",
        r"我(?:住在?|来自|负责|从事|主修|毕业于|学的是|今年\d+岁|做了?\d+年)\S*",
        r"我(?:不会|没用过|没学过|不熟悉|不太懂|刚开始学|刚接触|第一次用|新手)\S*",
        r"我对[^，。]{1,10}(?:过敏|不耐受|很熟|不熟|感兴趣)",
        r"我有(?:一|两|三|四|\d)[个只条位名]\S+",
        rf"我(?:的|家)?{_PEOPLE_ZH}(?:是|在|叫|有|喜欢|住|今年|对|要|也)\S+",
    ),
    *_cues_zh(
        "constraint",
        r"我(?:不能|没法|无法|只能|不吃|不喝|吃不了|喝不了)(?!理解|相信|确定|打开|访问|看到)\S{1,}",
    ),
    *_cues_zh(
        "state",
        r"我的?(?:体重|身高|预算|目标|年龄|生日|工资|收入|时区|专业|腰围|存款|房租|上班时间|工作时间)(?:是|为|在|大概|有|：|:)?\S+",
        alone=True,
    ),
    *_cues_zh(
        "plan",
        r"我们?(?:打算|计划|准备|决心|想要?)(?!问|知道|请|看看|让你|了解|听|确认|咨询|看)\S{2,}",
        alone=True,
    ),
    *_cues_zh(
        "event",
        r"我(?:已经|刚刚?|终于|今天|昨天)?(?:买了|订了|预订了|报名了|完成了|提交了|辞职了|搬到|通过了|下载了|开始了|参加了|预约了)\S*",
        alone=True,
    ),
)
