"""Finds values that the words before them, or the form around them, make a secret.

`password: x`, "the token is x", "token x", `--api-key x`, `<password>x</password>`, connection strings,
headers, command lines and credentials in URLs. What follows must look like a secret of that kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sevenfold.memory.guard.randomness import (
    is_code,
    is_documented_example,
    is_hexadecimal,
    is_mixed,
    is_placeholder,
    is_random,
)
from sevenfold.memory.guard.secret_formats import SecretSpan, find_literal
from sevenfold.memory.guard.text import decode_base64

_WORDS_ASCII: Final = (
    "pass",
    "pwd",
    "pin",
    "kennwort",
    "secret",
    "token",
    "credential",
    "key",
    "crumb",
    "auth",
    "senha",
    "wachtwoord",
)
_WORDS_OTHER: Final = (
    "lösenord",
    "hasło",
    "contraseña",
    "пароль",
    "パスワード",
    "密",
    "口令",
    "通行",
    "秘",
    "私",
    "令牌",
    "凭",
    "憑證",
)
_WORD: Final = re.compile(
    # It is only tried where one of the words above stands: `finditer` would try it everywhere
    r"(?P<password>pass(?:word|wd|phrase|code|wort)|(?<![a-z])pwd|(?<![a-z])pass(?![a-z])|"
    r"(?<=mot de )passe|\bsenha\b|wachtwoord|lösenord|hasło|\bpin(?: code| number)?\b|"
    r"kennwort|contraseña|пароль|パスワード|密\s?[码碼]|口令|通行[码碼])|"
    r"(?P<secret>secret|token|credential|crumb|"
    r"(?<![a-z])(?:authorization|auth)(?![a-z])|"
    r"(?:authkey|key)(?!board|s?pad|note|frame|stroke|word)|密[钥鑰]|秘[钥鑰]|私[钥鑰]|令牌|凭[证据]|憑證)"
)
_KIND_OF_KEY: Final = re.compile(
    r"(?:api|access|private|auth|account|signing|encryption|master|licen[sc]e|service|deploy|webhook|"
    r"session|secret|shared|client|storage|app|ssh|gpg|unseal|recovery|instrumentation|stream|insert|query|"
    r"admin|ingest\w*|write|read|the|my|our|its|new|old)[ _-]?$|[a-z0-9][_-]$"
)
"""Words before "key" that make it a secret; a key of a table or a cache is none."""
_PUBLIC: Final = re.compile(
    r"(?:pub|public|publishable|recv|host|fingerprint|sheet|docs?|document|file|folder|base|project|issue|"
    r"partition|sort|primary|foreign|cache|object|row|record|idempotency)[ _-]?$"
)
"""Words before "key" that make it a name that opens nothing."""
_TAIL: Final = re.compile(r"[A-Za-z0-9_-]{0,30}(?: \d{1,2}(?=:))?")
_IN_VARIABLE: Final = re.compile(r"\$\{\w*$")  # `${DB_PASSWORD:-x}` names a variable
_NOT_THE_VALUE: Final = re.compile(
    r"s?[_-]?(?:id|ids|name|url|uri|path|file|dir|type|kind|length|len|size|count|limit|budget|ttl|expir\w*|"
    r"hash|digest|sha\d*|algorithm|alg|policy|rotation|prefix|suffix|format|env|var|field|header|usage|"
    r"version|date|at|store|manager|endpoint|reset|strength|rules?|label|placeholder|hint|title|text|message|"
    r"errors?|input|selector|class|icon|help|description|regex|pattern|validator|ref|arn)$",
    re.IGNORECASE,
)
_STOP: Final = r"\s\"'`,;<>(){}\[\]|，。；、“”「」\u4e00-\u9fff"
_VALUE: Final = (
    r"(?:\"(?P<double>[^\"\n]{3,300})\"|'(?P<single>[^'\n]{3,300})'|"
    rf"(?P<quote>[\"'`*“「『‘\\]{{0,4}})\s?(?P<value>[^{_STOP}]{{4,300}}))"
)
_SAID: Final = re.compile(
    # `password: x`, `"password": "x"`, `PASSWORD=x`, `the password is x`, `密码是x`, `<password>x`
    r"(?:\\?[\"'`*\]）)]){0,4}[ \t]{0,24}(?:[（(][^()（）\n]{1,30}[)）]\s?)?"
    r"(?::\s?(?:str|string|String|SecretStr|text)(?:\s?\|\s?None)?\s?(?==))?"
    r"(?P<how>:=|=>|->|→|!==?|={1,3}|:|>|\||,\s?[\"']?[Vv]alue[\"']?\s?[:=]|[Vv]alue\s?=|,(?=\s?[\"'])|"
    r"[(（](?=\S{12,200}[)）])|\{\s{0,8}default\s{0,4}=|"
    r"\b(?:is|was|are|set to|changed to|lautet|ist|est|es|é|är)\b|は|(?:就)?是|"
    r"[为為]|[设設](?:置)?[为為]|改[为成])"
    rf"(?:[ \t]{{0,24}}|[:\s]{{0,4}}){_VALUE}"
)
_SAID_OF: Final = re.compile(
    # `password for the staging database is x`
    r"s?\s(?:for|of|to|on|at|für|fürs|vom|von|zum|del?|du|pour|para|d[ao])\s[^.:=\n]{1,60}?\s?"
    r"(?P<how>\b(?:is|was|lautet|ist|est|es)\b|:|=)\s{0,3}" + _VALUE
)
_NEXT_TO_IT: Final = re.compile(rf"(?P<how>s?[ \t]{{1,24}}){_VALUE}")  # `--password x`, "token x"
_GLUED: Final = re.compile(r"(?P<value>[A-Za-z0-9]{20,200})(?![A-Za-z0-9_-])")
_SCHEMES: Final = ("bearer", "basic", "digest", "ssws")
_HEADER: Final = re.compile(r"\s+(?P<value>[A-Za-z0-9._~+/=-]{12,2000})")
_URL: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{1,20}://(?P<user>[^\s:/@?#\"'`<>]{0,120})(?::(?P<value>[^\s/\"'`<>]{1,200}))?"
    r"@(?P<host>[A-Za-z0-9._-]+)"
)
_PORTS: Final = re.compile(r"[\d:.,/-]+(?:/?(?:tcp|udp))?")  # `docker run -u 1000 -p 8080:80`
_VALUE_GIVEN: Final = r"[\"']?(?P<value>[^\s\"'`]{3,100})"
_COMMANDS: Final = {
    # The literal that each begins with is looked for first
    literal: re.compile(pattern + _VALUE_GIVEN)
    for literal, pattern in (
        ("curl", r"[^\n]{0,200}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,60}:"),
        ("sshpass", r"\s+-p\s?"),
        ("mysql", r"(?:dump|admin)?\b[^\n]{0,120}?\s-p"),
        ("redis-cli", r"\b[^\n]{0,80}?\s-a\s"),
        ("unseal", r"\s(?=\S{20})"),
        (" login", r"\b[^\n]{0,120}?\s-p[ =]"),
    )
}
_PAIRS: Final = {
    literal: re.compile(pattern + _VALUE_GIVEN)
    for literal, pattern in (
        (" -u", r"(?:ser|sername)?[ =]\S{1,60}\s{1,4}-{1,2}(?:p|pass|password|pw)[ =]\s{0,3}"),
        ("login ", r"\s{0,8}\S{1,60}\s{1,8}password\s{1,4}"),
        ("username ", r"\S{1,60}\s{1,20}password\s(?=[\"'])"),
        ("credential", r"s?\(\s{0,4}[\"'][^\"'\n]{1,80}[\"'],\s{0,20}(?=[\"'])"),
        ("directoryentry", r"\(\s{0,4}(?:[\"'][^\"'\n]{1,80}[\"'],\s{0,20}){1,2}(?=[\"'])"),
    )
}
"""`-u bob -p x`, `login bob password x` of a netrc file, `Credential("bob", "x")`."""

_NO_PASSWORD: Final = """
    string str text true false null none nil undefined required optional hashed encrypted stored
    empty missing invalid wrong correct incorrect unset valid expired default secret password
    pass admin root postgres mysql redis user test tests dev development local localhost guest
    demo hidden masked never always only here there below above same different unknown bcrypt
    scrypt argon2 argon2id pbkdf2 sha256 sha512 sha1 md5 base64 oauth2 oauth utf8 x509 rs256
    hs256 es256 ed25519 aes256 jwt uuid4 uuid v4 varchar255 int32 int64 bytes bytes32 bool
    number integer object array field input type passwort kennwort disabled enabled username
    credentials bearer authorization confirm current forgot private public security settings
