"""What could stand in place of what was taken away, each within the same number of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.fidelity.cases import Case
from sevenfold.core.messages import Message, Text, user, write_directive
from sevenfold.core.tokens import TEXT_RATE, count_bytes
from sevenfold.layers.l3_session_memory.notes import NotesLimits, NotesWording
from sevenfold.layers.l3_session_memory.notes_compaction import collect_removed_facts, make_notes_message
from sevenfold.layers.l4_compaction import summary
from sevenfold.layers.l4_compaction.digest import DigestForm, format_digest
from sevenfold.layers.shared.facts import Cutting, FactCollector
from sevenfold.layers.shared.fidelity import extract_user_text, find_names, iterate_strings
from sevenfold.offline.conversation import TYPED_BY, OfflineConversation
from sevenfold.offline.reply import make_reply
from sevenfold.settings.layers import NotesSettings

WHERE: Final = "~/.sevenfold/projects/a-project/20260101-120000-session.jsonl"
"""About as long as the path of a transcript is."""
NOTES: Final = "/home/me/.sevenfold/projects/a-project/session/session-memory/summary.md"
WORDING: Final = NotesWording.load(None, lambda event: None)
SET: Final = NotesSettings()
LONGEST: Final = (0, 1_000, 500, 250)
MOST_SAID: Final = 0.6
"""The most of the room that the user's words take, before long ones are cut."""
CUTTINGS: Final[tuple[Cutting, ...]] = ("none", "long", "all")


@dataclass(frozen=True)
class Contender:
    name: str
    text: Callable[[Case], str]


def budget(case: Case) -> int:
    """Bytes, as tokens are estimated from them: what the real summary takes."""
    return count_bytes(case.summary)


def within(text: str, most: int) -> str:
    """No more than the budget, whoever wrote it."""
    if count_bytes(text) <= most:
        return text
    return text.encode("utf-8")[:most].decode("utf-8", "ignore")


def real_summary(case: Case) -> str:
    return case.summary


def digest(case: Case) -> str:
    """As the last rung of the ladder writes it, without a tail: the real compactions kept none."""
    collector = FactCollector()
    for placed in case.removed:
        collector.take(placed)
    room = budget(case)
    for cutting in CUTTINGS:
        form = DigestForm(room=room, facts=room, path=WHERE, tail=False, last_whole=True, cutting=cutting)
        if text := format_digest(collector.facts, form):
            return text
    return ""


# --- the offline engine ---------------------------------------------------------------------------------


def notes(case: Case) -> str:
    """Notes that the offline engine takes, as they are paid out: all limits shrink alike until it fits."""
    low, high = 0.0, 1.0
    best = ""
    for _ in range(8):
        scale = (low + high) / 2
        text = _paid_out(case, scale)
        if count_bytes(text) <= budget(case):
            low, best = scale, text
        else:
            high = scale
    return best


def _paid_out(case: Case, scale: float) -> str:
    limits = NotesLimits(max(1, int(SET.section_tokens * scale)), max(1, int(SET.total_tokens * scale)))
    form = WORDING.form
    asked = WORDING.asking(form.template, Path(NOTES), limits, edits=False)
    noted = WORDING.told(form.template, offline(case, "notes", asked))
    gone = collect_removed_facts(case.removed, {}, started=True)
    bodies = form.cut_to(noted, limits)
    room = int(SET.user_words * scale)
    told = make_notes_message(form.shown(bodies), gone, Path(WHERE), room, asking=True).text
    return "\n".join((told, *(one.text for one in gone.said[-1:])))  # what was said last stands behind it


def summarised(case: Case) -> str:
    """A summary by the offline engine, with the user's words as the compaction puts them in."""
    said = [text for placed in case.removed if (text := extract_user_text(placed))]
    for longest in LONGEST:
        form = summary.SummaryForm(WHERE, tail=False, longest=longest)
        around = count_bytes(summary.format_summary(summary.SummarySections(), said, form))
        if around <= budget(case) * MOST_SAID:
            break
    asked = summary.format_directive("Summarise all of the conversation above.")
    room, text = budget(case), ""
    while room > 0:
        reply = offline(case, summary.KIND, asked, int(room * TEXT_RATE))
        text = summary.format_summary(summary.parse_summary(reply), said, form)
        if count_bytes(text) <= budget(case):
            break
        room -= max(100, count_bytes(text) - budget(case))
    return text


def offline(case: Case, kind: str, asked: str, room: int = 0) -> str:
    """What the offline engine says to a directive at the end of the conversation, in words."""
    added = (n for n, p in enumerate(case.removed) if p.message.role == "user" and p.by not in TYPED_BY)
    said = [placed.message for placed in case.removed]
    return offline_reply(said, kind, asked, frozenset(added), room)


def offline_reply(
    said: Iterable[Message], kind: str, asked: str, added: frozenset[int] = frozenset(), room: int = 0
) -> str:
    """The same for any messages; `added`: the places of those that no person typed."""
    directive = user(write_directive(kind, "b-1", asked))
    talk = OfflineConversation((*said, directive), added=added, room=room)
    return "".join(block.text for block in make_reply(talk) if isinstance(block, Text))


def rarest_names(case: Case) -> str:
    """A list of the names that stand in the fewest messages, the newest first among equals."""
    newest_first = list(_names(case).items())[::-1]
    return _listed(sorted(newest_first, key=lambda item: item[1]), budget(case))


def commonest_names(case: Case) -> str:
    return _listed(_names(case).most_common(), budget(case))


def _names(case: Case) -> Counter[str]:
    names: Counter[str] = Counter()
    for placed in case.removed:
        message = placed.message
        texts = [message.text, *(result.text for result in message.results)]
        texts += [text for use in message.tool_uses for text in iterate_strings(use.input)]
        names.update(sorted(find_names("\n".join(texts))))
    return names


def _listed(names: Iterable[tuple[str, int]], most: int) -> str:
    out: list[str] = []
    for name, _ in names:
        most -= count_bytes(name) + 1
        if most < 0:
            break
        out.append(name)
    return " ".join(out)


CONTENDERS: Final = (
    Contender("real summary", real_summary),
    Contender("our notes", notes),
    Contender("our summary", summarised),
    Contender("digest", digest),
    Contender("rarest names", rarest_names),
    Contender("commonest names", commonest_names),
)
