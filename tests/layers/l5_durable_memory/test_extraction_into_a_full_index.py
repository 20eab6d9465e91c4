"""What the person said is saved also where the index has no room for one more line."""

from __future__ import annotations

from pathlib import Path

import pytest
from layers.l5_durable_memory.learning import Learner, topic

pytestmark = pytest.mark.anyio


async def test_a_rule_is_saved_although_the_folder_has_more_memories_than_its_index_lines(
    tmp_path: Path,
) -> None:
    learner = Learner(tmp_path)
    for n in range(240):
        learner.store.add(
            type="project",
            name=f"rack-{n}",
            description=f"Rack {n}",
            body=f"It holds box {n * 7}.",
            new=True,
        )
    learner.say("From now on always run the linter before a commit.")
    rule = topic(
        "linter", "Always run the linter before a commit.", "always run the linter before a commit"
    )
    assert await learner.learn(learner.write("linter.md", rule)) == ["Saved linter.md."]
    assert learner.store.get("linter").type == "feedback"
    assert "(linter.md)" in learner.files["MEMORY.md"].splitlines()[-2]
    assert learner.files["MEMORY.md"].endswith(
        "- 42 more memories are not listed here; recall finds them\n"
    )
