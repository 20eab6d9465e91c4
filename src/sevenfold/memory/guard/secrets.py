"""Finds secrets in a text: keys, tokens, passwords and private keys, also in disguise.

Examples, placeholders, names of variables, hashes and paths are no secrets. Three readers look: for tokens
of a known shape (`formats.toml`), for values behind a telling name, and the detectors of `detect-secrets`.
"""

from __future__ import annotations

import functools
import importlib
import logging
import re
import threading
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.memory.guard.text import (
    GuardFinding,
    decode_base64,
    find_base64_text,
    find_split_tokens,
    format_line_number,
    remove_disguises,
)


def load_detectors() -> None:
    """Does now what the first search would do: loads the detectors, for a thread that has the time."""
    find_secrets("nothing = 'to find here 0123456789'")


_PIECES: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_LONGEST_PIECE: Final = 3.3
"""Words come in pieces of about five letters; random letters and digits take turns every one to three."""
_FEWEST: Final = 8  # So many different characters at least

_PLACEHOLDER: Final = re.compile(
    r"\.\.\.|\*\*\*|[xX]{4}|0{8}|#{3}|_{4}|-{4}|•{2}|"
    r"^[<\[{$%@]|[>\]}]$|\$\{|\{\{|%\(|%s|<[^>]*>|"
    r"example|dummy|sample|placeholder|redacted|censored|changeme|change[_-]me|replace[_-]?(?:me|with|this)|"
    r"insert[_-]?|your[_-]|yourkey|yourtoken|[_-]here$|to[_-]?be[_-]|goes[_-]?here|"
    r"foobar|\bfake|[_-]fake|^mock|[_-]mock|示例|你的|占位",
    re.IGNORECASE,
)
_EXAMPLE: Final = re.compile(
    r"\.\.\.|\*\*\*|[xX]{6}|0{12}|•{2}|[<>{}$]|EXAMPLE|example|dummy|placeholder|redacted|REDACTED|"
    r"(?:^|[_-])(?:your|YOUR|fake|FAKE)[_-]"
)
_VARIABLE: Final = re.compile(r"\$?[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|\$[A-Za-z_]\w*|%[A-Za-z_]\w*%")
_PATH: Final = re.compile(
    r"(?:~|\.{0,2})/|[A-Za-z]:\\|.*\.(?:[a-z]{1,5}|json5|py3|mp[34])(?:[:#].*)?$|.*/$"
)
_CODE: Final = re.compile(
    r".*(?:\(\)|::|->|=>|&&|\|\||==)|"
    r"(?:process\.env|os\.environ|os\.getenv|import\.meta|self|this|config|settings|env|secrets|vars|req|ctx|"
    r"data|user|props|params|options|args|github|inputs|steps|var|local|module|node|std|cfg|state|app)\.\w"
    r".*|[a-z_]\w*\.[a-z_]\w*(?:\.\w+)*|@[a-z][\w/.-]*|!?(?:ref|sub|env|secret)\b.*",
    re.IGNORECASE,
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d|v?\d+\.\d+(?:\.\d+)*(?:[-+.][\w.]+)?$")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX: Final = re.compile(r"(?:0x)?(?:[0-9a-f]+|[0-9A-F]+)")


def is_random(value: str, least: int = 16) -> bool:
    """True if letters and digits alternate as in keys, not as in words, paths or dates."""
    if len(value) < least or _DATE.match(value):
        return False
    if _UUID.fullmatch(value):
        return True
    pieces = _PIECES.findall(value)
    if not pieces or len(set(value)) < _FEWEST:
        return False
    solid = sum(map(len, pieces))
    if solid < least * 3 // 4 or solid / len(pieces) > _LONGEST_PIECE:
        return False
    if any(map(str.isdigit, value)) and any(map(str.isalpha, value)):
        return True
    # Letters alone: only a long run that changes its case all the time.
    return len(value) >= 24 and not value.islower() and not value.isupper()


def is_placeholder(value: str) -> bool:
    """True if it stands for a value: dots, angle brackets, "your-key", a variable."""
    return bool(_PLACEHOLDER.search(value) or _VARIABLE.fullmatch(value)) or len(set(value)) < 3


def is_documented_example(value: str) -> bool:
    """The same for a complete token: only what says itself that it is an example."""
    return bool(_EXAMPLE.search(value.rstrip(".")))


def is_code(value: str) -> bool:
    """True for an expression, a path or a name in code."""
    return bool(_CODE.fullmatch(value) or is_path(value))


def is_path(value: str) -> bool:
    return bool(_PATH.match(value)) and not is_random(value.rsplit("/", 1)[-1], 20)


def is_hexadecimal(value: str) -> bool:
    return bool(_HEX.fullmatch(value))


TABLE: Final = Path(__file__).with_name("formats.toml")

_BEFORE: Final = r"(?<![A-Za-z0-9])"
_AFTER: Final = r"(?![A-Za-z0-9])"


class SecretSpan(msgspec.Struct, frozen=True):
    """A place where a secret stands. The value stays inside the guard."""

    what: str
    start: int
    end: int
    head: str = ""  # The beginning of every such token; empty if the first characters are secret

    def __repr__(self) -> str:
        return f"Token({self.what!r}, {self.start}, {self.end})"


class SecretFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table."""

    what: str
    heads: tuple[str, ...]
    pattern: str
    random: bool = False
    inside: bool = False

    def expression(self) -> re.Pattern[str]:
        return re.compile(self.pattern if self.inside else f"{_BEFORE}(?:{self.pattern}){_AFTER}")


class _FormatTable(msgspec.Struct, frozen=True):
    format: tuple[SecretFormat, ...]


@functools.cache
def load_formats() -> tuple[tuple[SecretFormat, re.Pattern[str]], ...]:
    """The table, compiled; read once."""
    table = msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), _FormatTable)
    return tuple((row, row.expression()) for row in table.format)


def find_tokens(text: str) -> Iterator[SecretSpan]:
    """Every complete token in a text without disguises."""
    for row, expression in load_formats():
        if any(head in text for head in row.heads):
            for match in expression.finditer(text):
                if _counts(row, match[0]):
                    yield SecretSpan(row.what, match.start(), match.end(), _head(row, match[0]))


def _counts(row: SecretFormat, value: str) -> bool:
    if row.what == "JSON web token":
        return (decode_base64(value.split(".")[0]) or "").startswith("{")
    if "PRIVATE KEY" in row.heads:
        return True  # its pattern asks for the key itself, not only for its first line
    head = _head(row, value)
    return not is_documented_example(value) and (
        not row.random or is_random(value[len(head) :].lstrip("-_"), 16)
    )


def _head(row: SecretFormat, value: str) -> str:
    return next((head for head in row.heads if value.startswith(head)), "")


_WORD: Final = re.compile(
    r"(?P<password>pass(?:word|wd|phrase|code)|(?<![a-z])pwd|\bpin(?: code| number)?\b|"
    r"密\s?[码碼]|口令|通行[码碼])|"
    r"(?P<secret>secret|token|credential|key(?!board|s?pad|note|frame|stroke|word)|"
    r"密[钥鑰]|秘[钥鑰]|私[钥鑰]|令牌|凭[证据]|憑證)"
)
_KIND_OF_KEY: Final = re.compile(
    r"(?:api|access|private|auth|account|signing|encryption|master|licen[sc]e|service|deploy|webhook|"
    r"session|secret|shared|client|storage|app|ssh|gpg|the|my|our|its|new|old)[ _-]?$|[a-z0-9]_$"
)
"""Words before "key" that make it a secret; a key of a table or a cache is none."""
_TAIL: Final = re.compile(r"[A-Za-z0-9_-]{0,30}")
_NOT_THE_VALUE: Final = re.compile(
    r"s?[_-]?(?:id|ids|name|url|uri|path|file|dir|type|kind|length|len|size|count|limit|budget|ttl|expir\w*|"
    r"hash|digest|sha\d*|algorithm|alg|policy|rotation|prefix|suffix|format|env|var|field|header|usage|"
    r"version|date|at|store|manager|endpoint|reset|strength|rules?)$",
    re.IGNORECASE,
)
_OPEN: Final = r"[\"'`*“「『‘]{0,3}"
_VALUE: Final = r"(?P<value>[^\s\"'`,;<>(){}\[\]|，。；、“”「」\u4e00-\u9fff]{4,300})"
_SAID: Final = re.compile(
    # `password: x`, `"password": "x"`, `PASSWORD=x`, `the password is x`, `密码是x`
    r"[\"'`*\]）)]{0,4}\s{0,3}(?:[（(][^()（）\n]{1,30}[)）]\s?)?"
    r"(?P<how>:=|=>|->|→|==?|:|\b(?:is|was|are|set to|changed to)\b|"
    r"(?:就)?是|[为為]|[设設](?:置)?[为為]|改[为成])"
    rf"[:\s]{{0,4}}(?P<quote>{_OPEN})\s?{_VALUE}"
)
_SAID_OF: Final = re.compile(
    # `password for the staging database is x`
    r"s?\s(?:for|of|to|on|at)\s[^.:=\n]{1,60}?\s?(?P<how>\bis\b|\bwas\b|:|=)\s{0,3}"
    rf"(?P<quote>{_OPEN}){_VALUE}"
)
_NEXT_TO_IT: Final = re.compile(
    # `--password x`, "password `x`", "密码 x"
    rf"s?(?P<how>\s{{1,2}})(?P<quote>[\"'`“「]{{1,3}}){_VALUE}|(?P<flag>\s+)(?P<flagged>[^\s\"'`-][^\s\"'`]{{3,200}})"
)
_BEARER: Final = re.compile(
    r"\b(?P<scheme>bearer|basic|digest|token)\s+(?P<value>[A-Za-z0-9._~+/=-]{12,2000})", re.IGNORECASE
)
_URL: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{1,20}://(?P<user>[^\s:/@?#\"'`<>]{0,80}):(?P<value>[^\s/\"'`<>]{1,200})"
    r"@(?P<host>[A-Za-z0-9._-]+)"
)
_COMMAND: Final = re.compile(
    r"(?:\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,60}:|\bsshpass\s+-p\s?[\"']?|"
    r"\bmysql(?:dump|admin)?\b[^\n]{0,120}?\s-p)(?P<value>[^\s\"'`]{4,100})"
)

_NO_PASSWORD: Final = """
    string str text true false null none nil undefined required optional hashed encrypted stored
    empty missing invalid wrong correct incorrect unset valid expired default secret password
    pass admin root postgres mysql redis user test tests dev development local localhost guest
    demo hidden masked never always only here there below above same different unknown bcrypt
    scrypt argon2 argon2id pbkdf2 sha256 sha512 sha1 md5 base64 oauth2 oauth utf8 x509 rs256
    hs256 es256 ed25519 aes256 jwt uuid4 uuid v4 varchar255 int32 int64 bytes bytes32 bool
    number integer object array field input type
"""
_WORDS: Final = frozenset(_NO_PASSWORD.split())
_TRAILING: Final = ".,:;!?)*_。！？…"
_SYMBOLS: Final = re.compile(r"[!@#$%^&+?~]")
_IDENTIFIER: Final = re.compile(r"[A-Za-z]+(?:[A-Z][a-z]+|_[a-z]+|-[a-z]+)*\d?")
_PROSE: Final = frozenset(("is", "was", "are", "是", "就是", "为", "為", "set to", "changed to", "改为"))
_DEFAULT: Final = re.compile(
    r"test|pass|postgres|mysql|redis|root|admin|secret|guest|demo|^(?:dev|local|user|app|me|x|a)\w{0,8}$",
    re.IGNORECASE,
)
_LONG: Final = 150  # Words inside a value that is longer are part of it, and not looked at again
_LOGIN: Final = re.compile(
    r"(?:\b(?:user(?:name)?|login|account|e-?mail)\b|用户名?|账号|帐号|帳號)[\"'`*]{0,3}\s?(?:[:=：]|\bis\b|是|为)",
    re.IGNORECASE,
)
_NAME_OF_A_TYPE: Final = re.compile(r"pass|pwd|hash|secret|string|text|type|field|value", re.IGNORECASE)
_NEAR: Final = frozenset(("localhost", "127.0.0.1", "0.0.0.0", "host.docker.internal", "::1"))


def find_named_secrets(text: str) -> Iterator[SecretSpan]:
    """Every value that the words before it, or the form around it, make a secret."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter whose small form is two letters: places would shift
        lower = text
    seen = 0
    for word in _WORD.finditer(lower):
        if word.start() < seen:
            continue
        named = word[0] != "key" or _KIND_OF_KEY.search(lower, max(0, word.start() - 12), word.start())
        if named and (said := _said(word, text)) is not None:
            yield from _judged(word, said)
            seen = said.end() if said.end() - said.start() > _LONG else 0
    yield from _headers(text)
    yield from _urls(text)
    for match in _COMMAND.finditer(text):
        if is_password(match["value"], quoted=True, prose=False):
            yield SecretSpan("password on a command line", *match.span("value"))


def _said(word: re.Match[str], text: str) -> re.Match[str] | None:
    """The value that the word is followed by, if it is."""
    tail = _TAIL.match(text, word.end())
    end = tail.end() if tail and word[0].isascii() else word.end()
    if _NOT_THE_VALUE.fullmatch(text[word.end() : end]):
        return None
    said = _SAID.match(text, end) or _SAID_OF.match(text, end)
    if said is None:
        said = _NEXT_TO_IT.match(text, end)
        if said and said["flag"] and "--" not in text[max(0, word.start() - 12) : word.start()]:
            return None
    return said


def _judged(word: re.Match[str], said: re.Match[str]) -> Iterator[SecretSpan]:
    group = "value" if said["value"] else "flagged"
    quoted = bool((said["quote"] or "").strip("*"))
    prose = (said["how"] or "").strip() in _PROSE
    value = said[group]
    if word["password"]:
        sure = _with_login(word, said) or (prose and not said["how"].isascii())
        if is_password(value, quoted=quoted, prose=prose, pin=word[0][:3] == "pin", sure=sure):
            yield SecretSpan("password", *said.span(group))
    elif _secret(value):
        yield SecretSpan("secret value", *said.span(group))


def _with_login(word: re.Match[str], said: re.Match[str]) -> bool:
    """True if a user name stands before it or a variable is set: then any word is a password."""
    text, how = said.string, said["how"]
    if how == "=" and text[word.start()].isupper() and text[said.start("how") - 1].isupper():
        return True
    before = text[max(0, word.start() - 80) : word.start()]
    return bool(how and _LOGIN.search(before)) and not _NAME_OF_A_TYPE.search(said["value"] or "")


def is_password(value: str, *, quoted: bool, prose: bool, pin: bool = False, sure: bool = False) -> bool:
    """True if a password follows the word "password"; `sure` accepts plain words."""
    value = value.rstrip(_TRAILING)
    if value.lower() in _WORDS or is_placeholder(value):
        return False
    if value.isdigit():
        return 4 <= len(value) <= 20
    if pin or len(value) < 6 or is_code(value) or "://" in value:
        return False
    letters, digits = any(map(str.isalpha, value)), any(map(str.isdigit, value))
    if letters and (digits or _SYMBOLS.search(value)):
        return value.isascii() and not (_IDENTIFIER.fullmatch(value) and not (quoted or prose))
    if not value.isascii():
        return False
    return sure or (prose and (quoted or value.count("-") >= 3) and value.replace("-", "").isalpha())


def _secret(value: str) -> bool:
    """True if a secret follows "token" or "api key": random, no name, path or example."""
    value = value.rstrip(_TRAILING)
    return (
        value.isascii()
        and not is_placeholder(value)
        and not is_code(value)
        and is_random(value.lstrip("$%&=:"), 12)
        and "://" not in value
    )


def _headers(text: str) -> Iterator[SecretSpan]:
    for match in _BEARER.finditer(text):
        value = match["value"]
        if match["scheme"].lower() == "basic":
            said = decode_base64(value) or ""
            if ":" in said and said.isascii() and not is_placeholder(said):
                yield SecretSpan("credentials in a header", *match.span("value"))
        elif _secret(value):
            yield SecretSpan("token in a header", *match.span("value"))


def _urls(text: str) -> Iterator[SecretSpan]:
    if "://" not in text:
        return
    for match in _URL.finditer(text):
        user, value, host = match["user"], match["value"], match["host"]
        local = host.lower() in _NEAR or "." not in host
        if is_placeholder(value) or value.lower() in ("pass", "password", "pwd", "passwd"):
            continue
        if local and (value == user or _DEFAULT.search(value)):
            continue  # the default of a container on one's own machine opens nothing
        yield SecretSpan("password in a URL", *match.span("value"))


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

_LONG_MAINTAINED: Final = re.compile(r"[A-Za-z0-9+/_=:.-]{11,}")
_DIGIT: Final = re.compile(r"\d")
_NAMED: Final = re.compile(
    r"(?:secret|token|password|credential|(?:api|access|private|signing|deploy|_)[ _-]?key)(?![a-z])",
    re.IGNORECASE,
)
_NEAR_MAINTAINED: Final = 40  # The most characters between the end of a name and its quoted value
_LONGEST: Final = 2_000
"""Longer lines are cut in pieces: some of its patterns take the square of the length of a line."""
_OVERLAP: Final = 400
_LOCK: Final = threading.Lock()


class SecretDetectors:
    """The patterns, made once and shared by all threads: asking them changes nothing."""

    def __init__(self) -> None:
        with _warnings_kept():
            plugins = [_plugin(module, name) for module, name in _PLUGINS.items()]
            self._quoted = _plugin("high_entropy_strings", "Base64HighEntropyString", limit=4.0)
        self._patterns: list[tuple[str, re.Pattern[str]]] = [
            (str(plugin.secret_type), pattern) for plugin in plugins for pattern in plugin.denylist
        ]

    def tokens(self, text: str) -> Iterator[SecretSpan]:
        """The findings, without names and examples."""
        for start, part in _parts(text):
            for what, pattern in self._patterns:
                for match in pattern.finditer(part):
                    first, last = _span(match)
                    value = part[first:last].strip(" \t\"'=:")
                    if not is_documented_example(value) and is_random(value, 10):
                        yield SecretSpan(what, start + first, start + last)
            if _NAMED.search(part):
                yield from self._named(start, part)

    def _named(self, start: int, part: str) -> Iterator[SecretSpan]:
        """A random string in quotes, soon after its name."""
        for value in self._quoted.analyze_string(part):
            at = part.find(value)
            if (
                _NAMED.search(part, max(0, at - _NEAR_MAINTAINED), at)
                and self._quoted.calculate_shannon_entropy(value) > self._quoted.entropy_limit
                and is_random(value, 24)
                and not is_hexadecimal(value)
                and not is_documented_example(value)
            ):
                yield SecretSpan("secret value", start + at, start + at + len(value))


_made: SecretDetectors | None = None


def get_detectors() -> SecretDetectors:
    """The one instance. The first call imports the library, which takes a quarter of a second."""
    global _made
    with _LOCK:
        if _made is None:
            _made = SecretDetectors()
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
    """The span of the value: its group, unless that is only the beginning of the token."""
    for group in range(1, (match.re.groups or 0) + 1):
        if match[group] and len(match[group]) >= 20:
            return match.span(group)
    return match.span()


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """The lines that could hold a token, long ones in pieces, with where they begin."""
    start = 0
    for line in text.split("\n"):
        # A run that is long enough for a token, and has a digit.
        if any(_DIGIT.search(run[0]) for run in _LONG_MAINTAINED.finditer(line)):
            for at in range(0, max(1, len(line) - _OVERLAP), _LONGEST - _OVERLAP):
                yield start + at, line[at : at + _LONGEST]
        start += len(line) + 1


SHOWN: Final = 4  # Characters of a token that may be told, where all tokens of its kind begin with them
_MOST: Final = 50  # Findings that are reported; more would not change what is done


def find_secrets(text: str) -> list[GuardFinding]:
    """Every secret in a text, in the order of its lines."""
    text = remove_disguises(text)
    seen = _distinct(_tokens(text))
    found = [(token.start, _told(token, text, token.start)) for token in seen]
    for start, joined in find_split_tokens(text):
        if not any(token.start <= start < token.end for token in seen):
            whole = _distinct(_tokens(joined, named=False))[:1]
            found += [(start, _told(token, text, start, "it is broken over lines")) for token in whole]
    for start, said in find_base64_text(text):
        hidden = _distinct(_tokens(remove_disguises(said)))
        found += [(start, _told(token, text, start, "it is written in base64")) for token in hidden]
    found.sort(key=lambda placed: placed[0])
    return [told for _, told in found[:_MOST]]


def _tokens(text: str, *, named: bool = True) -> Iterator[SecretSpan]:
    yield from find_tokens(text)
    if named:
        yield from find_named_secrets(text)
    yield from get_detectors().tokens(text)


def _distinct(found: Iterator[SecretSpan]) -> list[SecretSpan]:
    """One finding for one place: the first reader that saw it names it best."""
    kept: list[SecretSpan] = []
    for token in found:
        if not any(token.start < other.end and other.start < token.end for other in kept):
            kept.append(token)
        if len(kept) >= _MOST:
            break
    return sorted(kept, key=lambda token: token.start)


def _told(token: SecretSpan, text: str, position: int, how: str = "") -> GuardFinding:
    why = f"it begins like one, {token.head[:SHOWN]}…" if token.head else _WHY.get(token.what, _SHAPE)
    where = format_line_number(text, position)
    return GuardFinding("secret", token.what, where, f"{why}; {how}" if how else why)


_SHAPE: Final = "it has the shape of one"
_WHY: Final = {
    "password": "what follows the word looks like a password",
    "secret value": "what follows the word looks random, as keys do",
    "password in a URL": "there is a password between the user and the host",
    "password on a command line": "the command is given a password",
}
