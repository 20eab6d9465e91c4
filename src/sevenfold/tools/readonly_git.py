"""Which git commands only read: listed subcommands with listed options, nothing else.

The premise is a trusted folder. Git runs what a repository's own configuration names (file system
monitors, diff and text conversion drivers, filters), so in a folder that is not trusted leave git
out: `classify_within(command, READ_ONLY_COMMANDS - {"git"})`. For the same reason `-C`, `-c`,
`--git-dir` and the like are never accepted: they lead into another repository or configuration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from sevenfold.tools.shell_options import Options, Parsed, fixed, options, parse
from sevenfold.tools.shell_words import UnsureError, Word

_CONFIG = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "diff.autoRefreshIndex": "false",
    "log.showSignature": "false",
    "safe.bareRepository": "explicit",
    "status.submoduleSummary": "false",
}

# Set in the environment of a command that runs without being asked for: git then neither
# refreshes its index nor fetches missing objects, and runs fewer of a repository's programs.
QUIET_GIT: Mapping[str, str] = MappingProxyType(
    {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PAGER": "cat",
        "GIT_CONFIG_COUNT": str(len(_CONFIG)),
        **{f"GIT_CONFIG_KEY_{at}": key for at, key in enumerate(_CONFIG)},
        **{f"GIT_CONFIG_VALUE_{at}": value for at, value in enumerate(_CONFIG.values())},
    }
)

# Left out on purpose: --output, --ext-diff, --textconv, -O, --show-signature, --remerge-diff,
# --diff-merges=, --submodule=diff.
_DIFF = """
    -p -u -s -U= -z -a -b -w -W -R -D -B[=] -M[=] -C[=] -S= -G= -l= -r -t
    --patch --no-patch --unified= --raw --minimal --patience --histogram --diff-algorithm=
    --anchored= --stat[=] --compact-summary --numstat --shortstat --dirstat[=] --summary
    --patch-with-stat --name-only --name-status --color[=] --no-color --color-moved[=]
    --word-diff[=] --word-diff-regex= --color-words[=] --no-renames --check --full-index --binary
    --abbrev[=] --no-abbrev --find-renames[=] --find-copies[=] --find-copies-harder
    --irreversible-delete --diff-filter= --pickaxe-all --pickaxe-regex --relative[=] --no-relative
    --text --ignore-cr-at-eol --ignore-space-at-eol --ignore-space-change --ignore-all-space
    --ignore-blank-lines --function-context --no-ext-diff --no-textconv --ignore-submodules[=]
    --src-prefix= --dst-prefix= --no-prefix --exit-code --quiet --inter-hunk-context=
"""
_COMMITS = """
    -n= -# --max-count= --skip= --since= --after= --until= --before= --author= --committer= --grep=
    --all-match --invert-grep -i --regexp-ignore-case -E --extended-regexp -F --fixed-strings -P
    --perl-regexp --merges --no-merges --min-parents= --max-parents= --first-parent --not --all
    --branches[=] --tags[=] --remotes[=] --glob= --exclude= --reverse --topo-order --date-order
    --author-date-order --left-right --left-only --right-only --cherry --cherry-pick --cherry-mark
    --boundary --ancestry-path --full-history --dense --sparse --simplify-merges
    --simplify-by-decoration --date= --relative-date --format= --pretty[=] --oneline
    --abbrev-commit --no-abbrev-commit --graph --parents --children --no-walk[=]
"""
_LOG = f"""{_DIFF} {_COMMITS}
    -m -c --cc -g --walk-reflogs -L= --follow --decorate[=] --no-decorate --decorate-refs=
    --decorate-refs-exclude= --source --mailmap --use-mailmap --no-mailmap --notes[=] --no-notes
    --encoding= --log-size --full-diff
"""
_LISTING = """
    --list --contains= --no-contains= --merged= --no-merged= --points-at= --sort= --format=
    --column[=] --no-column --color[=] --no-color -i --ignore-case
