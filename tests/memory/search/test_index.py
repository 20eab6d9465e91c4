"""The search index follows the files: what it answers, what it reads for it, and what others do to it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from math import log1p
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory.search.searching import LONG_AGO, Bag, Folder, names

from sevenfold.memory.search.index import FORMAT, SearchIndex
from sevenfold.memory.search.ranking import LexicalIndex
from sevenfold.memory.search.scan import search_files
from sevenfold.memory.search.scoring import FEWEST, split_passages
from sevenfold.memory.text.words import tokenize_text
from sevenfold.testing import FakeClock

WORDS = ["falcon", "kestrel", "heron", "osprey", "plover", "dunlin", "retry", "数据库", "迁移"]


@pytest.fixture
def folder() -> Folder:
    folder = Folder()
    folder.put("sql.md", "Tests of SQL run against a real Postgres, never a mock.", about="testing SQL")
    folder.put("bird.md", "The kestrel hovers over the meadow.", about="birds of the meadow")
    folder.put("zh.md", "数据库迁移之前必须先备份。", name="数据库迁移")
    return folder


def inside(index: SearchIndex) -> LexicalIndex:
    return index._collection().lexical


def scores(index: SearchIndex, words: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Both scores of every file that has one of these words."""
    lexical = inside(index)
    looked = lexical.look(words)
    found = lexical.scores(looked, looked.rarity)
    return {
        lexical.file(row): (float(found.whole[row]), float(found.best[row]))
        for row in range(lexical.rows)
        if found.whole[row] > 0
    }


def kin(index: SearchIndex, file: str) -> dict[str, float]:
    """How much other files have of the words of this one."""
    lexical = inside(index)
    place = lexical.place(file)
    assert place is not None
    found = lexical.compare_words(place).tolist()
    return {lexical.file(row): score for row, score in enumerate(found) if score}


