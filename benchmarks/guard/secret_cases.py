"""Made-up secrets of every kind the guard should know, and texts that only look like secrets.

The values are drawn from a seeded generator and put together when they are used, so that no file here holds
anything that a scanner would take for a key.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

_MIXED: Final = string.ascii_letters + string.digits
_URL_SAFE: Final = _MIXED + "_-"
_LOWER_HEX: Final = "0123456789abcdef"
_CAPITALS: Final = string.ascii_uppercase + string.digits


class Secret(msgspec.Struct, frozen=True):
    """A text of a memory, and the secret in it that must not be found anywhere afterwards."""

    kind: str
    text: str
    value: str

    def __repr__(self) -> str:
        return f"Secret({self.kind!r})"


class Draw:
    """Random characters, the same in every run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def of(self, alphabet: str, length: int) -> str:
        """At least one digit and one letter, as real tokens of this length have."""
        while True:
            value = "".join(self._random.choices(alphabet, k=length))
            if any(map(str.isdigit, value)) and any(map(str.isalpha, value)):
                return value

    def mixed(self, length: int) -> str:
        return self.of(_MIXED, length)

    def safe(self, length: int) -> str:
        """Ends in a letter or digit: a token whose last character is a dash is cut by every scanner."""
        return self.of(_URL_SAFE, length - 1) + self.mixed(2)[0]

    def hex(self, length: int) -> str:
        return self.of(_LOWER_HEX, length)

    def capitals(self, length: int) -> str:
        return self.of(_CAPITALS, length)

    def pem(self, name: str) -> str:
        body = "\n".join(self.mixed(64) for _ in range(6))
        return f"-----BEGIN {name}-----\n{body}\n-----END {name}-----"

    def jwt(self) -> str:
        def part(value: object) -> str:
            return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

        head = part({"alg": "HS256", "typ": "JWT"})
        return f"{head}.{part({'sub': self.hex(8), 'admin': True})}.{self.safe(43)}"


_Maker = Callable[[Draw], str]

TOKENS: Final[dict[str, _Maker]] = {
    "Anthropic": lambda d: f"sk-ant-api03-{d.safe(93)}AA",
    "Anthropic OAuth": lambda d: f"sk-ant-oat01-{d.safe(80)}AA",
    "OpenAI, legacy": lambda d: f"sk-{d.mixed(20)}T3BlbkFJ{d.mixed(20)}",
    "OpenAI, project": lambda d: f"sk-proj-{d.safe(120)}",
    "OpenAI, service account": lambda d: f"sk-svcacct-{d.safe(100)}",
    "OpenRouter": lambda d: f"sk-or-v1-{d.hex(64)}",
    "DeepSeek": lambda d: f"sk-{d.hex(32)}",
    "Google API": lambda d: f"AIza{d.safe(35)}",
    "Google OAuth": lambda d: f"ya29.{d.safe(120)}",
    "Google client secret": lambda d: f"GOCSPX-{d.safe(28)}",
    "GitHub personal": lambda d: f"ghp_{d.mixed(36)}",
    "GitHub OAuth": lambda d: f"gho_{d.mixed(36)}",
    "GitHub user to server": lambda d: f"ghu_{d.mixed(36)}",
    "GitHub server": lambda d: f"ghs_{d.mixed(36)}",
    "GitHub refresh": lambda d: f"ghr_{d.mixed(76)}",
    "GitHub fine-grained": lambda d: f"github_pat_{d.mixed(22)}_{d.mixed(59)}",
    "GitLab personal": lambda d: f"glpat-{d.safe(20)}",
    "GitLab runner": lambda d: f"glrt-{d.safe(20)}",
    "GitLab deploy": lambda d: f"gldt-{d.safe(20)}",
    "Slack bot": lambda d: f"xoxb-{d.of('0123456789a', 12)}-{d.of('0123456789b', 12)}-{d.mixed(24)}",
    "Slack user": lambda d: f"xoxp-{d.of('123456789a', 12)}-{d.of('123456789b', 12)}-{d.hex(32)}",
    "Slack app": lambda d: f"xapp-1-A{d.capitals(10)}-{d.of('0123456789a', 13)}-{d.hex(64)}",
    "Slack webhook": lambda d: (
        f"https://hooks.slack.com/services/T{d.capitals(9)}/B{d.capitals(9)}/{d.mixed(24)}"
    ),
    "Stripe live": lambda d: f"sk_live_{d.mixed(24)}",
    "Stripe restricted": lambda d: f"rk_live_{d.mixed(24)}",
    "Stripe test": lambda d: f"sk_test_{d.mixed(24)}",
    "Stripe webhook": lambda d: f"whsec_{d.mixed(32)}",
    "Hugging Face": lambda d: f"hf_{d.mixed(34)}",
    "npm": lambda d: f"npm_{d.mixed(36)}",
    "PyPI": lambda d: f"pypi-AgEIcHlwaS5vcmc{d.safe(120)}",
    "SendGrid": lambda d: f"SG.{d.safe(22)}.{d.safe(43)}",
    "Twilio": lambda d: f"SK{d.hex(32)}",
    "Azure storage": lambda d: (
        f"DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={d.mixed(86)}=="
    ),
    "Azure client secret": lambda d: f"{d.mixed(3)}8Q~{d.safe(34)}",
    "AWS key id": lambda d: f"AKIA{d.of('ABCDEFGHIJKLMNOPQRSTUVWXYZ234567', 16)}",
    "AWS temporary key id": lambda d: f"ASIA{d.of('ABCDEFGHIJKLMNOPQRSTUVWXYZ234567', 16)}",
    "Telegram": lambda d: f"{d.of('123456789a', 9).replace('a', '7')}1:AA{d.safe(33)}",
    "Discord": lambda d: f"M{d.mixed(25)}.{d.safe(6)}.{d.safe(38)}",
    "Discord webhook": lambda d: (
        f"https://discord.com/api/webhooks/{d.of('123456789a', 18).replace('a', '1')}/{d.safe(68)}"
    ),
    "DigitalOcean": lambda d: f"dop_v1_{d.hex(64)}",
    "Databricks": lambda d: f"dapi{d.hex(32)}",
    "Groq": lambda d: f"gsk_{d.mixed(52)}",
    "Linear": lambda d: f"lin_api_{d.mixed(40)}",
    "Alibaba Cloud": lambda d: f"LTAI5t{d.mixed(18)}",
    "Vault": lambda d: f"hvs.{d.safe(90)}",
    "age": lambda d: f"AGE-SECRET-KEY-1{d.of('QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L', 58)}",
    "JSON web token": lambda d: d.jwt(),
}
"""Tokens that stand in a text without anything that says what they are."""

