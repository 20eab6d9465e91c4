"""Vectors of texts: by a small table of our own, and by the real one where it is installed."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sevenfold.memory.search.embedding import Embedder, StaticEmbedder, open_default_embedder
from sevenfold.memory.search.word_table import (
    DIGESTS,
    DIMENSIONS,
    NAME,
    UNFINISHED,
    EmbeddingUnavailable,
    WordTable,
    find_resources,
    load_word_table,
    prepare_word_table,
)
from sevenfold.memory.text.words import tokenize_text

installed = pytest.mark.skipif(find_resources() is None, reason="the word table is not installed")
one_worker = pytest.mark.xdist_group("word table")


def field(number: int, data: bytes, kind: int = 2) -> bytes:
    head = bytes([number << 3 | kind])
    return head + (bytes([len(data)]) if kind == 2 else b"") + data


def vocabulary(pieces: dict[str, float]) -> bytes:
    return b"".join(
        field(1, field(1, piece.encode()) + field(2, struct.pack("<f", score), kind=5))
        for piece, score in pieces.items()
    )


def weights(rows: np.ndarray[Any, Any]) -> bytes:
    """The rows as the package has them: dealt out over 17 blocks, eight bits each."""
    blocks: dict[str, Any] = {
        f"q{at + 1}": np.zeros((-(-len(rows) // 17), rows.shape[1]), np.uint8) for at in range(17)
    }
    for at, row in enumerate(rows):
        blocks[f"q{at % 17 + 1}"][at // 17] = row
    file = io.BytesIO()
    blocks["scale"] = np.full(17, 0.01, np.float32)
    blocks["lo"] = np.full(17, -1, np.float32)
    np.savez(file, allow_pickle=False, **blocks)
    return file.getvalue()


PIECES = {
    "▁the": -2.0,
    "▁bike": -9.0,
    "▁bicycle": -9.5,
    "▁database": -9.0,
    "数据库": -9.0,
    "▁re": -7.0,
    "pair": -7.5,
    "▁": -3.0,
}


@pytest.fixture
def small() -> Embedder:
    chance = np.random.default_rng(1)
    rows = chance.integers(0, 255, (len(PIECES), 300)).astype(np.uint8)
    rows[2] = np.clip(rows[1].astype(int) + chance.integers(-9, 9, 300), 0, 255)
    rows[4] = rows[3]
    table = prepare_word_table(vocabulary(PIECES), weights(rows))
    return StaticEmbedder("small", lambda going: WordTable(table))


def even(_token: str) -> float:
    return 1.0


def test_texts_with_like_words_are_near_and_others_are_not(small: Embedder) -> None:
    bike, bicycle, database = small.embed(["the bike", "a bicycle", "database"])
    assert bike @ bicycle > 0.9
    assert abs(float(bike @ database)) < 0.5


def test_languages_that_share_a_table_meet(small: Embedder) -> None:
    chinese, english = small.embed(["我们的数据库", "the database"])
    assert chinese @ english == pytest.approx(1.0, abs=1e-3)


def test_vectors_have_length_one_and_an_empty_text_is_all_zeros(small: Embedder) -> None:
    found = small.embed(["bike database", "", "zzz the"])
    assert found.dtype == np.float32
    assert found.shape == (3, DIMENSIONS) == (3, small.dimensions)
    assert np.linalg.norm(found[0]) == pytest.approx(1.0, abs=1e-5)
    assert not found[1].any()
    assert small.embed([]).shape == (0, DIMENSIONS)


def test_an_unknown_word_is_put_together_from_known_pieces(small: Embedder) -> None:
    assert small.embed(["repair"])[0].any()


def test_who_speaks_is_not_part_of_what_is_said(small: Embedder) -> None:
    said, plain = small.embed(["database: the bike", "the bike"])
    assert np.allclose(said, plain)


def test_a_question_weighs_its_words_by_what_they_tell_in_the_folder(small: Embedder) -> None:
    bike, database = small.embed(["bike", "database"])
    (common,) = tokenize_text("database")
    asked = small.query("bike database", lambda token: 0.0 if token == common else 3.0)
    assert asked @ bike > 0.99
    both = small.query("bike database", even)
    assert both @ bike < 0.99
    assert both @ database > 0.1


def test_nothing_is_loaded_before_the_first_text() -> None:
    loaded = []

    def table(going: object) -> WordTable:
        loaded.append(True)
        rows = np.eye(len(PIECES), 300, dtype=np.uint8)
        return WordTable(prepare_word_table(vocabulary(PIECES), weights(rows)))

    embedder = StaticEmbedder("late", table)
    assert not loaded
    embedder.embed(["bike"])
    embedder.query("bike", even)
    assert loaded == [True]


def test_without_the_package_there_is_no_embedder(tmp_path: Path) -> None:
    assert (open_default_embedder(tmp_path) is None) == (find_resources() is None)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the real table: preparing it takes seconds, so it is done once."""
    folder = tmp_path_factory.mktemp("table")
    load_word_table(folder)
    return folder


