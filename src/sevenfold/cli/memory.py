"""`sevenfold memory`: the commands and their options. What each does is in the module it names."""

from __future__ import annotations

from typing import Any, Final

import typer

from sevenfold.cli.options import (
    Body,
    BodyFile,
    Description,
    HistoryLimit,
    Name,
    New,
    NewDescription,
    NewKind,
    Number,
    OfAgent,
    Query,
    RecallLimit,
    Revision,
    SearchLimit,
    Shared,
    Slug,
    SomeName,
    Team,
    ToRevision,
    Transcripts,
    WhichKind,
    WhichSelector,
    Words,
    Yes,
    shared,
)

_PLAIN: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
memory = typer.Typer(
    name="memory", help="What is remembered about this project. Without a command: list.", **_PLAIN
)
quarantine = typer.Typer(
    name="quarantine",
    help="Texts that were held back because they give the agent orders. Without a command: list.",
    **_PLAIN,
)


@memory.command("list")
@shared
def list_memories(shared: Shared, agent: OfAgent = None) -> int:
    """Every memory, the newest first."""
    from sevenfold.cli.commands.memory_read import show_list

    return show_list(shared, agent)


@memory.command("path")
@shared
def where(shared: Shared, agent: OfAgent = None) -> int:
    """The folder of the memories, also where memory is off."""
    from sevenfold.cli.commands.memory_read import show_path

    return show_path(shared, agent)


@memory.command("check")
@shared
def check(shared: Shared, agent: OfAgent = None) -> int:
    """What is wrong in the folder, and what to do about it. Exit code 1 when there is something."""
    from sevenfold.cli.commands.memory_read import show_check

    return show_check(shared, agent)


@memory.command("show")
@shared
def show(shared: Shared, name: Name, agent: OfAgent = None) -> int:
    """One memory: what it says, how old it is, where it is."""
    from sevenfold.cli.commands.memory_read import show_one

    return show_one(shared, name, agent)


@memory.command("add")
@shared
def add(
    shared: Shared,
    name: Slug,
    type: WhichKind = None,
    description: Description = None,
    body: Body = None,
    file: BodyFile = None,
    team: Team = False,
    new: New = False,
) -> int:
    """Save a memory: a name, a type, a description and a text.

    The text is given by --body, by --file, or on stdin. A memory that is about the same gets the new text.
    """
    from sevenfold.cli.commands.memory_write import add as run

    given = description, body, file
    return run(shared, type.value if type else None, name, *given, team=team, new=new)


@memory.command("edit")
@shared
def edit(
    shared: Shared,
    name: Name,
    type: NewKind = None,
    description: NewDescription = None,
    body: Body = None,
    file: BodyFile = None,
    agent: OfAgent = None,
) -> int:
    """Change a memory. By what the options say, a text on stdin, or else in your editor ($EDITOR)."""
    from sevenfold.cli.commands.memory_write import edit as run

    return run(shared, name, type.value if type else None, description, body, file, agent)


@memory.command("rm")
@shared
def remove(shared: Shared, name: Name, agent: OfAgent = None) -> int:
    """Remove a memory; 'undo' brings it back."""
    from sevenfold.cli.commands.memory_write import remove as run

    return run(shared, name, agent)


@memory.command("purge")
@shared
def purge(shared: Shared, name: Name, yes: Yes = False, agent: OfAgent = None) -> int:
    """Remove a memory for good: files, index, history and search."""
    from sevenfold.cli.commands.memory_write import purge as run

    return run(shared, name, yes, agent)


@memory.command("recall")
@shared
def recall(
    shared: Shared, query: Query, limit: RecallLimit = 5, selector: WhichSelector = None
) -> int:
    """The memories that answer a question, the best first. None is a good answer too."""
    from sevenfold.cli.commands.memory_find import recall as run

    return run(shared, " ".join(query), limit, selector.value if selector else None)


@memory.command("search")
@shared
def search(
    shared: Shared, words: Words, limit: SearchLimit = 20, transcripts: Transcripts = False
) -> int:
    """The memories that hold these words. With --transcripts also where they were said."""
    from sevenfold.cli.commands.memory_find import search as run

    return run(shared, " ".join(words), limit, transcripts)


@memory.command("history")
@shared
def history(
    shared: Shared, name: SomeName = None, limit: HistoryLimit = 50, agent: OfAgent = None
) -> int:
    """Who changed what and when, the newest first."""
    from sevenfold.cli.commands.memory_find import show_history

    return show_history(shared, name, limit, agent)


@memory.command("diff")
@shared
def diff(
    shared: Shared, name: SomeName = None, revision: Revision = None, agent: OfAgent = None
) -> int:
    """What the last change changed, or everything since a revision."""
    from sevenfold.cli.commands.memory_find import show_diff

    return show_diff(shared, name, revision, agent)


@memory.command("undo")
@shared
def undo(
    shared: Shared, name: SomeName = None, to: ToRevision = None, agent: OfAgent = None
) -> int:
    """Undo the last change, of one memory or of all. That can be undone, too."""
    from sevenfold.cli.commands.memory_find import undo as run

    return run(shared, name, to, agent)


@quarantine.command("list")
@shared
def list_quarantine(shared: Shared, agent: OfAgent = None) -> int:
    """What is held back, and why."""
    from sevenfold.cli.commands.memory_edit import show_list

    return show_list(shared, agent)


@quarantine.command("show")
@shared
def show_quarantined(shared: Shared, number: Number, agent: OfAgent = None) -> int:
    """One of the texts, with what was found in it."""
    from sevenfold.cli.commands.memory_edit import show

    return show(shared, number, agent)


@quarantine.command("release")
@shared
def release(shared: Shared, number: Number, agent: OfAgent = None) -> int:
    """Make it a memory, because you say so."""
    from sevenfold.cli.commands.memory_edit import release as run

    return run(shared, number, agent)


@quarantine.command("drop")
@shared
def drop(shared: Shared, number: Number, agent: OfAgent = None) -> int:
    """Delete it."""
    from sevenfold.cli.commands.memory_edit import drop as run

    return run(shared, number, agent)


memory.add_typer(quarantine)
