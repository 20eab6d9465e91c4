"""The programs that only read: one rule per program, and no rule means no.

Three sorts: programs that cannot do harm whatever they are given, programs with a table of
harmless options, and programs whose words need a rule of their own (find, sed, test, …).

Which git commands only read: listed subcommands with listed options, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from sevenfold.tools.shell_syntax import (
    ParsedWords,
    ProgramOptions,
    ShellWord,
    UnsureError,
    WordCertainty,
    check_operand,
    find_fixed_text,
    make_name_set,
    parse_options,
    parse_words,
)

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

# Set beside them for a command that runs unasked: the settings of the user and of the system lie outside
# the project and may hold tokens. Git runs unasked only in folders that the user trusts, whoever owns them.
NO_USER_GIT: Mapping[str, str] = MappingProxyType(
    {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_COUNT": str(len(_CONFIG) + 1),
        f"GIT_CONFIG_KEY_{len(_CONFIG)}": "safe.directory",
        f"GIT_CONFIG_VALUE_{len(_CONFIG)}": "*",
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

_SUBCOMMANDS: dict[str, ProgramOptions] = {
    "blame": parse_options(
        "-L= -l -t -s -e -w -M[=] -C[=] -c -f -n -p --porcelain --line-porcelain --incremental"
        " --date= --since= --show-email --show-name --show-number --root --first-parent"
        " --abbrev= --ignore-rev= --color-lines --color-by-age --show-stats"
    ),
    "cat-file": parse_options(
        "-t -s -p -e --batch[=] --batch-check[=] --batch-all-objects --unordered --buffer"
        " --follow-symlinks --allow-unknown-type"
    ),
    "check-ignore": parse_options("-v -n -q -z --verbose --non-matching --quiet --no-index --stdin"),
    "count-objects": parse_options("-v -H --verbose --human-readable"),
    "describe": parse_options(
        "--tags --all --long --always --abbrev= --match= --exclude= --contains --first-parent"
        " --exact-match --candidates= --debug"
    ),
    "diff": parse_options(f"{_DIFF} --cached --staged --merge-base --no-index -0 -1 -2 -3"),
    "for-each-ref": parse_options(
        "--count= --sort= --format= --points-at= --merged= --no-merged= --contains= --no-contains="
        " --ignore-case --color[=]"
    ),
    "grep": parse_options(
        "-n -i -l -L -c -w -E -F -P -G -v -h -H -o -a -I -e= -A= -B= -C= -m= -f= -W -p -q -z -r"
        " --line-number --ignore-case --files-with-matches --files-without-match --name-only"
        " --count --word-regexp --extended-regexp --fixed-strings --perl-regexp --basic-regexp"
        " --invert-match --only-matching --text --heading --break --color[=] --no-color --cached"
        " --untracked --no-index --and --or --not --all-match --max-depth= --max-count= --context="
        " --after-context= --before-context= --show-function --function-context --column --null"
        " --full-name --threads= --no-recursive --recursive --exclude-standard"
    ),
    "log": parse_options(_LOG),
    "ls-files": parse_options(
        "-c -d -m -o -i -s -u -k -z -t -v -f --cached --deleted --modified --others --ignored"
        " --stage --unmerged --killed --exclude= --exclude-standard --directory --eol"
        " --no-empty-directory --error-unmatch --full-name --abbrev[=] --deduplicate"
    ),
    "ls-tree": parse_options(
        "-r -d -t -l -z --long --name-only --name-status --object-only --full-name --full-tree"
        " --abbrev[=] --format="
    ),
    "merge-base": parse_options("-a --all --octopus --independent --is-ancestor --fork-point"),
    "name-rev": parse_options("--name-only --tags --refs= --exclude= --always --no-undefined"),
    "rev-list": parse_options(
        f"{_COMMITS} --count --objects --disk-usage[=] --stdin --no-commit-header --quiet"
    ),
    "rev-parse": parse_options(
        "--abbrev-ref[=] --short[=] --verify -q --quiet --symbolic --symbolic-full-name --all"
        " --branches[=] --tags[=] --remotes[=] --glob= --exclude= --not --git-dir --git-path="
        " --absolute-git-dir --git-common-dir --show-toplevel --show-prefix --show-cdup"
        " --show-superproject-working-tree --is-inside-git-dir --is-inside-work-tree"
        " --is-bare-repository --is-shallow-repository --show-object-format[=] --revs-only"
        " --no-revs --flags --no-flags --default= --since= --until="
    ),
    "shortlog": parse_options(
        "-s -n -e -c -# --summary --numbered --email --committer --since= --after= --until="
        " --before= --all --no-merges --merges --group= --author= --grep= --format="
    ),
    "show": parse_options(_LOG),
    "show-ref": parse_options(
        "--heads --branches --tags --verify --head --hash[=] --abbrev[=] -s -d -q --dereference --quiet"
    ),
    "status": parse_options(
        "-s -b -v -vv -z -u -uno -unormal -uall --short --branch --porcelain[=] --long --verbose"
        " --untracked-files[=] --ignored[=] --ahead-behind --no-ahead-behind --renames"
        " --no-renames --find-renames[=] --show-stash --column[=] --no-column"
        " --ignore-submodules[=]"
    ),
    "symbolic-ref": parse_options("--short -q --quiet", most=1, first=True),
    "version": parse_options("--build-options", most=0),
}

# Each of these makes `git branch` and `git tag` list, so that a name is a pattern, not a new ref.
_LISTS = frozenset({"--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at"})
# Options first, here and above: `git config NAME --get` sets NAME to the text `--get`.
_BRANCH = parse_options(
    f"{_LISTING} -a -r -v -vv --all --remotes --verbose --show-current --abbrev[=]", first=True
)
_TAG = parse_options(f"{_LISTING} -l -n[=]", first=True)
_CONFIG_GETS = frozenset({"--get", "--get-all", "--get-regexp", "--list", "-l"})
_CONFIG_READ = parse_options(
    "--get --get-all --get-regexp --list -l --global --local --system --worktree --show-origin"
    " --show-scope --name-only -z --null --bool --int --path --type=",
    first=True,
)
_GLOBAL = frozenset({"--no-pager", "--no-optional-locks", "--literal-pathspecs"})
# `%G…` and `%(signature…)` start gpg, which may write to its folder.
_SIGNATURE = r"%[-+ ]?G|%\(signature"


def check_git(words: Sequence[ShellWord]) -> None:
    """Raise UnsureError unless the words after `git` only read the repository."""
    rest = list(words)
    while rest and rest[0].text in _GLOBAL:
        find_fixed_text(rest.pop(0))
    if [word.text for word in rest] == ["--version"]:
        find_fixed_text(rest[0])
        return
    if not rest:
        raise UnsureError("`git` without a subcommand")
    subcommand = find_fixed_text(rest[0])
    if subcommand in _SPECIAL:
        _SPECIAL[subcommand](rest[1:])
    elif subcommand in _SUBCOMMANDS:
        _parse_call(rest[1:], _SUBCOMMANDS[subcommand])
    else:
        raise UnsureError(f"`git {subcommand}` is not on the read-only list")


def _parse_call(words: Sequence[ShellWord], table: ProgramOptions) -> ParsedWords:
    parsed = parse_words(words, table)
    for name, value in parsed.values:
        if re.search(_SIGNATURE, value):
            raise UnsureError(f"`{value}` of `{name}` checks signatures with another program")
    return parsed


def _find_first(words: Sequence[ShellWord]) -> str:
    return find_fixed_text(words[0]) if words else ""


def _check_branch(words: Sequence[ShellWord]) -> None:
    parsed = _parse_call(words, _BRANCH)
    if parsed.operands and not parsed.names & _LISTS:
        raise UnsureError("`git branch` with a name creates a branch (use `--list`)")


def _check_tag(words: Sequence[ShellWord]) -> None:
    parsed = _parse_call(words, _TAG)
    if parsed.operands and not parsed.names & (_LISTS | {"-l"}):
        raise UnsureError("`git tag` with a name creates a tag (use `--list`)")


def _check_remote(words: Sequence[ShellWord]) -> None:
    if _find_first(words) == "get-url":
        _parse_call(words[1:], parse_options("--all --push", most=1, first=True))
    else:
        _parse_call(words, parse_options("-v --verbose", most=0))


def _check_reflog(words: Sequence[ShellWord]) -> None:
    if _find_first(words) == "show":
        _parse_call(words[1:], _SUBCOMMANDS["log"])
    elif _parse_call(words, _SUBCOMMANDS["log"]).operands:
        raise UnsureError("`git reflog` with a word other than `show`")


def _check_stash(words: Sequence[ShellWord]) -> None:
    if _find_first(words) not in {"list", "show"}:
        raise UnsureError("`git stash` other than `list` and `show`")
    _parse_call(words[1:], _SUBCOMMANDS["log"])


def _check_worktree(words: Sequence[ShellWord]) -> None:
    if _find_first(words) != "list":
        raise UnsureError("`git worktree` other than `list`")
    _parse_call(words[1:], parse_options("-v -z --verbose --porcelain", most=0))


def _check_config(words: Sequence[ShellWord]) -> None:
    parsed = _parse_call(words, _CONFIG_READ)
    if parsed.names & _CONFIG_GETS:
        return
    if len(parsed.operands) != 1 or "." not in find_fixed_text(parsed.operands[0]):
        raise UnsureError("`git config` that may set a value (use `--get`)")


_SPECIAL: dict[str, Callable[[Sequence[ShellWord]], None]] = {
    "branch": _check_branch,
    "config": _check_config,
    "reflog": _check_reflog,
    "remote": _check_remote,
    "stash": _check_stash,
    "tag": _check_tag,
    "worktree": _check_worktree,
}


# No option and no operand of these writes a file, runs a program or changes the shell.
# `tail -f` is among them: it may never end, which is for the timeout to settle.
_HARMLESS = make_name_set(
    """
    : arch b2sum basename cat cksum cmp column comm cut dirname du echo egrep expand false fgrep
    fold grep groups head hexdump id join ls md5sum nl nproc od paste pwd readlink realpath rev
    seq sha1sum sha224sum sha256sum sha384sum sha512sum shasum stat sum tac tail tr true
    type uname unexpand uptime wc which whoami
    """
)

_LISTED: dict[str, ProgramOptions] = {
    "df": parse_options(
        "-a -h -H -i -k -l -m -P -t= -T -x= --all --human-readable --si --inodes --local --total"
        " --portability --print-type --type= --exclude-type= --block-size= --output[=]"
    ),
    # Not -l, which starts `pr`.
    "diff": parse_options(
        "-a -b -B -c -C= -d -E -e -F= -i -I= -L= -n -N -p -P -q -r -s -S= -t -T -u -U= -w -W= -x="
        " -X= -y -Z --text --brief --recursive --unified[=] --context[=] --side-by-side"
        " --ignore-case --ignore-all-space --ignore-space-change --ignore-blank-lines"
        " --ignore-trailing-space --ignore-tab-expansion --ignore-matching-lines= --exclude="
        " --exclude-from= --new-file --unidirectional-new-file --report-identical-files --label="
        " --color[=] --width= --suppress-common-lines --left-column --minimal --normal --ed --rcs"
        " --speed-large-files --no-dereference --strip-trailing-cr --show-c-function"
        " --show-function-line= --expand-tabs --initial-tab --tabsize= --starting-file="
    ),
    # Not -x, -X (run), nor -l (runs ls).
    "fd": parse_options(
        "-H -I -L -a -i -s -g -F -p -0 -u -1 -q -t= -e= -E= -d= -S= -c= -j= --hidden --no-ignore"
        " --no-ignore-vcs --follow --absolute-path --ignore-case --case-sensitive --glob --regex"
        " --fixed-strings --full-path --print0 --unrestricted --quiet --type= --extension="
        " --exclude= --max-depth= --min-depth= --exact-depth= --size= --changed-within="
        " --changed-before= --owner= --max-results= --color= --and= --prune"
    ),
    # Not -C (writes magic.mgc), -z (may start decompressors), nor -f (reads the names of other files).
    "file": parse_options(
        "-b -h -i -k -L -N -n -0 -r -F= --brief --mime --mime-type --mime-encoding"
        " --dereference --no-dereference --keep-going --no-pad --print0 --raw --separator="
        " --extension"
    ),
    "hostname": parse_options("", most=0),
    # Not --pre, --hostname-bin, -z: they start programs.
    "rg": parse_options(
        "-n -N -i -s -S -l -c -w -x -v -o -F -P -U -a -L -H -I -q -0 -p -u -uu -uuu -. -h -V -e="
        " -f= -g= -t= -T= -A= -B= -C= -m= -M= -r= -j= -d= -E= --line-number --no-line-number"
        " --ignore-case --case-sensitive --smart-case --files-with-matches --files-without-match"
        " --files --count --count-matches --word-regexp --line-regexp --invert-match"
        " --only-matching --fixed-strings --pcre2 --multiline --multiline-dotall --text --follow"
        " --with-filename --no-filename --quiet --null --pretty --hidden --no-hidden --no-ignore"
        " --no-ignore-vcs --no-ignore-parent --unrestricted --regexp= --file= --glob= --iglob="
        " --type= --type-not= --type-list --after-context= --before-context= --context="
        " --max-count= --max-columns= --max-columns-preview --replace= --threads= --max-depth="
        " --max-filesize= --encoding= --sort= --sortr= --color= --colors= --heading --no-heading"
        " --column --trim --json --stats --vimgrep --passthru --no-messages --no-config"
        " --crlf --version --help"
    ),
    # Not -o, -T, --compress-program.
    "sort": parse_options(
        "-b -c -C -d -f -g -h -i -m -M -n -r -R -s -u -V -z -k= -t= -S= --ignore-leading-blanks"
        " --check[=] --dictionary-order --ignore-case --general-numeric-sort --human-numeric-sort"
        " --ignore-nonprinting --merge --month-sort --numeric-sort --reverse --random-sort"
        " --stable --unique --version-sort --zero-terminated --key= --field-separator= --sort="
        " --buffer-size= --parallel= --debug"
    ),
    "strings": parse_options(
        "-a -f -n= -t= -e= -U= -w -d -# --all --bytes= --radix= --print-file-name --encoding="
    ),
    # Not -o, nor -R, which writes 00Tree.html files. Old versions read `-Lo` as `-L -o`.
    "tree": parse_options(
        "-a -A -C -D -d -f -F -g -h -i -J -l -n -N -p -q -Q -r -s -S -t -u -v -x -X -L= -P= -I="
        " --dirsfirst --filesfirst --noreport --du --si --prune --gitignore --matchdirs"
        " --ignore-case --sort[=] --charset[=] --inodes --device --timefmt[=]",
        attached=False,
    ),
    # The second operand is a file to write.
    "uniq": parse_options(
        "-c -d -D -i -u -z -f= -s= -w= --count --repeated --all-repeated[=] --group[=]"
        " --ignore-case --unique --zero-terminated --skip-fields= --skip-chars= --check-chars=",
        most=1,
        first=True,
    ),
    # The second operand is a file to write; -r writes binary.
    "xxd": parse_options("-a -b -e -i -p -u -c= -g= -l= -s=", most=1, first=True, clusters=False),
}
_LISTED["fdfind"] = _LISTED["fd"]

# No clusters: in `-Id X` the `d` belongs to `-I`, and X sets the clock.
_DATE = parse_options(
    "-u -R -I -d= -r= --utc --universal --rfc-email --iso-8601[=] --rfc-3339= --date= --reference=",
    clusters=False,
    attached=False,
)
_JQ = parse_options(
    "-n -r -c -s -S -e -a -j -C -M -R --null-input --raw-output --compact-output --slurp"
    " --sort-keys --exit-status --ascii-output --join-output --color-output --monochrome-output"
    " --raw-input --raw-output0 --tab --indent= --stream --seq --arg== --argjson== --slurpfile=="
    " --rawfile== --args --jsonargs"
)
# `env` shows secrets; modules are programs that we do not see.
_JQ_REFUSED = r"(?<![.\w])(env|import|include|modulemeta)\b|\bENV\b"
_PS = parse_options(
    "-a -A -e -f -x -l -H -ef -eF -ax -aux -o= -eo= -axo= -p= -C= --sort= --pid= --ppid="
    " --no-headers --forest",
    clusters=False,
    attached=False,
)
_PS_OPERANDS = frozenset({"a", "ax", "aux", "auxf", "auxww", "axf", "x"})
_PS_COLUMNS = make_name_set(
    """
    pid ppid pgid sid uid gid user group comm args cmd command etime etimes time cputime pcpu %cpu
    pmem %mem rss vsz stat state tty tt start lstart nice ni pri psr nlwp wchan
    """
)
_SED = parse_options(
    "-n -E -r -e= --quiet --silent --regexp-extended --expression=", first=True, attached=False
)
# Addresses with p, d, =, q or Q: no s (its flags w and e), no w, r, e, no blocks.
_SED_REGEX = r"/(?:[^/\\\[\n]|\\[^/\n]|\[\^?[^\]\[/\\\n^][^\]\[/\\\n]*\])+/I?"
_SED_ADDRESS = rf"(?:[0-9]+(?:~[0-9]+)?|\$|{_SED_REGEX})"
_SED_COMMAND = rf"[ ]*(?:{_SED_ADDRESS}(?:,(?:{_SED_ADDRESS}|[+~][0-9]+))?)?[ ]*!?[ ]*[pd=qQ][ ]*"
_SED_LONGEST = 200  # characters; keeps the pattern below fast
_SED_SCRIPT = rf"{_SED_COMMAND}(?:[;\n]{_SED_COMMAND})*;?"
# `%n` assigns to the variable its argument names, and evaluates a subscript in that name.
_PRINTF_FORMAT = r"(?s)(?:[^%]|%%|%[-+ #0]{0,5}[0-9]{0,4}(?:\.[0-9]{1,4})?[sdibqxXoucfeEgG])*"
_TEST_OPERATORS = make_name_set(
    """
    -a -o -b -c -d -e -f -g -h -k -n -p -r -s -t -u -w -x -z -G -L -N -O -S -nt -ot -ef
    -eq -ne -lt -le -gt -ge
    """
)

_FIND_OPTIONS = frozenset({"-H", "-L", "-P", "-E", "-s", "-x", "-d", "-O1", "-O2", "-O3"})
_FIND_ALONE = make_name_set(
    """
    ( ) ! , -not -a -and -o -or -daystart -depth -empty -executable -false -follow -ls -mount
    -nogroup -noleaf -nouser -print -print0 -prune -quit -readable -true -writable -xdev
    -ignore_readdir_race
    """
)
_FIND_VALUED = make_name_set(
    """
    -amin -anewer -atime -cmin -cnewer -ctime -fstype -gid -group -ilname -iname -inum -ipath
    -iregex -iwholename -links -lname -maxdepth -mindepth -mmin -mtime -name -newer -path -perm
    -printf -regex -regextype -samefile -size -type -uid -used -user -wholename -xtype
    """
)
_FIND_NEWER = r"-newer[aBcm][aBcmt]"
_FIND_LESS = re.compile(r"-[0-9]+[a-zA-Z]?")
_FIND_PERM = re.compile(r"-[0-7]+|-[ugoa]*[-+=][rwxst]+")
_DURATION = r"[0-9]+(\.[0-9]+)?[smhd]?"
_XARGS = frozenset({"-0", "-r", "-t", "--null", "--no-run-if-empty"})
_XARGS_NUMBERED = frozenset({"-n", "-L", "-P"})
_XARGS_MARKS = frozenset({"{}", "%", "@"})
_NAME = r"(?:/usr/bin/|/bin/)?([a-z][a-z0-9_-]*|:|\[)"


def _check_date(words: Sequence[ShellWord]) -> None:
    for word in parse_words(words, _DATE).operands:
        if not find_fixed_text(word).startswith("+"):
            raise UnsureError(f"`date {word.text}` sets the clock")


def _check_jq(words: Sequence[ShellWord]) -> None:
    found = parse_words(words, _JQ).operands
    if found and re.search(_JQ_REFUSED, find_fixed_text(found[0])):
        raise UnsureError("the jq program reads the environment or a module")


def _check_ps(words: Sequence[ShellWord]) -> None:
    parsed = parse_words(words, _PS)
    for word in parsed.operands:
        if find_fixed_text(word) not in _PS_OPERANDS:
            raise UnsureError(f"`ps {word.text}` may show the environment of programs")
    for name, value in parsed.values:
        if name in {"-o", "-eo", "-axo"} and not _PS_COLUMNS.issuperset(value.replace("=", "").split(",")):
            raise UnsureError(f"the ps columns `{value}` are not known to be harmless")


def _check_sed(words: Sequence[ShellWord]) -> None:
    parsed = parse_words(words, _SED)
    scripts = [value for name, value in parsed.values if name in {"-e", "--expression"}]
    if not {"-e", "--expression"} & parsed.names:
        scripts = [find_fixed_text(word) for word in parsed.operands[:1]]
    if not scripts or not all(
        len(script) <= _SED_LONGEST and re.fullmatch(_SED_SCRIPT, script) for script in scripts
    ):
        raise UnsureError("the sed script is more than addresses with p, d, = or q")


def _check_printf(words: Sequence[ShellWord]) -> None:
    rest = words[1:] if words and words[0].text == "--" else words
    if (
        not rest
        or not re.fullmatch(_PRINTF_FORMAT, find_fixed_text(rest[0]))
        or rest[0].text.startswith("-")
    ):
        raise UnsureError("the printf format may assign a variable")


def _check_test(words: Sequence[ShellWord]) -> None:
    for word in words:
        operator = word.text in _TEST_OPERATORS
        # `-v 'a[$(cmd)]'` runs cmd: no other operator, and nothing that could be a subscript.
        if word.kind > WordCertainty.PATH or "[" in word.text or (word.text[:1] == "-" and not operator):
            raise UnsureError(f"`{word.source}` in a test is not known to be harmless")


def _check_command(words: Sequence[ShellWord]) -> None:
    if len(words) < 2 or find_fixed_text(words[0]) not in {"-v", "-V"}:
        raise UnsureError("`command` other than `command -v NAME`")
    for word in words[1:]:
        if find_fixed_text(word).startswith("-"):
            raise UnsureError("`command` with a further option")


def _check_find(words: Sequence[ShellWord]) -> None:
    at = 0
    while at < len(words) and words[at].text in _FIND_OPTIONS:
        find_fixed_text(words[at])
        at += 1
    while at < len(words) and words[at].text[:1] not in {"-", "(", ")", "!", ","}:
        check_operand(words[at])
        at += 1
    while at < len(words):
        test = find_fixed_text(words[at])
        at += 1
        if test in _FIND_ALONE:
            continue
        if test not in _FIND_VALUED and not re.fullmatch(_FIND_NEWER, test):
            raise UnsureError(f"`find … {test}` is not known to be harmless")
        if at < len(words):
            _check_find_value(test, words[at])
        at += 1


def _check_find_value(test: str, word: ShellWord) -> None:
    if word.kind > WordCertainty.PATH:
        raise UnsureError(f"`{word.source}` after `{test}` may expand to options (quote it)")
    allowed = _FIND_PERM if test == "-perm" else _FIND_LESS
    if word.text.startswith("-") and not allowed.fullmatch(word.text):
        raise UnsureError(f"`{word.source}` after `{test}`")


_RULES: dict[str, Callable[[Sequence[ShellWord]], None]] = {
    "[": _check_test,
    "command": _check_command,
    "date": _check_date,
    "find": _check_find,
    "git": check_git,
    "jq": _check_jq,
    "printf": _check_printf,
    "ps": _check_ps,
    "sed": _check_sed,
    "test": _check_test,
}


def _find_timeout_command(words: Sequence[ShellWord]) -> Sequence[ShellWord]:
    if len(words) < 2 or not re.fullmatch(_DURATION, find_fixed_text(words[0])):
        raise UnsureError("`timeout` with more than a duration and a command")
    return words[1:]


def _find_xargs_command(words: Sequence[ShellWord]) -> Sequence[ShellWord]:
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        flag = find_fixed_text(words[at])
        value = find_fixed_text(words[at + 1]) if at + 1 < len(words) else ""
        numbered = flag in _XARGS_NUMBERED and value.isdecimal()
        if not (flag in _XARGS or numbered or (flag == "-I" and value in _XARGS_MARKS)):
            raise UnsureError(f"the xargs option `{flag}` is not known to be harmless")
        at += 1 if flag in _XARGS else 2
    if at >= len(words) or _find_name(words[at]) not in _HARMLESS:
        raise UnsureError("`xargs` hands unknown words to a program that may act on them")
    return words[at:]


_RUNNERS = {"timeout": _find_timeout_command, "xargs": _find_xargs_command}

# Every name that has a rule. Where git is not to be trusted, take it out of this set.
READ_ONLY_COMMANDS = frozenset({*_HARMLESS, *_LISTED, *_RULES, *_RUNNERS})


def check_read_only(words: Sequence[ShellWord], allowed: frozenset[str]) -> None:
    """Raise UnsureError unless this simple command only reads and its name is allowed."""
    while (name := _find_name(words[0])) in _RUNNERS and name in allowed:
        words = _RUNNERS[name](words[1:])
    if name not in READ_ONLY_COMMANDS:
        raise UnsureError(f"`{name}` is not on the read-only list")
    if name not in allowed:
        raise UnsureError(f"`{name}` is not one of the commands allowed here")
    arguments = words[1:]
    for word in arguments:
        if word.kind is WordCertainty.UNKNOWN:
            raise UnsureError(f"the value of `{word.source}` is not known")
    if name in _LISTED:
        parse_words(arguments, _LISTED[name])
    elif name in _RULES:
        _RULES[name](arguments)


def _find_name(word: ShellWord) -> str:
    found = re.fullmatch(_NAME, word.source)
    if found is None or word.kind > WordCertainty.GLOB:
        raise UnsureError(f"the command name `{word.source}` is not a plain program name")
    return found[1]
