"""`sevenfold memory`: the commands; the body of each is in the module that it imports."""

from __future__ import annotations

from typer import Typer

from sevenfold.cli import options as option
from sevenfold.cli.options import PLAIN, SharedOptions, add_shared_options

memory = Typer(
    name="memory", help="What is remembered about this project. Without a command: list.", **PLAIN
)
quarantine = Typer(
    name="quarantine",
    help="Texts that wait for your word, or that give the agent orders. Without a command: list.",
    **PLAIN,
)


@memory.command("list")
@add_shared_options
def list_memories(shared: SharedOptions, agent: option.OfAgent = None) -> int:
    """Every memory, the newest first."""
    from sevenfold.cli.commands.memory_display import show_list

    return show_list(shared, agent)


@memory.command("path")
@add_shared_options
def where(shared: SharedOptions, agent: option.OfAgent = None) -> int:
    """The folder of the memories, also where memory is off."""
    from sevenfold.cli.commands.memory_display import show_path

    return show_path(shared, agent)


@memory.command("check")
@add_shared_options
def check(shared: SharedOptions, every: option.EveryFinding = False, agent: option.OfAgent = None) -> int:
    """What is wrong in the folder, and what to do about it. Exit code 1 when there is something."""
    from sevenfold.cli.commands.memory_display import show_check

    return show_check(shared, every, agent)


@memory.command("show")
@add_shared_options
def show(shared: SharedOptions, name: option.Name, agent: option.OfAgent = None) -> int:
    """One memory: what it says, how old it is, where it is."""
    from sevenfold.cli.commands.memory_display import show_memory

    return show_memory(shared, name, agent)


@memory.command("add")
@add_shared_options
def add(
    shared: SharedOptions,
    name: option.Slug,
    type: option.WhichKind = None,
    description: option.Description = None,
    body: option.Body = None,
    file: option.BodyFile = None,
    team: option.Team = False,
    new: option.New = False,
) -> int:
    """Save a memory: a name, a type, a description and a text.

    The text is given by --body, by --file, or on stdin. A memory that is about the same gets the new text.
    """
    from sevenfold.cli.commands.memory_changes import run_add as run

    return run(shared, type.value if type else None, name, description, body, file, team=team, new=new)


@memory.command("edit")
@add_shared_options
def edit(
    shared: SharedOptions,
    name: option.Name,
    type: option.NewKind = None,
    description: option.NewDescription = None,
    body: option.Body = None,
    file: option.BodyFile = None,
    agent: option.OfAgent = None,
) -> int:
    """Change a memory. By what the options say, a text on stdin, or else in your editor ($EDITOR)."""
    from sevenfold.cli.commands.memory_changes import run_edit as run

    return run(shared, name, type.value if type else None, description, body, file, agent)


@memory.command("rm")
@add_shared_options
def remove(shared: SharedOptions, name: option.Name, agent: option.OfAgent = None) -> int:
    """Remove a memory; 'undo' brings it back."""
    from sevenfold.cli.commands.memory_changes import run_remove as run

    return run(shared, name, agent)


@memory.command("purge")
@add_shared_options
def purge(
    shared: SharedOptions, name: option.Name, yes: option.Yes = False, agent: option.OfAgent = None
) -> int:
    """Remove a memory for good: files, index, history and search."""
    from sevenfold.cli.commands.memory_changes import run_purge as run

    return run(shared, name, yes, agent)


@memory.command("recall")
@add_shared_options
def recall(
    shared: SharedOptions,
    query: option.Query,
    limit: option.RecallLimit = 5,
    selector: option.WhichSelector = None,
    wait: option.RecallWait = None,
) -> int:
    """The memories that answer a question, the best first. None is a good answer too."""
    from sevenfold.cli.commands.memory_search import run_recall as run

    return run(shared, " ".join(query), limit, selector.value if selector else None, wait)