def by_definition(folder: Folder, words: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The same, worked out from the formula and nothing else."""
    cut = {}
    for file, (data, _) in folder.files.items():
        _, head, body = data.decode().split("---\n", 2)
        fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
        name = f"{fields['name']}\n{fields['description']}"
        weighed = [(name, 1.0), *((part.text, part.weight) for part in split_passages(body))]
        cut[file] = [(tokenize_text(text), weight) for text, weight in weighed]
    whole = {file: [word for part, _ in parts for word in part] for file, parts in cut.items()}
    mean_whole = sum(map(len, whole.values())) / len(whole)
    every = [part for parts in cut.values() for part, _ in parts]
    mean_part = sum(map(len, every)) / len(every)

    def score(text: Sequence[str], mean: float) -> float:
        total = 0.0
        for word in words:
            files = sum(word in some for some in whole.values())
            idf = log1p((max(len(whole), FEWEST) - files + 0.5) / (files + 0.5))
            tf = Counter(text)[word]
            total += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * len(text) / mean)) if tf else 0.0
        return total

    return {
        file: (score(text, mean_whole), max(weight * score(part, mean_part) for part, weight in cut[file]))
        for file, text in whole.items()
        if set(words) & set(text)
    }


def same(one: dict[str, tuple[float, float]], other: dict[str, tuple[float, float]]) -> bool:
    return one.keys() == other.keys() and all(
        pair == pytest.approx(other[file], rel=1e-4) for file, pair in one.items()
    )


def test_memories_are_found_by_their_words_in_english_and_chinese(folder: Folder, tmp_path: Path) -> None:
    index = SearchIndex(tmp_path)
    folder.refresh(index)
    assert names(index.search("how do we test SQL with Postgres?"))[:1] == ["sql.md"]
    assert names(index.search("数据库怎么迁移？"))[:1] == ["zh.md"]
    assert names(index.search("kestrel meadow"))[:1] == ["bird.md"]


def test_an_empty_folder_an_empty_question_and_unknown_words_have_no_answer(tmp_path: Path) -> None:
    index, folder = SearchIndex(tmp_path, Bag()), Folder()
    assert index.search("kestrel") == []
    folder.refresh(index)
    assert index.search("kestrel") == []
    folder.put("a.md", "kestrel")
    folder.refresh(index)
    assert index.search("") == []
    assert index.search("the of and") == []
    assert index.search("zzyzx") == []


def test_files_to_be_skipped_are_not_among_the_answers(folder: Folder, tmp_path: Path) -> None:
    folder.put("bird2.md", "A kestrel is a small falcon of the meadow.")
    index = SearchIndex(tmp_path)
    folder.refresh(index)
    assert set(names(index.search("kestrel meadow"))) == {"bird.md", "bird2.md"}
    assert names(index.search("kestrel meadow", 5, frozenset({"bird.md"}))) == ["bird2.md"]
    assert len(index.search("kestrel meadow", 1)) == 1


def test_a_question_for_another_folder_has_no_answer_unless_the_ranking_is_wanted(
    folder: Folder, tmp_path: Path
) -> None:
    index = SearchIndex(tmp_path)
    folder.refresh(index)
    far = "Which sourdough recipe did Aunt Margaret bake over the meadow fire in Toulouse?"
    assert index.search(far) == []
    assert names(index.search(far, silent=False)) == ["bird.md"]
    assert index.search("sourdough recipe", silent=False) == []


def test_scores_are_what_the_formula_says(folder: Folder, tmp_path: Path) -> None:
    folder.put("long.md", "\n\n".join(f"The heron {word} the falcon. " * 20 for word in WORDS))
    folder.put("said.md", "user: where is the falcon?\n\nassistant: the falcon is with the heron falcon")
    assert {part.weight for part in split_passages(folder.files["said.md"][0].decode())} > {1.0}
    index = SearchIndex(tmp_path)
    folder.refresh(index)
    for words in (["kestrel"], ["falcon", "heron", "meadow", "sql"], tokenize_text("数据库迁移 Postgres")):
        assert same(scores(index, words), by_definition(folder, words))


def test_memories_are_compared_by_the_words_they_share_rare_ones_most(tmp_path: Path) -> None:
    folder, index = Folder(), SearchIndex(tmp_path)
    folder.put("best.md", "The heron and the osprey met at the weir.")
    folder.put("rare.md", "Once more the osprey was at the weir.")
    folder.put("usual.md", "Once more the heron was at the lake.")
    folder.put("other.md", "Pay the rent in Lisbon.", about="money")
    for number in range(8):
        folder.put(f"{number}.md", f"A heron on day {number}.")
    folder.refresh(index)
    shared = kin(index, "best.md")
    assert shared["best.md"] > shared["rare.md"] > shared["usual.md"] > shared.get("other.md", 0.0)


def test_a_long_message_finds_what_is_like_the_memory_it_goes_on_with(tmp_path: Path) -> None:
    """The words of the message say which memory it is; that memory says what else belongs to it."""
    folder = Folder()
    weir = "the weir at Alderford, its sluice gate, the turbine, the millrace and the flood permit"
    folder.put("today.md", f"We fitted the new bearings and greased the shaft today: {weir}.")
    folder.put("before.md", f"The plan of spring for {weir}.")
    folder.put("elsewhere.md", "New bicycle bearings; send the bill for the paint.")
    for number in range(9):
        folder.put(f"{number}.md", f"A quiet day, number {number}, and nothing new to send or to plan.")
    asked = (
        "Good, new bearings fitted, shaft greased. Please plan the next inspection and send a checklist."
    )
    with SearchIndex(tmp_path) as index:
        folder.refresh(index)
        assert names(index.search(asked, 2, silent=False)) == ["today.md", "before.md"]
        assert "before.md" not in names(index.search("new bearings", 3)), "a short question is about itself"
    found = search_files(folder.files, folder.read, asked, 2, silent=False)
    assert [hit.file for hit in found] == ["today.md", "before.md"]


texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
steps = st.tuples(
    st.sampled_from(["put", "put", "put", "remove", "touch", "reopen"]),
    st.sampled_from([f"{letter}.md" for letter in "abcdefgh"]),
    texts,
)


@given(st.lists(steps, min_size=1, max_size=25))
def test_after_any_changes_the_index_is_as_if_it_had_been_made_anew(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str, str]]
) -> None:
    folder, state = Folder(), tmp_path_factory.mktemp("state")
    index, other = SearchIndex(state), SearchIndex(state)
    for action, file, text in changes:
        if action == "put":
            folder.put(file, text)
        elif action == "touch" and file in folder.files:
            folder.ticks += 1
            folder.files[file] = (folder.files[file][0], folder.ticks)
        elif action == "remove":
            folder.files.pop(file, None)
        index, other = (SearchIndex(state), index) if action == "reopen" else (other, index)
        folder.refresh(index)
        assert inside(index).known == {listed[0]: listed for listed in folder.listing()}
    again = SearchIndex(tmp_path_factory.mktemp("again"))
    folder.refresh(again)
    for word in WORDS:
        assert same(scores(index, tokenize_text(word)), scores(again, tokenize_text(word)))
    for file in folder.files:
        assert kin(index, file) == pytest.approx(kin(again, file), rel=1e-4)


def test_nothing_is_read_when_nothing_changed_and_one_file_when_one_did(
    folder: Folder, tmp_path: Path
) -> None:
    index = SearchIndex(tmp_path)
    assert sorted(folder.refresh(index)) == ["bird.md", "sql.md", "zh.md"]
    assert folder.refresh(index) == []
    assert folder.refresh(SearchIndex(tmp_path)) == [], "another process reads nothing either"
    folder.put("bird.md", "An osprey now.")
    told = index.refresh(folder.listing(), folder.read)
    assert folder.read_files == ["bird.md"]
    assert (told.added, told.changed, told.removed) == ((), ("bird.md",), ())
    assert names(index.search("osprey")) == ["bird.md"]
    assert index.search("kestrel") == []


def test_what_was_added_changed_and_removed_is_told(folder: Folder, tmp_path: Path) -> None:
    index = SearchIndex(tmp_path)
    assert sorted(index.refresh(folder.listing(), folder.read).added) == ["bird.md", "sql.md", "zh.md"]
    folder.remove("sql.md")
    folder.put("new.md", "plover")
    told = index.refresh(folder.listing(), folder.read)
    assert (told.added, told.changed, told.removed) == (("new.md",), (), ("sql.md",))
    assert index.search("postgres") == []


def test_a_file_with_a_new_time_and_the_same_bytes_is_not_taken_apart_again(
    folder: Folder, tmp_path: Path
) -> None:
    index = SearchIndex(tmp_path)
    folder.refresh(index)
    data, at = folder.files["bird.md"]
    folder.files["bird.md"] = (data, at + 5)
    told = index.refresh(folder.listing(), folder.read)
    assert (told.added, told.changed, told.removed) == ((), (), ())
    assert folder.refresh(index) == []
    assert folder.refresh(SearchIndex(tmp_path)) == []


def test_another_text_of_the_same_size_and_time_is_found_when_it_came_right_after(tmp_path: Path) -> None:
    """Two checkouts within one tick of the file system's clock."""
    clock, folder = FakeClock(LONG_AGO / 1e9 + 0.5), Folder()
    folder.put("a.md", "kestrel", at=LONG_AGO)
    index = SearchIndex(tmp_path, clock=clock)
    folder.refresh(index)
    folder.put("a.md", "dunlins", at=LONG_AGO)
    folder.refresh(index)
    assert (names(index.search("dunlins")), index.search("kestrel")) == (["a.md"], [])
    clock.time += 60
    assert folder.refresh(index) == ["a.md"], "once more, now that its time has passed"
    assert folder.refresh(index) == []
    assert folder.refresh(SearchIndex(tmp_path, clock=clock)) == []


def test_a_file_that_cannot_be_read_is_told_and_not_answered_from(folder: Folder, tmp_path: Path) -> None:
    index = SearchIndex(tmp_path)
    folder.refresh(index)
    folder.unreadable = {"bird.md", "new.md"}
    folder.put("bird.md", "kestrel, and more")
    folder.put("new.md", "kestrel too")
    told = index.refresh(folder.listing(), folder.read)
    assert sorted(told.unreadable) == ["bird.md", "new.md"]
    assert index.search("kestrel") == []
    folder.unreadable = set()
    folder.refresh(index)
    assert sorted(names(index.search("kestrel"))) == ["bird.md", "new.md"]


def test_words_far_down_a_very_long_file_are_found(tmp_path: Path) -> None:
    folder = Folder()
    folder.put("long.md", "\n\n".join(f"paragraph {n} " + "heron " * 150 for n in range(100)) + " osprey")
    folder.put("short.md", "heron")
    index = SearchIndex(tmp_path)
    folder.refresh(index)
    whole, best = scores(index, ["osprey"])["long.md"]
    assert whole > 0
    assert best == 0, "behind the last passage"


def test_many_single_changes_do_not_pile_up(tmp_path: Path) -> None:
    folder, index, chance = Folder(), SearchIndex(tmp_path), random.Random(5)
    for number in range(120):
        folder.put(f"{number}.md", " ".join(chance.choices(WORDS, k=5)))
    folder.refresh(index)
    for _ in range(150):
        folder.put(f"{chance.randrange(140)}.md", " ".join(chance.choices(WORDS, k=5)))
        assert len(folder.refresh(index)) == 1
    assert len(inside(index).segments) < 9
    assert sum(path.name.startswith("words-") for path in index.folder.iterdir()) < 9
    assert same(scores(index, ["heron"]), by_definition(folder, ["heron"]))


def test_one_process_sees_what_another_has_taken_in(folder: Folder, tmp_path: Path) -> None:
    one, other = SearchIndex(tmp_path), SearchIndex(tmp_path)
    folder.refresh(one)
    folder.refresh(other)
    for number in range(20):
        writer, reader = (one, other) if number % 2 else (other, one)
        folder.put(f"n{number}.md", f"plover{number}")
        assert folder.refresh(writer) == [f"n{number}.md"]
        assert folder.refresh(reader) == []
        assert names(reader.search(f"plover{number}")) == [f"n{number}.md"]


def test_files_and_folder_are_for_this_user_alone(folder: Folder, tmp_path: Path) -> None:
    index = SearchIndex(tmp_path / "state", Bag())
    folder.refresh(index)
    index.build(folder.read)
    index.wait()
    assert index.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in index.folder.iterdir()} == {0o600}
    assert len(list(index.folder.iterdir())) == 5


GOLDEN = {"3": "83fa07022254f8b1"}
"""Digest of the words that an index of these four files holds, by format."""


def test_what_an_index_holds_changes_only_with_its_format(folder: Folder, tmp_path: Path) -> None:
    folder.put("long.md", "\n\n".join(f"Passage {n}: {' '.join(WORDS)}" for n in range(60)))
    index = SearchIndex(tmp_path)
    folder.refresh(index)
    index.close()

    held = b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("words-*")))

    assert {FORMAT: sha256(held).hexdigest()[:16]} == GOLDEN, (
        "users' indexes hold something else now: raise FORMAT in memory/search/index.py, and put the "
        "new digest here"
    )


def test_importing_the_index_loads_no_numpy() -> None:
    code = "import sys, sevenfold.memory.search.index; print('numpy' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
