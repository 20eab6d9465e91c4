"""The page of the docs about settings, written from the settings themselves."""

from __future__ import annotations

from typing import Final

from sevenfold.settings.checks import describe_settings
from sevenfold.settings.environment import VARIABLES

_REFERENCE: Final = """\
# Settings

Written by `sevenfold.settings.reference.write_settings_reference()`; a test holds it to the code.

## Where they come from

| | from | |
|---|---|---|
| 1 | `/etc/sevenfold/settings.json` | policy of this machine |
| 2 | the command line | |
| 3 | the environment | the variables below |
| 4 | `.sevenfold/settings.local.json` in the project | yours, for this project; do not commit it |
| 5 | `<home>/settings.json` | yours, for every project |
| 6 | `.sevenfold/settings.json` in the project | everyone's, committed |

A single value is taken from the first place that has it. Lists are put together, so a `deny` rule counts
wherever it is written. Files are JSON, without comments, of at most 1 MB. A value of the wrong type is an
error with its file and line; a key nobody knows is a warning.

## Files of Claude Code

| file | holds where |
|---|---|
| `.claude/settings.json` and `.claude/settings.local.json` | you trust the folder, which has no \
`.sevenfold/settings.json` |
| `~/.claude/settings.json` | `<home>/settings.json` does not have the same key |

Of these files `hooks`, `permissions` and `env` hold, each below our own file of the same rank. Everything
else in them is not honoured: `sevenfold doctor` names it in one line for each file. A hook or a rule that
would refuse something and cannot work here (a hook of another type than `command`, with `if`, `async` or
`shell`, or at a moment that we do not have; a rule that cannot be understood) is named at every start.
Rules about `Task` count for `Agent`, those about `MultiEdit` for `Edit`. Keys of providers in `env` are
left out, and hooks that run `sevenfold hook` are not run here. A mistake in such a file is a warning.

## Before a folder is trusted

Until you trust a folder (`sevenfold trust`), the files in it can only restrict: `deny` and `ask`
rules, a stricter `permissions.mode`, `sandbox` set to `all`, a lower `maxSteps` or `dailyBackgroundLimit`,
and `false` for `memoryEnabled`, `telemetry.enabled` and every flag. Everything else in them is ignored and
named once. A link that leads out of the project is not followed.

You trust a folder as it is: what these files, the agents in `.sevenfold` and `.claude`, and `.mcp.json`
say is kept in `trust.json`; of Claude Code's files only what holds here. When it changes, the folder
counts as not trusted until you say so again; chat, `doctor` and `sevenfold trust` show what came and went.
`deny` and `ask` rules may change freely. A repository inside a trusted folder is not trusted with it. The
scripts that a hook runs are not looked at.

What is wrong in one of these files stops nobody until the folder is trusted: a wrong value is left out with
a warning, and of a file that cannot be read at all (broken JSON) nothing holds, what it denies neither. The
warning says so; your own rules hold as ever. In a trusted folder both are errors.

Trusted or not, `memoryDirectory` and `env` are never taken from `.sevenfold/settings.json`, nor from a
`.sevenfold/settings.local.json` that git tracks. `env` of `.claude/settings.json` holds after trust, as it
does there.

## Keys

| key | type | default | meaning |
|---|---|---|---|
{keys}

A hook is `{{"matcher": "Edit|Write", "hooks": [{{"type": "command", "command": "./check.sh",
"timeout": 60}}]}}`; see [hooks](hooks.md).

Of a model that a program hands to `Session` or `Context` itself, its own capabilities hold: `window` and
the windows in `prices` are for models that are named.

## Variables

| variable | meaning |
|---|---|
{variables}

Tools and hooks see the environment without `ANTHROPIC_API_KEY`, `ANTHROPIC_AUTH_TOKEN` and
`OPENAI_API_KEY`. A project whose tests need one gets it back by `env` in your own settings.
"""


def write_settings_reference() -> str:
    """The page of the docs about settings."""
    rows = ([f"`{key}`", words, f"`{default}`", said] for key, words, default, said in describe_settings())
    keys = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    variables = (f"| `{name}` | {said} |" for name, (_, _, said) in VARIABLES.items())
    return _REFERENCE.format(keys="\n".join(keys), variables="\n".join(variables))
