"""Masks in a command line what looks like a secret; better one word too many than one too few."""

import re

from vmsonar.collectors.process_interpreters import interpreter, takes_program_text

MASK = "***"

_WORDS = (
    r"pass(?:word|wd|phrase|code)?|pwd|token|secrets?|credentials?|creds?|api[-_]?key|access[-_]?key|key|"
    r"auth(?:orization)?|bearer|cookie|session[-_]?id|signature|sig|private|sas|pin|otp|connection[-_]?string|"
    r"from[-_]literal"
)
_LEFT = r"(?:(?<![A-Za-z0-9])|(?<=[a-z0-9])(?=[A-Z]))"
_RIGHT = r"(?:(?![A-Za-z])|(?<=[a-z])(?=[A-Z]))"

# A name that has such a word in it: --db-password, AWS_SECRET_ACCESS_KEY, dbPassword, PGPASSWORD, -storepass.
_NAME = re.compile(
    rf"{_LEFT}(?i:{_WORDS}){_RIGHT}|(?i:passw(?:or)?[dt]|passphrase|secret|token(?!s\b|ize|izer)|api_?key|"
    r"sessionid|(?<!by)(?<!com)pass(?![a-z]))"
)
_BARE_NAME = re.compile(r"[A-Za-z0-9_.-]+")
# Anywhere in a word: password=x, {"password":"x"}, a=b,password=x, AccountName=a;AccountKey=x, /password:x.
_ASSIGNMENT = re.compile(r"""(?P<name>(?<![\w.$\[\]-])[\w.$\[\]-]+)["']?\s*[=:]+\s*(?=[^\s=:])""")
_HEADER = re.compile(r"(?P<name>[\w.$\[\]-]+)(?P<mark>\s*[=:]\s*)(?P<value>.+)", re.DOTALL)
_URL_USER = re.compile(r"(?P<scheme>(?<![A-Za-z0-9+.-])[A-Za-z0-9+.-]+://)(?P<user>[^/?#\s]*)@")
_BARE_USER = re.compile(r"^(?P<user>(?:[^=/@:\s]*=)?[^/@:\s]+):[^/@\s]+@")
_URL_QUERY = re.compile(r"(?P<name>[?&;#][^=?&;#\s]*)=(?P<value>[^&#\s]*)")
_SCHEME_TOKEN = re.compile(
    r"\b(?P<scheme>Bearer|Basic|Digest|Negotiate|Token)(?P<blank>[\s:]+)\S+", re.IGNORECASE
)
_SHAPES = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{8,}|A[KS]IA[A-Z0-9]{12,}|"
    r"hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|pypi-[\w-]{16,}|npm_[A-Za-z0-9]{16,}|AIza[\w-]{20,}|"
    r"eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?)"
)
_PEM = re.compile(r"-----BEGIN.*", re.DOTALL)
_IDENTIFIED = re.compile(r"(?P<words>\bidentified\s+by\s+(?:password\s+)?).*", re.IGNORECASE | re.DOTALL)
_BLANKS = re.compile(r"(\s+)")
_USER_OPTIONS = ("-u", "--user", "--proxy-user", "-U", "--login")
_SECRET_OPTIONS = ("-p", "-P", "--pass", "--pw", "-pw")
_SECRET_WORDS = ("bearer", "basic", "token", "login")
#: Short options that hold a secret only in some programs.
_OF_PROGRAM = {
    "redis-cli": ("-a",),
    "openssl": ("-k", "-K"),
    **dict.fromkeys(
        ("ldapsearch", "ldapadd", "ldapmodify", "ldapdelete", "ldapwhoami", "ldappasswd"), ("-w",)
    ),
    **dict.fromkeys(("snmpget", "snmpwalk", "snmpset", "snmpbulkwalk"), ("-A", "-X", "-c")),
}
#: Programs that are handed another command line, or a shell's text, after -c.
_SHELLS_OUT = ("su", "runuser", "script", "flock", "sg")


def masked(args: list[str]) -> list[str]:
    """The arguments, with the values of secrets replaced."""
    shown: list[str] = []
    hide_next = False
    runner = ""
    own: tuple[str, ...] = ()
    for index, arg in enumerate(args):
        before = args[index - 1] if index else ""
        text = "" if hide_next or not index else _program_text(runner, arg)
        if hide_next:
            shown.append(MASK)
        else:
            shown.append(text or _masked_argument(arg, before))
        if hide_next and not arg.strip("=: "):
            continue  # `password = x`: the secret is still to come
        hide_next = _asks_for_secret(arg, index) or arg in own or _hands_over(runner, arg, index)
        name = arg.rpartition("/")[2]
        own = _OF_PROGRAM.get(name, own)
        if interpreter(name) is not None or name in _SHELLS_OUT:
            runner = name
    return shown