"""
_WORDS: Final = frozenset(_NO_PASSWORD.split())
_NOTHING: Final = frozenset(("none", "null", "true", "false", "nil", "undefined", "string", "str"))
_TRAILING: Final = ".,:;!?)*_。！？…"
_SYMBOLS: Final = re.compile(r"[!@#$%^&+?~]")
_IDENTIFIER: Final = re.compile(r"[A-Za-z]+(?:[A-Z][a-z]+|_[a-z]+|-[a-z]+)*\d?")
_NO_VALUE: Final = re.compile(
    # The rest of code, a share, a path, an address, a host, a selector such as `#add-password`
    r"^[,;)\\]|^(?-i:[a-z0-9_.]+(?:/[a-z0-9_.]+)+)$|^[\w.-]+@[\w-]+\.[\w.-]+|/[^/]*\.[a-z]{1,5}:\d|"
    r"^[\w-]+(?:\.[\w-]+)+\.(?:com|io|net|org|dev|app|co|ai|cloud|us|eu|local|internal)$|"
    r"^\D*(?:#\w*-?pass|pass\w*#)\D*$",
    re.IGNORECASE,
)
_PROSE: Final = frozenset(
    ("is", "was", "are", "是", "就是", "为", "為", "set to", "changed to", "改为")
) | {*("lautet", "ist", "est", "es", "é", "är", "は")}
_SET: Final = frozenset(("=", ":", "=>", ":=", "->"))
_DEFAULT: Final = re.compile(
    r"test|pass|postgres|mysql|redis|root|admin|guest|demo|^(?:dev|local|user|app|me|x|a)\w{0,8}$",
    re.IGNORECASE,
)
_LONG: Final = 150  # Words inside a value that is longer are part of it, and not looked at again
_LOGIN: Final = re.compile(
    r"(?:\b(?:\w{0,20}_)?(?:user(?:[ _]?(?:name|id))?|uid|login|account|e-?mail)\b|用户名?|账号|帐号|帳號)"
    r"[\"'`*]{0,3}\s{0,12}(?:=>|[:=：]|\bis\b|是|为)|\bfor (?:the )?user\b",
    re.IGNORECASE,
)
_CONNECTION: Final = re.compile(
    r"(?:server|data source|host|driver|provider|database|initial catalog|uid|user id|username)"
    r"\s?=[^;\n]{1,80};",
    re.IGNORECASE,
)
_HERE: Final = re.compile(r"localhost|127\.0\.0\.1|\(local\)|host\.docker\.internal|::1|0\.0\.0\.0")
_NAME_OF_A_TYPE: Final = re.compile(
    r"[A-Z]\w*(?:Pass|Pwd|Hash|Secret|String|Text|Type|Field|Value)\w*|(?i:string|text|hash|field|value|type)\w{0,8}"
)


def find_named_secrets(text: str) -> Iterator[SecretSpan]:
    """Every value that the words before it, or the form around it, make a secret."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter whose small form is two letters: places would shift
        lower = text
    seen = 0
    for word in _find_words(lower):
        if word.start() < seen:
            continue
        if (said := _find_value(word, text)) is not None:
            yield from _judge(word, said)
            seen = said.end() if said.end() - said.start() > _LONG else 0
        elif word["secret"]:
            yield from _glued_to(word, text)
    yield from _headers(text, lower)
    yield from _urls(text)
    yield from _commands(text, lower)


