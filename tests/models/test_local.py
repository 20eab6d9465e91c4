"""A GGUF file as a model, as far as it goes without running one: its head, its name, what is said."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sevenfold.cache.prices import Prices
from sevenfold.core.errors import UnknownModel
from sevenfold.core.protocols import Capabilities
from sevenfold.core.tokens import Usage
from sevenfold.models import ModelAccess, connect_model, find_capabilities
from sevenfold.models.local import LocalModel, read_context_length


def text(value: str) -> bytes:
    data = value.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def entry(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


ARCHITECTURE = entry("general.architecture", 8, text("llama"))
WORDS = entry("tokenizer.tokens", 9, struct.pack("<IQ", 8, 2) + text("sea") + text("Öl"))
SCORES = entry("tokenizer.scores", 9, struct.pack("<IQff", 6, 2, 0.5, 1.5))
SCALE = entry("llama.rope.scale", 6, struct.pack("<f", 1.0))


def length(tokens: int, kind: int = 4, form: str = "<I") -> bytes:
    return entry("llama.context_length", kind, struct.pack(form, tokens))


def head(*entries: bytes, version: int = 3, count: int | None = None) -> bytes:
    number = len(entries) if count is None else count
    return b"GGUF" + struct.pack("<IQQ", version, 0, number) + b"".join(entries)


def gguf(folder: Path, *entries: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(head(*(entries or (ARCHITECTURE, length(8_192)))))
    return path


@pytest.mark.parametrize(
    "entries",
    [
        (ARCHITECTURE, length(8_192)),
        (ARCHITECTURE, WORDS, SCORES, SCALE, length(8_192)),
        (length(8_192, 10, "<Q"), WORDS),
    ],
)
def test_the_head_says_how_long_a_prompt_may_be(tmp_path: Path, entries: tuple[bytes, ...]) -> None:
    assert read_context_length(gguf(tmp_path, *entries)) == 8_192


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a GGUF file"),
        (b"PK\x03\x04 a wheel", "is not a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1", "is not a GGUF file"),
        (b"GGUF", "breaks within its head"),
        (head(length(1), version=1), "of version 1"),
        (head(length(1), version=1 << 24), "of version 16777216"),
        (head(ARCHITECTURE, length(8_192))[:-2], "breaks within its head"),
        (head(ARCHITECTURE, count=2), "breaks within its head"),
        (head(text("a" * 40)[:20]), "breaks within its head"),
        (head(struct.pack("<Q", 1 << 62)), "breaks within its head"),
        (head(entry("x", 77, b"")), "breaks within its head"),
        (head(entry("x", 9, struct.pack("<IQ", 9, 1))), "breaks within its head"),
        (head(ARCHITECTURE, SCALE), "holds no language model"),
        (head(length(0)), "holds no language model"),
    ],
)
def test_what_is_no_model_is_named_in_a_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(content)
    with pytest.raises(UnknownModel, match=said) as caught:
        connect_model(f"local:{path}", ModelAccess())
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 2


def make_folder(path: Path) -> None:
    path.mkdir()


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "said"),
    [(lambda path: None, "there is no file"), (make_folder, "is not a file"), (make_pipe, "is not a file")],
)
def test_what_is_no_file_is_said_at_once(tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    make(tmp_path / "gone.gguf")
    with pytest.raises(UnknownModel, match=said):
        connect_model(f"local:{tmp_path / 'gone.gguf'}", ModelAccess())


def test_the_name_holds_the_whole_path_so_that_it_can_be_resumed_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my models"
    folder.mkdir()
    path = gguf(folder)
    monkeypatch.chdir(folder)
    model = connect_model(" local:model.gguf ", ModelAccess())
    assert isinstance(model, LocalModel)
    assert model.name == f"local:{path}"
    monkeypatch.chdir(tmp_path)
    assert connect_model(model.name, ModelAccess()).name == model.name


def test_the_window_is_what_the_file_allows_and_no_more_than_asked_for(tmp_path: Path) -> None:
    small, large = gguf(tmp_path), tmp_path / "large.gguf"
    large.write_bytes(head(length(131_072)))

    def window(path: Path, asked: int | None = None) -> int:
        able = connect_model(f"local:{path}", ModelAccess(window=asked)).capabilities
        assert able == find_capabilities(f"local:{path}", window=asked), "what is said without running it"
        return able.window

    assert (window(small), window(small, 4_096), window(small, 100_000)) == (8_192, 4_096, 8_192)
    assert (window(large), window(large, 100_000)) == (32_768, 100_000)


def test_it_caches_prompts_and_sees_no_images(tmp_path: Path) -> None:
    able = connect_model(f"local:{gguf(tmp_path)}", ModelAccess()).capabilities
    assert able.caches_prompts
    assert able == Capabilities(window=8_192, max_output=2_048, images=False, one_at_a_time=True)


def test_a_session_whose_file_has_gone_can_still_be_looked_at(tmp_path: Path) -> None:
    assert find_capabilities(f"local:{tmp_path / 'gone.gguf'}").window == 32_768


def test_it_costs_nothing_and_can_be_compared(tmp_path: Path) -> None:
    price = Prices.load().of(connect_model(f"local:{gguf(tmp_path)}", ModelAccess()).name)
    assert price is not None
    usage = Usage(input=100, cache_read=1_000, output=10)
    assert price.cost(usage) == 0.0
    assert price.units(usage) == pytest.approx(100 + 100 + 50)


def test_without_the_extra_the_command_that_brings_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)  # as if it were not installed
    with pytest.raises(UnknownModel, match=r"pip install 'sevenfold\[local\]'"):
        connect_model(f"local:{gguf(tmp_path)}", ModelAccess())


def test_connecting_loads_no_engine(tmp_path: Path) -> None:
    code = (
        "import sys; from sevenfold.models import ModelAccess, connect_model\n"
        f"connect_model('local:' + {str(gguf(tmp_path))!r}, ModelAccess())\n"
        "print('xllamacpp' in sys.modules, 'httpx' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]