"""

_SUBCOMMANDS: dict[str, Options] = {
    "blame": options(
        "-L= -l -t -s -e -w -M[=] -C[=] -c -f -n -p --porcelain --line-porcelain --incremental"
        " --date= --since= --show-email --show-name --show-number --root --first-parent"
        " --abbrev= --ignore-rev= --color-lines --color-by-age --show-stats"
    ),
    "cat-file": options(
        "-t -s -p -e --batch[=] --batch-check[=] --batch-all-objects --unordered --buffer"
        " --follow-symlinks --allow-unknown-type"
    ),
    "check-ignore": options("-v -n -q -z --verbose --non-matching --quiet --no-index --stdin"),
    "count-objects": options("-v -H --verbose --human-readable"),
    "describe": options(
        "--tags --all --long --always --abbrev= --match= --exclude= --contains --first-parent"
        " --exact-match --candidates= --debug"
    ),
    "diff": options(f"{_DIFF} --cached --staged --merge-base --no-index -0 -1 -2 -3"),
    "for-each-ref": options(
        "--count= --sort= --format= --points-at= --merged= --no-merged= --contains= --no-contains="
        " --ignore-case --color[=]"
    ),
    "grep": options(
        "-n -i -l -L -c -w -E -F -P -G -v -h -H -o -a -I -e= -A= -B= -C= -m= -f= -W -p -q -z -r"
        " --line-number --ignore-case --files-with-matches --files-without-match --name-only"
        " --count --word-regexp --extended-regexp --fixed-strings --perl-regexp --basic-regexp"
        " --invert-match --only-matching --text --heading --break --color[=] --no-color --cached"
        " --untracked --no-index --and --or --not --all-match --max-depth= --max-count= --context="
        " --after-context= --before-context= --show-function --function-context --column --null"
        " --full-name --threads= --no-recursive --recursive --exclude-standard"
    ),
    "log": options(_LOG),
    "ls-files": options(
        "-c -d -m -o -i -s -u -k -z -t -v -f --cached --deleted --modified --others --ignored"
        " --stage --unmerged --killed --exclude= --exclude-standard --directory --eol"
        " --no-empty-directory --error-unmatch --full-name --abbrev[=] --deduplicate"
    ),
    "ls-tree": options(
        "-r -d -t -l -z --long --name-only --name-status --object-only --full-name --full-tree"
        " --abbrev[=] --format="
    ),
    "merge-base": options("-a --all --octopus --independent --is-ancestor --fork-point"),
    "name-rev": options("--name-only --tags --refs= --exclude= --always --no-undefined"),
    "rev-list": options(
        f"{_COMMITS} --count --objects --disk-usage[=] --stdin --no-commit-header --quiet"
    ),
    "rev-parse": options(
        "--abbrev-ref[=] --short[=] --verify -q --quiet --symbolic --symbolic-full-name --all"
        " --branches[=] --tags[=] --remotes[=] --glob= --exclude= --not --git-dir --git-path="
        " --absolute-git-dir --git-common-dir --show-toplevel --show-prefix --show-cdup"
        " --show-superproject-working-tree --is-inside-git-dir --is-inside-work-tree"
        " --is-bare-repository --is-shallow-repository --show-object-format[=] --revs-only"
        " --no-revs --flags --no-flags --default= --since= --until="
    ),
    "shortlog": options(
        "-s -n -e -c -# --summary --numbered --email --committer --since= --after= --until="
        " --before= --all --no-merges --merges --group= --author= --grep= --format="
    ),
    "show": options(_LOG),
    "show-ref": options(
        "--heads --branches --tags --verify --head --hash[=] --abbrev[=] -s -d -q --dereference"
        " --quiet"
    ),
    "status": options(
        "-s -b -v -vv -z -u -uno -unormal -uall --short --branch --porcelain[=] --long --verbose"
        " --untracked-files[=] --ignored[=] --ahead-behind --no-ahead-behind --renames"
        " --no-renames --find-renames[=] --show-stash --column[=] --no-column"
        " --ignore-submodules[=]"
    ),
    "symbolic-ref": options("--short -q --quiet", most=1, first=True),
    "version": options("--build-options", most=0),
}

# Each of these makes `git branch` and `git tag` list, so that a name is a pattern, not a new ref.
_LISTS = frozenset(
    {"--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at"}
)
# Options first, here and above: `git config NAME --get` sets NAME to the text `--get`.
_BRANCH = options(
    f"{_LISTING} -a -r -v -vv --all --remotes --verbose --show-current --abbrev[=]", first=True
)
_TAG = options(f"{_LISTING} -l -n[=]", first=True)
_CONFIG_GETS = frozenset({"--get", "--get-all", "--get-regexp", "--list", "-l"})
_CONFIG_READ = options(
    "--get --get-all --get-regexp --list -l --global --local --system --worktree --show-origin"
    " --show-scope --name-only -z --null --bool --int --path --type=",
    first=True,
)
_GLOBAL = frozenset({"--no-pager", "--no-optional-locks", "--literal-pathspecs"})
# `%G…` and `%(signature…)` start gpg, which may write to its folder.
_SIGNATURE = re.compile(r"%[-+ ]?G|%\(signature")


def check_git(words: Sequence[Word]) -> None:
    """Raise UnsureError unless the words after `git` only read the repository."""
    rest = list(words)
    while rest and rest[0].text in _GLOBAL:
        fixed(rest.pop(0))
    if [word.text for word in rest] == ["--version"]:
        fixed(rest[0])
        return
    if not rest:
        raise UnsureError("`git` without a subcommand")
    subcommand = fixed(rest[0])
    if subcommand in _SPECIAL:
        _SPECIAL[subcommand](rest[1:])
    elif subcommand in _SUBCOMMANDS:
        _parse(rest[1:], _SUBCOMMANDS[subcommand])
    else:
        raise UnsureError(f"`git {subcommand}` is not on the read-only list")


def _parse(words: Sequence[Word], table: Options) -> Parsed:
    parsed = parse(words, table)
    for name, value in parsed.values:
        if _SIGNATURE.search(value):
            raise UnsureError(f"`{value}` of `{name}` checks signatures with another program")
    return parsed


def _first(words: Sequence[Word]) -> str:
    return fixed(words[0]) if words else ""


def _branch(words: Sequence[Word]) -> None:
    parsed = _parse(words, _BRANCH)
    if parsed.operands and not parsed.names & _LISTS:
        raise UnsureError("`git branch` with a name creates a branch (use `--list`)")


def _tag(words: Sequence[Word]) -> None:
    parsed = _parse(words, _TAG)
    if parsed.operands and not parsed.names & (_LISTS | {"-l"}):
        raise UnsureError("`git tag` with a name creates a tag (use `--list`)")


def _remote(words: Sequence[Word]) -> None:
    if _first(words) == "get-url":
        _parse(words[1:], options("--all --push", most=1, first=True))
    else:
        _parse(words, options("-v --verbose", most=0))


def _reflog(words: Sequence[Word]) -> None:
    if _first(words) == "show":
        _parse(words[1:], _SUBCOMMANDS["log"])
    elif _parse(words, _SUBCOMMANDS["log"]).operands:
        raise UnsureError("`git reflog` with a word other than `show`")


def _stash(words: Sequence[Word]) -> None:
    if _first(words) not in {"list", "show"}:
        raise UnsureError("`git stash` other than `list` and `show`")
    _parse(words[1:], _SUBCOMMANDS["log"])


def _worktree(words: Sequence[Word]) -> None:
    if _first(words) != "list":
        raise UnsureError("`git worktree` other than `list`")
    _parse(words[1:], options("-v -z --verbose --porcelain", most=0))


def _config(words: Sequence[Word]) -> None:
    parsed = _parse(words, _CONFIG_READ)
    if parsed.names & _CONFIG_GETS:
        return
    if len(parsed.operands) != 1 or "." not in fixed(parsed.operands[0]):
        raise UnsureError("`git config` that may set a value (use `--get`)")


_SPECIAL: dict[str, Callable[[Sequence[Word]], None]] = {
    "branch": _branch,
    "config": _config,
    "reflog": _reflog,
    "remote": _remote,
    "stash": _stash,
    "tag": _tag,
    "worktree": _worktree,
}