def _commands(text: str, lower: str) -> Iterator[SecretSpan]:
    for literal, expression in _COMMANDS.items():
        for at in find_literal(literal, lower):
            match = expression.match(text, at + len(literal))
            if match and is_password(match["value"], quoted=True, prose=False):
                yield SecretSpan("password on a command line", *match.span("value"))
    for literal, expression in _PAIRS.items():
        for at in find_literal(literal, lower):
            match = expression.match(lower, at + len(literal))
            if match and _is_given(
                literal, lower[max(0, at - 120) : at], text[slice(*match.span("value"))]
            ):
                yield SecretSpan("password beside a user name", *match.span("value"))


def _is_given(literal: str, before: str, value: str) -> bool:
    """True for a password beside a user name; "the login page password reset" has the same form."""
    if literal == "login " and "machine" not in before:
        return is_password(value, quoted=True, prose=False)
    return _is_literal(value) and not _PORTS.fullmatch(value)


def _find_words(lower: str) -> Iterator[re.Match[str]]:
    literals = _WORDS_ASCII if lower.isascii() else _WORDS_ASCII + _WORDS_OTHER
    places = sorted(at for literal in literals for at in find_literal(literal, lower))
    end = 0
    for at in places:
        if at >= end and (word := _WORD.match(lower, at)):
            end = word.end()
            yield word


