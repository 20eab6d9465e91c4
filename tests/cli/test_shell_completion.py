"""The completion function of each shell, installed and run as the shell itself would."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli.world import World

pytestmark = pytest.mark.real
BASH = """
source "$HOME/.bashrc"
complete_line() {
    COMP_LINE="$1" COMP_POINT=${#1}
    COMP_WORDS=($1); [[ "$1" == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _sevenfold_completion sevenfold
    printf '%s\\n' "${COMPREPLY[@]}"
}
complete_line "$LINE"
"""
FISH = 'complete --do-complete "$LINE"'
# zsh completes only at a prompt: what the function would be given is printed instead.
ZSH = """
autoload() { :; }; compinit() { :; }; compdef() { :; }; zstyle() { :; }
_arguments() { print -r -- "$@" }; _files() { print files }
source "$HOME/.zshrc"; source "$HOME/.zfunc/_sevenfold"
words=(${(z)LINE}); [[ $LINE == *" " ]] && words+=("")
CURRENT=$#words
_sevenfold_completion
"""
SCRIPTS = {"bash": BASH, "fish": FISH, "zsh": ZSH}
# Whoever develops this has bash; the others are tried where they are installed.
SHELLS = ["bash", *(shell for shell in ("fish", "zsh") if shutil.which(shell))]


def run_shell(world: World, shell: str, script: str, line: str = "") -> str:
    path = f"{Path(sys.executable).parent}:{world.env['PATH']}"
    env = {**world.env, "PATH": path, "LINE": line, "SHELL": shell}
    ran = subprocess.run(
        [shell, "-c", script],
        env=env,
        cwd=world.project,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_completes_commands_options_models_sessions_and_memories(
    world: World, shell: str
) -> None:
    assert world.run("-p", 'what is [/bold] `id` $HOME "here"?').code == 0
    about = ("--type", "project", "--description", "when", "--body", "on Tuesdays")
    assert world.run("memory", "add", "--name", "deploy-window", *about).code == 0
    [session] = world.transcripts
    said = run_shell(world, shell, "sevenfold --install-completion; true")
    assert f"{shell} completion installed in" in said

    offered = {
        line: run_shell(world, shell, SCRIPTS[shell], f"sevenfold {line}")
        for line in ("me", "--mod", "--model claude-sonnet-5-", "chat --resume ", "memory show dep", "--")
    }

    assert "memory" in offered["me"]
    assert "--model" in offered["--mod"], "options without a command are those of chat"
    assert "claude-sonnet-5-5" in offered["--model claude-sonnet-5-"]
    assert session.stem in offered["chat --resume "]
    assert "deploy-window" in offered["memory show dep"]
    assert "--version" in offered["--"]
    assert "--resume" in offered["--"]
