"""A GGUF file as a model: `local:FILE.gguf`, run on this machine by llama.cpp; nothing leaves it.

llama.cpp keeps what it has worked out of a prompt, token by token, and speaks Anthropic's format; so this
is our Anthropic client with another address, and its cache reads are measured, not estimated.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final, Self

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from sevenfold.core.errors import ModelFailure, ModelNotFound, UnknownModel, Unreachable
from sevenfold.core.messages import Block
from sevenfold.core.protocols import Capabilities, Clock, Model
from sevenfold.core.request import Request
from sevenfold.core.transcript import Reply
from sevenfold.models.anthropic import AnthropicModel
from sevenfold.models.capabilities import (
    LOCAL,
    ModelAccess,
    find_user_capabilities,
    make_modest_output,
    parse_host,
)
from sevenfold.models.failures import ProviderInfo
from sevenfold.models.llama_server import ServerConfig, ServerReady
from sevenfold.models.registry import PROVIDERS

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
LONGEST_TEXT: Final = 1 << 20  # A longer name or text means that the file is damaged

_NUMBERS: Final = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""The `struct` code of each type of value."""
_TEXT: Final = 8
_LIST: Final = 9


def read_context_length(path: Path) -> int:
    """The context length of the model in a file, in tokens. Raises `UnknownModel` if the file has none."""
    if path.exists() and not path.is_file():  # a pipe would never end
        raise UnknownModel(f"{path} is not a file: name the .gguf file itself")
    try:
        with path.open("rb") as file:
            found = _context_length(file, path)
    except FileNotFoundError:
        raise UnknownModel(f"there is no file {path}: check the path after 'local:'") from None
    except OSError as error:
        raise UnknownModel(f"{path} cannot be read: {error.strerror or error}") from None
    except (struct.error, ValueError):
        raise UnknownModel(f"{path} ends or breaks within its head: download it once more") from None
    if found is None:
        raise UnknownModel(
            f"{path} holds no language model (it names no context length): name one that does"
        )
    return found


def _context_length(file: IO[bytes], path: Path) -> int | None:
    if file.read(4) != MAGIC:
        raise UnknownModel(f"{path} is not a GGUF file: name one, such as local:model.gguf")
    (version,) = _take(file, "I")
    if version not in VERSIONS:
        raise UnknownModel(f"{path} is a GGUF file of version {version}: only 2 and 3 are known")
    _, entries = _take(file, "QQ")
    for _ in range(entries):
        name = _text(file)
        (kind,) = _take(file, "I")
        value = _value(file, kind)
        # The key begins with the architecture: llama.context_length, qwen3.context_length, …
        if name.endswith(".context_length") and isinstance(value, int) and value > 0:
            return value
    return None


def _value(file: IO[bytes], kind: int) -> object:
    if kind == _TEXT:
        return _text(file)
    if kind != _LIST:
        (number,) = _take(file, _number(kind))
        return number
    inner, length = _take(file, "IQ")
    if inner == _TEXT:
        for _ in range(length):
            _text(file)
    else:
        file.seek(struct.calcsize("<" + _number(inner)) * length, os.SEEK_CUR)
    return None  # lists are vocabularies, which are not needed


def _number(kind: int) -> str:
    if kind not in _NUMBERS:
        raise ValueError(f"no value has the type {kind}")
    return _NUMBERS[kind]


def _text(file: IO[bytes]) -> str:
    (length,) = _take(file, "Q")
    if length > LONGEST_TEXT:
        raise ValueError(f"a text of {length} bytes")
    data = file.read(length)
    if len(data) != length:
        raise ValueError("the file ends within a text")
    return data.decode("utf-8", "replace")


def _take(file: IO[bytes], form: str) -> tuple[int, ...]:
    return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))


PROGRAM: Final = "sevenfold.models.llama_server"
LONGEST_ANSWER: Final = 4096
LOG_TAIL: Final = 1 << 16
END_SECONDS: Final = 2.0  # Longest wait for a process to end after its connection broke

_STAMP: Final = re.compile(r"^[\d.]+ [A-Z] ")
_CANNOT_LOAD: Final = re.compile(r"error loading model: (.+)")
_MEMORY: Final = re.compile(r"insufficient memory|failed to allocate|bad_alloc|out of memory", re.I)
_KILLED: Final = -9