@memory.command("search")
@add_shared_options
def search(
    shared: SharedOptions,
    words: option.Words,
    limit: option.SearchLimit = 20,
    transcripts: option.Transcripts = False,
) -> int:
    """The memories that hold these words. With --transcripts also where they were said."""
    from sevenfold.cli.commands.memory_search import run_search as run

    return run(shared, " ".join(words), limit, transcripts)


@memory.command("learn")
@add_shared_options
def learn(shared: SharedOptions, path: option.RecordedPath, model: option.ModelName = None) -> int:
    """Save what a session of Claude Code or Codex taught.

    What was looked at once is not looked at again. It spends at most what dailyBackgroundLimit allows.
    """
    from sevenfold.cli.commands.memory_changes import run_learn

    return run_learn(shared, path, model)


@memory.command("history")
@add_shared_options
def history(
    shared: SharedOptions,
    name: option.SomeName = None,
    limit: option.HistoryLimit = 50,
    agent: option.OfAgent = None,
) -> int:
    """Who changed what and when, the newest first."""
    from sevenfold.cli.commands.memory_search import show_history

    return show_history(shared, name, limit, agent)


@memory.command("export")
@add_shared_options
def export(
    shared: SharedOptions,
    folder: option.ExportFolder,
    git: option.AsGit = False,
    agent: option.OfAgent = None,
) -> int:
    """Copy the memories to an empty folder, or their history as git."""
    from sevenfold.cli.commands.memory_changes import run_export

    return run_export(shared, folder, git, agent)


@memory.command("diff")
@add_shared_options
def diff(
    shared: SharedOptions,
    name: option.SomeName = None,
    revision: option.Revision = None,
    agent: option.OfAgent = None,
) -> int:
    """What the last change changed, or everything since a revision."""
    from sevenfold.cli.commands.memory_search import show_diff

    return show_diff(shared, name, revision, agent)


@memory.command("undo")
@add_shared_options
def undo(
    shared: SharedOptions,
    name: option.SomeName = None,
    to: option.ToRevision = None,
    agent: option.OfAgent = None,
) -> int:
    """Undo the last change; again, one step further back.

    What others wrote since stays, and so does what was written in the folder itself, unless you name it.
    """
    from sevenfold.cli.commands.memory_search import run_undo as run

    return run(shared, name, to, agent)


@memory.command("redo")
@add_shared_options
def redo(shared: SharedOptions, name: option.SomeName = None, agent: option.OfAgent = None) -> int:
    """Bring back what the last undo took back."""
    from sevenfold.cli.commands.memory_search import run_redo as run

    return run(shared, name, agent)


@quarantine.command("list")
@add_shared_options
def list_quarantine(shared: SharedOptions, agent: option.OfAgent = None) -> int:
    """What is held back, and why."""
    from sevenfold.cli.commands.memory_changes import show_quarantine

    return show_quarantine(shared, agent)


@quarantine.command("show")
@add_shared_options
def show_quarantined(shared: SharedOptions, number: option.Number, agent: option.OfAgent = None) -> int:
    """One of the texts, with what was found in it."""
    from sevenfold.cli.commands.memory_changes import show_held_text

    return show_held_text(shared, number, agent)


@quarantine.command("release")
@add_shared_options
def release(shared: SharedOptions, number: option.Number, agent: option.OfAgent = None) -> int:
    """Make it a memory, because you say so."""
    from sevenfold.cli.commands.memory_changes import release_quarantined as run

    return run(shared, number, agent)


@quarantine.command("drop")
@add_shared_options
def drop(
    shared: SharedOptions,
    numbers: option.Numbers = None,
    every: option.EveryHeldText = False,
    agent: option.OfAgent = None,
) -> int:
    """Delete one or several, or all."""
    from sevenfold.cli.commands.memory_changes import drop_quarantined as run

    return run(shared, numbers or [], every, agent)


memory.add_typer(quarantine)
