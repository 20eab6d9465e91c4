"""Folders of memories and questions about them, from public conversations and from real memory files."""

from __future__ import annotations

import gzip
import json
import random
import re
import tomllib
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.layers.l5_durable_memory.recall import extract_asked_text, has_substance
from sevenfold.memory.topic_file import read_topic

HERE: Final = Path(__file__).parent
DATA: Final = HERE.parents[1] / "../shared/data"
TUNED_TALKS: Final = (0, 1, 2)  # Conversations of LoCoMo on which something was chosen
TUNED_PEOPLE: Final = (0, 1)  # The same of RealMem
HAYSTACK: Final = 48
"""Sessions in a haystack that is put together here, as many as the benchmark's own have."""
SMALL_TALK: Final = tuple((HERE / "small_talk.txt").read_text(encoding="utf-8").splitlines())
CODING: Final = tuple((HERE / "coding.txt").read_text(encoding="utf-8").splitlines())


class Question(msgspec.Struct, frozen=True):
    """A question to a folder, and the files that answer it (none: it is about something else)."""

    folder: int
    text: str
    gold: tuple[str, ...] = ()
    tuned: bool = False
    """In the half on which the scoring was chosen."""
    own: bool = True
    """The folder's own haystack, not one put together here."""


class Set(msgspec.Struct, frozen=True):
    """Folders (file to text) and questions."""

    name: str
    folders: list[Mapping[str, str]]
    questions: list[Question]


def longmemeval(count: int | None = None) -> Set:
    """Sessions as the benchmark gives them; questions without evidence are left out, as it does.

    80 questions come with their haystack; the others get their evidence sessions among sessions of those
    haystacks that are nobody's evidence.
    """
    full = _read("longmemeval/s_dev80.json.gz")
    theirs = [(item, _sessions(item)) for item in full]
    known = {item["question_id"] for item in full}
    spare = {
        name: text
        for item, sessions in theirs
        for name, text in sessions.items()
        if not name.startswith("answer") and name not in item["answer_session_ids"]
    }
    rest = [q for q in _read("longmemeval/oracle_dev.json.gz") if q["question_id"] not in known]
    made = [(item, _among(_sessions(item), spare, item["question_id"])) for item in rest]
    chosen = [pair for pair in (*theirs, *made) if "_abs" not in pair[0]["question_id"]][:count]
    questions = [
        Question(
            at,
            item["question"],
            tuple(name for name in item["answer_session_ids"] if name in sessions),
            _tuned(item["question_id"]),
            item["question_id"] in known,
        )
        for at, (item, sessions) in enumerate(chosen)
    ]
    return Set("LongMemEval", [sessions for _, sessions in chosen], questions)


def _sessions(item: dict[str, Any]) -> dict[str, str]:
    pairs = zip(item["haystack_session_ids"], item["haystack_sessions"], strict=True)
    return {name: _conversation(turns) for name, turns in pairs}


def _conversation(turns: Sequence[Mapping[str, str]]) -> str:
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)


def _among(evidence: dict[str, str], spare: Mapping[str, str], seed: str) -> dict[str, str]:
    chance = random.Random(seed)
    others = chance.sample(sorted(spare), HAYSTACK - len(evidence))
    names = [*evidence, *others]
    chance.shuffle(names)
    return {name: evidence.get(name) or spare[name] for name in names}