@pytest.fixture(scope="module")
def real(prepared: Path) -> Embedder:
    embedder = open_default_embedder(prepared)
    assert embedder is not None
    return embedder


@installed
@one_worker
def test_the_prepared_table_is_kept_and_made_anew_when_it_is_damaged(
    prepared: Path, tmp_path: Path
) -> None:
    first, kept = load_word_table(prepared), (prepared / NAME).read_bytes()
    path = tmp_path / NAME
    path.write_bytes(kept[: len(kept) // 2])
    again = load_word_table(tmp_path)
    assert path.stat().st_size == len(kept)
    places = list(range(0, 128_000, 1_000))
    assert np.array_equal(first.rows(places), again.rows(places))


@installed
@one_worker
def test_a_damaged_row_of_the_kept_table_is_noticed_when_it_is_used(prepared: Path, tmp_path: Path) -> None:
    kept = bytearray((prepared / NAME).read_bytes())
    row = load_word_table(prepared).rows([77])[0].astype(np.int8).tobytes()
    kept[kept.index(row)] ^= 1
    (tmp_path / NAME).write_bytes(kept)
    damaged = load_word_table(tmp_path)
    assert damaged.rows([78]).any()
    with pytest.raises(EmbeddingUnavailable, match="damaged"):
        damaged.rows([77])


@installed
@one_worker
def test_a_word_of_the_kept_table_is_read_and_the_table_takes_no_memory(prepared: Path) -> None:
    table = load_word_table(prepared)
    assert table.rows(table.cut("▁bicycle")).any()
    maps = Path("/proc/self/maps")
    assert not maps.exists() or NAME not in maps.read_text(encoding="utf-8", errors="replace")


@installed
@one_worker
def test_a_kept_table_that_says_more_than_it_has_is_made_anew(prepared: Path, tmp_path: Path) -> None:
    kept = (prepared / NAME).read_bytes()
    longer = kept.replace(b"rows\xa3|i1\x92\xce\x00", b"rows\xa3|i1\x92\xce\x7f", 1)
    assert longer != kept
    (tmp_path / NAME).write_bytes(longer)
    assert load_word_table(tmp_path).rows([77]).any()
    assert (tmp_path / NAME).read_bytes() == kept


def test_many_texts_at_once_have_the_vectors_of_each_alone(small: Embedder) -> None:
    texts = [
        f"{word} {other}" for word in ("bike", "bicycle", "repair") for other in ("database", "数据库", "x")
    ]
    together = small.embed(texts)
    assert np.array_equal(together, np.concatenate([small.embed([text]) for text in texts]))


def test_a_table_that_was_stopped_at_any_step_is_finished_later_and_is_the_same() -> None:
    rows = np.random.default_rng(2).integers(0, 255, (len(PIECES), 300)).astype(np.uint8)
    given = vocabulary(PIECES), weights(rows)
    whole = prepare_word_table(*given)
    for steps in range(4):  # each process is let go on so often and no more
        left: dict[str, Any] = {}
        made: dict[str, Any] = {}
        while not made:
            turns = iter([True] * steps)
            try:
                made = prepare_word_table(*given, going=lambda turns=turns: next(turns, False), begun=left)  # type: ignore[misc]
            except EmbeddingUnavailable as error:
                left = error.arrays  # type: ignore[attr-defined]
        assert all(np.array_equal(whole[name], made[name]) for name in whole), steps


@installed
@one_worker
def test_the_table_that_was_stopped_is_kept_and_goes_on_where_it_was(
    prepared: Path, tmp_path: Path
) -> None:
    turns = iter([True] * 6)
    with pytest.raises(EmbeddingUnavailable, match="not finished"):
        load_word_table(tmp_path, going=lambda: next(turns, False))
    assert [path.name for path in tmp_path.iterdir()] == [UNFINISHED]
    (tmp_path / "use-static-1-of-an-earlier-version").write_bytes(b"old")
    load_word_table(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert (tmp_path / NAME).read_bytes() == (prepared / NAME).read_bytes()


def test_a_word_is_cut_the_same_with_and_without_all_pieces_loaded() -> None:
    table = WordTable(
        prepare_word_table(vocabulary(PIECES), weights(np.eye(len(PIECES), 300, dtype=np.uint8)))
    )
    units = ["▁repair", "▁bicycle", "我们的数据库", "▁xyz"]
    looked_up = [table.cut(unit) for unit in units]
    table.read_pieces()
    assert [table.cut(unit) for unit in units] == looked_up
    assert looked_up[0] == [5, 6]


MEMORIES = {
    "testing": "Integration tests run against a real database, never a mock: a mocked one hid a bug.",
    "deploy": "Deploys are frozen on Fridays; the release train leaves on Tuesday morning.",
    "coffee": "The user drinks oat milk cappuccino and is allergic to nuts.",
    "style": "He wants short replies without bullet points.",
    "server": "The staging machine is in Frankfurt, reached through the bastion host.",
    "数据": "集成测试必须连接真实的数据库，不允许使用模拟对象。",
    "发布": "周五不发布新版本，周二早上统一上线。",
    "饮食": "用户对坚果过敏，喜欢喝燕麦拿铁。",
}
ASKED = {
    "may I stub out Postgres in the integration suite?": {"testing", "数据"},
    "can we ship to production at the end of the week?": {"deploy", "发布"},
    "which food must I avoid when ordering lunch for him?": {"coffee", "饮食"},
    "how long should my answers be?": {"style"},
    "where is the pre-production box hosted?": {"server"},
    "单元测试里能不能模拟数据库？": {"数据", "testing"},
    "星期五可以上线吗？": {"发布", "deploy"},
    "他能吃花生吗？": {"饮食", "coffee"},
}


@installed
@one_worker
@pytest.mark.parametrize("question", ASKED)
def test_a_paraphrase_is_near_in_english_and_chinese(real: Embedder, question: str) -> None:
    near = real.embed(list(MEMORIES.values())) @ real.query(question, even)
    best = [list(MEMORIES)[at] for at in np.argsort(-near)[:3]]
    assert set(best) & ASKED[question]


@pytest.mark.parametrize("there", [True, False])
def test_other_data_than_the_pinned_ones_are_refused(tmp_path: Path, *, there: bool) -> None:
    if there:
        for name in DIGESTS:
            (tmp_path / name).write_bytes(b"something else")
    with pytest.raises(EmbeddingUnavailable, match=r"sp\.model"):
        load_word_table(tmp_path / "cache", tmp_path)
    assert not (tmp_path / "cache").exists()
