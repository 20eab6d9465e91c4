"""Read shows a bounded page of any file, and never waits for one that is none."""

from __future__ import annotations

import base64
import os
import socket
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
from tools.conftest import Run

from sevenfold.core.messages import Image, Text
from sevenfold.tools.file_tools import LARGEST_IMAGE, MOST_BYTES, MOST_TOKENS
from sevenfold.tools.workspace import Workspace

pytestmark = pytest.mark.anyio


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\xff\0\0")
    parts = chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


async def test_lines_come_with_their_numbers(run: Run, project: Path) -> None:
    (project / "a.txt").write_text("one\n\tthree\n", "utf-8")

    result = await run("Read", file_path="a.txt")

    assert result.content == "1\tone\n2\t\tthree"
    assert not result.is_error


async def test_a_long_file_comes_in_pages_that_say_how_to_go_on(run: Run, project: Path) -> None:
    (project / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 4502)), "utf-8")

    first = (await run("Read", file_path="a.txt")).text.split("\n")
    second = (await run("Read", file_path="a.txt", offset=2001, limit=3)).text.split("\n")
    last = (await run("Read", file_path="a.txt", offset=4501)).text

    assert first[0] == "1\tline 1"
    assert first[-2:] == ["2000\tline 2000", "[lines 1-2000 of 4,501; go on with offset=2001]"]
    assert second[:3] == ["2001\tline 2001", "2002\tline 2002", "2003\tline 2003"]
    assert second[3] == "[lines 2001-2003 of 4,501; go on with offset=2004]"
    assert last == "4501\tline 4501"


@pytest.mark.parametrize(("text", "lines"), [("a\nb\n", 2), ("a\nb", 2), ("a", 1)])
async def test_an_offset_past_the_end_says_how_many_lines_there_are(
    run: Run, project: Path, text: str, lines: int
) -> None:
    (project / "a.txt").write_text(text, "utf-8")

    result = await run("Read", file_path="a.txt", offset=7)

    assert result.is_error
    assert result.text == f"a.txt has {lines} lines; offset 7 is past its end"


@pytest.mark.parametrize(("window", "kilobytes"), [(8_000, 4), (32_000, 16), (128_000, 64)])
async def test_in_a_small_window_a_page_is_as_much_smaller(
    run: Run, project: Path, workspace: Workspace, window: int, kilobytes: int
) -> None:
    (project / "big.txt").write_text(f"{'word ' * 10}\n" * 1_900, encoding="utf-8")
    workspace.window = window
    page = (await run("Read", file_path="big.txt")).text

    assert kilobytes * 1_000 * 0.95 < len(page) < kilobytes * 1_000 * 1.05
    assert page.startswith("1\tword")
    shown = int(page.rpartition("offset=")[2].rstrip("]"))
    rest = (await run("Read", file_path="big.txt", offset=shown)).text
    assert rest.startswith(f"{shown}\tword"), "and the page says where the next begins"


async def test_a_page_stops_at_the_token_bound_also_when_more_lines_are_asked_for(
    run: Run, project: Path
) -> None:
    (project / "a.txt").write_text(("x" * 300 + "\n") * 3000, "utf-8")

    text = (await run("Read", file_path="a.txt", limit=100_000)).text

    assert MOST_TOKENS * 4 - 1000 < len(text) < MOST_TOKENS * 4 + 200
    assert len(text) < MOST_BYTES
    assert "of 3,000; go on with offset=" in text


async def test_json_is_bounded_by_what_json_costs(run: Run, project: Path) -> None:
    (project / "a.json").write_text(("[" * 300 + "\n") * 3000, "utf-8")

    text = (await run("Read", file_path="a.json")).text

    assert len(text) < MOST_TOKENS * 2 + 200