def locomo(*, turns: bool = False, count: int | None = None) -> Set:
    """Each session, or each turn, is a memory; a question without evidence that exists is left out."""
    folders: list[Mapping[str, str]] = []
    questions: list[Question] = []
    talks = json.loads((DATA / "locomo/locomo_dev.json").read_text(encoding="utf-8"))
    for at, talk in enumerate(talks):
        folder = _turns(talk["conversation"]) if turns else _talks(talk["conversation"])
        folders.append(folder)
        for item in talk["qa"]:
            said = " ".join(item["evidence"]).replace(";", " ").split()
            names = dict.fromkeys(one if turns else one.split(":")[0] for one in said)
            if gold := tuple(name for name in names if name in folder):
                questions.append(Question(at, item["question"], gold, at in TUNED_TALKS))
    name = "LoCoMo, turns" if turns else "LoCoMo, sessions"
    return Set(name, folders, questions[:: max(1, len(questions) // count)] if count else questions)


def _spoken(turn: Mapping[str, str]) -> str:
    picture = f" [shares {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    return f"{turn['speaker']}: {turn['text']}{picture}"


def _numbers(talk: Mapping[str, Any]) -> list[str]:
    return [key.split("_")[1] for key in talk if re.fullmatch(r"session_\d+", key)]


def _talks(talk: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"D{n}": "\n\n".join([f"# {talk[f'session_{n}_date_time']}", *map(_spoken, talk[f"session_{n}"])])
        for n in _numbers(talk)
    }


def _turns(talk: Mapping[str, Any]) -> dict[str, str]:
    return {turn["dia_id"]: _spoken(turn) for n in _numbers(talk) for turn in talk[f"session_{n}"]}


def realmem(count: int | None = None) -> Set:
    """Dated sessions of four people with an assistant.

    The turns that are questions are left out of the stored sessions; what answers one is a session that
    its reply used.
    """
    folders: list[Mapping[str, str]] = []
    questions: list[Question] = []
    for at, path in enumerate(sorted((DATA / "realmem").glob("*.json.gz"))):
        sessions = _read(f"realmem/{path.name}")["dialogues"]
        folders.append({one["session_uuid"]: _dated(one) for one in sessions})
        for one in sessions:
            for turn, reply in pairwise(one["dialogue_turns"]):
                used = dict.fromkeys(reply.get("memory_session_uuids") or ())
                gold = tuple(name for name in used if name in folders[at])
                if turn.get("is_query") and gold:
                    questions.append(Question(at, turn["content"], gold, at in TUNED_PEOPLE))
    return Set("RealMem", folders, questions[:: max(1, len(questions) // count)] if count else questions)


def _dated(session: dict[str, Any]) -> str:
    turns = [turn for turn in session["dialogue_turns"] if not turn.get("is_query")]
    said = [{"role": turn["speaker"], "content": turn["content"]} for turn in turns]
    return f"# {session['current_time']}\n\n{_conversation(said)}"


def memory_files() -> Set:
    """Real topic files of three repositories, and questions of our own that avoid their words."""
    folders = _repositories()
    asked = tomllib.loads((HERE / "paraphrases.toml").read_text(encoding="utf-8"))
    names = [repository for repository in asked if repository in folders]
    questions = [
        Question(at, text, tuple(path for path in folders[name] if path.endswith(f"/{gold}")), _tuned(text))
        for at, name in enumerate(names)
        for text, gold in asked[name].items()
    ]
    kept = [question for question in questions if question.gold]
    return Set("memory files, paraphrased", [folders[name] for name in names], kept)


def descriptions() -> Set:
    """The same files without their descriptions, which are the questions: prompts about the project."""
    folders: list[Mapping[str, str]] = []
    questions: list[Question] = []
    for at, files in enumerate(_repositories().values()):
        folders.append({path: re.sub(r"(?m)^description:.*$", "", t, count=1) for path, t in files.items()})
        for path, text in files.items():
            if about := read_topic(text.encode(), path).description:
                questions.append(Question(at, about, (path,), _tuned(path)))
    return Set("memory files, described", folders, questions)


def coding_prompts() -> list[tuple[str, bool]]:
    """What people typed in real coding sessions, longer than one word, and the half of their session."""
    found: dict[str, bool] = {}
    for path in sorted([*DATA.glob("sessions/*.jsonl.gz"), *DATA.glob("sessions_2/*/*.jsonl.gz")]):
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    entry = json.loads(line)
                except ValueError:  # some lines of real sessions are damaged
                    continue
                if (text := _typed(entry)) and has_substance(text):
                    found.setdefault(extract_asked_text(text), _tuned(path.name))
    return list(found.items())


def _typed(entry: dict[str, Any]) -> str:
    """The words of a person; empty for results, commands and what a program said."""
    if entry.get("type") != "user" or any(
        entry.get(k) for k in ("isMeta", "isSidechain", "isCompactSummary")
    ):
        return ""
    content = entry["message"]["content"]
    if isinstance(content, list):
        if any(block.get("type") == "tool_result" for block in content):
            return ""
        content = "\n".join(block.get("text", "") for block in content if block.get("type") == "text")
    text = str(content).strip()
    return "" if text.startswith(("<", "[Request interrupted", "This session is being continued")) else text


def coding(targets: Sequence[Set], most: int) -> list[Set]:
    """Prompts of coding sessions to folders they have nothing to do with, about so many to each set."""
    prompts, chance = coding_prompts(), random.Random(5)
    found = []
    for target in targets:
        chosen = range(0, len(target.folders), max(1, len(target.folders) // 40))
        asked = [
            Question(at, text, (), half)
            for at in chosen
            for text, half in chance.sample(prompts, min(len(prompts), max(1, most // len(chosen))))
        ]
        found.append(Set(f"{target.name} ← coding prompts", target.folders, asked))
    return found


def _repositories() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    with gzip.open(DATA / "memory_files_dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            item = json.loads(line)
            if "memory" in item["kind"] and not item["path"].endswith("MEMORY.md"):
                found.setdefault(item["repo"], {})[item["path"]] = item["text"]
    return {repository: files for repository, files in found.items() if len(files) >= 5}


def unrelated(lme: Set, loco: Set) -> list[Set]:
    """Questions that belong elsewhere: another conversation's, small talk, programming."""
    chance = random.Random(7)
    files = Set("memory files", list(_repositories().values()), [])
    sources = {"LongMemEval": lme, "LoCoMo": loco}
    found = []
    for name, target in (*sources.items(), ("memory files", files)):
        step = max(1, len(target.folders) // 40)
        for source, other in sources.items():
            asked = [
                Question(at, _elsewhere(other, at if other is target else -1, chance))
                for at in range(0, len(target.folders), step)
                for _ in range(max(1, 120 // len(target.folders)))
            ]
            found.append(Set(f"{name} ← {source}", target.folders, asked))
        talk = [Question(at, t) for at in range(0, len(target.folders), 4 * step) for t in SMALL_TALK]
        found.append(Set(f"{name} ← small talk", target.folders, talk))
        if target is not files:
            code = [Question(at, t) for at in range(0, len(target.folders), 4 * step) for t in CODING]
            found.append(Set(f"{name} ← programming", target.folders, code))
    return found


def _elsewhere(source: Set, folder: int, chance: random.Random) -> str:
    return chance.choice([q for q in source.questions if q.folder != folder]).text


def _tuned(name: str) -> bool:
    return zlib.crc32(name.encode()) % 2 == 0


def _read(name: str) -> Any:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        return json.load(file)
