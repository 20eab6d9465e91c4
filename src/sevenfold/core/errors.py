"""Everything this package raises on purpose.

    SevenfoldError
    ├─ Mistake                 yours to mend: what was asked cannot be done as asked
    │  ├─ SettingsError        a settings file or variable is wrong
    │  ├─ UnknownModel         no such model, or no way to reach it
    │  ├─ NoKey                the model needs a key and none is set
    │  ├─ SessionNotFound      no transcript with that id
    │  ├─ SessionBusy          another process is writing this transcript
    │  ├─ FromTheFuture        a transcript written by a newer version
    │  ├─ ScriptError          a script for the simulator or a model is wrong or used up
    │  ├─ MemoryOff            durable memory is switched off here          (memory.store)
    │  ├─ NoSuchMemory         no memory of that name                       (memory.errors)
    │  ├─ Ambiguous            several memories of that name                (memory.errors)
    │  ├─ NoTeam               this memory is shared with no team           (memory.team.git)
    │  ├─ NotSent              a message to another session did not arrive  (l7_agents.sockets)
    │  └─ Refused              a guard, a permission or missing trust said no
    │     ├─ Guarded           the guard of memory: what it found, and where (memory.errors)
    │     ├─ MailboxFull       too many messages wait in a mailbox          (l7_agents.mailbox)
    │     └─ TooLong, Damaged  a message that cannot be delivered           (l7_agents.mailbox)
    ├─ EmbeddingUnavailable    the search has no word vectors               (memory.search.embedding)
    ├─ Unreadable              a recording cannot be read                   (recordings.finder)
    ├─ UntouchedRequest        a request that the proxy sends as it came    (proxy.body)
    └─ Failure                 the run failed: nothing is lost, and it may be tried again
       ├─ ModelFailure         the model's provider failed
       │  ├─ PromptTooLong     it says how long, and how long is allowed
       │  ├─ RateLimited       too many requests
       │  ├─ Overloaded        the provider is too busy, or broke
       │  ├─ KeyRefused        the key is wrong or may not do this
       │  ├─ ModelNotFound     the provider does not have this model
       │  ├─ BadRequest        the provider did not accept the request
       │  │  └─ ThreadRefused  ... because of its thread                     (models.threads)
       │  ├─ Unreachable       no connection, or it was cut
       │  └─ BadReply          what came back is not what the protocol says
       ├─ ContextFull          every layer had its say and the view still does not fit
       ├─ StepLimitReached     the model was still calling tools after the last allowed step
       ├─ NeverStopped         a dream's model did not come to an end       (l6_dreaming.workers)
       ├─ McpServerFailed      a server of the chat did not do as asked     (mcp.server_connections)
       ├─ GitFailed, Behind    git, or the team's repository, said no       (memory.team.git)
       └─ StorageFailure       the disk refused
          └─ Busy              another process holds a mailbox              (l7_agents.locks)

`str(error)` is one sentence for people, with the fix where there is one.
"""

from __future__ import annotations

from typing import ClassVar


class SevenfoldError(Exception):
    """Catch this to catch everything we raise on purpose."""

    exit_code = 1
    kind: ClassVar[str] = "sevenfold_error"
    """A fixed word for programs, such as `no_key`; it stays when the class is renamed."""

    def __init_subclass__(cls, *, kind: str = "") -> None:
        super().__init_subclass__()
        cls.kind = kind or cls.kind


class Mistake(SevenfoldError, kind="mistake"):
    """The request cannot be carried out as made; the message says what to change."""

    exit_code = 2


class SettingsError(Mistake, kind="settings_error"):
    """A settings file or an environment variable is wrong."""


class UnknownModel(Mistake, kind="unknown_model"):
    """No such model, or no way to reach it."""


class NoKey(Mistake, kind="no_key"):
    """The model needs a key and none is set."""


class SessionNotFound(Mistake, kind="session_not_found"):
    """There is no transcript with that id."""


class SessionBusy(Mistake, kind="session_busy"):
    """Another process is writing this transcript."""


class FromTheFuture(Mistake, kind="from_the_future"):
    """The transcript was written by a newer version of Sevenfold."""


class ScriptError(Mistake, kind="script_error"):
    """A script for the simulator or a scripted model is wrong, or used up."""


class Refused(Mistake, kind="refused"):
    """A guard, a permission or missing trust said no."""

    exit_code = 3


class Failure(SevenfoldError, kind="failure"):
    """The run failed. Nothing is lost, and it may be tried again."""


class ModelFailure(Failure, kind="model_failure"):
    """The model's provider failed."""

    retryable = False

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # Seconds the provider asked us to wait, where it said so


class PromptTooLong(ModelFailure, kind="prompt_too_long"):
    """The provider refused the request because it was too long."""

    def __init__(self, message: str, *, tokens: int | None = None, limit: int | None = None) -> None:
        super().__init__(message)
        self.tokens, self.limit = tokens, limit

    @property
    def over(self) -> int:
        """By how many tokens it was too long; 0 where the provider did not say."""
        return max(0, self.tokens - self.limit) if self.tokens and self.limit else 0


class RateLimited(ModelFailure, kind="rate_limited"):
    """Too many requests, or too many tokens, in too short a time."""

    retryable = True


class Overloaded(ModelFailure, kind="overloaded"):
    """The provider is too busy, or broke."""

    retryable = True


class KeyRefused(ModelFailure, kind="key_refused"):
    """The key is wrong, or may not do this."""


class ModelNotFound(ModelFailure, kind="model_not_found"):
    """The provider does not have this model."""


class BadRequest(ModelFailure, kind="bad_request"):
    """The provider did not accept the request."""


class Unreachable(ModelFailure, kind="unreachable"):
    """No connection, or it was cut."""

    retryable = True


class BadReply(ModelFailure, kind="bad_reply"):
    """The reply is not what the protocol says."""

    retryable = True


class ContextFull(Failure, kind="context_full"):
    """Every layer had its say and the view still does not fit."""


class StepLimitReached(Failure, kind="step_limit_reached"):
    """The model was still calling tools after the last allowed step."""

    def __init__(self, steps: int, *, agent: bool = False) -> None:
        """`agent`: it was one of the agents, whose limit stands elsewhere."""
        more = "say 'continue', or raise the limit with --max-steps"
        if agent:
            more = "raise maxTurns in its definition, or give it less to do at once"
        super().__init__(f"stopped after {steps} steps with tools still being called; {more}")
        self.steps = steps


class StorageFailure(Failure, kind="storage_failure"):
    """The disk refused. What was acknowledged before is still there."""
