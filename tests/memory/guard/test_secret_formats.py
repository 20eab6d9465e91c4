"""The table of published formats, the rules for what no table knows, and texts made to be slow."""

from __future__ import annotations

import random
import subprocess
import sys
import zlib

import pytest

from benchmarks.guard.secret_cases import Draw
from benchmarks.guard.token_samples import TokenSample, draw_tokens, write_form
from sevenfold.memory.guard.secret_formats import find_tokens, is_checksum_right, load_secret_table
from sevenfold.memory.guard.secrets import find_secrets

SAMPLES = [*draw_tokens(1), *draw_tokens(2)]


def is_found(text: str) -> bool:
    return bool(find_secrets(text))


def test_the_table_is_dated_and_names_at_least_150_services_with_their_pages() -> None:
    table = load_secret_table()

    assert table.date.year >= 2026
    assert len({service.name for service in table.service}) == len(table.service) >= 150
    assert all(service.documented.startswith("https://") for service in table.service)


def test_every_format_says_how_a_token_is_known_and_what_it_is_made_of() -> None:
    table = load_secret_table()
    for service in table.service:
        for form in service.tokens:
            assert form.begins or form.holds or form.near, service.name
            assert bool(form.pattern) != bool(form.alphabet), service.name
            if form.alphabet and form.alphabet != "uuid":
                assert form.alphabet in table.alphabets, service.name
                assert 0 < form.length[0] <= form.length[1], service.name
            assert form.checksum in ("", "crc32", "grafana"), service.name


@pytest.mark.parametrize("form", ["assignment", "word value", "bare or prefixed"])
def test_a_token_of_every_format_is_found(form: str) -> None:
    missed = [sample.service for sample in SAMPLES if not is_found(write_form(form, sample))]

    assert missed == []


def test_a_token_with_a_telling_beginning_is_found_inside_a_longer_run() -> None:
    heads = ("ghp_", "glpat-", "sk-ant-", "xoxb-", "npm_", "AKIA", "hf_", "shpat_", "dop_v1_")
    samples = [sample for sample in SAMPLES if sample.value.startswith(heads)]

    assert len(samples) >= 18
    assert [sample for sample in samples if not is_found(f"see{sample.value}")] == []
    assert [sample for sample in samples if not is_found(f"https://a.io/x{sample.value}/y")] == []


def test_a_token_is_named_after_its_service() -> None:
    sample = next(sample for sample in SAMPLES if sample.value.startswith("dop_v1_"))

    assert [found.what for found in find_secrets(sample.value)] == ["DigitalOcean token"]


def test_hexadecimal_that_goes_on_is_no_token() -> None:
    digits = Draw(3).hex(32)

    assert is_found(f"dapi{digits} works")
    assert not is_found(f"dapi{digits}{digits} works")


def checksum_of(secret: str) -> str:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    number, written = zlib.crc32(secret.encode()), ""
    while number:
        number, rest = divmod(number, 62)
        written = digits[rest] + written
    return written.rjust(6, "0")


def test_a_right_checksum_proves_a_token_whatever_its_words_are() -> None:
    secret = "EXAMPLE" + Draw(4).mixed(23)
    right = "gh" + "p_" + secret + checksum_of(secret)
    wrong = right[:-1] + ("A" if right[-1] != "A" else "B")

    assert is_checksum_right("crc32", "ghp_", right[4:])
    assert not is_checksum_right("crc32", "ghp_", wrong[4:])
    assert is_found(f"look{right}")
    assert list(find_tokens(wrong)) == []


def test_the_checksum_of_grafana_is_written_from_its_last_byte() -> None:
    secret = Draw(5).mixed(32)
    crc = zlib.crc32(f"glsa_{secret}".encode()).to_bytes(4, "little").hex()

    assert is_checksum_right("grafana", "glsa_", f"{secret}_{crc}")
    assert not is_checksum_right("grafana", "glsa_", f"{secret}_{crc[::-1]}")