def _find_value(word: re.Match[str], text: str) -> re.Match[str] | None:
    """The value that the word is followed by, if it is."""
    if _IN_VARIABLE.search(text, max(0, word.start() - 40), word.start()):
        return None
    tail = _TAIL.match(text, word.end())
    end = tail.end() if tail and word[0].isascii() else word.end()
    if _NOT_THE_VALUE.fullmatch(text[word.end() : end]):
        return None
    return _SAID.match(text, end) or _SAID_OF.match(text, end) or _NEXT_TO_IT.match(text, end)


def _span_of(said: re.Match[str]) -> tuple[str, bool]:
    """The group that holds the value, and True if it is quoted."""
    for group in ("double", "single"):
        if said[group] is not None:
            return group, True
    return "value", bool((said["quote"] or "").strip("*\\"))


def _judge(word: re.Match[str], said: re.Match[str]) -> Iterator[SecretSpan]:
    group, quoted = _span_of(said)
    value, how = said[group], said["how"].strip()
    beside = how in ("", "s")
    if _is_other_word(word, how):
        return
    if beside and not quoted and not _is_flag(word, said):
        found = _is_beside(word, value)
    elif word["password"]:
        found = _is_password_said(word, said, value, how, quoted)
    else:
        found = _is_secret_said(word, value, how)
    if found:
        yield SecretSpan("password" if word["password"] else "secret value", *said.span(group))


def _is_other_word(word: re.Match[str], how: str) -> bool:
    """True for a test that passed, a version to pin, a working folder, and a key that opens nothing."""
    start = word.start()
    if word[0] == "pass":
        return how != "=" and word.string[start - 1 : start] not in ("_", '"', "'")
    if word[0][:3] in ("pin", "pwd"):
        return how in ("", "s")
    return "key" in word[0] and bool(_PUBLIC.search(word.string, max(0, start - 16), start))


def _is_flag(word: re.Match[str], said: re.Match[str]) -> bool:
    """True if the word is an option on a command line: `--db-password x`, `-Password x`."""
    start = word.start()
    return bool(re.search(r"(?:^|\s)--?[\w-]{0,30}$", said.string[max(0, start - 34) : start]))


def _is_beside(word: re.Match[str], value: str) -> bool:
    """For "token x" without anything between: it must look drawn at random."""
    value = value.rstrip(_TRAILING)
    if word["secret"]:
        least = 24 if not _is_named(word) else 12 if is_mixed(value) else 16
        return len(value) >= least and _is_secret(value) and (_is_named(word) or is_mixed(value))
    odd = is_mixed(value) and _SYMBOLS.search(value)
    return bool(len(value) >= 8 and (odd or is_random(value, 8))) and is_password(
        value, quoted=False, prose=False
    )


def _is_password_said(word: re.Match[str], said: re.Match[str], value: str, how: str, quoted: bool) -> bool:
    prose = how in _PROSE
    if _is_connection(word, said):
        return _is_literal(value.split(";")[0])
    login = _has_login(word, said)
    if " " in value.strip():
        if login and quoted and value.count(" ") <= 2 and how in _SET:
            return not is_placeholder(value)
        value = value.split()[0]
    if login and quoted and "user" in said.string[word.end() : said.start("how")].lower():
        return _is_literal(value)  # "the password for user 'bob' is 'x'"
    if how == "," and not is_random(value, 8):
        return False  # an argument behind a name: `MovedAttribute("HTTPPasswordMgr", "urllib2")`
    sure = login or (prose and not how.isascii()) or (quoted and how in _SET and _is_plain(value))
    return is_password(value, quoted=quoted, prose=prose, pin=word[0][:3] == "pin", sure=sure)


def _is_plain(value: str) -> bool:
    """True for small letters alone, long enough for a password and too long for most words."""
    return len(value) >= 9 and value.isascii() and value.isalpha() and value.islower()


def _is_connection(word: re.Match[str], said: re.Match[str]) -> bool:
    """True inside `Server=…;User Id=…;Password=x;`, unless it is a default on this machine."""
    text, start = said.string, word.start()
    if said["how"] != "=" or said["value"] is None:
        return False
    around = text[max(0, start - 200) : said.end() + 100]
    return bool(_CONNECTION.search(around)) and not (
        _HERE.search(around) and _DEFAULT.search(said["value"])
    )


