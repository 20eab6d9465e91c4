"""The one reader of Markdown: blocks with their places, and code blanked out where it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.memory.text.markdown import blank_out_code, has_open_fence, split_blocks, split_pieces

TEXT = """# Build

Run it with
`make`.

- first item
- [ ] second
  goes on

| a | b |
|---|---|
| 1 | 2 |

```sh
make all
```
"""


def test_blocks_have_their_form_their_heading_and_their_place() -> None:
    found = [(block.form, block.text, block.under) for block in split_blocks(TEXT)]
    assert found == [
        ("heading", "Build", ""),
        ("prose", "Run it with `make`.", "Build"),
        ("prose", "first item", "Build"),
        ("prose", "second goes on", "Build"),
        ("row", "| a | b |", "Build"),
        ("row", "| 1 | 2 |", "Build"),
        ("code", "make all", "Build"),
    ]
    assert all(
        TEXT[block.start : block.end].split()[-1] == block.text.split()[-1]
        for block in split_blocks(TEXT)
        if block.form != "heading"
    )


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("see `[[x]]` here", "see         here"),
        ("see `two\nlines` here", "see     \n       here"),
        ("in `D:\\data\\` and `E:\\`", "in            and      "),
        (r"an \`escaped sign` stays", r"an \`escaped sign` stays"),
        ("```\n[[x]]\n```\n[[y]]", "   \n     \n   \n[[y]]"),
        ("```\r\n[[x]]\r\n```\r\n[[y]]", "   \r\n     \r\n   \r\n[[y]]"),
        ("- ```\n  [[x]]\n  ```\n[[y]]", "     \n       \n     \n[[y]]"),
        ("```\n[[x]]", "```\n[[x]]"),
        ("~~~\n[[x]]\n\n`[[y]]`", "~~~\n[[x]]\n\n       "),
        ("    [[x]] is indented `code`", "    [[x]] is indented       "),
    ],
)
def test_code_is_blanked_out_and_an_open_fence_is_text(text: str, plain: str) -> None:
    assert blank_out_code(text) == plain


@given(st.text(alphabet="`~<>!-\\ \n\r#|ab", max_size=80))
def test_every_text_is_cut_into_pieces_that_make_it_up_again(text: str) -> None:
    for loose in (False, True):
        pieces = split_pieces(text, loose=loose)
        assert "".join(text[piece.start : piece.end] for piece in pieces) == text
    assert len(blank_out_code(text)) == len(text)
    assert all(block.start <= block.end <= len(text) for block in split_blocks(text))


def test_a_text_may_end_within_a_fence() -> None:
    assert has_open_fence("a\n```\nb")
    assert not has_open_fence("a\n```\nb\n```")