class LlamaProcess:
    """A running server. `url` and `key` are how to reach it; `close` ends it."""

    def __init__(self, wanted: ServerConfig, process: Process, log: IO[bytes]) -> None:
        self.url, self.key, self.pid = "", wanted.key, process.pid
        self._wanted, self._process, self._log = wanted, process, log

    @classmethod
    async def start(cls, path: Path, name: str, window: int) -> Self:
        """Load the model, which may take a while; a cancelled start leaves no process."""
        wanted = ServerConfig(str(path), name, window, count_cores(), secrets.token_hex(16))
        log = tempfile.TemporaryFile()  # noqa: SIM115 -- it lives as long as the process
        with anyio.CancelScope(shield=True):  # a half-started process could not be ended
            process = await anyio.open_process(
                [sys.executable, "-P", "-m", PROGRAM],  # -P: nothing is imported from where we stand
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us, and ends a reply, not the model
            )
        started = cls(wanted, process, log)
        try:
            await started._told_where()
        except BaseException:
            await started.close()
            raise
        return started

    async def _told_where(self) -> None:
        orders, answers = self._process.stdin, self._process.stdout
        assert orders is not None
        assert answers is not None
        try:
            await orders.send(msgspec.json.encode(self._wanted) + b"\n")
            line = await BufferedByteReceiveStream(answers).receive_until(b"\n", LONGEST_ANSWER)
        except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead):
            await self._process.wait()
            raise self._why(loading=True) from None
        self.url = msgspec.json.decode(line, type=ServerReady).url

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def why_ended(self, *, wait: bool) -> ModelFailure | None:
        """The reason why the process ended; None while it runs. `wait` gives it a moment to end."""
        if wait:
            with anyio.move_on_after(END_SECONDS):
                await self._process.wait()
        return None if self.alive else self._why()

    async def close(self) -> None:
        """End the process at once: it has no state to save."""
        with anyio.CancelScope(shield=True):
            if self.alive:
                self._process.kill()
            await self._process.aclose()
            self._log.close()

    def _why(self, loading: bool = False) -> ModelFailure:
        end, wanted = self._log.seek(0, os.SEEK_END), self._wanted
        self._log.seek(max(0, end - LOG_TAIL))
        log = self._log.read().decode("utf-8", "replace").strip()
        if _MEMORY.search(log) or self._process.returncode == _KILLED:
            error = Unreachable(
                f"memory ran out for {wanted.path} with a window of {wanted.window:,} tokens: "
                "set a smaller one with SEVENFOLD_WINDOW, or use a smaller model"
            )
            error.retryable = False  # there will be no more memory the next time
            return error
        reasons = _CANNOT_LOAD.findall(log) or [_STAMP.sub("", log.splitlines()[-1])] if log else []
        said = f": {reasons[-1].strip()[:300]}" if reasons else ""
        if loading:
            return ModelNotFound(f"llama.cpp cannot run {wanted.path}{said}")
        how = describe_exit(self._process.returncode)
        return Unreachable(
            f"llama.cpp {how} while it ran {wanted.path}{said}; the next request starts it again"
        )


def count_cores() -> int:
    """The usable cores: a container often has fewer than its machine."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def describe_exit(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


ENGINE: Final = "xllamacpp"
LOCAL_WINDOW: Final = 32_768
"""The window unless another is asked for, in tokens: many models could take more, and fill the memory."""


def connect_local(name: str, access: ModelAccess, clock: Clock | None) -> LocalModel:
    path = name.removeprefix(LOCAL)
    if not path or not path.isprintable():
        raise UnknownModel(f"no model is called {name!r}: use {PROVIDERS.describe_names()}")
    return LocalModel(Path(path), access, clock=clock)


def read_gguf_capabilities(name: str, window: int | None = None) -> Capabilities:
    """The capabilities of the model in a GGUF file; a missing file counts as a usual one."""
    wanted = window or LOCAL_WINDOW
    with suppress(UnknownModel):
        wanted = min(wanted, read_context_length(Path(name.removeprefix(LOCAL)).expanduser()))
    return Capabilities(
        window=wanted, max_output=make_modest_output(wanted), images=False, one_at_a_time=True
    )


class LocalModel:
    """Runs the file from the first request on, and until it is closed."""

    def __init__(self, path: Path, access: ModelAccess, *, clock: Clock | None = None) -> None:
        self._path = path.expanduser().absolute()
        self.name = f"{LOCAL}{self._path}"
        read_context_length(self._path)  # says what is wrong with the file, before anything is started
        if find_spec(ENGINE) is None:
            raise UnknownModel(f"{self.name} needs llama.cpp: pip install 'sevenfold[local]'")
        self.capabilities = find_user_capabilities(self.name, access)
        self._timeouts, self._clock = (access.connect_timeout, access.read_timeout), clock
        self._running: LlamaProcess | None = None
        self._client: AnthropicModel | None = None
        self._starting = anyio.Lock()

    @property
    def pid(self) -> int | None:
        """The process that runs the file, while there is one."""
        return self._running.pid if self._running is not None and self._running.alive else None

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        process, client = await self._started()
        try:
            async with aclosing(client.stream(request)) as items:
                async for item in items:
                    yield item
        except ModelFailure as error:
            if (why := await process.why_ended(wait=isinstance(error, Unreachable))) is not None:
                raise why from error
            raise

    async def close(self) -> None:
        async with self._starting:
            await self._end()

    async def _started(self) -> tuple[LlamaProcess, AnthropicModel]:
        async with self._starting:  # forks come together, and one process is enough
            if self._running is None or self._client is None or not self._running.alive:
                await self._end()
                self._running = await LlamaProcess.start(self._path, self.name, self.capabilities.window)
                self._client = self._reach(self._running)
            return self._running, self._client

    async def _end(self) -> None:
        client, self._client = self._client, None
        running, self._running = self._running, None
        try:
            if client is not None:
                await client.close()
        finally:
            if running is not None:
                await running.close()

    def _reach(self, running: LlamaProcess) -> AnthropicModel:
        """Our own client on it. The user's headers and keys are for others and stay here."""
        connect, read = self._timeouts
        access = ModelAccess(
            anthropic_key=running.key,
            anthropic_base_url=running.url,
            connect_timeout=connect,
            read_timeout=read,
            window=self.capabilities.window,
            diagnostics=False,
            # It closes a connection when it pleases, and now and then while we send on it.
            headers={"connection": "close"},
        )
        who = ProviderInfo("llama.cpp", parse_host(running.url), self.name, self.name, True)
        return AnthropicModel(self.name, access, clock=self._clock, spoken_of=who)


_check: type[Model] = LocalModel
