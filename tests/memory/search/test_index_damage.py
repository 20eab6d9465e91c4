"""The search index is never the truth: whatever happens to it, the answers are those of the files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from memory.search.searching import Bag, Folder, names

from sevenfold.core.errors import StorageFailure
from sevenfold.memory.search.index import SearchIndex
from sevenfold.memory.search.segment import (
    SegmentShelf,
    ShelfContents,
    hash_term,
    parse_contents,
    read_pieces,
)

QUESTIONS = [f"heron{number} plover" for number in range(6)]


def birds() -> Folder:
    folder = Folder()
    for number in range(6):
        folder.put(f"{number}.md", f"heron{number} plover", about=f"bird number{number}")
    return folder


def built(folder: Folder, state: Path) -> SearchIndex:
    """With two segments and two parts of vectors, as after some use."""
    index = SearchIndex(state, Bag())
    last = {"5.md": folder.files.pop("5.md")}
    for _ in range(2):
        folder.refresh(index)
        index.build(folder.read)
        index.wait()
        folder.files.update(last)
    return index


def answers(index: SearchIndex) -> list[list[tuple[str, float, float]]]:
    return [
        [(hit.file, round(hit.lexical, 4), round(hit.semantic, 4)) for hit in index.search(question)]
        for question in QUESTIONS
    ]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "one byte short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "noise": lambda path: path.write_bytes(os.urandom(path.stat().st_size)),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "one bit": lambda path: _flip(path),
    "a folder": lambda path: _folder(path),
}


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", ["index.json", "words-", "vectors-"])
def test_damage_to_any_file_is_survived(kind: str, damage: str, tmp_path: Path) -> None:
    folder = birds()
    right = answers(built(folder, tmp_path))
    assert all(right)
    for path in list((tmp_path / "search").iterdir()):
        if path.name.startswith(kind):
            DAMAGE[damage](path)
            break
    index = SearchIndex(tmp_path, Bag())
    folder.refresh(index)
    index.build(folder.read)
    index.wait()
    assert answers(index) == right
    if (kind, damage) == ("index.json", "a folder"):
        assert "index.json could not be written" in index.problem, (
            "it cannot be put in place, so the index is in memory"
        )
        return
    after = SearchIndex(tmp_path, Bag())
    assert folder.refresh(after) == [], "what was damaged has been made again"
    assert answers(after) == right


def test_the_folder_may_be_deleted_at_any_time(tmp_path: Path) -> None:
    folder = birds()
    index = built(folder, tmp_path)
    right = answers(index)
    for path in index.folder.iterdir():
        path.unlink()
    index.folder.rmdir()
    assert answers(index) == right
    folder.put("new.md", "osprey")
    folder.refresh(index)
    assert names(index.search("osprey")) == ["new.md"]
    folder.remove("new.md")
    folder.refresh(index)
    index.build(folder.read)
    index.wait()
    assert answers(index) == right


@pytest.mark.parametrize("change", [{"format": 0}, {"format": 99}, {"made": "by other code"}])
def test_an_index_of_another_format_or_by_other_code_is_made_anew(
    change: dict[str, object], tmp_path: Path
) -> None:
    folder = birds()
    right = answers(built(folder, tmp_path))
    shelf = SegmentShelf(tmp_path / "search")
    contents = parse_contents(shelf.raw())
    assert contents is not None
    shelf.enter(msgspec.structs.replace(contents, **change))
    index = SearchIndex(tmp_path, Bag())
    assert len(folder.refresh(index)) == 6
    index.build(folder.read)
    index.wait()
    assert answers(index) == right


def test_a_list_that_names_files_outside_is_not_followed(tmp_path: Path) -> None:
    folder = birds()
    right = answers(built(folder, tmp_path))
    shelf = SegmentShelf(tmp_path / "search")
    contents = parse_contents(shelf.raw())
    assert contents is not None
    outside = tmp_path / "outside"
    outside.write_bytes((shelf.folder / contents.segments[0]).read_bytes())
    shelf.enter(msgspec.structs.replace(contents, segments=("../outside", contents.segments[1])))
    index = SearchIndex(tmp_path, Bag())
    assert len(folder.refresh(index)) == 6
    assert outside.exists()
    index.build(folder.read)
    index.wait()
    assert answers(index) == right


def test_where_nothing_can_be_written_the_answers_come_from_memory(tmp_path: Path) -> None:
    """A file stands where the folder would be: as little can be written there as on a read-only disk."""
    folder = birds()
    right = answers(built(folder, tmp_path / "good"))
    (tmp_path / "state").write_bytes(b"")
    index = SearchIndex(tmp_path / "state", Bag())
    folder.refresh(index)
    index.build(folder.read)
    index.wait()
    assert answers(index) == right
    assert "state" in index.problem
    assert folder.refresh(index) == []
    folder.put("new.md", "osprey")
    assert folder.refresh(index) == ["new.md"]
    assert names(index.search("osprey")) == ["new.md"]
    index.purge("new.md")
    assert index.search("osprey") == []


def test_a_lock_that_is_not_let_go_does_not_hold_up_the_answer(tmp_path: Path) -> None:
    folder = birds()
    right = answers(built(folder, tmp_path))
    index = SearchIndex(tmp_path, Bag(), patience=0.02)
    with SegmentShelf(tmp_path / "search").alone(0) as mine:
        assert mine
        folder.put("new.md", "osprey")
        assert folder.refresh(index) == ["new.md"]
        assert names(index.search("osprey")) == ["new.md"]
        assert "locked" in index.problem
        with pytest.raises(StorageFailure, match=r"new\.md is still in the search index"):
            index.purge("new.md")
    folder.put("more.md", "dunlin")
    folder.refresh(index)
    assert index.problem == ""
    after = SearchIndex(tmp_path, Bag())
    assert folder.refresh(after) == []
    assert names(after.search("osprey")) == ["new.md"]
    folder.remove("new.md")
    folder.remove("more.md")
    folder.refresh(after)
    assert answers(after) == right


def traces(folder: Path, file: str, data: bytes, embedder: Bag) -> list[str]:
    """What of this file can be found in the bytes of the index: its name, words, keys, vectors."""
    secret = {"name": file.encode()}
    for piece in read_pieces(data, file):
        secret[f"key {piece.key}"] = piece.key.to_bytes(8, "little")
        for word in piece.words:
            secret[word] = word.encode()
            secret[f"term {word}"] = hash_term(word).to_bytes(8, "little")
    matrix = embedder.embed([data.decode().split("---\n")[2]])
    secret["vector"] = np.ascontiguousarray(matrix[0]).tobytes()
    every = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    return [what for what, sought in secret.items() if sought in every]


@pytest.mark.parametrize("how", ["there", "changed", "removed before", "without an embedder"])
def test_a_purge_leaves_nothing_of_a_file_on_the_disk(how: str, tmp_path: Path) -> None:
    folder, embedder = birds(), Bag()
    folder.put("secret.md", "quokka wombat", name="marsupials", about="numbat bilby")
    data = folder.files["secret.md"][0]
    index = SearchIndex(tmp_path, embedder)
    folder.refresh(index)
    index.build(folder.read)
    index.wait()
    (index.folder / ".writing-words-left-by-a-crash").write_bytes(data)
    found = traces(index.folder, "secret.md", data, embedder)
    assert {"name", "vector", "term quokka", "term numbat"} <= {*found}
    assert sum(what.startswith("key ") for what in found) == 2
    if how == "changed":
        folder.put("secret.md", "dingo")
        folder.refresh(index)
    if how == "removed before":
        folder.remove("secret.md")
        folder.refresh(index)
    right = answers(index)
    (SearchIndex(tmp_path) if how == "without an embedder" else index).purge("secret.md")
    assert traces(index.folder, "secret.md", data, embedder) == []
    folder.files.pop("secret.md", None)
    after = SearchIndex(tmp_path, embedder)
    assert folder.refresh(after) == []
    after.build(folder.read)
    after.wait()
    if how == "removed before":
        assert answers(after) == right
    assert names(after.search("heron3 plover"))[0] == "3.md"


def test_a_purge_that_cannot_remove_a_file_says_so(tmp_path: Path) -> None:
    folder = birds()
    index = built(folder, tmp_path)
    (index.folder / "strange").mkdir()
    with pytest.raises(StorageFailure, match="strange could not be removed"):
        index.purge("3.md")


def test_a_list_is_only_believed_with_its_checksum() -> None:
    assert parse_contents(b"") is None
    assert parse_contents(b"00000000\n{}") is None
    good = msgspec.json.encode(ShelfContents("x"))
    assert parse_contents(b"deadbeef\n" + good) is None