WRAPPED: Final[dict[str, Callable[[Draw], tuple[str, str]]]] = {
    "PEM": lambda d: ((pem := d.pem("RSA PRIVATE KEY")), pem.split("\n")[2]),
    "PKCS8": lambda d: ((pem := d.pem("PRIVATE KEY")), pem.split("\n")[2]),
    "OpenSSH": lambda d: ((pem := d.pem("OPENSSH PRIVATE KEY")), pem.split("\n")[2]),
    "PGP": lambda d: ((pem := d.pem("PGP PRIVATE KEY BLOCK")), pem.split("\n")[2]),
    "PEM on one line": lambda d: (
        (pem := d.pem("EC PRIVATE KEY").replace("\n", "\\n")),
        pem.split("\\n")[2],
    ),
    "PEM, quoted": lambda d: ((pem := d.pem("PRIVATE KEY").replace("\n", "\n> ")), pem.split("\n> ")[2]),
    "PuTTY": lambda d: (
        f"PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: me\nPublic-Lines: 1\n"
        f"{d.mixed(60)}\nPrivate-Lines: 1\n{(v := d.mixed(48))}\nPrivate-MAC: {d.hex(64)}",
        v,
    ),
    "base64 of a PEM": lambda d: (
        (v := base64.b64encode(d.pem("RSA PRIVATE KEY").encode()).decode()),
        v[80:140],
    ),
    "AWS secret key": lambda d: (f'aws_secret_access_key = "{(v := d.mixed(40))}"', v),
    "AWS secret key, prose": lambda d: (f"The AWS secret access key is {(v := d.mixed(40))}.", v),
    "connection string": lambda d: (f"postgresql://app:{(v := d.mixed(14))}@db.acme.io:5432/x", v),
    "connection string, Mongo": lambda d: (f"mongodb+srv://me:{(v := d.mixed(12))}@c0.mongo.net", v),
    "ADO connection string": lambda d: (f"Server=db.acme.io;User Id=app;Password={(v := d.mixed(12))};", v),
    "URL with a weak password": lambda d: (f"ftp://bob:{(v := 'Wint' + 'er24')}@files.acme.io/", v),
    "bearer": lambda d: (f"curl -H 'Authorization: Bearer {(v := d.mixed(40))}' https://a.io", v),
    "basic": lambda d: (
        f"Authorization: Basic {(v := base64.b64encode(f'bob:{d.mixed(12)}'.encode()).decode())}",
        v,
    ),
    "header": lambda d: (f"send X-Api-Key: {(v := d.hex(32))}", v),
    "environment": lambda d: (f"export ACME_API_KEY={(v := d.hex(32))}", v),
    "environment, signing": lambda d: (f"SIGNING_KEY={(v := d.mixed(44))}", v),
    "YAML": lambda d: (f"db:\n  user: app\n  password: {(v := 'Tr0ub4d' + 'or&3x')}\n", v),
    "JSON": lambda d: (f'{{"user": "app", "client_secret": "{(v := d.mixed(32))}"}}', v),
    "JSON pair": lambda d: (f'{{"name": "DEPLOY_TOKEN", "value": "{(v := d.mixed(40))}"}}', v),
    "password in prose": lambda d: (f"The password is {(v := 'hunt' + 'er2')}, do not share.", v),
    "password of a thing": lambda d: (f"the password for the router is {(v := d.mixed(9))}", v),
    "password, quoted word": lambda d: (f"The wifi password is `{(v := 'sun' + 'flower')}`.", v),
    "passphrase": lambda d: (f"passphrase is {(v := 'correct-horse-' + 'battery-staple')}", v),
    "password, bold": lambda d: (f"- **Password:** {(v := d.mixed(10))}", v),
    "PIN": lambda d: (f"His PIN is {(v := '48' + '2193')}.", v),
    "command line": lambda d: (f"mysql -u root -p{(v := d.mixed(10))} shop", v),
    "command line, curl": lambda d: (f"curl -u bob:{(v := d.mixed(10))} https://acme.io", v),
    "flag": lambda d: (f"run it with --password {(v := d.mixed(10))}", v),
    "Chinese, is": lambda d: (f"数据库的密码是{(v := d.mixed(10))}，不要外传", v),
    "Chinese, colon": lambda d: (f"管理员密码：{(v := 'admin' + '888x')}", v),
    "Chinese, digits": lambda d: (f"后台登录口令为 {(v := '93' + '1744')}", v),
    "Chinese, key": lambda d: (f"接口密钥：{(v := d.hex(32))}", v),
    "Chinese, token": lambda d: (f"访问令牌是 {(v := d.mixed(32))}", v),
    "beside a user": lambda d: (f"user: bob, password: {(v := 'sword' + 'fish')}", v),
    "environment, a word": lambda d: (f"DB_PASSWORD={(v := 'sword' + 'fish')}", v),
    "German, of a thing": lambda d: (f"Das Passwort für den Router lautet {(v := d.mixed(12))}.", v),
    "Spanish, of a thing": lambda d: (f"La contraseña del almacén es {(v := d.mixed(12))}.", v),
    "French, of a thing": lambda d: (f"Le mot de passe du wifi est {(v := d.mixed(12))}.", v),
    "Portuguese": lambda d: (f"senha: {(v := d.mixed(12))}", v),
    "Dutch": lambda d: (f"wachtwoord: {(v := d.mixed(12))}", v),
    "Swedish": lambda d: (f"lösenord: {(v := d.mixed(12))}", v),
    "Japanese": lambda d: (f"パスワードは {(v := d.mixed(12))} です", v),
    "Chinese, a word": lambda d: (f"我的密码是{(v := 'sword' + 'fish')}的变体", v),
    "Chinese, mixed": lambda d: (f"密码是{(v := d.mixed(8))}的话就能登录", v),
    "Chinese, traditional": lambda d: (f"後台密碼是{(v := d.mixed(9))}", v),
}
"""Secrets that are given away by what is around them: the whole text, and the part that is secret."""

