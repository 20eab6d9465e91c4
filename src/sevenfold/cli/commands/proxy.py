"""`sevenfold proxy` and `sevenfold wrap`: the layers beside an agent that the user already has."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio

from sevenfold.cache.prices import Prices
from sevenfold.cli.failures import INTERRUPTED
from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import print_message, print_result, print_warning
from sevenfold.cli.startup import read_command_context
from sevenfold.core.errors import Mistake
from sevenfold.models.capabilities import ANTHROPIC_URL
from sevenfold.proxy.receipt import Receipt
from sevenfold.proxy.server import FOLDER, Proxy
from sevenfold.proxy.upstream import Upstream
from sevenfold.settings.files import CLAUDE_FOLDER
from sevenfold.storage.files import make_private_dir

LOG: Final = "proxy.log"
COLLECT_AFTER: Final = 700
"""New objects after which Python looks for garbage, as by itself: a request that is done may hold its body
in a cycle, and bodies are large.
"""
FIRST_PARTY: Final = "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL"
"""Set where requests still end at the provider's own host: else Claude Code withholds features."""
WITHHELD: Final = (
    "behind another address Claude Code withholds first-party features, among them the window of a million "
    "tokens"
)
TERMS: Final = "API keys are the supported case: the terms of a subscription may not allow a proxy"


def run_proxy(shared: SharedOptions, *, upstream: str | None, port: int, report: bool) -> int:
    proxy = _make_proxy(shared, upstream, port, print_warning)

    async def serve() -> int:
        code = 0
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with proxy:
                print_result(shared, f"ready: {proxy.url}", {"url": proxy.url, "ready": True})
                for line in _describe_start(proxy):
                    print_message(shared, line)
                async for number in signals:
                    code = INTERRUPTED if number == signal.SIGINT else 0
                    break
        _print_receipt(shared, proxy.receipt, whole=report)
        return code

    return anyio.run(serve)


def run_wrapped(shared: SharedOptions, words: Sequence[str], *, upstream: str | None) -> int:
    """Run a client with its requests through a proxy of its own; returns the client's exit code."""
    name, *given = words
    if shutil.which(name) is None:
        raise Mistake(f"there is no program {name!r} in your PATH; give the command that starts the client")
    log = _open_log(shared)
    proxy = _make_proxy(shared, upstream, 0, log)
    around = read_command_context(shared).environment

    async def run() -> int:
        async with proxy:
            more = choose_variables(name, proxy.url, proxy.upstream.anthropic)
            line = [name, *choose_arguments(name, proxy.url), *given]
            for text in _describe_client(name, proxy.upstream.anthropic):
                print_message(shared, text)
            code = await _run_child(line, {**around.variables, **more})
        _print_receipt(shared, proxy.receipt, whole=False)
        return code

    return anyio.run(run)


def choose_variables(name: str, url: str, upstream: str) -> dict[str, str]:
    """The environment variables that lead a client to this address; clients read different ones."""
    variables = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_BASE": url,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
    }
    if Path(name).name == "claude" and upstream == ANTHROPIC_URL:
        variables[FIRST_PARTY] = "1"
    return variables


def choose_arguments(name: str, url: str) -> list[str]:
    """Codex takes the address of its own provider as an option of one run."""
    return ["-c", f'openai_base_url="{url}/v1"'] if Path(name).name == "codex" else []


def _make_proxy(
    shared: SharedOptions, upstream: str | None, port: int, log: Callable[[str], object]
) -> Proxy:
    gc.freeze()  # what a start makes stays, and is not looked through again and again
    gc.set_threshold(COLLECT_AFTER)
    around = read_command_context(shared)
    settings, variables = around.load_settings().settings, around.environment.variables
    config = variables.get("CLAUDE_CONFIG_DIR") or str(
        Path(variables.get("HOME") or Path.home()) / CLAUDE_FOLDER
    )
    proxy = Proxy(
        Upstream(upstream or settings.anthropic_base_url, upstream or settings.openai_base_url),
        home=around.environment.home,
        claude=Path(config).expanduser().absolute(),
        environ=around.environment.tool_environment(),
        prices=Prices.load(settings.prices),
        port=port,
        log=log,
        days=settings.cleanup_days,
    )
    proxy.conversations.remove_old()
    return proxy


def _describe_start(proxy: Proxy) -> list[str]:
    url, folder = proxy.url, proxy.conversations.folder
    return [
        f"point a client at it with ANTHROPIC_BASE_URL={url} or OPENAI_BASE_URL={url}/v1; Ctrl-C ends it",
        f"Claude Code reads cleared results unasked; let other clients read {folder}, by a rule like "
        f"Read({folder}/**)",
        f"{WITHHELD}; {FIRST_PARTY}=1 gives them back, only for an upstream that is the provider's own",
        TERMS,
    ]


def _describe_client(name: str, upstream: str) -> list[str]:
    lines = [TERMS]
    if Path(name).name == "claude" and upstream != ANTHROPIC_URL:
        lines.append(WITHHELD)
    return lines


async def _run_child(line: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run it in our terminal. Ctrl-C is the child's own; being ended is passed on."""
    async with await anyio.open_process(
        line, stdin=None, stdout=None, stderr=None, env=dict(variables)
    ) as child:

        async def pass_signals() -> None:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                async for number in signals:
                    if number != signal.SIGINT:
                        child.send_signal(number)

        async with anyio.create_task_group() as group:
            group.start_soon(pass_signals)
            code = await child.wait()
            group.cancel_scope.cancel()
    return code if code >= 0 else 128 - code


def _open_log(shared: SharedOptions) -> Callable[[str], object]:
    """A log in a file: the terminal is the client's. Where nothing can be written, nothing is logged."""
    path = read_command_context(shared).environment.home / FOLDER / LOG

    def write(line: str) -> None:
        try:
            make_private_dir(path.parent)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "w") as file:
                file.write(" ".join(line.split()) + "\n")
        except OSError:
            return

    return write


def _print_receipt(shared: SharedOptions, receipt: Receipt, *, whole: bool) -> None:
    if shared.json:
        print_result(shared, "", receipt.as_json())
    elif whole:
        print_result(shared, receipt.describe_whole(), None)
    else:
        print_message(shared, receipt.describe())
