"""Topic files: read whatever they are, changed one thing at a time, written so that all can read them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sevenfold.core.errors import Refused
from sevenfold.memory.frontmatter import read_simple, read_yaml
from sevenfold.memory.topic_file import (
    LARGEST,
    TYPES,
    Origin,
    Topic,
    Type,
    change_topic,
    encode_new_topic,
    read_topic,
    trim_body,
)

DATA = Path(__file__).parents[3] / "shared/data/memory_files_dev.jsonl.gz"


def read(text: str, file: str = "a.md") -> Topic:
    return read_topic(text.encode(), file)


def strict(data: bytes) -> dict[str, Any]:
    """What a strict YAML reader makes of the frontmatter."""
    block = data.decode()[4:].split("\n---\n", 1)[0]
    found = yaml.safe_load(block)
    assert isinstance(found, dict)
    return found


# -- reading


def test_a_well_formed_file_is_read_whole() -> None:
    topic = read("---\nname: no-mocks\ndescription: real database in tests\ntype: feedback\n---\n\nRule.\n")
    assert (topic.name, topic.description, topic.type) == ("no-mocks", "real database in tests", "feedback")
    assert topic.body == "Rule."
    assert topic.problems == ()


KEYS = st.sampled_from(["name", "description", "type", "metadata", "origin"])
VALUES = st.one_of(
    st.text(max_size=9),
    st.text(max_size=9).map(lambda text: f"x{text}y"),
    st.text(max_size=9).map(lambda text: f'"{text}"'),
    st.text(alphabet='ab1: {},#"-', max_size=9).map(lambda text: f'{{date: "{text}", author: a{text}}}'),
    st.sampled_from(
        ["yes", "null", "2026-11-16", "it's, he said", "a #b", "a: b", "[1]", "|", "*x", "- x"]
    ),
)
LINES = st.builds(
    lambda indent, key, value: f"{indent}{key}:{value and ' '}{value}\n",
    st.sampled_from(["", "  "]),
    KEYS,
    VALUES,
)


@settings(max_examples=500)
@given(st.lists(LINES, max_size=4).map("".join))
@example('name: a\nmetadata:\n  origin: {date: "2026-11-16", author: agent}\n  type: user\n')
@example("metadata:\n  origin:\n")
def test_a_block_that_is_read_without_yaml_has_the_same_entries(block: str) -> None:
    simple = read_simple(block)
    assert simple is None or simple == read_yaml(block)


def test_what_we_write_is_read_without_yaml() -> None:
    written = encode_new_topic(
        "a.md", name="a", description="b, c", type="project", body="d", origin=Origin(date="2026-11-16")
    )
    assert read_simple(written.decode()[4:].split("---\n", 1)[0]) is not None


@pytest.mark.parametrize(
    "layout",
    [
        "type: user",
        "metadata: {type: user}",
        "metadata:\n  type: user",
        "metadata:\n  node: memory\n  type: user",
        'metadata: {"type": "user", x: [1, 2]}',
        "Type: User",
        "metadata:\n\ttype: user",
        "metadata: {type: user, note: a: b}",
        "type:user",
        "type：user",
    ],
)
def test_the_type_is_read_in_every_layout(layout: str) -> None:
    assert read(f"---\nname: a\ndescription: b\n{layout}\n---\nx\n").type == "user"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("description: Fix: never mock", "Fix: never mock"),
        ("description: `_ = x` keeps it alive", "`_ = x` keeps it alive"),
        ('description: "secrets-last" is within: layer 1', '"secrets-last" is within: layer 1'),
        ('description: "never closed', "never closed"),
        ("description: @someone said so", "@someone said so"),
        ("description: % of users", "% of users"),
        ("description: *important* note", "*important* note"),
        ("description: *alone", "*alone"),
        ("description: !important read this", "!important read this"),
        ("description: fixed in #12, closed", "fixed in #12, closed"),
        ("description: text # a remark", "text"),
        ("description: - not a list", "- not a list"),
        ("description: [draft] of: a plan", "[draft] of: a plan"),
        ("description: 2026-06-18", "2026-06-18"),
        ("description: no", "no"),
        ("description:\ttab", "tab"),
        ("description: |\n  one\n  two", "one\ntwo"),
        ("description: >-\n  one\n  two", "one two"),
        ("description: one\n  two: three", "one two: three"),
        ("description:\n  - one\n  - two", "one, two"),
        ("description: 数据库：不要模拟", "数据库：不要模拟"),
        ("description：全角冒号", "全角冒号"),
        ('"description": quoted key', "quoted key"),
        ("description: first\ndescription: second", "second"),
    ],
)
def test_a_description_survives_what_strict_yaml_would_lose(line: str, value: str) -> None:
    topic = read(f"---\nname: 名字\n{line}\ntype: project\n---\nBody.\n")
    assert (topic.name, topic.description, topic.type, topic.body) == ("名字", value, "project", "Body.")


def test_one_bad_line_costs_no_other_value() -> None:
    topic = read('---\nname: "a \\"b\\""\nodd: [1, {2\ndescription: x: y\nmetadata:\n  type: user\n---\n')
    assert (topic.name, topic.description, topic.type) == ('a "b"', "x: y", "user")


def test_windows_line_ends_and_a_byte_order_mark_are_read() -> None:
    topic = read("\ufeff---\r\nname: a\r\ndescription: b\r\ntype: user\r\n---\r\n\r\nOne\r\nTwo\r\n")
    assert (topic.name, topic.type, topic.body) == ("a", "user", "One\nTwo")
    assert topic.problems == ()


@pytest.mark.parametrize(
    "body",
    [
        "\n# Heading\n\nText: with a colon\n\n---\n\nmore\n",
        "Text right below.\n",
        "# Heading right below\n",
        "\n# Heading\n---\n",
    ],
)
def test_a_frontmatter_that_is_never_closed_ends_where_the_prose_begins(body: str) -> None:
    topic = read(f"---\nname: a\ndescription: b\ntype: user\n{body}")
    assert (topic.name, topic.description, topic.type) == ("a", "b", "user")
    assert topic.body == trim_body(body)
    assert any("closing" in problem for problem in topic.problems)


def test_without_frontmatter_the_file_gives_the_name_and_the_heading_the_description() -> None:
    topic = read("Intro.\n\n# Deploying to **prod**\n\nText.\n", "sub/deploy-notes.md")
    assert (topic.name, topic.description, topic.type) == ("deploy-notes", "Deploying to prod", None)
    assert any("frontmatter" in problem for problem in topic.problems)


def test_without_a_heading_the_first_sentence_describes() -> None:
    assert read("- Use `uv` here. Not pip.\n").description == "Use uv here."
    assert read("这里用 uv。不用 pip。\n").description == "这里用 uv。"


def test_a_horizontal_rule_is_no_frontmatter() -> None:
    text = "---\n\nJust a text.\n\n---\n\nMore.\n"
    assert read(text).body == text.strip()


def test_an_unknown_type_is_untyped_and_said() -> None:
    topic = read("---\nname: a\ndescription: b\ntype: secret-plan\n---\n")
    assert topic.type is None
    assert any("secret-plan" in problem for problem in topic.problems)


def test_links_are_the_double_brackets_outside_of_code() -> None:
    topic = read(
        "See [[one]], [[two|shown]], [[three#part]] and [[one]].\n"
        "Not `[[code]]`, not [[ -f x ]].\n\n```toml\n[[tool.x]]\n```\n"
    )
    assert topic.links == ("one", "two", "three")


def test_the_origin_is_read_from_the_metadata() -> None:
    topic = read(
        "---\nname: a\nmetadata:\n  type: user\n  origin:\n    session: s1\n"
        "    entries: [3, 5]\n    date: 2026-01-02\n    author: extraction\n---\n"
    )
    assert topic.origin == Origin("s1", (3, 5), "2026-01-02", "extraction")
    assert read("---\nname: a\noriginSessionId: abc\n---\n").origin == Origin("abc")


# -- what is hardly a memory


def test_empty_binary_and_foreign_encodings_are_said() -> None:
    assert read_topic(b"", "a.md").problems == ("it is empty",)
    assert "not text" in read_topic(b"\x89PNG\0\0\1", "a.md").problems[0]
    assert "UTF-16" in read_topic("---\nname: a\n".encode("utf-16"), "a.md").problems[0]
    latin = read_topic(b"---\nname: a\ndescription: caf\xe9\ntype: user\n---\nna\xefve\n", "a.md")
    assert (latin.description, latin.body) == ("caf\ufffd", "na\ufffdve")
    assert any("UTF-8" in problem for problem in latin.problems)
    assert change_topic(latin, name="b") == latin.data.replace(b"name: a", b"name: b")


def test_a_file_that_is_no_text_is_not_changed_in_place() -> None:
    topic = read_topic(b"\0\1\2", "picture.md")
    assert change_topic(topic) == b"\0\1\2"
    with pytest.raises(Refused, match=r"picture\.md"):
        change_topic(topic, description="x")


def test_of_a_huge_file_the_beginning_is_read_and_the_rest_is_kept() -> None:
    data = b"---\nname: a\ndescription: b\ntype: user\n---\n" + b"[[link]] words: more\n" * 2_500_000
    topic = read_topic(data, "huge.md")
    assert len(topic.body) < LARGEST
    assert topic.name == "a"
    assert any("52,5" in problem for problem in topic.problems)
    assert change_topic(topic, name="c") == data.replace(b"name: a", b"name: c", 1)


@pytest.mark.parametrize(
    "block",
    [
        "a: " + "[" * 60_000,
        "a:\n" * 20_000,
        "".join(" " * n + "a: [\n" for n in range(300)),
        "- " * 30_000,
        "a: &a [*a, *a]\n" + "b: !!python/object:os.system x\n",
        "? " * 20_000,
        '"' * 60_000,
    ],
)
def test_a_hostile_block_is_read_like_any_other(block: str) -> None:
    topic = read(f"---\nname: fine\n{block}\n---\nBody.\n")
    assert topic.file == "a.md"
    assert change_topic(topic) == topic.data


# -- changing


def test_changing_one_key_leaves_every_other_byte() -> None:
    text = (
        "\ufeff---\r\n# keep me\r\nname:   a\r\ndescription: Fix: it   # not a remark\r\n"
        "odd: [1,\r\n  2]\r\ntype: user # remark\r\n\r\n---\r\n\r\nOne\nTwo\r\n\t\r\n"
    )
    topic = read(text)
    assert change_topic(topic, name="b").decode() == text.replace("name:   a", "name: b")
    assert change_topic(topic, type="project").decode() == text.replace("type: user", "type: project")
    assert change_topic(topic, description="short").decode() == text.replace(
        "Fix: it   # not a remark", "short"
    )
    assert change_topic(topic, body="One\nTwo\nThree").decode() == text.replace(
        "Two\r\n\t\r\n", "Two\r\nThree\r\n\t\r\n"
    )


def test_keys_that_are_missing_are_added_in_their_place() -> None:
    topic = read("---\nname: a\nx: 1\n---\nBody.\n")
    assert change_topic(topic, description="d", type="user") == (
        b"---\nname: a\ndescription: d\ntype: user\nx: 1\n---\nBody.\n"
    )


def test_a_file_without_frontmatter_gets_one() -> None:
    topic = read("# Title\n\nBody.\n", "deploy.md")
    assert change_topic(topic, type="project") == (
        b"---\nname: deploy\ndescription: Title\ntype: project\n---\n\n# Title\n\nBody.\n"
    )


@pytest.mark.parametrize(
    "before",
    [
        "---\nname: a\n---\n",
        "---\nname: a\nmetadata:\n  type: user\n---\n",
        "---\nname: a\nmetadata:\n    type: user\n    x: 1\ny: 2\n---\n",
        "---\nname: a\nmetadata: {type: user}\n---\n",
        "---\nname: a\nmetadata:\n---\n",
        "---\nname: a\nmetadata: odd\n---\n",
        "---\nname: a\nmetadata:\n  origin: {session: old, author: user}\n  z: 1\n---\n",
    ],
)
def test_an_origin_finds_its_place_and_strict_yaml_agrees(before: str) -> None:
    topic = read(before + "Body.\n")
    origin = Origin("s, 1", (1, 22), "2026-01-02", "agent")
    data = change_topic(topic, origin=origin)
    after = read_topic(data, "a.md")
    assert (after.origin, after.type, after.body, after.name) == (origin, topic.type, "Body.", "a")
    old, new = strict(before.encode()), strict(data)
    assert {key: value for key, value in new.items() if key not in {"metadata", "origin"}} == {
        key: value for key, value in old.items() if key != "metadata"
    }


def test_a_body_that_looks_like_frontmatter_stays_a_body() -> None:
    topic = read("plain\n", "deploy.md")
    after = read_topic(change_topic(topic, body="---\nname: evil\n---\nx"), "deploy.md")
    assert (after.name, after.body) == ("deploy", "---\nname: evil\n---\nx")


# -- new ones


@pytest.mark.parametrize(
    "text",
    [
        "plain words",
        "Fix: never mock",
        "ends with:",
        "issue #12",
        "yes",
        "null",
        "2026-01-02",
        "1e3",
        "0x1f",
        "12:30:00",
        '"quoted"',
        "it's",
        "both ' and \"",
        "back\\slash",
        "- dash",
        "`code`",
        "@at",
        "[x]",
        "{y}",
        "*star*",
        "",
        "two\nlines",
        "tab\there",
        "数据库：模拟",
        "emoji 🙂",
        "\u2028 odd \x85 breaks \ufeff",
        "~",
        "---",
    ],
)
def test_what_we_write_says_the_same_to_strict_yaml_and_to_us(text: str) -> None:
    data = encode_new_topic("a.md", name="n " + text, description=text, type="user", body="B")
    assert strict(data)["name"] == ("n " + text).strip()
    assert strict(data)["description"] == text.strip()
    topic = read_topic(data, "a.md")
    assert topic.name == ("n " + text).strip()
    assert topic.description == (text.strip() or "B")
    assert all("no description" in problem for problem in topic.problems)


def test_a_new_memory_reads_as_people_would_write_it() -> None:
    data = encode_new_topic(
        "a.md",
        name="no-mocks",
        description="Tests use the real database",
        type="feedback",
        body="Rule.\n",
        origin=Origin("s1", (4,), "2026-01-02", "user"),
    )
    assert data.decode() == (
        "---\nname: no-mocks\ndescription: Tests use the real database\ntype: feedback\n"
        'metadata:\n  origin: {session: s1, entries: [4], date: "2026-01-02", author: user}\n'
        "---\n\nRule.\n"
    )


# -- laws

letters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
words = st.text(letters, max_size=40) | st.sampled_from(
    ["Fix: it", "a #1", '"x', "- y", "---", "yes", "x:"]
)
pieces = (
    """
