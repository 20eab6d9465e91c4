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
    │  ├─ MemoryOff            durable memory is switched off here          (memory.api)
    │  ├─ NoSuchMemory         no memory of that name, or several           (memory.errors)
    │  ├─ NoTeam               this memory is shared with no team            (memory.team.git)
    │  ├─ NotSent              a message to another session did not arrive (l7_agents.sockets)
    │  └─ Refused              a guard, a permission or missing trust said no
    │     ├─ Guarded           the guard of memory: what it found, and where (memory.errors)
    │     ├─ MailboxFull       too many messages wait in a mailbox          (l7_agents.mailbox)
    │     └─ TooLong, Damaged  a message that is none                       (l7_agents.mailbox)
    └─ Failure                 the run failed: nothing is lost, and it may be tried again
       ├─ ModelFailure         the model's provider failed
       │  ├─ PromptTooLong     it says how long, and how long is allowed
       │  ├─ RateLimited       too many requests
       │  ├─ Overloaded        the provider is too busy, or broke
       │  ├─ KeyRefused        the key is wrong or may not do this
       │  ├─ ModelNotFound     the provider does not have this model
       │  ├─ BadRequest        the provider did not accept the request
       │  ├─ Unreachable       no connection, or it was cut
       │  └─ BadReply          what came back is not what the protocol says
       ├─ ContextFull          every layer had its say and the view still does not fit
       ├─ StepLimitReached     the model was still calling tools after the last allowed step
       ├─ GitFailed, Behind    git, or the team's repository, said no       (memory.team.git)
       └─ StorageFailure       the disk refused
          └─ Busy              another process holds a mailbox              (l7_agents.locks)

`str(error)` is one sentence for people, with the fix where there is one.
"""

from __future__ import annotations


class SevenfoldError(Exception):
    """Catch this to catch everything we raise on purpose."""

    exit_code = 1


class Mistake(SevenfoldError):
    """The request cannot be carried out as made; the message says what to change."""

    exit_code = 2


class SettingsError(Mistake):
    """A settings file or an environment variable is wrong."""


class UnknownModel(Mistake):
    """No such model, or no way to reach it."""


class NoKey(Mistake):
    """The model needs a key and none is set."""


class SessionNotFound(Mistake):
    """There is no transcript with that id."""


class SessionBusy(Mistake):
    """Another process is writing this transcript."""


class FromTheFuture(Mistake):
    """The transcript was written by a newer version of Sevenfold."""


class ScriptError(Mistake):
    """A script for the simulator or a scripted model is wrong, or used up."""


class Refused(Mistake):
    """A guard, a permission or missing trust said no."""

    exit_code = 3


class Failure(SevenfoldError):
    """The run failed. Nothing is lost, and it may be tried again."""


class ModelFailure(Failure):
    """The model's provider failed."""

    retryable = False

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds the provider asked us to wait, where it said so."""


class PromptTooLong(ModelFailure):
    """The provider refused the request because it was too long."""

    def __init__(self, message: str, *, tokens: int | None = None, limit: int | None = None) -> None:
        super().__init__(message)
        self.tokens, self.limit = tokens, limit

    @property
    def over(self) -> int:
        """By how many tokens it was too long; 0 where the provider did not say."""
        return max(0, self.tokens - self.limit) if self.tokens and self.limit else 0


class RateLimited(ModelFailure):
    """Too many requests, or too many tokens, in too short a time."""

    retryable = True


class Overloaded(ModelFailure):
    """The provider is too busy, or broke."""

    retryable = True


class KeyRefused(ModelFailure):
    """The key is wrong, or may not do this."""


class ModelNotFound(ModelFailure):
    """The provider does not have this model."""


class BadRequest(ModelFailure):
    """The provider did not accept the request."""


class Unreachable(ModelFailure):
    """No connection, or it was cut."""

    retryable = True


class BadReply(ModelFailure):
    """The reply is not what the protocol says."""

    retryable = True


class ContextFull(Failure):
    """Every layer had its say and the view still does not fit."""


class StepLimitReached(Failure):
    """The model was still calling tools after the last allowed step."""

    def __init__(self, steps: int, *, agent: bool = False) -> None:
        """`agent`: it was one of the agents, whose limit stands elsewhere."""
        more = "say 'continue', or raise the limit with --max-steps"
        if agent:
            more = "raise maxTurns in its definition, or give it less to do at once"
        super().__init__(f"stopped after {steps} steps with tools still being called; {more}")
        self.steps = steps


class StorageFailure(Failure):
    """The disk refused. What was acknowledged before is still there."""
