"""Secrets that have no shape of their own and are given away by what stands before them.

`password: …`, `the password for staging is …`, `密码是…`, `API_KEY=…`, `Authorization: Bearer …`,
`postgres://user:…@host`. The word alone is no secret: what follows it must look like a value, not like
a type, a placeholder, the name of a variable or the rest of a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sevenfold.memory.guard import randomness
from sevenfold.memory.guard.formats import Token
from sevenfold.memory.guard.reading import opened

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
"""What stands before "key" when it opens something; a key of a table or a cache does not."""
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
    r"\b(?P<scheme>bearer|basic|digest|token)\s+(?P<value>[A-Za-z0-9._~+/=-]{12,2000})",
    re.IGNORECASE,
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
_PROSE: Final = frozenset(
    ("is", "was", "are", "是", "就是", "为", "為", "set to", "changed to", "改为")
)
_DEFAULT: Final = re.compile(
    r"test|pass|postgres|mysql|redis|root|admin|secret|guest|demo|^(?:dev|local|user|app|me|x|a)\w{0,8}$",
    re.IGNORECASE,
)
_LONG: Final = 150
"""Words inside a value that is longer are part of it, and not looked at again."""
_LOGIN: Final = re.compile(
    r"(?:\b(?:user(?:name)?|login|account|e-?mail)\b|用户名?|账号|帐号|帳號)[\"'`*]{0,3}\s?(?:[:=：]|\bis\b|是|为)",
    re.IGNORECASE,
)
_NAME_OF_A_TYPE: Final = re.compile(
    r"pass|pwd|hash|secret|string|text|type|field|value", re.IGNORECASE
)
_NEAR: Final = frozenset(("localhost", "127.0.0.1", "0.0.0.0", "host.docker.internal", "::1"))


def spoken(text: str) -> Iterator[Token]:
    """Every value that the words before it, or the form around it, make a secret."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter whose small form is two letters: places would shift
        lower = text
    seen = 0
    for word in _WORD.finditer(lower):
        if word.start() < seen:
            continue
        if word[0] != "key" or _KIND_OF_KEY.search(lower, max(0, word.start() - 12), word.start()):
            said = _said(word, text)
            if said is not None:
                yield from _judged(word, said)
                seen = said.end() if said.end() - said.start() > _LONG else 0
    yield from _headers(text)
    yield from _urls(text)
    for match in _COMMAND.finditer(text):
        if password(match["value"], quoted=True, prose=False):
            yield Token("password on a command line", *match.span("value"))


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


def _judged(word: re.Match[str], said: re.Match[str]) -> Iterator[Token]:
    group = "value" if said["value"] else "flagged"
    quoted = bool((said["quote"] or "").strip("*"))
    prose = (said["how"] or "").strip() in _PROSE
    value = said[group]
    if word["password"]:
        sure = _with_login(word, said) or (prose and not said["how"].isascii())
        if password(value, quoted=quoted, prose=prose, pin=word[0][:3] == "pin", sure=sure):
            yield Token("password", *said.span(group))
    elif _secret(value):
        yield Token("secret value", *said.span(group))


def _with_login(word: re.Match[str], said: re.Match[str]) -> bool:
    """Whether a user stands before it, or it is a variable that is set: then any word is a password."""
    text, how = said.string, said["how"]
    if how == "=" and text[word.start()].isupper() and text[said.start("how") - 1].isupper():
        return True
    before = text[max(0, word.start() - 80) : word.start()]
    return bool(how and _LOGIN.search(before)) and not _NAME_OF_A_TYPE.search(said["value"] or "")


def password(
    value: str, *, quoted: bool, prose: bool, pin: bool = False, sure: bool = False
) -> bool:
    """Whether what follows the word "password" is one; `sure` when a plain word would be one too."""
    value = value.rstrip(_TRAILING)
    if value.lower() in _WORDS or randomness.placeholder(value):
        return False
    if value.isdigit():
        return 4 <= len(value) <= 20
    if pin or len(value) < 6 or randomness.code(value) or "://" in value:
        return False
    letters, digits = any(map(str.isalpha, value)), any(map(str.isdigit, value))
    if letters and (digits or _SYMBOLS.search(value)):
        return value.isascii() and not (_IDENTIFIER.fullmatch(value) and not (quoted or prose))
    if not value.isascii():
        return False
    return sure or (
        prose and (quoted or value.count("-") >= 3) and value.replace("-", "").isalpha()
    )


def _secret(value: str) -> bool:
    """Whether what follows "token" or "api key" looks like one: random, and no name, path or example."""
    value = value.rstrip(_TRAILING)
    return (
        value.isascii()
        and not randomness.placeholder(value)
        and not randomness.code(value)
        and randomness.random(value.lstrip("$%&=:"), 12)
        and "://" not in value
    )


def _headers(text: str) -> Iterator[Token]:
    for match in _BEARER.finditer(text):
        value = match["value"]
        if match["scheme"].lower() == "basic":
            said = opened(value) or ""
            if ":" in said and said.isascii() and not randomness.placeholder(said):
                yield Token("credentials in a header", *match.span("value"))
        elif _secret(value):
            yield Token("token in a header", *match.span("value"))


def _urls(text: str) -> Iterator[Token]:
    if "://" not in text:
        return
    for match in _URL.finditer(text):
        user, value, host = match["user"], match["value"], match["host"]
        local = host.lower() in _NEAR or "." not in host
        if randomness.placeholder(value) or value.lower() in ("pass", "password", "pwd", "passwd"):
            continue
        if local and (value == user or _DEFAULT.search(value)):
            continue  # the default of a container on one's own machine opens nothing
        yield Token("password in a URL", *match.span("value"))
