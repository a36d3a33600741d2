from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate.trace.redact.redact_text import MARKS, redact, redact_argv, redact_variable, rules

R = "[redacted]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # variables
        ("TOKEN=abc", f"TOKEN={R}"),
        ("GITHUB_TOKEN=abc make test", f"GITHUB_TOKEN={R} make test"),
        ("export API_KEY='a b' && make", f"export API_KEY={R} && make"),
        ('DB_PASSWORD="a \\" b" psql', f"DB_PASSWORD={R} psql"),
        ("env A=1 DB_PASS=x\\ y z", f"env A=1 DB_PASS={R} z"),
        ("PGPASSWORD=x;ls", f"PGPASSWORD={R};ls"),
        ("MYSQL_PWD=x mysql", f"MYSQL_PWD={R} mysql"),
        ("AWS_SECRET_ACCESS_KEY=x aws s3 ls", f"AWS_SECRET_ACCESS_KEY={R} aws s3 ls"),
        ("STRIPE_KEY=x STRIPE_PRIVATE_KEY=y", f"STRIPE_KEY={R} STRIPE_PRIVATE_KEY={R}"),
        ("apiKey=x clientSecret=y", f"apiKey={R} clientSecret={R}"),
        ("TOKEN+=more", f"TOKEN+={R}"),
        ("TOKEN==x= y", f"TOKEN={R} y"),
        ("TOKEN=a'b c'd\"e f\" x", f"TOKEN={R} x"),
        ("PASSWORD1=x GOOGLE_CREDENTIALS=y", f"PASSWORD1={R} GOOGLE_CREDENTIALS={R}"),
        ("SESSION_COOKIE=x HTTP_AUTH=y", f"SESSION_COOKIE={R} HTTP_AUTH={R}"),
        ("DEPLOY_TOKENS=abc,def x", f"DEPLOY_TOKENS={R} x"),
        # variables inside quotes
        ("bash -c 'TOKEN=abc make' && echo 'x'", f"bash -c 'TOKEN={R} make' && echo 'x'"),
        ("sh -ec 'TOKEN=\"a b\" make'", f"sh -ec 'TOKEN={R} make'"),
        ('bash -c "TOKEN=\\"a b\\" make"', f'bash -c "TOKEN={R} make"'),
        ("docker run -e 'API_KEY=a b' img", f"docker run -e 'API_KEY={R}' img"),
        ('docker run --env="TOKEN=a b" img', f'docker run --env="TOKEN={R}" img'),
        ("curl -d 'user=x&password=y&z=1' u", f"curl -d 'user=x&password={R}&z=1' u"),
        ("java -Dapi.key=x -DdbPassword=y Main", f"java -Dapi.key={R} -DdbPassword={R} Main"),
        # options
        ("cmd --password x --verbose", f"cmd --password {R} --verbose"),
        ("cmd --password=x --verbose", f"cmd --password={R} --verbose"),
        ("cmd --db-password 'a b' c", f"cmd --db-password {R} c"),
        ("gh api --auth-token=x", f"gh api --auth-token={R}"),
        ("cmd --api-key x --client-secret y", f"cmd --api-key {R} --client-secret {R}"),
        ("keytool -storepass x -keypass y", f"keytool -storepass {R} -keypass {R}"),
        # words that only these programs take for a secret
        ("openssl enc -aes-256-cbc -k hunter2 -in f", f"openssl enc -aes-256-cbc -k {R} -in f"),
        ("openssl rsa -passin pass:hunter2 -in f", f"openssl rsa -passin {R} -in f"),
        ("vault login hvx.abc; ls", f"vault login {R}; ls"),
        ("vault login -no-store hvx.abc", f"vault login -no-store {R}"),
        ("vault login $TOKEN", "vault login $TOKEN"),
        ("vault operator unseal abc123", f"vault operator unseal {R}"),
        ("vault kv get kv/app", "vault kv get kv/app"),
        ("ls && wandb login abc123", f"ls && wandb login {R}"),
        ("ngrok config add-authtoken abc123", f"ngrok config add-authtoken {R}"),
        ("htpasswd -cb users ada hunter2", f"htpasswd -cb users ada {R}"),
        ("htpasswd users ada", "htpasswd users ada"),
        ("lftp -u ada,hunter2 host", f"lftp -u ada,{R} host"),
        ("ssh-keygen -t ed25519 -N 'a b' -f k", f"ssh-keygen -t ed25519 -N {R} -f k"),
        # headers
        ("curl -H 'Authorization: Bearer abc.def' u", f"curl -H 'Authorization: Bearer {R}' u"),
        ('curl -H "Authorization: Basic YTpi" u', f'curl -H "Authorization: Basic {R}" u'),
        ("curl -H 'authorization: abc' u", f"curl -H 'authorization: {R}' u"),
        ("curl -H 'X-Api-Key: abc def' u", f"curl -H 'X-Api-Key: {R}' u"),
        ("curl -H 'Cookie: a=b; c=d' u", f"curl -H 'Cookie: {R}' u"),
        ("curl -H 'PRIVATE-TOKEN: abc' u", f"curl -H 'PRIVATE-TOKEN: {R}' u"),
        ('http u Authorization:"Bearer abc"', f"http u Authorization:{R}"),
        ("Authorization: Bearer a\nAccept: b", f"Authorization: Bearer {R}\nAccept: b"),
        ("send Bearer abcdef1234567890 there", f"send Bearer {R} there"),
        # fields
        ('{"password": "a\\"b", "user": "c"}', f'{{"password": "{R}", "user": "c"}}'),
        ('"{\\"token\\":\\"a b\\",\\"n\\":1}"', f'"{{\\"token\\":\\"{R}\\",\\"n\\":1}}"'),
        ("{'api_key': 'x', 'n': 1}", f"{{'api_key': '{R}', 'n': 1}}"),
        ('{"a": "b", "secret": 12345}', f'{{"a": "b", "secret": {R}}}'),
        ('password = "a b"', f'password = "{R}"'),
        ("aws_secret_access_key = abcd1234efgh", f"aws_secret_access_key = {R}"),
        ("token: abcd1234efgh", f"token: {R}"),
        # URLs
        ("git clone https://u:p@h/x.git", f"git clone https://u:{R}@h/x.git"),
        ("psql postgres://u:p%40ss@h:5432/db", f"psql postgres://u:{R}@h:5432/db"),
        ("redis://:hunter2@h", f"redis://:{R}@h"),
        ("postgres://u:pa/ss@h/db", f"postgres://u:{R}@h/db"),
        ("https://abcdef0123456789abcdef@h/x", f"https://{R}@h/x"),
        ("https://x/?access_token=a&n=1", f"https://x/?access_token={R}&n=1"),
        ("a=https://u:p@h,https://v:q@i", f"a=https://u:{R}@h,https://v:{R}@i"),
        # programs
        ("curl -u bob:hunter2 https://x", f"curl -u bob:{R} https://x"),
        ("curl -ubob:hunter2 --proxy-user a:b u", f"curl -ubob:{R} --proxy-user a:{R} u"),
        ("curl --user=bob:hunter2 u", f"curl --user=bob:{R} u"),
        ("mysql -uroot -phunter2 db", f"mysql -uroot -p{R} db"),
        ("sshpass -p hunter2 ssh h", f"sshpass -p {R} ssh h"),
        ("docker login -u me -p hunter2 r", f"docker login -u me -p {R} r"),
        ("redis-cli -a hunter2 ping", f"redis-cli -a {R} ping"),
        ("bash -c 'cd x && curl -u a:b u'", f"bash -c 'cd x && curl -u a:{R} u'"),
        (
            "aws configure set aws_secret_access_key x",
            f"aws configure set aws_secret_access_key {R}",
        ),
        # shapes
        ("x sk-ant-api03-AbC_dEf-123 y", f"x {R} y"),
        ("sk-proj-abcdefghijklmnop1234", R),
        ("sk-abcdefghijklmnopqrstuvwxyz", R),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", R),
        ("github_pat_11ABCDEFG0abcdefghijkl_xyz", R),
        ("glpat-abcdefghij0123456789", R),
        ("xoxb-1234567890-abcdef", R),
        ("AKIAIOSFODNN7EXAMPLE", R),
        ("AIzaSyA1234567890abcdefghijklmnopqrstuv", R),
        ("npm_abcdefghijklmnopqrstuvwxyz0123456789", R),
        ("pypi-AgEIcHlwaS5vcmcCJGFiY2RlZmdo", R),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", R),
        ("sk_live_abcdefghijklmnop", R),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- x", f"{R} x"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nnever closed", R),
    ],
)
def test_secrets_are_replaced(text: str, expected: str) -> None:
    assert redact(text) == expected
    assert redact(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "make test",
        "git log --author=token",
        "tokenizer=bert python train.py",
        "echo the password is a word, and so are token and secret",
        "git commit -m 'auth: add the login page'",
        "git commit -m 'fix token: handle expiry'",
        "grep -rn password src/ --include=*.py",
        "MAX_TOKENS=4096 run --max-tokens 100",
        "SSH_AUTH_SOCK=/run/agent PWD=/src OLDPWD=/tmp",
        "docker run -u 1000:1000 image",
        "docker login --password-stdin registry",
        "TOKEN=$OTHER make; TOKEN=${X} y; TOKEN=$(cat file) z; TOKEN= make",
        "TOKEN_FILE=/run/secrets/token SECRET_NAME=db PASSWORD_LENGTH=12",
        'if [ "$TOKEN" == "abc" ]; then',
        "token = tokenizer.next()",
        "if token==expected: token == x",
        "sort --key=2 file",
        "make KEY=value PUBLIC_KEY=x",
        "mkdir -pv a/b",
        "ssh git@github.com",
        "git clone https://bob@bitbucket.org/x/y",
        "curl http://host:8080/a@b",
        "npm install https://registry/@scope/name",
        "git switch sk-some-long-kebab-branch-name",
        "python -m risk-assessment-and-task-scheduler-2024",
        "pip install pypi-attestations pypi-simple-something-long",
        "gh auth login --with-token",
        "ls key* | xargs cat",
        "basic authentication and bearer authentication",
        "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
        "PASS=3 FAIL=0",
        "cat <<EOF\nauthor: token\nkey: value\nEOF",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["cmd", "--password", "a b"], ["cmd", "--password", R]),
        (["cmd", "--password=a b;c"], ["cmd", f"--password={R}"]),
        (["cmd", "--password", "--verbose"], ["cmd", "--password", "--verbose"]),
        (["env", "TOKEN=a b 'c", "make"], ["env", f"TOKEN={R}", "make"]),
        (["curl", "-u", "bob:a b", "u"], ["curl", "-u", f"bob:{R}", "u"]),
        (["/usr/bin/mysql", "-pa b"], ["/usr/bin/mysql", f"-p{R}"]),
        (["curl", "-H", "Authorization: Bearer a"], ["curl", "-H", f"Authorization: Bearer {R}"]),
        (["sh", "-c", "TOKEN=x make"], ["sh", "-c", f"TOKEN={R} make"]),
        (["git", "log", "--author=token", ""], ["git", "log", "--author=token", ""]),
        (["cmd", "--token", ""], ["cmd", "--token", ""]),
    ],
)
def test_arguments(argv: list[str], expected: list[str]) -> None:
    assert redact_argv(argv) == expected
    assert redact_argv(expected) == expected


