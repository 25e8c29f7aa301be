"""What is kept of a command line: each canary must never come through."""

import base64
import random
import re
import shlex
import string
import time
from pathlib import Path

import pytest

from vmsonar.collectors.process.command import LIMIT, arguments, full, policy, program_only
from vmsonar.collectors.process.masking import masked

CANARY = "hunter2CANARY"


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        (["/usr/bin/sleep", "60"], "sleep"),
        (["mysql", f"-p{CANARY}"], "mysql"),
        ([f"postgres: app db {CANARY}"], "postgres:"),
        (["/opt/my/tool --token x"], "tool"),
        (["-bash"], "-bash"),
        (["python3", "train.py", "--token", CANARY], "python3 train.py"),
        (["/usr/bin/python3.11", "-u", "-W", "ignore", "/srv/a.py", CANARY], "python3.11 /srv/a.py"),
        (["python", "-m", "http.server", CANARY], "python -m http.server"),
        (["python3", "-Im", CANARY], "python3"),
        (["python3", "-c", f"print('{CANARY}')"], "python3"),
        (["python3", "-uc", CANARY], "python3"),
        (["python3", f"-c{CANARY}"], "python3"),
        (["python3", "-X", CANARY, "a.py"], "python3 a.py"),
        (["python3", "-"], "python3"),
        (["bash", "-c", f"curl -u a:{CANARY}"], "bash"),
        (["bash", "-xec", CANARY], "bash"),
        (["bash", "-o", "pipefail", "-c", CANARY], "bash"),
        (["bash", "--rcfile", CANARY, "run.sh"], "bash run.sh"),
        (["sh", "-e", "./build.sh", CANARY], "sh ./build.sh"),
        (["perl", "-e", CANARY], "perl"),
        (["perl", "-w", "x.pl", CANARY], "perl x.pl"),
        (["ruby", "-e", CANARY], "ruby"),
        (["node", "--eval", CANARY], "node"),
        (["node", "-p", CANARY], "node"),
        (["node", "--max-old-space-size=4096", "app.js", CANARY], "node app.js"),
        (["node", "--unknown", CANARY], "node"),
        (["php", "-r", CANARY], "php"),
        (["java", f"-Dpw={CANARY}", "-Xmx4g", "-jar", "app.jar", CANARY], "java -jar app.jar"),
        (["java", "-cp", CANARY, "org.example.Main", CANARY], "java org.example.Main"),
        (["java", f"@{CANARY}"], "java"),
        (["Rscript", "--vanilla", "x.R", CANARY], "Rscript x.R"),
        (["Rscript", "-e", CANARY], "Rscript"),
    ],
)
def test_the_program_and_what_an_interpreter_runs(args: list[str], kept: str) -> None:
    assert program_only(args) == kept


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["tool", f"--password={CANARY}"], "tool --password=***"),
        (["tool", "--password", CANARY, "x"], "tool --password *** x"),
        (["tool", f"--db-Password:{CANARY}"], "tool --db-Password:***"),
        (["tool", "--api-key", CANARY], "tool --api-key ***"),
        (["tool", f"apiKey={CANARY}"], "tool apiKey=***"),
        (["tool", "--secret", CANARY], "tool --secret ***"),
        (["tool", "-token", CANARY], "tool -token ***"),
        (["tool", "--client-secret", CANARY], "tool --client-secret ***"),
        (["env", f"AWS_SECRET_ACCESS_KEY={CANARY}", "x"], "env AWS_SECRET_ACCESS_KEY=*** x"),
        (["env", f"PGPASSWORD={CANARY}", "psql"], "env PGPASSWORD=*** psql"),
        (["docker", "run", "-e", f"MYSQL_ROOT_PASSWORD={CANARY}"], "docker run -e MYSQL_ROOT_PASSWORD=***"),
        (["mysql", f"-p{CANARY}"], "mysql -p***"),
        (["sshpass", "-p", CANARY, "ssh", "h"], "sshpass -p *** ssh h"),
        (["curl", "-u", f"me:{CANARY}"], "curl -u me:***"),
        (["curl", f"-ume:{CANARY}"], "curl -ume:***"),
        (["curl", f"--user=me:{CANARY}"], "curl --user=me:***"),
        (["curl", f"https://me:{CANARY}@host/x"], "curl https://me:***@host/x"),
        (["git", "clone", f"https://{CANARY}@host/x"], "git clone https://***@host/x"),
        (["psql", f"postgresql://me:{CANARY}@db:5432/x"], "psql postgresql://me:***@db:5432/x"),
        (["app", f"redis://:{CANARY}@h"], "app redis://:***@h"),
        (["curl", f"https://h/x?a=1&token={CANARY}&b=2"], "curl https://h/x?a=1&token=***&b=2"),
        (["curl", f"https://h/x?X-Amz-Signature={CANARY}"], "curl https://h/x?X-Amz-Signature=***"),
        (["curl", "-H", f"Authorization: Bearer {CANARY}"], "curl -H Authorization: ***"),
        (["curl", "-H", f"X-Api-Key: {CANARY}"], "curl -H X-Api-Key: ***"),
        (["curl", "-H", f"X-Other: Bearer {CANARY}"], "curl -H X-Other: Bearer ***"),
        (["x", "Bearer", CANARY], "x Bearer ***"),
        (["ssh", "h", f"mysql --password {CANARY} x"], "ssh h mysql --password *** x"),
        (["ssh", "h", f"mysql -p{CANARY}"], "ssh h mysql -p***"),
        (["bash", "-c", f"echo {CANARY}"], "bash -c ***"),
        (["bash", "-lc", f"echo {CANARY}"], "bash -lc ***"),
        (["python3", "-c", CANARY], "python3 -c ***"),
        (["perl", "-e", CANARY], "perl -e ***"),
        (["node", "--eval", CANARY], "node --eval ***"),
        (["x", "ghp_0123456789abcdefCANARY"], "x ***"),
        (["x", "--opt=glpat-0123456789abcdefCANARY"], "x --opt=***"),
        (["x", "AKIA0123456789CANARY"], "x ***"),
        (["x", "eyJhbGciOiJIUzI1NiJ9.eyJDQU5BUlkiOjF9.CANARY"], "x ***"),
        (["x", f"-----BEGIN PRIVATE KEY-----\n{CANARY}"], "x ***"),
        (["x", f"config.token={CANARY}"], "x config.token=***"),
        (["x", f"--set=auth.password={CANARY}"], "x --set=auth.password=***"),
        (["x", "password", CANARY], "x password ***"),
        (["x", "Password:", CANARY], "x Password: ***"),
        (["postgres: app db password=" + CANARY], "postgres: app db password=***"),
        (["mount", "-o", f"username=a,password={CANARY},uid=1"], "mount -o username=a,password=***"),
        (["az", f"AccountName=x;AccountKey={CANARY};z=y"], "az AccountName=x;AccountKey=***"),
        (["curl", "-d", f'{{"user":"a","password":"{CANARY}"}}'], 'curl -d {"user":"a","password":***'),
        (["helm", "--set", f"a=b,adminPassword={CANARY}"], "helm --set a=b,adminPassword=***"),
        (["x", f"/password:{CANARY}"], "x /password:***"),
        (["sudo", "bash", "-c", f"X={CANARY}"], "sudo bash -c ***"),
        (["/usr/bin/env", "python3", "-c", CANARY], "/usr/bin/env python3 -c ***"),
        (["su", "app", "-c", CANARY], "su app -c ***"),
        (["perl", f"-ne{CANARY}", "f"], "perl -ne*** ***"),
        (["python3", f"-Ic{CANARY}"], "python3 -Ic***"),
        (["node", f"--eval={CANARY}"], "node --eval=***"),
        (["wget", f"--header=Cookie: id={CANARY}"], "wget --header=Cookie: ***"),
        (
            ["aws", "configure", "set", "aws_secret_access_key", CANARY],
            "aws configure set aws_secret_access_key ***",
        ),
        (["redis-cli", "-a", CANARY], "redis-cli -a ***"),
        (["openssl", "enc", "-k", CANARY], "openssl enc -k ***"),
        (["ipmitool", "-U", "admin", "-P", CANARY], "ipmitool -U admin -P ***"),
        (["smbclient", "-U", f"me%{CANARY}"], "smbclient -U me%***"),
        (["plink", "-pw", CANARY], "plink -pw ***"),
        (["keytool", "-storepass", CANARY], "keytool -storepass ***"),
        (["curl", "-x", f"me:{CANARY}@proxy:80"], "curl -x me:***@proxy:80"),
        (
            ["mysql", "-e", f"create user a identified by '{CANARY}'"],
            "mysql -e create user a identified by ***",
        ),
        (["x", f"a\tpassword={CANARY}"], "x a\tpassword=***"),
        (["x", f"set\npassword = {CANARY} now"], "x set\npassword *** ***"),
        (["wandb", "login", CANARY], "wandb login ***"),
        # what must stay readable
        (["rsync", "-av", "/a", "/b"], "rsync -av /a /b"),
        (["train", "--epochs", "3", "--lr=0.1", "--monkey", "x"], "train --epochs 3 --lr=0.1 --monkey x"),
        (["make", "-j8", "keyboard"], "make -j8 keyboard"),
        (["python3", "train.py", "--out", "tokens.txt"], "python3 train.py --out tokens.txt"),
        (["curl", "https://host/path?page=2"], "curl https://host/path?page=2"),
    ],
)
def test_a_full_command_line_without_its_secrets(args: list[str], shown: str) -> None:
    assert full(args) == shown
    assert "CANARY" not in shown