DISGUISES: Final[dict[str, Callable[[str], str]]] = {
    "as it is": lambda v: f"we use {v} there",
    "in backticks": lambda v: f"we use `{v}` there",
    "in quotes": lambda v: f'we use "{v}" there',
    "in bold": lambda v: f"we use **{v}** there",
    "in brackets": lambda v: f"we use ({v}) there",
    "at the end": lambda v: f"we use {v}.",
    "after Chinese": lambda v: f"我们用的是{v}。",
    "over two lines": lambda v: f"we use {v[: len(v) // 2]}\n{v[len(v) // 2 :]}\nthere",
    "over two indented lines": lambda v: f"- {v[: len(v) // 2]}\\\n    {v[len(v) // 2 :]}\n",
    "in two strings": lambda v: f'key = "{v[: len(v) // 2]}" +\n  "{v[len(v) // 2 :]}"\n',
    "with zero-width characters": lambda v: f"we use {v[:9]}\u200b{v[9:15]}\u200d{v[15:]} there",
    "in fullwidth letters": lambda v: (
        "we use " + "".join(chr(ord(c) + 0xFEE0) if 33 <= ord(c) <= 126 else c for c in v)
    ),
    "in base64": lambda v: "we use " + base64.b64encode(f"key {v} end".encode()).decode(),
}