---|...|name: a|description: b: c|type: user|metadata:|  type: user|metadata: {type: user}|\ttype: x||# h
prose|- x|x: >|  y|q: "|name:|type:|name：n|description: >|metadata: {|}|  origin:|'|x: \\|? k|: v|&a b|*c
""".strip()
    .replace("\n", "|")
    .split("|")
)
soup = st.lists(st.sampled_from(pieces) | words, max_size=12).map(
    lambda lines: "\n".join(["---", *lines]).encode("utf-8", "replace")
)
files = st.binary(max_size=200) | soup | soup.map(lambda data: data.replace(b"\n", b"\r\n"))


@given(files)
def test_nothing_is_ever_raised_and_no_change_is_the_same_bytes(data: bytes) -> None:
    topic = read_topic(data, "a.md")
    assert change_topic(topic) == data
    same = change_topic(
        topic,
        name=topic.name,
        description=topic.description,
        type=topic.type,
        body=topic.body,
        origin=topic.origin,
    )
    assert same == data


@given(files, st.sampled_from(["name", "description", "type", "body", "origin"]), words, st.data())
@settings(max_examples=300)
@example(b"---\n\r\nname: a\n---\n", "type", "x", None)
def test_what_is_changed_reads_back_and_nothing_else_moves(
    data: bytes, key: str, text: str, draw: st.DataObject | None
) -> None:
    topic = read_topic(data, "a.md")
    if b"\0" in data or data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return
    kind: Type = draw.draw(st.sampled_from(TYPES)) if draw else "user"
    value: Any = {"type": kind, "origin": Origin(text.strip(), (1,), "", kind)}.get(key, text)
    after = read_topic(change_topic(topic, **{key: value}), "a.md")
    if key in {"type", "origin"}:
        assert getattr(after, key) == value
    elif key == "body":
        assert after.body == trim_body(text)
    elif text.strip():
        assert getattr(after, key) == text.strip()
    for other in {"name", "type", "origin", "body"} - {key}:
        assert getattr(after, other) == getattr(topic, other)


plain_values = st.dictionaries(
    st.sampled_from(["x", "tags", "created", "odd key", "z9"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0\x85\u2028\u2029"), max_size=20)
    | st.integers()
    | st.lists(st.booleans(), max_size=3)
    | st.dictionaries(st.sampled_from("abc"), st.none() | st.floats(allow_nan=False), max_size=2),
)


@given(plain_values, st.sampled_from(["\n", "\r\n"]), words, st.booleans(), st.booleans())
def test_in_a_block_that_is_yaml_only_the_lines_of_the_changed_key_change(
    others: dict[str, Any], nl: str, text: str, mark: bool, last: bool
) -> None:
    block = yaml.safe_dump(others, allow_unicode=True) if others else ""
    known = "name: old name\ndescription: >-\n  two\n  lines\ntype: user\n"
    lines = (block + known if last else known + block).replace("\r\n", "\n").replace("\n", nl)
    whole = ("\ufeff" * mark + f"---{nl}{lines}---{nl}{nl}Body{nl}").encode()
    topic = read_topic(whole, "a.md")
    if text.strip() in {"", "old name", "two lines"}:
        return
    new = change_topic(topic, name=text)
    head, tail = whole.split(b"name: old name", 1)
    assert new.startswith(head + b"name: ")
    assert new.endswith(tail)
    assert b"\n" not in new[len(head) : len(new) - len(tail)]
    again = change_topic(read_topic(new, "a.md"), name="old name")
    assert again == whole
    told = change_topic(topic, description=text)
    said = told.decode().lstrip("\ufeff").replace("\r\n", "\n")
    assert strict(said.encode())["description"] == text.strip()
    head, tail = whole.split(f"description: >-{nl}  two{nl}  lines".encode(), 1)
    assert told.startswith(head + b"description: ")
    assert told.endswith(tail)


@given(words, words, st.text(letters, max_size=80), st.sampled_from(TYPES))
def test_a_new_memory_reads_back_as_written(name: str, about: str, body: str, kind: Type) -> None:
    data = encode_new_topic("a.md", name=name, description=about, type=kind, body=body)
    topic = read_topic(data, "a.md")
    assert topic.body == trim_body(body)
    assert topic.type == kind
    if name.strip():
        assert topic.name == name.strip()
    if about.strip():
        assert topic.description == about.strip()
    assert not any("YAML" in problem for problem in topic.problems)


# -- real files


@pytest.mark.skipif(not DATA.exists(), reason="the development data is not here")
def test_real_files_parse_round_trip_and_what_strict_yaml_loses_is_recovered() -> None:
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    lost = recovered = 0
    for row in rows:
        data = row["text"].encode()
        topic = read_topic(data, row["path"])
        assert change_topic(topic, name=topic.name, body=topic.body) == data
        if not data.startswith(b"---"):
            continue
        try:
            assert strict(data)["name"] == topic.name
        except yaml.YAMLError:
            lost += 1
            recovered += bool(topic.type and ":" in topic.description + topic.file + ":")
            assert "description" not in " ".join(topic.problems)
        assert topic.type is not None
        assert read_topic(change_topic(topic, description="New: one"), topic.file).body == topic.body
    assert len(rows) == 382
    assert lost == recovered == 9
