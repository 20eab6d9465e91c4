"""How likely a text is as the answer to a request, by a model on llama.cpp.

A grammar forces the answer, token by token; what counts is the probability that each token had before the
grammar. So nothing is generated, and a model that writes no memory of its own can still be asked.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TypeVar

import anyio
import httpx

from benchmarks.report import Table, show
from sevenfold.core.errors import BadReply
from sevenfold.core.request import Request
from sevenfold.models.local import LlamaProcess
from sevenfold.models.openai_wire import encode_body

SECONDS: Final = 900.0
NAME: Final = "local"
DRAWS: Final = 2_000
_Scored = TypeVar("_Scored")


class AnswerScorer:
    """Asks a running llama.cpp server for the probabilities of tokens."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def read_tokens(self, text: str) -> list[int]:
        """The tokens of a text of which no part is a mark of the chat format."""
        return await self._tokenize(text, special=False)

    async def read_prompt(self, request: Request) -> list[int]:
        """The tokens of a request in the model's chat format, up to where its answer begins."""
        body = json.loads(encode_body(request))
        asked = {name: body[name] for name in ("messages", "tools") if name in body}
        prompt = (await self._post("/apply-template", asked))["prompt"]
        return await self._tokenize(prompt, special=True)

    async def score(self, prompt: Sequence[int], answer: Sequence[int]) -> list[float]:
        """The nats of each token of the answer: 0 is certain."""
        grammar = " ".join(f"<[{token}]>" for token in answer)
        asked = {
            "prompt": list(prompt),
            "n_predict": len(answer),
            "temperature": 0,
            "grammar": f"root ::= {grammar}",
            "n_probs": 1,
            "post_sampling_probs": False,  # else the grammar would make each token certain
            "cache_prompt": True,  # the next answer to this prompt finds it read
        }
        told = (await self._post("/completion", asked)).get("completion_probabilities", [])
        if [one["id"] for one in told] != list(answer):
            raise BadReply("llama.cpp did not answer with the tokens that its grammar asked for")
        return [-float(one["logprob"]) for one in told]

    async def _tokenize(self, text: str, *, special: bool) -> list[int]:
        asked = {"content": text, "add_special": False, "parse_special": special}
        tokens: list[int] = (await self._post("/tokenize", asked))["tokens"]
        return tokens

    async def _post(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        response = await self._client.post(path, json=asked)
        response.raise_for_status()
        told: dict[str, Any] = response.json()
        return told


@asynccontextmanager
async def open_scorer(weights: Path, window: int) -> AsyncIterator[AnswerScorer]:
    """A server of its own for this file, which ends with the block."""
    process = await LlamaProcess.start(weights, NAME, window)
    try:
        key = {"Authorization": f"Bearer {process.key}"}
        async with httpx.AsyncClient(base_url=process.url, headers=key, timeout=SECONDS) as client:
            yield AnswerScorer(client)
    finally:
        await process.close()


def draw_interval(gains: Iterable[tuple[Hashable, float]]) -> tuple[float, float]:
    """The range of the mean gain that 90 % of draws of whole groups fall into."""
    by_group: dict[Hashable, list[float]] = defaultdict(list)
    for group, gain in gains:
        by_group[group].append(gain)
    groups, chance = list(by_group.values()), random.Random(7)
    draws = (chance.choices(groups, k=len(groups)) for _ in range(DRAWS))
    means = sorted(fmean([gain for part in drawn for gain in part]) for drawn in draws)
    return means[DRAWS // 20], means[-DRAWS // 20]


def run_measure(
    about: str | None,
    many: int,
    measure: Callable[[Path, int], Awaitable[Sequence[_Scored]]],
    make_table: Callable[[Sequence[_Scored], Path], Table],
) -> None:
    """The command line of a measure: `many` is how much of the data it takes if nothing else is said."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n")[0])
    parser.add_argument(
        "--weights", type=Path, required=True, help="a GGUF file; tests/weights.py fetches one"
    )
    parser.add_argument("--most", type=int, default=many, help="how many conversations")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    scored = anyio.run(measure, options.weights, options.most)
    show([make_table(scored, options.weights)], as_json=options.json)
