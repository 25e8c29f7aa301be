"""What names a secret and what a secret looks like, as data; docs/jobs.md explains how it is used."""

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _by_program(options: dict[str, str]) -> dict[str, frozenset[str]]:
    """Options by program, from options by programs."""
    return {name: _words(found) for names, found in options.items() for name in names.split()}


#: Words of a name, divided at -, _, . and capitals, whose value is a secret: --db-pw, apiKey, AWS_SECRET_ACCESS_KEY.
WORDS = _words("""
    pass pw pwd psw pswd passwd passcode passin passout pin otp totp mfa psk key auth authorization authenticate
    bearer cookie cookies sig signature hmac private sas jwt pat dsn webhook community cred creds login oauth mnemonic
    """)
#: The same as a part of a word: PGPASSWORD, clientsecret, authtoken.
PARTS = tuple(_words("password passwort passwd passphrase secret token credential apikey sessionid"))
#: The same at the end of a word: dbpw, rootpw, storepass, authkey.
ENDS = tuple(
    _words("""
    pw pwd pass pswd psk jwt requirepass masterauth accesskey accountkey appkey authkey deploykey encryptionkey
    licensekey masterkey privatekey privkey secretkey servicekey sessionkey sharedkey signingkey sshkey
    storagekey streamkey subscriptionkey webhook
    """)
)
#: Two words that mean it together.
PAIRS = {
    tuple(pair.split())
    for pair in ("session id", "connection string", "from literal", "recovery code", "unlock code")
}
#: Words that hold one of the above by chance.
INNOCENT = _words("""
    tokens tokenize tokenizer tokenizers tokenization detokenize bypass compass multipass overpass surpass
    secretary passes
    """)
#: Words that say it of an option or a variable, not of a word by itself: gcloud auth list.
NOT_ALONE = _words("auth private cookie cookies community pat sig pin key-file")
#: Last words of names whose value only describes a secret or says where it lies: --key-size, --token-file.
DESCRIBING = _words("""
    size length len bits count limit number num type kind alg algo algorithm format file files path dir folder
    name names memory ttl timeout expiry expires url uri endpoint mode level method policy fd version
    fingerprint database usage column prompt
    """)
#: First words of names that end in "key" and are none: --sort-key.
ORDERING = _words("sort primary partition foreign group order public host hot")
#: Parameters of a URL's query, beside those that their name gives away.
PARAMETERS = _words("code key sig k st hash")
#: Values that tell nothing, whatever they are called.
PLAIN_VALUE = re.compile(
    r"\d{1,2}|true|false|yes|no|on|off|none|null|auto|always|never|stdin|-|"
    # A file, which is worth knowing: it has a folder and an ending.
    r"@?(?:file:)?[\w.~/-]*/[\w.-]+\.(?:pem|key|crt|cer|pub|json|ya?ml|toml|ini|conf|txt|env|p12|pfx|jks)",
    re.IGNORECASE,
)

#: Tokens that begin as nothing else does.
SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"gh[pousr]_\w{16,}|github_pat_\w{16,}|gl(?:pat|rt|dt|ptt|ft|soat|cbt|agent)-[\w-]{16,}|glsa_\w{16,}|"
    r"xox[a-z]-[\w-]{8,}|xapp-[\w-]{8,}|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}|FwoG[\w+/=]{8,}|"
    r"hf_\w{16,}|sk-[\w-]{16,}|pypi-[\w-]{16,}|npm_\w{16,}|AIza[\w-]{20,}|ya29\.[\w-]{8,}|GOCSPX-[\w-]{8,}|"
    r"(?:sk|rk|pk)_(?:live|test)_\w{8,}|whsec_\w{8,}|SG\.[\w-]{16,}\.[\w-]+|key-[0-9a-f]{32}|dop_v1_\w{8,}|"
    r"shp(?:at|ss|ca|pa)_\w{16,}|hv[sbr]\.[\w-]{8,}|s\.[A-Za-z0-9]{24}\b|dckr_pat_[\w-]{8,}|dapi[0-9a-f]{32}|"
    r"nvapi-[\w-]{16,}|r8_\w{16,}|gsk_\w{16,}|lin_api_\w{8,}|tskey-[\w-]{8,}|SWMTKN-[\w-]{8,}|AGE-SECRET-KEY-\w+|"
    r"eyJ[\w-]{17,}(?:\.[\w-]+){0,2}|eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?|MII[\w+/]{32,}={0,2})"
    r"|\$(?:1|2[abxy]|5|6|7|y|gy|argon2(?:id|i|d))\$\S+"
)
#: Where a web hook is called, whoever knows the path may call it.
HOOKS = ("://hooks.", "webhook")

