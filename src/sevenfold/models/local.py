"""A GGUF file as a model: `local:FILE.gguf`, run on this machine by llama.cpp; nothing leaves it.

llama.cpp keeps what it has worked out of a prompt, token by token, and speaks Anthropic's format; so this
is our Anthropic client with another address, and its cache reads are measured, not estimated.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import anyio

from sevenfold.errors import ModelFailure, UnknownModel, Unreachable
from sevenfold.messages import Block
from sevenfold.models.access import Access, host_of
from sevenfold.models.anthropic import AnthropicModel
from sevenfold.models.capabilities import LOCAL, connected_capabilities
from sevenfold.models.failures import Provider
from sevenfold.models.gguf import context_length
from sevenfold.models.llama_process import LlamaProcess
from sevenfold.protocols import Clock, Model
from sevenfold.request import Request
from sevenfold.transcript import Reply

ENGINE: Final = "xllamacpp"


class LocalModel:
    """Runs the file from the first request on, and until it is closed."""

    def __init__(self, path: Path, access: Access, *, clock: Clock | None = None) -> None:
        self._path = path.expanduser().absolute()
        self.name = f"{LOCAL}{self._path}"
        context_length(self._path)  # says what is wrong with the file, before anything is started
        if find_spec(ENGINE) is None:
            raise UnknownModel(f"{self.name} needs llama.cpp: pip install 'sevenfold[local]'")
        self.capabilities = connected_capabilities(self.name, access)
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
            cut = isinstance(error, Unreachable)
            if (why := await process.why_ended(wait=cut)) is not None:
                raise why from error
            raise

    async def close(self) -> None:
        async with self._starting:
            await self._end()

    async def _started(self) -> tuple[LlamaProcess, AnthropicModel]:
        async with self._starting:  # forks come together, and one process is enough
            if self._running is None or self._client is None or not self._running.alive:
                await self._end()
                window = self.capabilities.window
                self._running = await LlamaProcess.start(self._path, self.name, window)
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
        access = Access(
            anthropic_key=running.key,
            anthropic_base_url=running.url,
            connect_timeout=connect,
            read_timeout=read,
            window=self.capabilities.window,
            diagnostics=False,
            # It closes a connection when it pleases, and now and then while we send on it.
            headers={"connection": "close"},
        )
        who = Provider("llama.cpp", host_of(running.url), self.name, self.name, True)
        return AnthropicModel(self.name, access, clock=self._clock, spoken_of=who)


_check: type[Model] = LocalModel
