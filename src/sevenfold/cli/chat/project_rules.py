"""Permission rules that the user keeps for a project: `.sevenfold/settings.local.json`."""

from __future__ import annotations

import json
from typing import Final

from sevenfold.cli.output import to_one_line
from sevenfold.core.errors import Mistake, Refused, SettingsError, StorageFailure
from sevenfold.core.messages import Json
from sevenfold.settings.checks import check_document
from sevenfold.settings.files import FOLDER, SettingsDocument, is_outside, read_document
from sevenfold.settings.place import TrustedFolders
from sevenfold.storage.files import make_private_dir, write_atomic
from sevenfold.storage.places import ProjectPaths
from sevenfold.tools.permissions import Behaviour

NAME: Final = f"{FOLDER}/settings.local.json"


class ProjectRules:
    """Keeps rules, and the folder's trust as it was: what the user wrote himself is not asked about."""

    def __init__(self, places: ProjectPaths, trust: TrustedFolders) -> None:
        self._root, self._tree, self._trust = places.root, places.tree, trust
        self._path = places.tree / NAME

    def describe_place(self) -> str:
        """Where an allow rule is kept; empty while the folder has settings that are not trusted."""
        changes = self._trust.list_changes(self._root, self._tree)
        if changes:
            return ""
        trusted = self._trust.covering(self._root) is not None
        return f"kept in {NAME}" if trusted else f"kept in {NAME}; this folder is then trusted"

    def keep(self, behaviour: Behaviour, rules: tuple[str, ...]) -> str:
        """Add rules to the file; returns a message. Raises `Mistake` if they cannot be kept."""
        try:
            if behaviour == "allow":
                if not self.describe_place():
                    raise Mistake(
                        "the folder has settings that you have not trusted ('sevenfold trust' does)"
                    )
                self._trust.add(self._root, self._tree)  # refused: nothing is written yet
            self._write(behaviour, rules)
            if behaviour == "allow":
                self._trust_own_rules(rules)
        except (SettingsError, StorageFailure, Refused, OSError) as error:
            raise Mistake(str(error)) from error
        return f"{behaviour}: {to_one_line(', '.join(rules), 200)}, kept in {NAME}"

    def _write(self, behaviour: Behaviour, rules: tuple[str, ...]) -> None:
        if is_outside(self._path, self._tree):
            raise Mistake(f"{self._path} is a link that leads out of the project; nothing was written")
        document = read_document(self._path)
        values: Json = document.values if document is not None else {}
        inner = values.setdefault("permissions", {})
        listed = inner.setdefault(behaviour, []) if isinstance(inner, dict) else None
        if not isinstance(listed, list):
            raise Mistake(f"{self._path} has no list at permissions.{behaviour}; mend it first")
        listed += [rule for rule in rules if rule not in listed]
        check_document(SettingsDocument(str(self._path), values))
        make_private_dir(self._path.parent)
        write_atomic(self._path, (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode("utf-8"))

    def _trust_own_rules(self, rules: tuple[str, ...]) -> None:
        """Trust the folder with these rules, unless something else in it has changed meanwhile."""
        own = {f"+ {NAME}: permissions.allow: {json.dumps(rule, ensure_ascii=False)}" for rule in rules}
        others = [line for line in self._trust.list_changes(self._root, self._tree) if line not in own]
        if others:
            raise Mistake(f"the settings of {self._tree} have just changed; 'sevenfold trust' shows them")
        self._trust.add(self._root, self._tree)