NOT_SECRETS: Final = (
    "commit 3f786850e387550fdab836ed7e6dc881de23001b fixed it",
    "The fix is in dcf93840a3 and 89e6c98d92887913cadf06b2adb97f26cde4849b.",
    "session id 550e8400-e29b-41d4-a716-446655440000",
    "sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "image@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "integrity "
    "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
    "set the key to sk-... and restart",
    "export ANTHROPIC_API_KEY=sk-ant-...",
    "Authorization: Bearer <token>",
    "Authorization: Bearer {token}",
    "Authorization: Bearer $TOKEN",
    "AKIAIOSFODNN7EXAMPLE",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "GITHUB_TOKEN=${{ secrets.GITHUB_TOKEN }}",
    "The token is in GITHUB_TOKEN; the password is in DB_PASSWORD.",
    "password: ${DB_PASSWORD}",
    "password = os.environ['DB_PASSWORD']",
    "password: process.env.DB_PASSWORD",
    "api_key: str, password: string, token: Optional[str] = None",
    "api_key = settings.api_key",
    "The password is hashed with bcrypt before it is stored.",
    "Passwords are salted; the token is refreshed every 15 minutes.",
    "password is required, token is optional",
    "密码是加密存储的，令牌是可选的",
    "Das Passwort für das Wiki lautet wie der Vorname.",
    "Passwort: BCryptPasswordEncoder2",
    "La contraseña del wifi es la de siempre.",
    "Le mot de passe du VPN est dans KeePassXC.",
    "A senha do servidor é trocada em 30 dias.",
    "密码长度为 12 位以上",
    "密钥保存在 ~/.config/acme/key",
    "The API key is saved at ~/.config/plausible-api-key",
    "The deploy key is in 1Password, vault Infra, item deploy-2024",
    "postgresql://postgres:postgres@localhost:5432/app",
    "postgres://user:password@host:5432/db",
    "redis://:${REDIS_PASSWORD}@cache:6379/0",
    "https://user:<password>@example.com",
    "see src/sevenfold/layers/l5_durable_memory/recall_prefetch_window.py:120",
    "max_tokens=200000, token_budget: 61440, tokens: 4096",
    "primary key: order_id_2024, cache key: user:profile:v3:1234567890",
    "the public key is ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8Zq7Kx3bWm5Yt1Uv9cRfGh2LpN4sDk6Ea0Jq",
    "-----BEGIN PUBLIC "
    "KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEr5k2u7Wb1YtB\n-----END PUBLIC KEY-----",
    "A key file starts with -----BEGIN RSA PRIVATE KEY----- and must never be committed.",
    "![logo](data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg==)",
    "Document 1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms holds the plan.",
    "The secret of good tests is that they read like sentences.",
    "token-bucket-rate-limiter-2024 is the name of the service",
    "login(email: string, password: string): Promise<User>",
    "user: User, password: HashedPassword",
    "账号是邮箱，密码是string类型",
    "the release is tagged v2026.01.27-rc4+build.20260127",
    "Use `--password-file` and never `--password`.",
    "arn:aws:iam::123456789012:role/deploy-role-2024",
    "key: value, key=sort_by_date_2024_asc",
    "The PIN header on the board is GPIO 17.",
)


def secrets() -> Iterator[Secret]:
    """Every kind, as it stands in a text; tokens also in every disguise."""
    for number, (kind, make) in enumerate(TOKENS.items()):
        value = make(Draw(number))
        for disguise, dressed in DISGUISES.items():
            yield Secret(f"{kind}, {disguise}", dressed(value), value)
    for number, (kind, wrap) in enumerate(WRAPPED.items(), 1_000):
        text, value = wrap(Draw(number))
        yield Secret(kind, text, value)