def test_no_rule_waits_for_something_that_is_not_looked_for() -> None:
    triggers = {trigger for rule in rules() for trigger in rule.triggers}
    assert len(triggers) > 50
    assert {trigger for trigger in triggers if not any(mark in trigger for mark in MARKS)} == set()


def test_variables() -> None:
    assert redact_variable("GITHUB_TOKEN", "a b") == R
    assert redact_variable("GITHUB_TOKEN", "") == ""
    assert redact_variable("PATH", "/bin") == "/bin"
    assert redact_variable("HTTP_PROXY", "http://u:p@h") == f"http://u:{R}@h"


# Nothing that could be mistaken for the mark, and no reference to a variable.
SECRET_TEXT = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="$`[]"), min_size=8
).filter(lambda text: not text.startswith("-"))
SPACED_TEXT = st.text(
    st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="$`[]\\"), min_size=8
).filter(lambda text: text.strip("'\" ") and not text.startswith(("-", "=")) and "pass" not in text)
NAME = st.sampled_from(["TOKEN", "DB_PASSWORD", "apiKey", "AWS_SECRET_ACCESS_KEY", "MY_AUTH"])
BEFORE = st.sampled_from(["", "export ", "env A=1 ", "cd 'a b' && ", 'echo "x y"; ', "x=1 "])
AFTER = st.sampled_from(["", " make", " && echo 'done'", ' | tee "a b"'])


