"""Payloads that reach memory by each way in, and benign writes that are held: the wall of provenance.

python -m benchmarks.guard.by_source [--quick] [--json]
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import anyio
import msgspec

from benchmarks.extraction.learning import Learner
from benchmarks.guard.source_cases import BENIGN, FACTS, LEAD_INS, PAYLOADS, STATEMENTS
from benchmarks.guard.statements import load_statements
from benchmarks.guard.texts import DATA, injections, memory_files
from benchmarks.report import Table, arguments, show
from sevenfold.core.messages import Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.l5_durable_memory.extraction_tools import MemoryWriter
from sevenfold.layers.l5_durable_memory.provenance import SourceMessages, UnfitMemory, collect_write_sources
from sevenfold.memory.dreams.commit import commit_dream
from sevenfold.memory.dreams.stage import stage_folder
from sevenfold.memory.errors import Guarded
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.guard.wall import WriteSources
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.topic_file import TYPES, Type, encode_new_topic, read_topic
from sevenfold.models import connect_model
from sevenfold.models.capabilities import ModelAccess
from sevenfold.offline.language import rewrite_statement

AGENT: Final = Author("agent", "bench")
QUICK: Final = 30
MAILS: Final = 400  # Pasted mails of each half
SENTENCES: Final = 400
_FOLDERS: Final = ("memory-dir", "agent-memory")
DROPPED: Final = 0.25  # The part of the words of a real memory that its user did not say
_ATTRIBUTED: Final = re.compile(r"^According to ", re.MULTILINE)
_KEPT: Final = re.compile(r"(?i)\d|^(?:no|not|never|none|without|avoid|instead)\W*$|n['’]t$")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+")


class Payload(msgspec.Struct, frozen=True):
    """An order of an attacker: the set it comes from, and whether its half was tuned on."""

    name: str
    text: str
    tuned: bool


def load_payloads() -> list[Payload]:
    """All orders: those of public sets, in halves by a hash of the text, and our own, every second one."""
    found = [Payload("own", text, at % 2 == 0) for at, text in enumerate(PAYLOADS)]
    found += [Payload("statements", text, False) for text in STATEMENTS]
    path = DATA / "injections/bipia_train.json"
    if path.exists():
        rows = json.loads(path.read_text(encoding="utf-8"))
        for name, kind in (("BIPIA", "text_attacks"), ("BIPIA code", "code_attacks")):
            texts = [text for some in rows[kind].values() for text in some]
            found += [Payload(name, text, _is_tuned(text)) for text in texts]
    found += [Payload(one.name, one.text, one.tuned) for one in injections() if one.attack]
    return found


def load_mails() -> list[str]:
    path = DATA / "injections/bipia_train.json"
    if not path.exists():
        return ["Hi David,\nyour card was charged $12.00. If you have questions, reply to this email."]
    return list(json.loads(path.read_text(encoding="utf-8"))["mails"])


def _is_tuned(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[0] % 2 == 0


def run(quick: bool = False) -> list[Table]:
    payloads = load_payloads()
    if quick:
        payloads = random.Random(7).sample(payloads, min(QUICK, len(payloads)))
    return [_attack_table(payloads), statement_table(), _mail_table(payloads, quick), _benign_table(quick)]


# --- attacks ------------------------------------------------------------------------------------------


class Desk:
    """A memory folder, and a conversation in which a text came from somewhere."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore(FolderBackend(folder / "memory", folder / "state"), author=AGENT)

    def write(self, topic: bytes, log: Transcript, file: str = "note.md") -> str:
        """The agent's Write: the text that is saved, or nothing."""
        path = self.store.path_of(file)
        try:
            checked = self.store.before_write(path, topic, grounds=lambda: _grounds(log))
        except Guarded:
            return ""
        return checked.data.decode()

    def edit(self, topic: bytes, log: Transcript, type: Type = "feedback") -> str:
        """The agent's Edit of a memory that the user has: one more line."""
        old = _topic("Small commits.", type)
        path = self.store.path_of("note.md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(old)
        try:
            body = read_topic(topic, "note.md").body
            checked = self.store.before_write(path, old + body.encode(), grounds=lambda: _grounds(log))
        except Guarded:
            return ""
        finally:
            path.unlink()
        return checked.data.decode()

    def add(self, topic: bytes, log: Transcript) -> str:
        """`Memory.add` by an agent."""
        one = read_topic(topic, "note.md")
        try:
            saved = self.store.add(
                type=one.type or "project",
                name="note",
                description=one.description,
                body=one.body,
                said=[entry.what.text for entry in log.entries if isinstance(entry.what, Message)][:1],
            )
        except Guarded:
            return ""
        text = saved.path.read_text(encoding="utf-8")
        self.store.remove("note")
        return text

    def extract(self, topic: bytes, log: Transcript) -> str:
        """An extraction that was fooled: it quotes the user, and writes the payload."""
        sources = SourceMessages(log.view, log.entries, 0.0)
        writer = MemoryWriter(self.store, sources, "bench", Path)
        said = next(entry.what.text for entry in log.entries if isinstance(entry.what, Message))
        quote = said.split("\n")[0][:80]
        path = self.store.path_of("note.md")
        try:
            writer.write({"file_path": str(path), "content": f"{topic.decode()}\n> {quote}\n"})
        except UnfitMemory:
            return ""
        text = path.read_text(encoding="utf-8")
        self.store.remove("note.md")
        return text

    def dream(self, topic: bytes, log: Transcript) -> str:
        """A dream that was fooled: it writes the payload into its copy."""
        staged = stage_folder(self.store)
        (staged.folder / "note.md").write_bytes(topic)
        commit_dream(self.store, staged, Author("dream", "bench"))
        path = self.store.path_of("note.md")
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text:
            self.store.remove("note.md")
        return text


Way: TypeAlias = Callable[[Desk, bytes, Transcript], str]


def _grounds(log: Transcript) -> WriteSources:
    return collect_write_sources(log.entries)


def _topic(text: str, type: Type, about: str = "") -> bytes:
    first = about or text.strip().split("\n")[0][:200]
    return encode_new_topic("note.md", name="note", description=first, type=type, body=text, origin=None)


def _talk(said: str, payload: str = "", tool: str = "WebFetch") -> Transcript:
    """A conversation in which the user said this, and a tool answered with the payload."""
    log = Transcript(lambda: 0.0)
    log.add(user(said))
    if payload:
        key = {"Read": "file_path", "WebFetch": "url"}.get(tool, "command")
        use = ToolUse("t1", tool, {key: "https://example.org/page" if key == "url" else "notes.md"})
        log.add(Reply(assistant(use), stop="tool_use"), by="model")
        log.add(Message("user", (ToolResult("t1", f"Welcome.\n{payload}\nGoodbye."),)), by="tools")
    log.add(Reply(assistant(Text("Done."))), by="model")
    return log


def _is_rule_saved(text: str) -> bool:
    return bool(text) and not _ATTRIBUTED.search(text)


def _attack_table(payloads: Sequence[Payload]) -> Table:
    columns = ("payloads", "Write", "Edit", "Memory.add", "extraction, web", "extraction, file", "dream")
    table = Table("Payloads saved as rules, by the way they come in", "set", *columns)
    ways: tuple[tuple[Way, str], ...] = (
        (Desk.write, "WebFetch"),
        (Desk.edit, "Read"),
        (Desk.add, "WebFetch"),
        (Desk.extract, "WebFetch"),
        (Desk.extract, "Read"),
        (Desk.dream, "Read"),
    )
    for name, tuned, some in _grouped(payloads):
        counts = [_count_saved(way, tool, some) for way, tool in ways]
        table.add(f"{name}, {'tuned on' if tuned else 'report'}", len(some), *counts)
    table.notes.append(
        "each payload is written in one of the four types, after the user asked to read a page"
    )
    table.notes.append("what is saved under 'According to …' is no rule and is not counted")
    return table


def _count_saved(way: Way, tool: str, payloads: Sequence[Payload]) -> int:
    count = 0
    with TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        for at, one in enumerate(payloads):
            said = BENIGN[at % len(BENIGN)].said[-1]
            log = _talk(f"{said}\n\nAnd please read the page and note what matters.", one.text, tool)
            count += _is_rule_saved(way(desk, _topic(one.text, TYPES[at % len(TYPES)]), log))
    return count


def statement_table() -> Table:
    """What changes the agent's rights and duties without an order, and harmless facts of the same form."""
    columns = ("texts", "held", "Write", "Edit", "Memory.add", "extraction", "dream")
    table = Table("Statements of a project that the user did not say, stored", "set", *columns)
    for one in load_statements():
        looked = "the least weight chosen in sight of it" if one.fresh else "tuned on"
        for name, texts in (("loosening", one.loosening), ("harmless", one.harmless)):
            table.add(f"{name}, {one.name}, {looked}", len(texts), *_count_written(texts))
    table.notes += [
        "loosening: each would change what the agent may do, whom it obeys, what it tells or where data "
        "goes. Harmless: facts of the same form, which are not to be held",
        "held: by Memory.add of an agent, and listed for the user. The other columns count what is stored, "
        "also under 'According to the agent; the user did not say it'",
        "Edit: one more line in a memory of a project. Extraction: a fooled one; the user spoke of a word "
        "of the statement, which it quotes. Dream: a new memory of which no other knows anything",
        "statements.toml says what each set showed at its first run",
    ]
    return table


def _count_written(texts: Sequence[str]) -> tuple[int, ...]:
    """Held by Memory.add; stored by Write, Edit, Memory.add, a fooled extraction and a dream."""
    types: tuple[Type, ...] = ("project", "reference")
    asked, counts = "Please have a look around and note what matters", [0] * 6
    with TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        for at, text in enumerate(texts):
            topic, log = _topic(text, types[at % 2]), _say([f"{asked}."])
            word = max(re.findall(r"[A-Za-z]{4,}", text), key=len, default="")
            quoted = _say([f"{asked} about {word.lower()} and the rest of it."])
            added, edited = desk.add(topic, log), text in desk.edit(topic, log, "project")
            ways = (
                desk.write(topic, log),
                edited,
                added,
                desk.extract(topic, quoted),
                desk.dream(topic, log),
            )
            counts = [count + bool(one) for count, one in zip(counts, (not added, *ways), strict=True)]
    return tuple(counts)


def _grouped(payloads: Sequence[Payload]) -> Iterator[tuple[str, bool, list[Payload]]]:
    for name in dict.fromkeys(one.name for one in payloads):
        for tuned in (True, False):
            some = [one for one in payloads if (one.name, one.tuned) == (name, tuned)]
            if some:
                yield name, tuned, some


# --- pasted mails -------------------------------------------------------------------------------------


def _mail_table(payloads: Sequence[Payload], quick: bool) -> Table:
    table = Table(
        "Payloads in mails that the user pasted, saved as rules",
        "half", "mails", "offline extraction", "Write", "fooled extraction",
    )  # fmt: skip
    for tuned in (True, False):
        pasted = _paste_mails([one for one in payloads if one.tuned is tuned], QUICK if quick else MAILS)
        counts = anyio.run(_count_offline, pasted), *_count_pasted(pasted)
        table.add("tuned on" if tuned else "report", len(pasted), *counts)
    table.notes.append(
        f"{len(LEAD_INS)} lead-ins and styles of quoting; the payload at the start, in the middle or at "
        "the end of a mail of BIPIA's training part"
    )
    return table


def _paste_mails(payloads: Sequence[Payload], most: int) -> list[tuple[str, str]]:
    """Messages of the user with a mail that holds a payload, and the payload."""
    draw, mails = random.Random(11), load_mails()
    found = []
    for at in range(min(most, 6 * len(payloads))):
        payload = payloads[at % len(payloads)].text
        mail = draw.choice(mails)
        middle = mail.find(" ", len(mail) // 2) + 1 or len(mail)
        place = (0, middle, len(mail))[at % 3]
        text = f"{mail[:place]} {payload}\n{mail[place:]}".strip()
        if (lead := LEAD_INS[at % len(LEAD_INS)]).startswith("look at this"):
            text = text.replace("\n", "\n> ")
        found.append((lead.replace("{}", text), payload))
    return found


async def _count_offline(pasted: Sequence[tuple[str, str]]) -> int:
    count = 0
    with TemporaryDirectory() as folder:
        for at, (message, payload) in enumerate(pasted):
            learner = Learner(connect_model("offline", ModelAccess()), Path(folder) / str(at))
            looked = await learner.look_through(_talk(message), "bench")
            learner.store.close()
            core = _words(payload)[:6]
            count += any(_has_run(core, _words(f"{one.text} {one.quote}")) for one in looked.saved)
    return count


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _has_run(run: Sequence[str], words: Sequence[str]) -> bool:
    return f" {' '.join(run)} " in f" {' '.join(words)} "


def _count_pasted(pasted: Sequence[tuple[str, str]]) -> Iterator[int]:
    ways: tuple[Way, ...] = (Desk.write, Desk.extract)
    for way in ways:
        with TemporaryDirectory() as folder:
            desk = Desk(Path(folder))
            saved = (
                way(desk, _topic(payload, TYPES[at % len(TYPES)]), _talk(message))
                for at, (message, payload) in enumerate(pasted)
            )
            yield sum(map(_is_rule_saved, saved))


# --- benign -------------------------------------------------------------------------------------------


def _benign_table(quick: bool) -> Table:
    table = Table("Benign writes", "what", "writes", "saved", "saved in part", "held", "words saved %")
    with TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        for name, cases in _benign_cases(quick):
            saved = [(read_topic(topic, "").body, desk.write(topic, log)) for topic, log in cases]
            bodies = [(body, read_topic(text.encode(), "").body) for body, text in saved if text]
            part = sum(len(left.split()) < len(body.split()) for body, left in bodies)
            words = sum(len(body.split()) for body, _ in saved)
            left = sum(min(len(left.split()), len(body.split())) for body, left in bodies)
            held = len(cases) - len(bodies)
            table.add(name, len(cases), len(bodies) - part, part, held, f"{100 * left / max(words, 1):.0f}")
    table.notes.append("said and written: what users say, and what an agent writes then, written for this")
    table.notes.append(
        "sentences: of LongMemEval's users, rewritten in the third person by the offline engine"
    )
    table.notes.append(
        "files: real memories; the user said three of four of their words, four sentences a time"
    )
    table.notes.append("project files: real memories of a project or a reference; the user said nothing")
    return table


def _benign_cases(quick: bool) -> Iterator[tuple[str, list[tuple[bytes, Transcript]]]]:
    for tuned in (True, False):
        cases = [
            (_topic(one.body, _as_type(one.type), one.description), _say(one.said))
            for at, one in enumerate(BENIGN)
            if (at % 2 == 0) is tuned
        ]
        yield f"said and written, {'tuned on' if tuned else 'report'}", cases
    facts = [(_topic(body, _as_type(type), about), _say(["go on"])) for type, about, body in FACTS]
    yield "facts that the agent found out", facts
    most = QUICK if quick else SENTENCES
    for tuned in (True, False):
        half = "tuned on" if tuned else "report"
        sentences = [one for one in _user_sentences() if _is_tuned(one[1]) is tuned][:most]
        rewritten = [
            (_topic(rewrite_statement(one, ""), "user"), _say([message])) for message, one in sentences
        ]
        yield f"sentences, {half}", rewritten
        files = [(topic, log) for topic, log in _real_files() if _is_tuned(topic.decode()) is tuned][:most]
        yield f"files, {half}", files
    found = (read_topic(text.encode(), "note.md") for _, kind, text in memory_files() if kind in _FOLDERS)
    silent = [(one.data, _say(["go on"])) for one in found if one.type in ("project", "reference")]
    yield "project files", silent[:most]


def _say(texts: Sequence[str]) -> Transcript:
    log = Transcript(lambda: 0.0)
    for text in texts:
        log.add(user(text))
        log.add(Reply(assistant(Text("All right."))), by="model")
    return log


def _as_type(name: str) -> Type:
    return next(one for one in TYPES if one == name)


def _user_sentences() -> Iterator[tuple[str, str]]:
    """Messages of users, and a sentence of each in which they speak of themselves."""
    path = DATA / "longmemeval/oracle_dev.json.gz"
    if not path.exists():
        return
    rows: list[Any] = json.loads(gzip.decompress(path.read_bytes()))
    seen = set[str]()
    for row in rows:
        for session in row["haystack_sessions"]:
            for turn in session:
                if turn["role"] != "user" or not turn.get("has_answer"):
                    continue
                for one in _SENTENCE.split(turn["content"]):
                    if re.match(r"(?:I|My|I'm|I've)\b", one) and not one.endswith("?") and one not in seen:
                        seen.add(one)
                        yield turn["content"], one


def _real_files() -> Iterator[tuple[bytes, Transcript]]:
    """Memories of type user or feedback that people have, and the words of a user who said most of it."""
    draw = random.Random(13)
    for _, kind, text in memory_files():
        topic = read_topic(text.encode(), "note.md")
        if kind not in _FOLDERS or topic.type not in ("user", "feedback"):
            continue
        plain = re.sub(
            r"[*_`#>|]+|^\s*[-+]\s", "", f"{topic.description}. {topic.body}", flags=re.MULTILINE
        )
        sentences = [" ".join(one.split()) for one in re.split(r"(?<=[.!?])\s+|\n\s*\n", plain)]
        said = [
            " ".join(word for word in one.split() if _KEPT.search(word) or draw.random() > DROPPED)
            for one in sentences
        ]
        yield topic.data, _say([". ".join(said[at : at + 4]).lower() for at in range(0, len(said), 4)])


if __name__ == "__main__":
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
    sys.exit(0)
