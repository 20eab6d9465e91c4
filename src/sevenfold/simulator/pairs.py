"""Every tool use has its result in the next message, and every result its use: or the API says no."""

from __future__ import annotations

from sevenfold.simulator.prefix import as_blocks
from sevenfold.simulator.problems import ApiError, Json, invalid

Spot = tuple[int, int, Json]
"""Index of the message, index of the block inside it, and the block."""


def check_pairs(messages: list[Json]) -> None:
    """Raise what the API would say of the first broken pair."""
    seen: set[str] = set()
    results: set[str] = set()
    open_uses: dict[str, int] = {}
    for role, spots in _turns(messages):
        if role == "assistant":
            if open_uses:
                raise _unanswered(open_uses)
            open_uses = _uses(spots, seen)
            continue
        answered = _results(spots, open_uses)
        missing = {use: i for use, i in open_uses.items() if use not in answered}
        if missing:
            raise _unanswered(missing)
        results.update(answered)
        _check_edits(spots, results)
        open_uses = {}
    if open_uses:
        raise _unanswered(open_uses)


def _turns(messages: list[Json]) -> list[tuple[str, list[Spot]]]:
    """Blocks of messages of the same role in a row are one turn; `system` messages stand outside."""
    turns: list[tuple[str, list[Spot]]] = []
    for i, message in enumerate(messages):
        if message["role"] == "system":
            continue
        if not turns or turns[-1][0] != message["role"]:
            turns.append((message["role"], []))
        turns[-1][1].extend((i, j, b) for j, b in enumerate(as_blocks(message["content"])))
    return turns


def _uses(spots: list[Spot], seen: set[str]) -> dict[str, int]:
    uses: dict[str, int] = {}
    for i, j, block in spots:
        if block["type"] == "tool_result":
            raise invalid(
                f"messages.{i}.content.{j}: `tool_result` blocks can only be in `user` messages"
            )
        if block["type"] != "tool_use":
            continue
        use = block.get("id")
        if not isinstance(use, str) or not isinstance(block.get("name"), str):
            missing = "name" if isinstance(use, str) else "id"
            raise invalid(f"messages.{i}.content.{j}.tool_use.{missing}: Field required")
        if use in seen:
            raise invalid(f"messages.{i}.content.{j}: `tool_use` ids must be unique")
        seen.add(use)
        uses[use] = i
    return uses


def _results(spots: list[Spot], open_uses: dict[str, int]) -> set[str]:
    """Uses answered at the beginning of this turn. Results after other content answer nothing."""
    answered: set[str] = set()
    first = True
    for i, j, block in spots:
        if block["type"] == "tool_use":
            raise invalid(
                f"messages.{i}.content.{j}: `tool_use` blocks can only be in `assistant` messages"
            )
        if block["type"] != "tool_result":
            first = first and block["type"] == "cache_edits"
            continue
        use = block.get("tool_use_id")
        if not isinstance(use, str):
            raise invalid(f"messages.{i}.content.{j}.tool_result.tool_use_id: Field required")
        if not isinstance(block.get("content") or "", str | list):
            raise invalid(
                f"messages.{i}.content.{j}.tool_result.content: Input should be a valid list"
            )
        if use not in open_uses:
            raise invalid(
                f"messages.{i}.content.{j}: unexpected `tool_use_id` found in `tool_result` blocks:"
                f" {use}. Each `tool_result` block must have a corresponding `tool_use` block in "
                "the previous message."
            )
        if use in answered:
            raise invalid(
                f"messages.{i}.content.{j}: each tool_use must have a single result. Found multiple "
                f"`tool_result` blocks with id: {use}"
            )
        if first:
            answered.add(use)
    return answered


def _unanswered(uses: dict[str, int]) -> ApiError:
    index = max(uses.values())
    return invalid(
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately "
        f"after: {', '.join(uses)}. Each `tool_use` block must have a corresponding `tool_result` "
        "block in the next message."
    )


def _check_edits(spots: list[Spot], results: set[str]) -> None:
    for i, j, block in spots:
        if block["type"] != "cache_edits":
            continue
        where, gone = f"messages.{i}.content.{j}.cache_edits.delete", block.get("delete")
        if not isinstance(gone, list) or not all(isinstance(id, str) for id in gone):
            raise invalid(f"{where}: Input should be a list of tool use ids")
        for id in gone:
            if id not in results:
                raise invalid(
                    f"{where}: no `tool_result` with `tool_use_id` {id} at or before this block"
                )