def survives(secret: str, text: str) -> bool:
    """Whether a telling piece of the secret is still there."""
    pieces = [secret[at : at + 8] for at in range(len(secret) - 7)]
    return any(piece in text for piece in pieces)


@given(BEFORE, NAME, SPACED_TEXT, AFTER)
def test_a_planted_variable_never_survives(before: str, name: str, secret: str, after: str) -> None:
    text = f"{before}{name}={shlex.quote(secret)}{after}"
    assert not survives(shlex.quote(secret), redact(text).replace(after, ""))
    assert redact(text).endswith(after)


@given(BEFORE, NAME, SPACED_TEXT, AFTER)
def test_nor_does_one_in_a_quoted_script(before: str, name: str, secret: str, after: str) -> None:
    script = f"{name}={shlex.quote(secret)} make"
    text = f"{before}bash -c {shlex.quote(script)}{after}"
    assert not survives(secret, redact(text).replace(after, ""))


@given(st.sampled_from(["--password", "--api-key", "--token"]), SPACED_TEXT, AFTER)
def test_nor_an_options_value(option: str, secret: str, after: str) -> None:
    for text in (f"x {option} {shlex.quote(secret)}{after}", f"x {option}={shlex.quote(secret)}"):
        assert not survives(shlex.quote(secret), redact(text).replace(after, ""))


