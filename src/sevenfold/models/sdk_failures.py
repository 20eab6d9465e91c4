"""What the official SDKs raise, as our errors. By the names of classes, which their versions share."""

from __future__ import annotations

from typing import Any

from sevenfold.errors import BadReply, KeyRefused, ModelFailure
from sevenfold.models.failures import (
    Mapped,
    Provider,
    not_the_protocol,
    told,
    transport_errors,
    transport_failure,
)


def sdk_failure(
    error: Exception, provider: Provider, mapped: Mapped, model: str, hide: tuple[str, ...] = ()
) -> ModelFailure:
    """Our error for one of an SDK's, through the same map as our own client's."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, transport_errors()):
        return transport_failure(error, provider)
    if "APIConnectionError" in names:
        return transport_failure(error.__cause__ or error, provider)
    if "APIResponseValidationError" in names:
        return unreadable(provider)
    if names & {"APIStatusError", "APIError"}:
        response: Any = getattr(error, "response", None)
        return mapped(
            told(
                provider,
                getattr(error, "body", None) or str(error),
                status=getattr(error, "status_code", None),
                headers=getattr(response, "headers", None),
                model=model,
                hide=hide,
            )
        )
    return no_credentials(provider)


def raised_by(sdk: type[Exception]) -> tuple[type[Exception], ...]:
    """What a call of an SDK may raise, given the class that all its own errors share."""
    return (sdk, *transport_errors())


def no_credentials(provider: Provider) -> KeyRefused:
    return KeyRefused(
        f"the {provider.name} client has no credentials that work: give it a key, "
        "or use the model 'offline'"
    )


def unreadable(provider: Provider) -> BadReply:
    return not_the_protocol(provider, "an event that cannot be read")


def secrets_of(client: Any) -> tuple[str, ...]:
    """What must never show up in a message."""
    found = (getattr(client, name, None) for name in ("api_key", "auth_token"))
    return tuple(secret for secret in found if isinstance(secret, str) and secret)
