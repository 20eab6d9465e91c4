"""Frames and conversations of every kind, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st
from models.asking import TOOL

from sevenfold.core.messages import (
    Block,
    Image,
    Message,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from sevenfold.core.request import Frame

OPAQUE = Opaque("new", '{"type": "new",  "n": 1.0}')

texts = st.text(max_size=12).map(lambda s: s.encode("utf-8", "replace").decode("utf-8"))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(Text, texts),
    st.builds(Thinking, texts, texts),
    st.builds(RedactedThinking, texts),
    st.builds(ToolUse, texts, texts, st.dictionaries(texts, values, max_size=2)),
    st.builds(ToolResult, texts, texts, st.booleans()),
    st.builds(ToolResult, texts, st.tuples(st.builds(Text, texts))),
    st.builds(Image, st.fixed_dictionaries({"type": st.just("url"), "url": texts})),
    st.just(OPAQUE),
)
messages = st.builds(
    Message, st.sampled_from(["user", "assistant"]), st.lists(blocks, max_size=4).map(tuple)
)
conversations = st.lists(messages, min_size=1, max_size=6)
frames = st.builds(
    Frame,
    st.sampled_from(["claude-sonnet-4-5", "claude-opus-5-5[1m]", "unknown"]),
    st.lists(texts, max_size=3).map(tuple),
    st.lists(st.just(TOOL), max_size=2).map(tuple),
    st.fixed_dictionaries({}, optional={"effort": st.just("low"), "speed": st.just("fast")}),
    st.sampled_from(["5m", "1h"]),
)