@given(st.sampled_from(["https", "postgres", "redis"]), SECRET_TEXT, AFTER)
def test_nor_a_password_in_a_url(scheme: str, secret: str, after: str) -> None:
    import urllib.parse

    password = urllib.parse.quote(secret, safe="")
    text = redact(f"get {scheme}://user:{password}@host/path{after}")
    assert not survives(password, text.replace(after, ""))
    assert "@host/path" in text


@given(st.text(st.sampled_from("abcdefghABCDEF0123456789"), min_size=32, max_size=60), AFTER)
def test_nor_a_token_known_by_its_shape(body: str, after: str) -> None:
    for prefix in ("ghp_", "sk-ant-", "glpat-", "npm_", "github_pat_"):
        assert not survives(body, redact(f"x '{prefix}{body}'{after}").replace(after, ""))


FRAGMENTS = st.sampled_from(
    [
        *("TOKEN=", "'", '"', "\\", " ", "\n", "--password ", "--password=", "Authorization: "),
        *("Bearer ", "a1b2c3d4e5f6g7h8", "https://", "u:p@h", ":", "@", "=", "$(", ")", "`", "${"),
        *("curl -u ", "a:b", '"password": ', "sh -c ", ";", "&", "sk-", "token", "[redacted]"),
        *("-----BEGIN PRIVATE KEY-----", "eyJhbGciOi.eyJzdWIi.x", "x", "mysql -p", "set ", ","),
    ]
)


@given(st.lists(FRAGMENTS, max_size=25).map("".join))
def test_twice_is_as_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(st.text())
def test_no_text_is_refused(text: str) -> None:
    redact(text)
    redact_argv([text, text])


UNITS = [
    *("a", "TOKEN", "TOKEN=", "TOKEN='", 'TOKEN="', 'TOKEN=\\"', "'TOKEN=", '"TOKEN=', "a://b:c"),
    *("a://b:c@", "://", "sk-", "eyJaaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "--password "),
    *("--password=", "--password", "Authorization: ", '"password": ', '"password":"', "\\"),
    *('\\"password\\":', "bearer ", "curl -u a:b ", "mysql -p ", "'a b", "'", '"', "password = "),
    *("token: ", "set token ", "TOKEN=$(", "TOKEN=${", "TOKEN=`", "a_", " ", "= ", "'\"'\"'", "="),
    *("docker login --password-stdin <<A\n", "cat <<A | chpasswd\nA\n", "echo a | sudo -S ls | "),
    *("vault kv put a=b ", "<<A ", "<<<", "'echo a | sudo -S ", "set -x ", "bundle config a b:c "),
    *("\ntoken: a", "kind: Secret\ndata:\n a: b\n", "---\n", "machine ", "machine a login b "),
    *("pgpass 1:", "create user password '", "auth('a','", "pwd: '", "?sig=", "--secret pulumi "),
    *("SG.aaaaaaaaaaaaaaaaaaaa.", "@", "curl \"a 'b c", "api_key", "x-token-", "(", ")", "\n"),
]


@pytest.mark.parametrize("unit", UNITS)
def test_the_work_grows_with_the_text_and_not_with_its_square(unit: str) -> None:
    """Eight times the text may cost some sixteen times as much, but not sixty-four.

    Processor time, not the clock on the wall: what else the machine does is not counted. A
    quadratic rule is far beyond the bound, noise far below.
    """

    def cost(length: int) -> float:
        text = (unit * (length // len(unit) + 1))[:length] + ALL_RULES
        return min(processor_s(text) for _ in range(2))

    assert cost(32_000) <= 20 * max(cost(4_000), 0.001)


#: What makes every rule look at a text.
ALL_RULES = " token key http://u:p@h curl set pgpass kind: secret create user"


def processor_s(text: str) -> float:
    before = time.process_time()
    redact(text)
    return time.process_time() - before


def test_a_command_of_two_megabytes() -> None:
    line = "a line of the file, with some words in it: 'quoted' and n=1, https://host/path?x=1\n"

    def command(size: int) -> str:
        body = line * (size // len(line))
        return f"export TOKEN=abc; cat > f <<EOF\n{body}EOF\nmysql -phunter2 db"

    small_s = processor_s(command(250_000))
    before = time.process_time()
    large = redact(command(2_000_000))
    assert time.process_time() - before <= 20 * small_s
    assert large.startswith(f"export TOKEN={R}; cat") and large.endswith(f"mysql -p{R} db")
    assert large.count(R) == 2 and len(large) > 1_900_000