D = Draw(6)
UNKNOWN = {
    "a prefix that no table knows": f"we use qux_{D.mixed(32)} there",
    "a prefix that says key": f"we use qux-key-{D.hex(40)} there",
    "slashes": f"aws_secret_access_key = {D.mixed(12)}/{D.mixed(10)}/{D.mixed(16)}",
    "a name and a value": f"QUX_API_KEY={D.hex(32)}",
    "a word and a value": f"sign in with token {D.mixed(24)}",
    "api key and a value": f"use the api key {D.mixed(28)} for it",
    "a sentence": f"the qux api key is {D.mixed(24)}",
    "a flag": f"qux --auth-token {D.mixed(24)} run",
    "one dash": f"Connect-Qux -Password {D.mixed(12)}",
    "a user and a password": "qux -u bob -p " + "swordfish run",
    "a netrc file": "machine qux.io\n  login bob\n  password " + "swordfish\n",
    "an element": f"<password>{D.mixed(12)}</password>",
    "an attribute": f'<add key="QuxPassword" value="{D.mixed(12)}"/>',
    "a pair in JSON": f'{{"name": "QUX_TOKEN", "value": "{D.mixed(30)}"}}',
    "an arrow and spaces": f":password       => '{D.mixed(10)}',",
    "a typed default": f'api_key: str = "{D.mixed(32)}"',
    "a block of Terraform": f'variable "qux_token" {{\n  default = "{D.mixed(32)}"\n}}',
    "a connection string": "Server=qux;User Id=bob;Password=" + "swordfish;Database=x;",
    "an argument": 'new NetworkCredential("bob@qux.io", "' + 'swordfishes")',
    "glued to its name": f"the token{D.mixed(32)} works",
    "a table": f"| API key | {D.mixed(32)} |",
    "in brackets": f"the token ({D.mixed(32)}) works",
    "a user in a URL": f"git clone https://{D.mixed(32)}@qux.io/repo",
    "one case": f"token = {random.Random(7).choices('bcdfghjklmnpqrstvwxz234567', k=52)}".translate(
        str.maketrans("", "", "[]', ")
    ),
    "a password hash": "$2" + f"b$12${D.mixed(53)}",
    "a signed link": f"https://b.s3.amazonaws.com/x?X-Amz-Signature={D.hex(64)}",
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_general_rules_find_secrets_of_services_that_no_table_knows(kind: str) -> None:
    assert is_found(UNKNOWN[kind])


HARMLESS = {
    "ids of requests": f"toolu_01{D.mixed(22)} and req_01{D.mixed(22)}",
    "a passed test": "--- PASS: TestWords/counts_words_1 (0.00s)",
    "a variable with a default": "POSTGRES_PASSWORD: ${DB_PASSWORD:-postgres1}",
    "a selector": 'this.addPassword = "#add-password";',
    "labels": 'usernameLabel:"Username or email:",passwordLabel:"Password:",rememberMeLabel:"Remember"',
    "an address": "ssh -i ~/.ssh/ci-deploy-key root@76.13.151.200",
    "a working folder": "pwd: osc7/osc99/osc51",
    "a class of words": "the token bucket2-limiter3 is full, the key is user_id_2024",
    "a commit": f"the token service was fixed in {'3f78' + '6850e387550fdab836ed7e6dc881de23001b'}",
    "a beginning and words": "glpat-your-token-goes-here and ghp_replace_this_with_your_own_token_please",
    "a format in prose": "tokens begin with ghp_, gho_ or github_pat_ and have 36 characters",
    "ports": "docker run -u 1000 -p 8080:80 app; psql -U bob -p 5432",
    "a page": "The login page password reset sends a mail; the login form password field is hidden.",
    "a table of roles": "| Password | Role1 |\n| --- | --- |\n| required | admin |",
    "a public key": f"const pubkey256 = '{D.mixed(43)}='; gpg --recv-keys {D.hex(40)}",
    "versions": "Pin numpy==1.26.4 and pin version 1.2.3",
    "a host": "auth0: dev-abc123xy.us.auth0.com",
    "a document": f"Sheet key 1{D.mixed(43)}, issue key ENG-1234",
    "a published key": f"the publishable key pk_live_{D.mixed(24)}",
    "minified code": "function(){s.addClassNameToEachSibling()}b.removeEventListenerNow()",
}


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_general_rules_must_leave_alone(kind: str) -> None:
    assert not is_found(HARMLESS[kind])


def test_a_sample_does_not_show_its_value() -> None:
    assert repr(TokenSample("Qux", "", "abc")) == "TokenSample('Qux')"


PIECES = (
    "a", "aB1", "eyJhbGciOi.", "-----BEGIN PRIVATE KEY-----\\n", "PuTTY-User-Key-File-1:", "password is ",
    "密码是", "key=", "ghp_", "sk-", "a1_", "token ", "http://a:", "http://a@", "login a ", " -u a ",
    "credential('a',", "curl -u a", "okta ", "Q~1", ".atlasv1.", "12345678:A", "?sv=1&se=2", "$1$a$",
    "password:'", "password for a ", "server=a;password=", "ab-cd-ef-", "bearer ", "QUJD", "NRAL", "1/1",
)  # fmt: skip
SLOW = """
import sys
from sevenfold.memory.guard.secrets import find_secrets
for piece in sys.argv[1:]:
    piece = piece.replace("\\\\n", "\\n")
    find_secrets((piece * (100_000 // len(piece) + 1))[:100_000])
"""


def test_no_text_makes_the_search_take_the_square_of_its_length() -> None:
    """A pass takes seconds for all; an expression that goes back over the text would take hours."""
    subprocess.run([sys.executable, "-c", SLOW, *PIECES], check=True, timeout=300)