def _hands_over(runner: str, arg: str, index: int) -> bool:
    """Whether program text follows, be it of an interpreter that sudo, env or timeout started."""
    return index > 0 and (takes_program_text(runner, arg) or (runner in _SHELLS_OUT and arg == "-c"))


def _program_text(runner: str, arg: str) -> str:
    """The option alone, where program text is glued to it, such as perl -eTEXT or --eval=TEXT; else nothing."""
    known = interpreter(runner)
    if known is None or not takes_program_text(runner, arg.partition("=")[0]):
        return ""
    if arg.startswith("--"):
        return f"{arg.partition('=')[0]}={MASK}" if "=" in arg else ""
    end = min(place for place, letter in enumerate(arg) if place and f"-{letter}" in known.text) + 1
    # A shell takes its text from the next argument, whatever letters follow.
    return f"{arg[:end]}{MASK}" if arg[end:] and known is not interpreter("sh") else ""


def _asks_for_secret(arg: str, index: int) -> bool:
    """Whether the argument after this one is a secret."""
    if arg in _SECRET_OPTIONS or arg.lower().rstrip(":") in _SECRET_WORDS:
        return True
    if arg.rstrip(":") != arg:  # Password: or --header=Cookie:
        return bool(_NAME.search(arg))
    if not arg.startswith("-"):
        # `set password hunter2` and `aws_secret_access_key hunter2`, but not a file such as token.txt
        if index == 0 or "." in arg or not _BARE_NAME.fullmatch(arg):
            return bool(_NAME.fullmatch(arg))
        return bool(_NAME.search(arg))
    return "=" not in arg and bool(_NAME.search(arg))


def _masked_argument(arg: str, before: str) -> str:
    if before in _USER_OPTIONS:
        return _without_password(arg)
    if _BLANKS.search(arg.strip()):
        return _masked_sentence(arg)
    return _masked_word(arg)


def _masked_sentence(arg: str) -> str:
    """An argument that is itself a command line, a header or a title."""
    arg = _PEM.sub(MASK, arg)
    arg = _IDENTIFIED.sub(rf"\g<words>{MASK}", arg)
    arg = _SCHEME_TOKEN.sub(rf"\g<scheme>\g<blank>{MASK}", arg)
    header = _HEADER.fullmatch(arg)
    if header and _NAME.search(header["name"]):
        return f"{header['name']}{header['mark']}{MASK}"
    pieces = _BLANKS.split(arg)
    pieces[::2] = masked(["", *pieces[::2]])[1:]
    return "".join(pieces)


def _masked_word(arg: str) -> str:
    if re.fullmatch(r"-[pP]\S+", arg):  # -pSECRET, but also -p80:80: nobody can tell
        return f"{arg[:2]}{MASK}"
    for option in _USER_OPTIONS:
        if arg.startswith((f"{option}=", option)) and ":" in arg and not arg.startswith("--user-"):
            return option + _without_password(arg[len(option) :])
    arg = _URL_USER.sub(_masked_url_user, _PEM.sub(MASK, arg))
    arg = _URL_QUERY.sub(_masked_parameter, arg)
    arg = _BARE_USER.sub(rf"\g<user>:{MASK}@", arg)
    arg = _SHAPES.sub(MASK, _SCHEME_TOKEN.sub(rf"\g<scheme>\g<blank>{MASK}", arg))
    return _masked_assignment(arg)


def _masked_assignment(arg: str) -> str:
    """All that follows the first name of a secret: what separates it from the next name is anybody's choice."""
    for match in _ASSIGNMENT.finditer(arg):
        if _NAME.search(match["name"]) and not arg.startswith(MASK, match.end()):
            return arg[: match.end()] + MASK
    return arg


def _without_password(text: str) -> str:
    for mark in ":%,":  # curl, smbclient, lftp
        name, found, password = text.partition(mark)
        if found and password:
            return f"{name}{mark}{MASK}"
    return _masked_word(text)


def _masked_url_user(match: re.Match[str]) -> str:
    name, colon, _ = match["user"].partition(":")
    # A token alone often stands where the user's name would.
    return f"{match['scheme']}{name if colon else MASK}{colon}{MASK if colon else ''}@"


def _masked_parameter(match: re.Match[str]) -> str:
    return f"{match['name']}={MASK if _NAME.search(match['name']) else match['value']}"