def _is_literal(value: str) -> bool:
    """True for any value that is written out: no variable, no placeholder."""
    value = value.rstrip(_TRAILING)
    return len(value) >= 3 and not is_placeholder(value) and value.lower() not in _NOTHING


def _has_login(word: re.Match[str], said: re.Match[str]) -> bool:
    """True if a user name stands before it or a variable is set: then any word is a password."""
    text, how = said.string, said["how"]
    if how == "=" and text[word.start()].isupper() and text[said.start("how") - 1].isupper():
        return True
    before = text[max(0, word.start() - 80) : said.start("how")]
    value = said["value"] or said["double"] or said["single"] or ""
    return bool(how and _LOGIN.search(before)) and not _NAME_OF_A_TYPE.match(value)


def is_password(value: str, *, quoted: bool, prose: bool, pin: bool = False, sure: bool = False) -> bool:
    """True if a password follows the word "password"; `sure` accepts plain words."""
    if _NO_VALUE.search(value):
        return False
    value = value.rstrip(_TRAILING).strip("\"'\\")
    if value.lower() in _WORDS or is_placeholder(value) or _NO_VALUE.search(value):
        return False
    if value.isdigit():
        return 4 <= len(value) <= 20
    if pin or len(value) < 6 or is_code(value) or "://" in value:
        return False
    letters, digits = any(map(str.isalpha, value)), any(map(str.isdigit, value))
    if letters and (digits or _SYMBOLS.search(value)):
        named = _IDENTIFIER.fullmatch(value) and not (quoted or prose or is_random(value, 10))
        return value.isascii() and not named
    if not value.isascii():
        return False
    return sure or (prose and (quoted or value.count("-") >= 3) and value.replace("-", "").isalpha())


def _is_named(word: re.Match[str]) -> bool:
    """True unless it is a bare "key", which may be one of a table or a cache."""
    start = word.start()
    return word[0] != "key" or bool(_KIND_OF_KEY.search(word.string, max(0, start - 16), start))


def _is_secret_said(word: re.Match[str], value: str, how: str) -> bool:
    if _is_named(word):
        return _is_secret(value)
    return how in _SET and len(value) >= 24 and is_mixed(value) and _is_secret(value)


def _is_secret(value: str) -> bool:
    """True if a secret follows "token" or "api key": random, no name, path or example."""
    value = value.strip().rstrip(_TRAILING)
    return (
        value.isascii()
        and " " not in value
        and not is_placeholder(value)
        and not _NO_VALUE.search(value)
        and not is_code(value)
        and is_random(value.lstrip("$%&=:\"'"), 12)
        and "://" not in value
    )


def _glued_to(word: re.Match[str], text: str) -> Iterator[SecretSpan]:
    """A long random value without anything between it and its name."""
    if not _is_named(word) or word.string[max(0, word.start() - 1) : word.start()].isalnum():
        return
    match = _GLUED.match(text, word.end())
    if match and is_random(match[0], 20) and not is_documented_example(match[0]):
        yield SecretSpan("secret value", *match.span())


def _headers(text: str, lower: str) -> Iterator[SecretSpan]:
    for scheme in _SCHEMES:
        for at in find_literal(scheme, lower):
            match = _HEADER.match(text, at + len(scheme))
            if match is None:
                continue
            if scheme == "basic":
                said = decode_base64(match["value"]) or ""
                if ":" in said and said.isascii() and not is_placeholder(said):
                    yield SecretSpan("credentials in a header", *match.span("value"))
            elif _is_secret(match["value"]):
                yield SecretSpan("token in a header", *match.span("value"))


def _urls(text: str) -> Iterator[SecretSpan]:
    if "://" not in text:
        return
    for match in _URL.finditer(text):
        user, value, host = match["user"], match["value"], match["host"]
        if value is None:
            if is_random(user, 20) and not is_hexadecimal(user) and not is_documented_example(user):
                yield SecretSpan("token in a URL", *match.span("user"))
            continue
        local = bool(_HERE.fullmatch(host.lower())) or "." not in host
        if is_placeholder(value) or value.lower() in ("pass", "password", "pwd", "passwd"):
            continue
        if local and (value == user or _DEFAULT.search(value)):
            continue  # the default of a container on one's own machine opens nothing
        yield SecretSpan("password in a URL", *match.span("value"))
