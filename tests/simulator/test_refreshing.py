"""A read keeps every shorter prefix alive, and looks only where something was ever written."""

from __future__ import annotations

from typing import SupportsIndex, overload

from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.simulator.cache import CachedPrompt, CacheScope, PromptCache

ME: CacheScope = ("key", "model")
STEPS = st.tuples(
    st.sampled_from([ME, ("other", "model")]),
    st.sampled_from(["a" * 30, "a" * 12 + "b" * 8, "b" * 6]),
    st.lists(st.tuples(st.integers(0, 29), st.sampled_from([300, 3_600])), max_size=4),
    st.integers(0, 400),
)


class Counted(list[bytes]):
    """Digests that know how many of them were asked for."""

    asked = 0

    @overload
    def __getitem__(self, at: SupportsIndex, /) -> bytes: ...
    @overload
    def __getitem__(self, at: slice, /) -> list[bytes]: ...
    def __getitem__(self, at: SupportsIndex | slice, /) -> bytes | list[bytes]:
        self.asked += len(range(*at.indices(len(self)))) if isinstance(at, slice) else 1
        return super().__getitem__(at)


class Plain(PromptCache):
    """Walks every position of the prefix."""

    def _refresh(self, scope: CacheScope, prompt: CachedPrompt, hit: int, now: float) -> None:
        for digest in prompt.digests[:hit]:
            entry = self._entries.get(scope, {}).get(digest)
            if entry is not None and entry.expires >= now:
                entry.expires = now + entry.ttl


def prompt(blocks: str, marks: list[tuple[int, int]]) -> CachedPrompt:
    digests = [blocks[: n + 1].encode("utf-8") for n in range(len(blocks))]
    upto = [100 * (n + 1) for n in range(len(blocks))]
    kept = sorted({at: ttl for at, ttl in marks if at < len(blocks)}.items())
    return CachedPrompt(digests, upto, [("messages", n, 0, "text") for n in range(len(blocks))], kept)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, min_size=2, max_size=25))
def test_what_is_found_is_the_same_as_if_everything_were_looked_at(
    steps: list[tuple[CacheScope, str, list[tuple[int, int]], int]],
) -> None:
    ours, plain, now = PromptCache(), Plain(), 0.0
    for scope, blocks, marks, wait in steps:
        now += wait
        one = prompt(blocks, marks)
        assert ours.look(scope, one, 500, now) == plain.look(scope, one, 500, now)
        for cache in (ours, plain):
            cache.write(scope, one, 500, now)
        assert len(ours) == len(plain)
    for wait in (50, 150, 250, 400, 1_000, 3_000):
        now += wait
        for scope, blocks, _, _ in steps:
            for end in range(2, len(blocks), 3):
                one = prompt(blocks, [(end, 300)])
                assert ours.look(scope, one, 500, now) == plain.look(scope, one, 500, now)


def test_a_long_prefix_is_not_walked_block_by_block() -> None:
    cache, long = PromptCache(), prompt("a" * 3_000, [(10, 300), (2_000, 300), (2_999, 300)])
    cache.write(ME, long, 500, 0.0)
    long.digests = counted = Counted(long.digests)

    assert cache.look(ME, long, 500, 250.0).hit == 3_000

    assert counted.asked < 10
    assert cache.look(ME, prompt("a" * 11, [(10, 300)]), 500, 500.0).hit == 11, "kept alive"
