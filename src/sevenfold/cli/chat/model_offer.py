"""The offer of a chat for which no model is set up: a key, a server or a file that is there, or none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import msgspec

from sevenfold.cli.input import ask_choice
from sevenfold.cli.output import CommandMenu, MenuRow, make_printable, to_one_line
from sevenfold.cli.startup import CommandContext, save_user_settings
from sevenfold.core.errors import Mistake
from sevenfold.models import connect_model
from sevenfold.models.capabilities import LOCAL, OFFLINE, ModelAccess, check_model_name
from sevenfold.settings.environment import keep_key

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

PORTS: Final = {11434: "Ollama", 8080: "llama.cpp or another", 1234: "LM Studio or another"}
MOST_SECONDS: Final = 0.5  # Longest wait for an answer on loopback; a port that is closed says so at once
LARGEST_LIST: Final = 1_000_000  # Bytes of a server's list of models
MOST_MODELS: Final = 3  # Models of one server, and files, that are offered
MOST_ENTRIES: Final = 20_000  # Entries of folders that are looked at for files
DEEPEST: Final = 6
MODEL_FOLDERS: Final = (
    "models",
    "Downloads",
    ".cache/llama.cpp",
    ".cache/huggingface/hub",
    ".cache/lm-studio/models",
    ".lmstudio/models",
)
OPENAI_MODEL: Final = "gpt-5.4-mini"  # Asked for with a key of OpenAI, unless the user names another
KEYS: Final = {"sk-ant-": "ANTHROPIC_API_KEY", "sk-": "OPENAI_API_KEY"}
"""The environment variable of a key, by how it begins."""
_YES: Final = {"y": True, "yes": True, "n": False, "no": False, "": False}
_PASTE: Final = "Paste the key (it is not shown): "
_PATH: Final = "Path of the GGUF file: "


class ModelChoice(msgspec.Struct, frozen=True):
    """A model, and the environment variables with which it can be reached."""

    model: str | None = None  # None: the usual one for the key
    key: tuple[str, str] | None = None  # The variable and the key
    address: str = ""  # Of an OpenAI-compatible server

    @property
    def variables(self) -> dict[str, str]:
        address = {"OPENAI_BASE_URL": self.address} if self.address else {}
        return {**address, **dict([self.key] if self.key else [])}


class LocalServer(msgspec.Struct, frozen=True):
    """A server on loopback that answered, and its models."""

    port: int
    models: tuple[str, ...]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


async def find_servers(ports: Mapping[int, str]) -> list[LocalServer]:
    """The servers that list models, asked side by side."""
    found: list[LocalServer] = []

    async def ask(port: int) -> None:
        names = await anyio.to_thread.run_sync(list_served_models, port, abandon_on_cancel=True)
        if names:
            found.append(LocalServer(port, names))

    with anyio.move_on_after(2 * MOST_SECONDS):
        async with anyio.create_task_group() as tasks:
            for port in ports:
                tasks.start_soon(ask, port)
    return sorted(found, key=lambda one: list(ports).index(one.port))


class _ServedModel(msgspec.Struct):
    id: str


class _ModelList(msgspec.Struct):
    data: tuple[_ServedModel, ...]


def list_served_models(port: int) -> tuple[str, ...]:
    """The models of an OpenAI-compatible server on this port; none if there is no such server."""
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection("127.0.0.1", port, timeout=MOST_SECONDS)
    try:
        connection.request("GET", "/v1/models", headers={"authorization": "Bearer none"})
        answer = connection.getresponse()
        listed = msgspec.json.decode(answer.read(LARGEST_LIST), type=_ModelList)
    except (OSError, HTTPException, msgspec.DecodeError, UnicodeDecodeError):
        return ()
    finally:
        connection.close()
    names = (one.id for one in listed.data if answer.status == 200)
    usable = (name for name in names if name.isprintable() and not any(c.isspace() for c in name))
    return tuple(name for name in usable if "embed" not in name.casefold())[:MOST_MODELS]


def find_model_files(home: Path, project: Path) -> list[Path]:
    """The newest GGUF files of the usual folders and of the project, as far as a quick look finds them."""
    left = [MOST_ENTRIES]
    found = {path for name in MODEL_FOLDERS for path in _walk_files(home / name, DEEPEST, left)}
    return sorted({*found, *_walk_files(project, 1, left)}, key=_find_age)[:MOST_MODELS]


def _walk_files(folder: Path, depth: int, left: list[int]) -> Iterator[Path]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        left[0] -= 1
        if left[0] < 0:
            return
        if entry.name.endswith(".gguf") and not entry.name.startswith("mmproj"):
            yield Path(entry.path)
        elif depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _walk_files(Path(entry.path), depth - 1, left)


def name_file_model(path: str) -> str:
    """The name of the model in a file, wherever the chat is started next."""
    return f"{LOCAL}{Path(path).expanduser().absolute()}"


def _check_file(model: str) -> None:
    """Raises `Mistake` if this is a file that llama.cpp cannot run."""
    if model.startswith(LOCAL):
        connect_model(model, ModelAccess())


def _find_age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0.0


class ModelOffer:
    """Finds what could answer, and asks the user."""

    def __init__(self, prompts: PromptSession[str], around: CommandContext) -> None:
        self._prompts, self._around = prompts, around

    async def make_menu(self) -> tuple[CommandMenu, dict[str, ModelChoice]]:
        """The rows, and the choice behind each; those that are not in it ask for more."""
        home, project = self._around.environment.variables.get("HOME", ""), self._around.places.tree
        servers = await find_servers(PORTS)
        files = await anyio.to_thread.run_sync(
            find_model_files, Path(home), project, abandon_on_cancel=True
        )
        rows: list[MenuRow] = []
        choices: dict[str, ModelChoice] = {OFFLINE: ModelChoice(OFFLINE)}
        for server in servers:
            for name in server.models:
                line = f"openai:{name} {server.port}"
                choices[line] = ModelChoice(f"openai:{name}", address=server.address)
                rows.append(MenuRow(name, line, f" · {PORTS[server.port]}, on port {server.port}"))
        for path in files:
            choices[f"{LOCAL}{path}"] = ModelChoice(f"{LOCAL}{path}")
            about = " · a GGUF file on this machine"
            rows.append(MenuRow(make_printable(path.name), f"{LOCAL}{path}", about))
        rows += [
            MenuRow("paste a key", "key", " · for Claude or OpenAI"),
            MenuRow("name a GGUF file", "file", " · llama.cpp runs it on this machine"),
            MenuRow("the offline engine", OFFLINE, " · no model, no key: rules"),
        ]
        title = "No model is set up yet; choose one"
        return CommandMenu(title, title, tuple(rows)), choices

    async def take(self, line: str, choices: Mapping[str, ModelChoice]) -> ModelChoice | None:
        """The choice of a row; None: it came to nothing, and the menu is shown again."""
        try:
            choice = choices.get(line) or await (self._ask_key() if line == "key" else self._ask_file())
            if choice is None:
                return None
            if choice.model is not None:
                check_model_name(choice.model.replace(" ", "_"))  # the path of a file may hold spaces
                _check_file(choice.model)
        except Mistake as error:
            print(f"  {to_one_line(str(error), 200)}", flush=True)
            return None
        await self._offer_to_keep(choice)
        return choice

    async def _ask(self, text: str, prompts: PromptSession[str] | None = None) -> str:
        try:
            return (await (prompts or self._prompts).prompt_async(text, handle_sigint=False)).strip()
        except (EOFError, KeyboardInterrupt):
            return ""

    async def _ask_key(self) -> ModelChoice | None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import DummyHistory

        # An editor of its own: the arrow up at another question must not bring the key.
        key = await self._ask(_PASTE, PromptSession(history=DummyHistory(), is_password=True))
        if not key:
            return None
        variable = next((name for start, name in KEYS.items() if key.startswith(start)), None)
        if variable is None or not all("!" <= c <= "~" for c in key):
            raise Mistake("that is neither a key for Claude (sk-ant-…) nor one of OpenAI (sk-…)")
        if variable == "ANTHROPIC_API_KEY":
            return ModelChoice(key=(variable, key))
        name = await self._ask(f"Which model? [{OPENAI_MODEL}] ") or OPENAI_MODEL
        return ModelChoice(f"openai:{name.removeprefix('openai:')}", (variable, key))

    async def _ask_file(self) -> ModelChoice | None:
        path = (await self._ask(_PATH)).strip("\"'")
        return ModelChoice(name_file_model(path)) if path else None

    async def _offer_to_keep(self, choice: ModelChoice) -> None:
        home = self._around.home
        what = (
            "the key in credentials.json (only you can read it)" if choice.key else "this in settings.json"
        )
        try:
            if not await ask_choice(self._prompts, f"Keep {what} in {home}? [y/N] ", _YES):
                return
        except KeyboardInterrupt:
            return
        values: dict[str, Any] = {"model": choice.model} if choice.model else {}
        values |= {"openaiBaseUrl": choice.address} if choice.address else {}
        try:
            if choice.key:
                keep_key(home, *choice.key)
            if values:
                save_user_settings(home, values)
        except Mistake as error:
            print(f"  {to_one_line(str(error), 200)}", flush=True)
