"""Every error has a fixed kind, which programs compare: it is data, and stays when a class is renamed."""

from __future__ import annotations

import ast
from pathlib import Path

from sevenfold.cli.failures import find_error_kind
from sevenfold.core.errors import Mistake, NoKey, SevenfoldError

SRC = Path(__file__).parents[2] / "src"
KINDS = {
    "ambiguous",
    "bad_reply",
    "bad_request",
    "behind",
    "busy",
    "context_full",
    "damaged",
    "damaged_history",
    "embedding_unavailable",
    "embedding_unfinished",
    "failure",
    "fleet_away",
    "from_the_future",
    "git_failed",
    "guarded",
    "key_refused",
    "mailbox_full",
    "mcp_server_failed",
    "memory_off",
    "mistake",
    "model_failure",
    "model_not_found",
    "never_stopped",
    "no_key",
    "no_such_memory",
    "no_team",
    "not_sent",
    "old_fence",
    "overloaded",
    "prefix_lost",
    "prompt_too_long",
    "rate_limited",
    "refused",
    "script_error",
    "session_busy",
    "session_not_found",
    "settings_error",
    "sevenfold_error",
    "step_limit_reached",
    "storage_failure",
    "thread_refused",
    "too_long",
    "unknown_model",
    "unreachable",
    "unreadable",
    "untouched_request",
}


def read_kinds() -> dict[str, str | None]:
    """The kind of each error class in the package, by its name; None where it gives none."""
    classes = [
        node
        for path in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    found: dict[str, str | None] = {"SevenfoldError": SevenfoldError.kind}
    before = 0
    while before < len(found):
        before = len(found)
        for node in classes:
            if any(isinstance(base, ast.Name) and base.id in found for base in node.bases):
                kinds = [word.value for word in node.keywords if word.arg == "kind"]
                found[node.name] = (
                    str(kinds[0].value) if kinds and isinstance(kinds[0], ast.Constant) else None
                )
    return found


def test_every_error_has_a_kind_of_its_own_and_they_are_these() -> None:
    kinds = read_kinds()

    assert set(kinds.values()) == KINDS
    assert len(kinds) == len(KINDS)


def test_an_error_of_somebody_else_has_the_kind_of_its_parent() -> None:
    class Own(NoKey):
        pass

    assert find_error_kind(Own("no key")) == "no_key"
    assert find_error_kind(Mistake("wrong")) == "mistake"
