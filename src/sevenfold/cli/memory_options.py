"""The options of `sevenfold memory`, each written once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer


class Kind(StrEnum):
    user = "user"
    feedback = "feedback"
    project = "project"
    reference = "reference"


class Selector(StrEnum):
    hybrid = "hybrid"
    model = "model"
    both = "hybrid+model"


Name: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The memory: its name, its file, or the beginning of either."
    ),
]
SomeName: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="NAME", help="One memory; all of them without it.")
]
Revision: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="REV",
        help="Everything that changed since this revision: the beginning of its id, 'last' or "
        "'HEAD~2'. Without it: what the last change changed.",
    ),
]
ToRevision: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="REV", help="Go back to this revision instead of undoing the last change."
    ),
]
WhichKind: TypeAlias = Annotated[
    Kind | None,
    typer.Option(
        "--type",
        metavar="user|feedback|project|reference",
        help="'user': who you are; 'feedback': how to work; 'project': what goes on; "
        "'reference': where things are outside the project. Required, unless the text has frontmatter "
        "that says it.",
    ),
]
NewKind: TypeAlias = Annotated[
    Kind | None,
    typer.Option("--type", metavar="user|feedback|project|reference", help="Another type."),
]
Slug: TypeAlias = Annotated[
    str,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Its name, after which its file is called; a memory of that name gets the new text.",
    ),
]
Description: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--description",
        metavar="TEXT",
        help="One specific line: recall judges by it. Required, unless the text has frontmatter that "
        "says it.",
    ),
]
NewDescription: TypeAlias = Annotated[
    str | None, typer.Option("--description", metavar="TEXT", help="Another description.")
]
Body: TypeAlias = Annotated[
    str | None,
    typer.Option("--body", metavar="TEXT", help="The text. Without it: --file, or stdin."),
]
BodyFile: TypeAlias = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The text, from a file; '-': stdin.")
]
Team: TypeAlias = Annotated[
    bool, typer.Option("--team", help="Into the memory of the team, where there is one.")
]
New: TypeAlias = Annotated[
    bool,
    typer.Option("--new", help="A memory of its own, also where one that is there says the same."),
]
Query: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="QUERY", help="A question, in the words you would use.")
]
Words: TypeAlias = Annotated[list[str], typer.Argument(metavar="WORDS", help="What to look for.")]
RecallLimit: TypeAlias = Annotated[
    int, typer.Option("--limit", min=1, max=100, metavar="N", help="The most to give back.")
]
SearchLimit: TypeAlias = Annotated[
    int,
    typer.Option(
        "--limit",
        min=1,
        max=1000,
        metavar="N",
        help="The most memories, and the most places in transcripts.",
    ),
]
HistoryLimit: TypeAlias = Annotated[
    int, typer.Option("--limit", min=1, metavar="N", help="The most revisions to list.")
]
WhichSelector: TypeAlias = Annotated[
    Selector | None,
    typer.Option(
        "--selector",
        metavar="hybrid|model|hybrid+model",
        help="'hybrid' searches; 'model' lets a model choose from the newest 200; 'hybrid+model' "
        "from the best 20 of the search. Without it: the settings.",
    ),
]
Transcripts: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--transcripts", help="Also in what was said in the sessions of this project, newest first."
    ),
]
OfAgent: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--agent", metavar="NAME", help="Of the memory of this kind of agent, not of the project's."
    ),
]
Number: TypeAlias = Annotated[
    int,
    typer.Argument(
        metavar="N", min=1, help="Its number, as 'sevenfold memory quarantine' lists it."
    ),
]
