"""The program: `sevenfold`, and `python -m sevenfold`.

A plain `sevenfold mcp` is begun here, past the command line's own imports: its client waits for an answer.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    given = parse_server_words(sys.argv[1:])
    if given is None:
        from sevenfold.cli.main import main as run_command

        return run_command()
    from sevenfold.mcp import keep_output

    output = keep_output()  # before an import may print
    from sevenfold.cli.commands.mcp import serve_stdio

    return serve_stdio(given, output)


def parse_server_words(words: list[str]) -> dict[str, str] | None:
    """The options of a server on stdin and stdout; None for any line that needs the whole command line."""
    if words[:1] != ["mcp"]:
        return None
    flags = {"--read-only": "read_only", "--plugin": "plugin"}
    found: dict[str, str] = {}
    rest = iter(words[1:])
    for word in rest:
        if word in flags:
            found[flags[word]] = word
        elif word in ("--project", "--home") and (value := next(rest, "")):
            found[word.lstrip("-")] = value
        else:
            return None
    return found


if __name__ == "__main__":
    sys.exit(main())
