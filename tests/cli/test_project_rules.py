"""Rules kept for a project: written to its local settings, and trusted only with what the user wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sevenfold.cli.chat.project_rules import NAME, ProjectRules
from sevenfold.core.errors import Mistake
from sevenfold.settings.place import TrustedFolders
from sevenfold.storage.places import find_places


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".sevenfold").mkdir(parents=True)
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "project"


def rules_of(project: Path) -> tuple[ProjectRules, TrustedFolders]:
    home = project.parent / "home"
    trust = TrustedFolders(home, home)
    return ProjectRules(find_places(project, home), trust), trust


def read_permissions(project: Path) -> object:
    return json.loads((project / NAME).read_text("utf-8"))["permissions"]


def test_a_rule_of_the_user_is_trusted_as_he_wrote_it(project: Path) -> None:
    rules, trust = rules_of(project)
    (project / NAME).write_text('{"permissions": {"deny": ["Bash(rm:*)"]}}', "utf-8")
    assert rules.describe_place() == f"kept in {NAME}; this folder is then trusted"

    assert (
        rules.keep("allow", ("Bash(make)", "Edit(/**)")) == f"allow: Bash(make), Edit(/**), kept in {NAME}"
    )
    rules.keep("allow", ("Bash(make)",))
    rules.keep("deny", ("Edit(/a.py)",))

    assert read_permissions(project) == {
        "deny": ["Bash(rm:*)", "Edit(/a.py)"],
        "allow": ["Bash(make)", "Edit(/**)"],
    }
    assert trust.is_trusted(project)
    assert rules.describe_place() == f"kept in {NAME}"


def test_other_settings_of_a_folder_are_not_trusted_along_with_a_rule(project: Path) -> None:
    rules, trust = rules_of(project)
    (project / ".sevenfold" / "settings.json").write_text('{"permissions": {"allow": ["Bash"]}}', "utf-8")

    assert rules.describe_place() == ""
    with pytest.raises(Mistake, match="settings that you have not trusted"):
        rules.keep("allow", ("Bash(make)",))
    rules.keep("deny", ("Bash(make)",))

    assert read_permissions(project) == {"deny": ["Bash(make)"]}
    assert not trust.is_trusted(project)


def test_settings_that_change_while_a_rule_is_written_are_not_trusted(project: Path) -> None:
    class Racing(TrustedFolders):
        """Another process writes a hook just after our rule."""

        def list_changes(self, root: Path, tree: Path | None = None) -> tuple[str, ...]:
            if (project / NAME).exists():
                (project / ".sevenfold" / "settings.json").write_text('{"env": {"A": "b"}}', "utf-8")
            return super().list_changes(root, tree)

    home = project.parent / "home"
    rules = ProjectRules(find_places(project, home), Racing(home, home))

    with pytest.raises(Mistake, match="have just changed"):
        rules.keep("allow", ("Bash(make)",))

    assert not TrustedFolders(home, home).is_trusted(project)


@pytest.mark.parametrize("text", ["{", "[]", '{"permissions": []}', '{"permissions": {"allow": "Bash"}}'])
def test_a_file_that_cannot_be_understood_is_left_as_it_is(project: Path, text: str) -> None:
    rules, _ = rules_of(project)
    (project / NAME).write_text(text, "utf-8")

    with pytest.raises(Mistake):
        rules.keep("deny", ("Bash(make)",)) if "allow" not in text else rules.keep("allow", ("Bash(make)",))

    assert (project / NAME).read_text("utf-8") == text


def test_a_link_out_of_the_project_is_not_followed(project: Path) -> None:
    rules, _ = rules_of(project)
    outside = project.parent / "outside.json"
    (project / NAME).symlink_to(outside)

    with pytest.raises(Mistake, match="leads out of the project"):
        rules.keep("deny", ("Bash(make)",))

    assert not outside.exists()