async def test_a_long_line_is_cut_and_the_next_one_is_whole(run: Run, project: Path) -> None:
    (project / "a.txt").write_text("x" * 3_000_000 + "\nnext\n" + "ü" * 2_001 + "\n", "utf-8")

    lines = (await run("Read", file_path="a.txt")).text.split("\n")

    assert lines[0] == "1\t" + "x" * 2000 + " […3,000,000 bytes in all]"
    assert lines[1] == "2\tnext"
    assert lines[2] == "3\t" + "ü" * 2000 + " […1 characters]"
    assert lines[3] == "[2 long lines are cut; Grep or `cut -c` shows other parts]"


async def test_a_file_of_a_hundred_megabytes_is_paged_in_bounded_memory(run: Run, project: Path) -> None:
    block = b"".join(b"line %07d\n" % n for n in range(10_000))
    with (project / "big.log").open("wb") as file:
        for _ in range(800):
            file.write(block)
    assert (project / "big.log").stat().st_size > 100_000_000

    tracemalloc.start()
    try:
        result = await run("Read", file_path="big.log", offset=7_999_999, limit=5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert result.text == "7999999\tline 0009998\n8000000\tline 0009999"
    assert peak < 16_000_000


async def test_a_hundred_megabytes_without_a_line_end_are_paged_in_bounded_memory(
    run: Run, project: Path
) -> None:
    with (project / "big.txt").open("wb") as file:
        for _ in range(100):
            file.write(b"x" * 1_000_000)

    tracemalloc.start()
    try:
        result = await run("Read", file_path="big.txt")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert "100,000,000 bytes in all" in result.text
    assert len(result.text) < 3000
    assert peak < 16_000_000


async def test_an_empty_file_says_so(run: Run, project: Path) -> None:
    (project / "a.txt").touch()

    assert (await run("Read", file_path="a.txt")).text == "[a.txt is empty]"


async def test_an_image_is_shown_whatever_its_name(run: Run, project: Path) -> None:
    (project / "picture.dat").write_bytes(png())

    result = await run("Read", file_path="picture.dat")

    assert result.content == (
        Text(f"picture.dat: image/png, {len(png())} bytes"),
        Image({"type": "base64", "media_type": "image/png", "data": base64.b64encode(png()).decode()}),
    )


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
async def test_other_images_are_known_by_their_first_bytes(
    run: Run, project: Path, head: bytes, kind: str
) -> None:
    (project / "x").write_bytes(head + b"\0" * 20)

    result = await run("Read", file_path="x")

    assert result.has_media
    assert kind in result.text


async def test_an_image_too_large_for_the_wire_is_refused(run: Run, project: Path) -> None:
    (project / "x.png").write_bytes(png() + b"\0" * (LARGEST_IMAGE * 3 // 4))

    result = await run("Read", file_path="x.png")

    assert result.is_error
    assert (
        result.text == "x.png is an image of 3.8 MB; at most 3.8 MB can be shown, so make it smaller first"
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x7fELF\x02\x01\x01\0" + b"\0" * 2000, "x is not text: a program (ELF), 2.0 KB"),
        (b"PK\x03\x04\0\0", "x is not text: a zip archive"),
        (b"SQLite format 3\0", "x is not text: an SQLite database, 16 bytes"),
        (b"\1\2\0\3", "x is not text: binary data, 4 bytes"),
        (b"%PDF-1.7\n\0", "x is a PDF of 10 bytes; turn it into text with Bash"),
    ],
)
async def test_a_binary_file_is_refused_with_what_it_is(
    run: Run, project: Path, data: bytes, said: str
) -> None:
    (project / "x").write_bytes(data)

    result = await run("Read", file_path="x")

    assert result.is_error
    assert result.text.startswith(said)


async def test_a_missing_file_brings_the_names_nearby(run: Run, project: Path) -> None:
    (project / "settings.toml").touch()
    (project / "README.md").touch()

    assert (await run("Read", file_path="setings.toml")).text == (
        "setings.toml does not exist; did you mean settings.toml?"
    )
    assert (await run("Read", file_path="readme.md")).text == (
        "readme.md does not exist; did you mean README.md?"
    )
    assert (await run("Read", file_path="no/such/folder")).text == "no/such/folder does not exist"


async def test_a_path_seen_from_the_project_is_suggested_after_cd(
    run: Run, project: Path, workspace: Workspace
) -> None:
    (project / "sub").mkdir()
    (project / "a.txt").touch()
    workspace.cwd = project / "sub"

    result = await run("Read", file_path="a.txt")

    assert result.text == f"a.txt does not exist in {project}/sub; did you mean {project}/a.txt?"


async def test_a_folder_is_refused_with_what_to_use(run: Run, project: Path) -> None:
    (project / "sub").mkdir()

    result = await run("Read", file_path="sub")

    assert result.is_error
    assert result.text == "sub is a folder; list it with Glob, or with ls in Bash"


async def test_what_is_no_ordinary_file_is_never_opened(run: Run, project: Path) -> None:
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(project / "socket"))
        (project / "link").symlink_to("pipe")
        said = [
            (await run("Read", file_path=name)).text
            for name in ("pipe", "link", "socket", "/dev/zero", "/proc/self/mem", "/proc/kmsg")
        ]

    assert said == [
        "pipe is a pipe, not an ordinary file; it is not opened",
        "link is a pipe, not an ordinary file; it is not opened",
        "socket is a socket, not an ordinary file; it is not opened",
        "/dev/zero is a device, not an ordinary file; it is not opened",
        "/proc/self/mem belongs to the system and is no ordinary file; use Bash for it",
        "/proc/kmsg belongs to the system and is no ordinary file; use Bash for it",
    ]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("a\0b", "a path cannot hold a NUL character; write it without"),
        ("", "the path is empty; name a file or a folder"),
        ("x" * 5000, "Read did not work: file name too long: "),
    ],
)
async def test_a_path_that_cannot_be_one_is_refused(run: Run, path: str, said: str) -> None:
    result = await run("Read", file_path=path)

    assert result.is_error
    assert result.text.startswith(said)


