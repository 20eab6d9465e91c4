"""Errors as each provider words them: status, kind of error, and body."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

KINDS: Final = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error",
    403: "permission_error", 404: "not_found_error", 405: "invalid_request_error",
    409: "invalid_request_error", 413: "request_too_large", 429: "rate_limit_error", 500: "api_error",
    504: "timeout_error", 529: "overloaded_error",
}  # fmt: skip
WORDS: Final = {
    400: "Invalid request", 401: "invalid x-api-key", 402: "Billing error", 403: "Permission denied",
    404: "Not found", 413: "Request exceeds the maximum size",
    429: "This request would exceed your account's rate limit. Please try again later.",
    500: "Internal server error", 504: "Request timed out", 529: "Overloaded",
}  # fmt: skip


class ApiError(Exception):
    """A request that the API answers with an error."""

    def __init__(
        self,
        status: int,
        message: str | None = None,
        *,
        kind: str | None = None,
        retry_after: float | None = None,
        code: str | None = None,
        param: str | None = None,
        details: Json | None = None,
    ) -> None:
        self.status = status
        self.kind = kind or KINDS.get(status, "api_error" if status >= 500 else KINDS[400])
        self.message = message or WORDS.get(status, "Error")
        self.retry_after = retry_after
        self.code = code  # OpenAI's code beside the message, for instance `context_length_exceeded`
        self.param = param  # OpenAI's name of the field that is wrong
        self.details = details  # The Messages API's object beside the message, with an `error_code`
        super().__init__(self.message)

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"retry-after": f"{self.retry_after:g}"}

    def as_messages(self, request_id: str | None = None) -> Json:
        body: Json = {"type": "error", "error": {"type": self.kind, "message": self.message}}
        if self.details is not None:
            body["error"]["details"] = self.details
        if request_id is not None:
            body["request_id"] = request_id
        return body

    def as_chat(self) -> Json:
        said = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": said}


def make_invalid_request(message: str) -> ApiError:
    return ApiError(400, message)
