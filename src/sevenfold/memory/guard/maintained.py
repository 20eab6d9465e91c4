"""The detectors of `detect-secrets`, asked without its settings, its network checks or its logging.

Only the patterns of its plugins are used. What it keeps for the whole process (settings, how warnings
are shown) belongs to the program around us and stays as it was.
"""

from __future__ import annotations

import importlib
import logging
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sevenfold.memory.guard import randomness
from sevenfold.memory.guard.formats import Token

_PLUGINS: Final = {
    "artifactory": "ArtifactoryDetector",
    "aws": "AWSKeyDetector",
    "azure_storage_key": "AzureStorageKeyDetector",
    "cloudant": "CloudantDetector",
    "discord": "DiscordBotTokenDetector",
    "github_token": "GitHubTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "ibm_cloud_iam": "IbmCloudIamDetector",
    "ibm_cos_hmac": "IbmCosHmacDetector",
    "mailchimp": "MailchimpDetector",
    "npm": "NpmDetector",
    "openai": "OpenAIDetector",
    "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "softlayer": "SoftlayerDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "telegram_token": "TelegramBotTokenDetector",
    "twilio": "TwilioKeyDetector",
}
"""Left out: addresses, which are no secrets; headers of private keys, web tokens, words like "password"
and credentials in URLs, which our own tables judge together with what follows them."""

_LONG: Final = re.compile(r"[A-Za-z0-9+/_=:.-]{11,}")
_DIGIT: Final = re.compile(r"\d")
_NAMED: Final = re.compile(
    r"(?:secret|token|password|credential|(?:api|access|private|signing|deploy|_)[ _-]?key)(?![a-z])",
    re.IGNORECASE,
)
_NEAR: Final = 40
"""How far before a quoted value its name may end."""
_LONGEST: Final = 2_000
"""Longer lines are cut in pieces: some of its patterns take the square of the length of a line."""
_OVERLAP: Final = 400
_LOCK: Final = threading.Lock()


class Detectors:
    """The patterns, made once and shared by all threads: asking them changes nothing."""

    def __init__(self) -> None:
        with _warnings_kept():
            plugins = [_plugin(module, name) for module, name in _PLUGINS.items()]
            self._quoted = _plugin("high_entropy_strings", "Base64HighEntropyString", limit=4.0)
        self._patterns: list[tuple[str, re.Pattern[str]]] = [
            (str(plugin.secret_type), pattern) for plugin in plugins for pattern in plugin.denylist
        ]

    def tokens(self, text: str) -> Iterator[Token]:
        """What they find, with what is plainly a name or an example left out."""
        for start, part in _parts(text):
            for what, pattern in self._patterns:
                for match in pattern.finditer(part):
                    first, last = _span(match)
                    if _is_value(part[first:last]):
                        yield Token(what, start + first, start + last)
            if _NAMED.search(part):
                yield from self._named(start, part)

    def _named(self, start: int, part: str) -> Iterator[Token]:
        """A random string in quotes, soon after its name."""
        for value in self._quoted.analyze_string(part):
            at = part.find(value)
            if (
                _NAMED.search(part, max(0, at - _NEAR), at)
                and self._quoted.calculate_shannon_entropy(value) > self._quoted.entropy_limit
                and randomness.random(value, 24)
                and not randomness.hexadecimal(value)
                and not randomness.documented(value)
            ):
                yield Token("secret value", start + at, start + at + len(value))


_made: Detectors | None = None


def detectors() -> Detectors:
    """The one instance. The first call imports the library, which takes a quarter of a second."""
    global _made
    with _LOCK:
        if _made is None:
            _made = Detectors()
        return _made


def _plugin(module: str, name: str, **options: float) -> Any:
    return getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), name)(**options)


@contextmanager
def _warnings_kept() -> Iterator[None]:
    """Importing the library sends all warnings to the log; that is taken back."""
    shown = warnings.showwarning
    try:
        yield
    finally:
        if warnings.showwarning is not shown:
            logging.captureWarnings(False)


def _span(match: re.Match[str]) -> tuple[int, int]:
    """Where the value is: its group, unless the group is only the beginning of the token."""
    for group in range(1, (match.re.groups or 0) + 1):
        if match[group] and len(match[group]) >= 20:
            return match.span(group)
    return match.span()


def _is_value(found: str) -> bool:
    found = found.strip(" \t\"'=:")
    return not randomness.documented(found) and randomness.random(found, 10)


def _worth_a_look(line: str) -> bool:
    """Whether there is a run long enough for a token, and a digit in it."""
    return any(_DIGIT.search(run[0]) for run in _LONG.finditer(line))


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """The lines that could hold a token, long ones in pieces, with where they begin."""
    start = 0
    for line in text.split("\n"):
        if _worth_a_look(line):
            for at in range(0, max(1, len(line) - _OVERLAP), _LONGEST - _OVERLAP):
                yield start + at, line[at : at + _LONGEST]
        start += len(line) + 1
