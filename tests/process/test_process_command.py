"""What is kept of a command line: each canary must never come through."""

import time

import pytest

from vmsonar.collectors.process_command import LIMIT, arguments, full, policy, program_only

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
        (["plink", "-pw", CANARY], "plink -p*** ***"),
        (["keytool", "-storepass", CANARY], "keytool -storepass ***"),
        (["curl", "-x", f"me:{CANARY}@proxy:80"], "curl -x me:***@proxy:80"),
        (
            ["mysql", "-e", f"create user a identified by '{CANARY}'"],
            "mysql -e create user a identified by ***",
        ),
        (["x", f"a\tpassword={CANARY}"], "x a\tpassword=***"),
        (["x", f"set\npassword = {CANARY} now"], "x set\npassword *** *** now"),
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


@pytest.mark.parametrize("text", ["a:", "a=", "a", "aA", "?", "eyJ", "a://", "=a:", "password ", "a\t", "-"])
def test_no_command_line_holds_up_the_sample(text: str) -> None:
    began = time.process_time()
    assert full(["x", (text * 16384)[:16384], "y"])
    assert time.process_time() - began < 1


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