async def test_a_link_in_a_circle_or_to_nowhere_is_told(run: Run, project: Path) -> None:
    (project / "circle").symlink_to("circle")
    (project / "nowhere").symlink_to("gone")

    circle = await run("Read", file_path="circle")
    nowhere = await run("Read", file_path="nowhere")

    assert circle.is_error
    assert "too many levels of symbolic links" in circle.text
    assert nowhere.text == "nowhere does not exist: the link leads to gone, and nothing is there"


async def test_home_is_the_home_that_was_given(run: Run, workspace: Workspace) -> None:
    (workspace.home / "a.txt").write_text("mine", "utf-8")

    assert (await run("Read", file_path="~/a.txt")).text == "1\tmine"


async def test_bytes_that_are_not_utf8_are_shown_and_noted(run: Run, project: Path) -> None:
    (project / "a.txt").write_bytes(b"caf\xe9\nfine\n")

    text = (await run("Read", file_path="a.txt")).text

    assert text == "1\tcaf\ufffd\n2\tfine\n[bytes that are not UTF-8 are shown as \ufffd]"


async def test_dos_lines_and_byte_order_marks_are_shown_plain(run: Run, project: Path) -> None:
    (project / "dos.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    (project / "wide.txt").write_bytes("\ufeffeins\r\nzwei\r\n".encode("utf-16-le"))
    (project / "wide2.txt").write_bytes("\ufeffdrei\n".encode("utf-16-be"))

    dos = (await run("Read", file_path="dos.txt")).text
    wide = (await run("Read", file_path="wide.txt")).text
    wide2 = (await run("Read", file_path="wide2.txt")).text

    assert dos == "1\tone\n2\ttwo\n[lines end in CRLF; Edit takes care of that]"
    assert wide.startswith("1\teins\n2\tzwei\n")
    assert wide.endswith("[the file is in utf-16-le; Edit keeps it so]")
    assert wide2 == "1\tdrei\n[the file is in utf-16-be; Edit keeps it so]"


async def test_a_nul_far_into_a_text_reaches_no_request(run: Run, project: Path) -> None:
    (project / "a.txt").write_bytes(b"x" * 9000 + b"\n" + b"a\0b\n")

    text = (await run("Read", file_path="a.txt", offset=2)).text

    assert text == "2\ta␀b"