#: Options that hold a secret in one program only.
OF_PROGRAM = _by_program(
    {
        "redis-cli http https xh hey": "-a",
        "openssl": "-k -K",
        "curl": "-b",
        "aws": "--value",
        "gh": "--body -b",
        "doctl influx codecov glab": "-t",
        "kadmin security": "-w",
        "ssh-keygen": "-N",
        "db2": "using",
        "rar": "-hp",
        "ab": "-A",
        "ldappasswd": "-w -s -a",
        "ldapsearch ldapadd ldapmodify ldapdelete ldapwhoami ldapcompare": "-w -y",
        "snmpget snmpwalk snmpset snmpbulkwalk snmpbulkget": "-A -X -c",
    }
)
#: Programs, and a subcommand, after which plain words are secrets; the number says how many come first.
POSITIONAL: dict[str, dict[str, int]] = {
    "htpasswd": {"": 1},
    "wpa_passphrase": {"": 1},
    "vncpasswd": {"": 0},
    "mkpasswd": {"": 0},
    "bw": {"unlock": 0, "login": 1},
    "isql": {"": 2},
    "openssl": {"passwd": 0},
    "ansible-vault": {"encrypt_string": 0},
    "rclone": {"obscure": 0},
    "rabbitmqctl": {"add_user": 1, "change_password": 1, "authenticate_user": 1},
    "samba-tool": {"create": 1, "add": 1},
    "consul": {"put": 1},
    "etcdctl": {"put": 1},
    "mc": {"set": 2},
    "keyctl": {"add": 2},
    "redis-cli": {"auth": 0, "AUTH": 0},
    "mysqladmin": {"password": 0},
    "nmcli": {"wifi-sec.psk": 0, "802-11-wireless-security.psk": 0, "vpn.secrets": 0},
}
#: Programs whose every NAME=VALUE is a secret.
ASSIGNING = _words("vault fly flyctl")
#: Programs that take a password after //host/share.
SHARING = _words("smbclient net")
#: Programs in which -p or -P, also with its value glued to it, is a password, even one of digits.
PASSWORD_P = _by_program(
    {
        "mysql mysqldump mysqladmin mysqlimport mysqlcheck mysqlshow mariadb mariadb-dump": "-p",
        "sshpass 7z 7za 7zr unrar rar twine": "-p",
        "zip unzip ipmitool sqlcmd bcp tsql": "-P",
    }
)
#: Programs in which they are something else.
OTHER_P = _words("""
    mkdir cp install rsync tar ssh scp sftp ps top htop gdb strace ltrace perf lsof taskset renice ionice chrt
    pgrep pmap nmap nc ncat grep egrep find wget mvn gradle cmake make gcc g++ cc c++ clang clang++ cc1 cc1plus
    ld ld.lld as xargs parallel patch vim nvim ffmpeg ffprobe sbatch srun salloc sinfo squeue psql pg_dump
    pg_restore createdb redis-cli tmux du df ls git nextflow java go bash sh netstat ss iperf3 screen cpio
    chroot kill prlimit pidstat py-spy
    """)
#: The same in a program that we do not know: 8080:80/tcp.
PORTS = re.compile(r"(?:[\d.]{7,15}:)?\d{1,5}(?:-\d{1,5})?:\d{1,5}(?:-\d{1,5})?(?:/tcp|/udp)?")
#: Long options with one dash, so that -port is not taken for the password "ort".
P_WORDS = _words("""
    port path print print0 prune perm pix_fmt preset profile progress pipe pthread pedantic plugin project
    prefix parallel pid pidfile proxy protocol params process period pattern partition position page pages
    package parent platform plot pool power pretty priority private-key prod properties provider pull push
    public pass passin passout pw pwd password passphrase passwd
    """)
#: Programs that start another one, which the words after them name.
WRAPPERS = _words("""
    sudo doas env nice nohup timeout time xargs exec ssh strace chroot setsid stdbuf ionice taskset srun mpirun
    sshpass watch su runuser flock parallel find docker podman kubectl busybox systemd-run unshare nsenter
    """)
#: Programs that are handed a shell's text, or their own, after -c.
SHELLS_OUT = _words("su runuser script flock sg expect")
#: Options whose value is name:password, name%password or name,password.
USER_OPTIONS = ("-u", "--user", "--proxy-user", "-U", "--login", "-E", "--cert")