def corpus(name: str) -> list[list[str]]:
    """The command lines in a file beside this one."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    found, line = [], ""
    for part in text.split("\n"):
        line = f"{line}\n{part}" if line else part
        if line.startswith("#") or not line:
            line = ""
            continue
        try:
            found.append(shlex.split(line))
        except ValueError:  # a quotation that goes on in the next line
            continue
        line = ""
    assert not line
    return found


def secrets_in(args: list[str]) -> tuple[list[str], set[str]]:
    """The command line without its marks, and all that would give a secret away: each six letters of it."""
    marked = re.findall("«(.*?)»", "\0".join(args), re.DOTALL)
    plain = [arg.replace("«", "").replace("»", "") for arg in args]
    innocent = re.sub("«.*?»", "«»", "\0".join(args), flags=re.DOTALL)
    pieces = {one[at : at + 6] for one in marked for at in range(max(1, len(one) - 5))}
    return plain, {piece for piece in pieces if piece not in innocent}


def test_of_many_command_lines_no_secret_comes_through() -> None:
    lines = corpus("command_lines_with_secrets.txt")
    assert len(lines) >= 350
    told = []
    for args in lines:
        plain, pieces = secrets_in(args)
        assert pieces, args
        for shown in (full(plain), program_only(plain)):
            told += [(shown, piece) for piece in pieces if piece in (shown or "")]
    assert told == []


def test_of_many_harmless_command_lines_next_to_all_stay_whole() -> None:
    lines = corpus("command_lines_without_secrets.txt")
    assert len(lines) >= 200
    changed = [shown for args in lines if (shown := full(args)) != " ".join(args)]
    assert changed == ["mysql -h db -P *** -u app shop"]


def test_random_tokens_are_known_by_their_looks() -> None:
    """Of 3,000 without a name, a prefix or a program; hexadecimal ones are left, as commits are."""
    chance = random.Random(17)
    kinds = (string.ascii_letters + string.digits, string.ascii_letters + string.digits + "-_")
    missed = 0
    for number in range(3000):
        size = chance.randint(24, 64)
        token = "".join(chance.choices(kinds[number % 2], k=size))
        if number % 3 == 0:
            token = base64.b64encode(chance.randbytes(size)).decode()
        missed += token in (full(["app", ("run", "--opt=", "x:")[number % 3] + token]) or "")
    assert missed <= 30


HOSTILE = (
    "a:", "a=", "a", "aA", "?", "eyJ", "a://", "=a:", "password ", "a\t", "-", "a/b@", "://a:", "user=a%", "a(", "<a>",
    "'", "webhook/", "://hooks.", "set password ", "A1b", "Basic ", "-----BEGIN", "&k=", "\\\"", "$6$", "Bearer:",
    "aA1/",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_no_command_line_holds_up_the_sample(text: str) -> None:
    began = time.process_time()
    assert full(["x", (text * 100_000)[:100_000], "y"])
    assert full(["x", *[text] * (100_000 // len(text)), "y"])
    assert time.process_time() - began < 1


def test_a_long_argument_is_not_cut_inside_a_secret() -> None:
    """What shows that it is one may lie behind the cut."""
    for size in range(7900, 8400, 50):
        shown = full(["x", f"{'a,' * (size // 2)}b=postgres://me:{CANARY * 9}@db", "y"])
        assert shown is not None
        assert "CANARY" not in shown


def test_nothing_and_nobody() -> None:
    assert policy("none")(["x"]) is None
    assert policy("program")([]) is None
    assert policy("full")([]) is None


def test_arguments_of_odd_bytes() -> None:
    assert arguments(b"a\0b c\0\0") == ["a", "b c"]
    assert arguments(b"") == []
    assert arguments(b"\xff\0x") == ["\\xff", "x"]


def test_a_very_long_command_line_is_cut() -> None:
    shown = full(["x", "y" * 10_000])
    assert shown is not None
    assert len(shown) == LIMIT
    assert shown.endswith("…")


@pytest.mark.parametrize(
    ("alphabet", "length", "share"),
    [
        (string.ascii_letters + string.digits, 32, 0.06),
        (string.ascii_lowercase + string.digits, 32, 0.06),
        (string.ascii_uppercase + "234567", 32, 0.15),
        (string.ascii_letters, 32, 0.12),
    ],
)
def test_random_words_that_nothing_names_are_known_by_their_shape(
    alphabet: str, length: int, share: float
) -> None:
    chance = random.Random(7)
    words = ["".join(chance.choices(alphabet, k=length)) for _ in range(500)]
    left = [word for word in words if word in masked(["app", word], 1000)]
    assert len(left) <= share * len(words)
