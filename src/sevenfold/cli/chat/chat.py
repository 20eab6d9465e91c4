"""`sevenfold chat`: a conversation at a terminal, or one question from anywhere."""

from __future__ import annotations

import os
import select
import stat
import sys
from typing import BinaryIO, Final

import anyio
from msgspec.structs import replace

from sevenfold.cli.options import ChatOptions, ReplyFormat
from sevenfold.cli.output import print_message
from sevenfold.cli.surroundings import read_environment
from sevenfold.core.errors import Mistake

MOST_PIPED: Final = 600_000
"""Bytes that may be piped in: what a usual window holds, with room for the answer."""
PATIENCE: Final = 3.0
"""Seconds before it is said that something is being waited for."""
TICK: Final = 0.25
"""Seconds after which a wait looks up: a signal that came just before it began would be lost otherwise."""

WAITING: Final = "waiting for what is piped in; '</dev/null' says that there is nothing"


def run_chat(options: ChatOptions) -> int:
    options = _settled(options)
    prompt = join_prompt(options.prompt, read_piped_text(options))
    if prompt is not None:
        from sevenfold.cli.chat.single_run import ask_once

        return anyio.run(ask_once, options, prompt)
    if options.format is not ReplyFormat.text or not sys.stdout.isatty() or not _at_terminal():
        raise Mistake("there is nothing to ask: give a prompt with -p, or pipe one in")
    from sevenfold.cli.chat.conversation import run_conversation

    return anyio.run(run_conversation, options)


def _settled(options: ChatOptions) -> ChatOptions:
    if options.resume is not None and options.newest:
        raise Mistake("--resume and --continue name two sessions; use one of them")
    chosen = options.format or ReplyFormat.text
    if options.shared.json and chosen is ReplyFormat.text:
        chosen = ReplyFormat.json
    no_color = options.shared.no_color or read_environment(options.shared).no_color
    return replace(options, format=chosen, shared=replace(options.shared, no_color=no_color))


def _at_terminal() -> bool:
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def join_prompt(asked: str | None, given: str | None) -> str | None:
    """What is asked, with what was piped in; None when it is neither."""
    asked = asked if asked and asked.strip() else None
    if given is None or not given.strip():
        return asked
    if asked is None:
        return given
    tag = "stdin"
    while f"</{tag}>" in given:  # what is piped in must not be able to end its own block
        tag += "-"
    end = "" if given.endswith("\n") else "\n"
    return f"{asked}\n\n<{tag}>\n{given}{end}</{tag}>"


# --- what is piped in -----------------------------------------------------------------------------------


def read_piped_text(options: ChatOptions) -> str | None:
    """The text on stdin, unless that is a terminal."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return None
    data = _read(sys.stdin.buffer, options)
    if len(data) > MOST_PIPED:
        raise Mistake(
            f"more than {MOST_PIPED:,} bytes were piped in; save them to a file and ask about the file"
        )
    if b"\0" in data:
        raise Mistake("what was piped in is not text; save it to a file and ask about the file")
    return data.decode("utf-8-sig", "replace")


def _read(stdin: BinaryIO, options: ChatOptions) -> bytes:
    try:
        fd = stdin.fileno()
        waits = stat.S_ISFIFO(os.fstat(fd).st_mode) and os.name == "posix"
    except OSError:  # a stream in memory
        return stdin.read(MOST_PIPED + 1)
    if not waits:
        return stdin.read(MOST_PIPED + 1)
    data, ticks = bytearray(), 0
    while len(data) <= MOST_PIPED:
        if select.select([fd], [], [], TICK)[0]:
            part = os.read(fd, 65_536)
            if not part:
                break
            data += part
            continue
        ticks += 1
        if ticks == PATIENCE / TICK and not data:
            print_message(options.shared, WAITING)
    return bytes(data)
