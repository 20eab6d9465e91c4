"""Vectors come in the background, are never made twice for the same text, and go with their file."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from memory.search.searching import Bag, Folder, names
from numpy.lib.stride_tricks import as_strided

from sevenfold.memory.search.answers import AskedIndex, gather_evidence
from sevenfold.memory.search.index import SearchIndex
from sevenfold.memory.search.ranking import MANY, LexicalIndex, VectorIndex, VectorPart, make_vectors
from sevenfold.memory.search.scoring import SearchHit, VectorProgress
from sevenfold.memory.search.segment import IndexedFile, IndexedStamp, ScoredPiece
from sevenfold.memory.search.segment import build_segment as segment


def birds(count: int = 3) -> Folder:
    folder = Folder()
    for number in range(count):
        folder.put(f"{number}.md", f"heron{number} plover{number}", about=f"bird number{number}")
    return folder


def built(folder: Folder, state: Path, embedder: Bag) -> SearchIndex:
    index = SearchIndex(state, embedder)
    folder.refresh(index)
    index.build(folder.read)
    index.wait()
    return index


def kept(index: SearchIndex) -> int:
    return index._collection().meaning.count


def test_words_answer_while_vectors_are_made_and_meaning_joins_in_after(tmp_path: Path) -> None:
    folder, embedder = birds(), Bag()
    index = SearchIndex(tmp_path, embedder)
    folder.refresh(index)
    embedder.gate.clear()
    index.build(folder.read)
    [hit] = index.search("heron1")
    assert (hit.file, hit.semantic) == ("1.md", 0.0)
    assert not index.wait(0)
    embedder.gate.set()
    index.wait()
    assert index.search("heron1")[0].semantic > 0.5


def test_progress_says_how_many_and_how_fast(tmp_path: Path) -> None:
    told: list[VectorProgress] = []
    folder = birds(300)
    index = SearchIndex(tmp_path, Bag())
    folder.refresh(index)
    index.build(folder.read, told.append)
    index.wait()
    assert [(p.done, p.total) for p in told if p.done] == [(256, 600), (512, 600), (600, 600), (600, 600)]
    assert told[-1] == index.progress()
    assert told[-1].rate > 0
    assert not told[-1].running
    assert str(told[-1]).startswith("600 of 600 passages have vectors, ")
    assert str(told[-1]).endswith(" a second")


def test_nothing_is_started_unless_asked_for_and_close_ends_it(tmp_path: Path) -> None:
    folder, embedder = birds(1_000), Bag()
    before = set(threading.enumerate())
    index = SearchIndex(tmp_path, embedder)
    folder.refresh(index)
    index.search("heron1")
    assert set(threading.enumerate()) == before
    first = threading.Event()

    def tell(progress: VectorProgress) -> None:
        if progress.done:
            first.set()
            embedder.gate.clear()

    index.build(folder.read, tell)
    first.wait()
    threading.Timer(0.05, embedder.gate.set).start()  # a batch that is under way is finished
    index.close()
    embedder.gate.set()  # the batch that was finished has closed it again
    done = index.progress().done
    assert 0 < done < 2_000
    assert kept(index) == done, "what was made is kept"
    again = SearchIndex(tmp_path, embedder)
    folder.refresh(again)
    embedder.seen.clear()
    again.build(folder.read)
    again.wait()
    assert len(embedder.seen) == 2_000 - done


def test_a_text_that_has_its_vector_is_never_given_to_the_embedder_again(tmp_path: Path) -> None:
    folder, embedder = birds(), Bag()
    built(folder, tmp_path, embedder)
    assert len(embedder.seen) == 6
    embedder.seen.clear()
    built(folder, tmp_path, embedder)
    assert embedder.seen == []
    folder.put("1.md", "a new body", about="bird number1")
    folder.put("copy.md", "heron2 plover2", name="2", about="bird number2")
    built(folder, tmp_path, embedder)
    assert [text.strip() for text in embedder.seen] == ["a new body"]


def test_an_index_made_anew_keeps_the_vectors_of_texts_that_are_the_same(tmp_path: Path) -> None:
    folder, embedder = birds(), Bag()
    index = built(folder, tmp_path, embedder)
    [words] = [path for path in index.folder.iterdir() if path.name.startswith("words-")]
    words.write_bytes(words.read_bytes()[:-1])
    embedder.seen.clear()
    again = built(folder, tmp_path, embedder)
    assert embedder.seen == []
    assert again.search("heron1")[0].semantic > 0.5


def test_vectors_of_removed_files_go(tmp_path: Path) -> None:
    folder, embedder = birds(100), Bag()
    index = built(folder, tmp_path, embedder)
    assert kept(index) == 200
    for number in range(60):
        folder.remove(f"{number}.md")
    folder.refresh(index)
    assert kept(index) == 80
    again = SearchIndex(tmp_path, embedder)
    folder.refresh(again)
    assert kept(again) == 80
    assert again.search("heron77")[0].semantic > 0.5


def test_another_embedder_starts_anew(tmp_path: Path) -> None:
    folder = birds()
    built(folder, tmp_path, Bag())
    for other in (Bag(name="other"), Bag(name="other", dimensions=32)):
        index = SearchIndex(tmp_path, other)
        folder.refresh(index)
        assert kept(index) == 0
        index = built(folder, tmp_path, other)
        assert len(other.seen) == 6
        assert index.search("heron1")[0].semantic > 0.5


def test_who_has_no_embedder_leaves_the_vectors_of_others_alone(tmp_path: Path) -> None:
    folder, embedder = birds(), Bag()
    built(folder, tmp_path, embedder)
    plain = SearchIndex(tmp_path)
    folder.put("new.md", "osprey")
    folder.refresh(plain)
    plain.build(folder.read)
    assert plain.search("heron1")[0].semantic == 0.0
    index = SearchIndex(tmp_path, embedder)
    folder.refresh(index)
    assert kept(index) == 6


def test_an_embedder_that_fails_is_told_and_words_still_answer(tmp_path: Path) -> None:
    class Broken(Bag):
        def embed(self, texts: object) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
            raise RuntimeError("the table is gone")

    folder = birds()
    index = built(folder, tmp_path, Broken())
    assert index.progress().problem == "the table is gone"
    assert not index.progress().running
    assert names(index.search("heron1")) == ["1.md"]


def test_files_that_cannot_be_read_or_changed_meanwhile_do_not_hold_it_up(tmp_path: Path) -> None:
    folder, embedder = birds(), Bag()
    index = SearchIndex(tmp_path, embedder)
    folder.refresh(index)
    folder.unreadable = {"0.md"}
    folder.put("1.md", "changed after the index was made")
    index.build(folder.read)
    index.wait()
    assert kept(index) == 2, "those of the file that is as it was"
    folder.unreadable = set()
    folder.refresh(index)
    index.build(folder.read)
    index.wait()
    assert kept(index) == 6


def test_what_resembles_the_best_answers_comes_before_what_does_not(tmp_path: Path) -> None:
    folder = Folder()
    folder.put("first.md", "the lighthouse keeper paints boats and harbours")
    folder.put("second.md", "boats and harbours, painted in oil")
    folder.put("third.md", "tax forms and invoices, printed in black")
    folder.put("fourth.md", "a lighthouse of glass")
    index = built(folder, tmp_path, Bag(dimensions=256))
    told = index.search("which lighthouse keeper?", 4, silent=False)
    assert names(told)[0] == "first.md"
    assert "third.md" not in names(told) or names(told).index("second.md") < names(told).index("third.md")


def test_comparing_some_rows_gives_what_comparing_all_gives(tmp_path: Path) -> None:
    chance, folder, embedder = random.Random(3), Folder(), Bag(dimensions=96)
    words = [f"word{number}" for number in range(60)]
    for number in range(40):
        parts = (" ".join(chance.choices(words, k=130)) for _ in range(chance.randint(1, 6)))
        folder.put(f"{number}.md", "\n\n".join(parts))
    index = built(folder, tmp_path, embedder)
    lexical, meaning = index._collection().lexical, index._collection().meaning
    asked = embedder.embed([" ".join(chance.choices(words, k=5))])[0]
    near, rows = meaning.near(asked, lexical), [7, 0, 39, 12]
    for row, cosines in zip(rows, meaning.compare(asked, lexical, rows), strict=True):
        assert np.allclose(cosines, near.of(row), atol=1e-5)
        assert cosines.argmax() == near.nearest(row)


def test_very_many_vectors_are_compared_roughly_first_and_the_nearest_exactly() -> None:
    chance = np.random.default_rng(7)
    falling = np.linspace(3, 0.05, 96, dtype=np.float32)  # as the default embedder's: the first say most
    matrix = chance.standard_normal((MANY + 5_000, 96)).astype(np.float32) * falling
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    rows = [
        IndexedFile(
            IndexedStamp(f"{at}.md", 1, 1, False),
            1,
            tuple(ScoredPiece(at * 5 + n + 1, ()) for n in range(5)),
        )
        for at in range(len(matrix) // 5)
    ]
    lexical = LexicalIndex()
    lexical.add(segment(rows))
    keys = np.arange(1, len(matrix) + 1, dtype=np.uint64)
    half = len(matrix) // 2
    meaning = VectorIndex(
        [make_vectors(keys[:half], matrix[:half]), make_vectors(keys[half:], matrix[half:])]
    )
    for at in (3, half + 3):
        asked = matrix[at] + 0.02 * chance.standard_normal(96).astype(np.float32)
        right = (matrix @ asked).reshape(-1, 5)
        far = int(right.max(axis=1).argmin())
        near = meaning.near(asked, lexical, [far])
        first = np.argsort(-right.max(axis=1))[:20]
        assert near.highest[first] == pytest.approx(right.max(axis=1)[first], rel=1e-4)
        assert near.of(far) == pytest.approx(right[far], rel=1e-3), "was asked for by its words"
        assert (near.highest == 0).mean() > 0.5, "most were not looked at"
        looked = lexical.look([])
        question = AskedIndex(lexical, meaning, looked, {}, lexical.scores(looked, {}), asked, near)
        around = gather_evidence(question, SearchHit(f"{at // 5}.md", 1.0, 0.0, 1.0)).around
        assert around == pytest.approx(right.max(axis=1).mean(), abs=0.05), "of all, not of the nearest"


def test_vectors_without_a_tail_are_compared_by_their_head_alone() -> None:
    """Nothing is read of the memory behind an empty tail, which may hold anything."""
    rows = [
        IndexedFile(IndexedStamp(f"{key}.md", 1, 1, False), 1, (ScoredPiece(key, ()),)) for key in (1, 2)
    ]
    lexical = LexicalIndex()
    lexical.add(segment(rows))
    tail = as_strided(np.array([np.nan], np.float32), (2, 0), (0, 0))
    part = VectorPart(np.array([1, 2], np.uint64), np.ones((2, 1), np.float32), tail)
    near = VectorIndex([part]).near(np.ones(1, np.float32), lexical)
    assert near.highest.tolist() == [1.0, 1.0]


def test_two_at_once_do_not_make_the_same_vectors_twice(tmp_path: Path) -> None:
    folder, embedder = birds(600), Bag()
    one, other = SearchIndex(tmp_path, embedder), SearchIndex(tmp_path, embedder)
    folder.refresh(one)
    folder.refresh(other)
    one.build(folder.read)
    other.build(folder.read)
    one.wait()
    other.wait()
    assert len(embedder.seen) == len(set(embedder.seen)) == 1_200
    assert kept(one) == kept(other) == 1_200


def test_vectors_of_files_that_another_process_has_purged_are_not_brought_back(tmp_path: Path) -> None:
    folder, embedder = birds(), Bag()
    index = SearchIndex(tmp_path, embedder)
    folder.refresh(index)
    embedder.gate.clear()
    index.build(folder.read)
    SearchIndex(tmp_path, embedder).purge("1.md")
    embedder.gate.set()
    index.wait()
    assert kept(SearchIndex(tmp_path, embedder)) == 4
    assert names(index.search("heron1")) == ["1.md"], "what is answered does not change by itself"


def test_a_program_that_ends_while_vectors_are_made_ends_well(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from memory.search.searching import Bag, Folder
from sevenfold.memory.search.index import SearchIndex
folder = Folder()
for number in range(3_000):
    folder.put(f"{number}.md", f"heron{number} " * 50)
index = SearchIndex(Path(sys.argv[1]), Bag())
folder.refresh(index)
index.build(folder.read)
index.wait(0.1)
print(index.progress().running)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("True", "", 0)
