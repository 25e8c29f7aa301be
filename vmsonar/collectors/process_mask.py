"""Masks in a command line what looks like a secret; better one word too many than one too few."""

import re

from vmsonar.collectors.process_interpreters import takes_program_text

MASK = "***"

_WORDS = (
    r"pass(?:word|wd|phrase|code)?|pwd|token|secrets?|credentials?|creds?|api[-_]?key|access[-_]?key|key|"
    r"auth(?:orization)?|bearer|cookie|session[-_]?id|signature|sig|private|sas|pin|otp|connection[-_]?string"
)
_LEFT = r"(?:(?<![A-Za-z0-9])|(?<=[a-z0-9])(?=[A-Z]))"
_RIGHT = r"(?:(?![A-Za-z])|(?<=[a-z])(?=[A-Z]))"

# A name that has such a word in it: --db-password, AWS_SECRET_ACCESS_KEY, dbPassword, PGPASSWORD.
_NAME = re.compile(
    rf"{_LEFT}(?i:{_WORDS}){_RIGHT}|(?i:passw(?:or)?d|passphrase|secret|token(?!s\b|ize|izer)|api_?key)"
)
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z0-9_.$\[\]-]+)(?P<mark>\s*[=:]\s*)(?P<value>.+)", re.DOTALL)
_URL_USER = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^/?#\s]*)@")
_URL_QUERY = re.compile(r"(?P<name>[?&;#][^=&\s]*)=(?P<value>[^&#\s]*)")
_SCHEME_TOKEN = re.compile(
    r"\b(?P<scheme>Bearer|Basic|Digest|Negotiate|Token)(?P<blank>[\s:]+)\S+", re.IGNORECASE
)
_SHAPES = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{8,}|A[KS]IA[A-Z0-9]{12,}|"
    r"hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|pypi-[\w-]{16,}|npm_[A-Za-z0-9]{16,}|AIza[\w-]{20,}|"
    r"eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?)"
)
_PEM = re.compile(r"-----BEGIN.*", re.DOTALL)
_USER_OPTIONS = ("-u", "--user", "--proxy-user", "-U", "--login")


def masked(args: list[str]) -> list[str]:
    """The arguments, with the values of secrets replaced."""
    program = args[0].rpartition("/")[2] if args else ""
    shown: list[str] = []
    hide_next = False
    for index, arg in enumerate(args):
        before = args[index - 1] if index else ""
        shown.append(MASK if hide_next else _masked_argument(arg, before))
        hide_next = _asks_for_secret(arg) or (index > 0 and takes_program_text(program, arg))
        hide_next = hide_next or (before != "" and shown[-1] == MASK and arg.lower() == "bearer")
    return shown


def _asks_for_secret(arg: str) -> bool:
    """Whether the argument after this one is a secret."""
    if arg in ("-p", "--pass", "--pw") or arg.lower().rstrip(":") in ("bearer", "basic", "token"):
        return True
    if not arg.startswith("-"):
        # `set password hunter2`, but not a file such as token.txt
        return bool(_NAME.fullmatch(arg)) or (arg.rstrip(":") != arg and bool(_NAME.search(arg)))
    return "=" not in arg and bool(_NAME.search(arg))


def _masked_argument(arg: str, before: str) -> str:
    if before in _USER_OPTIONS:
        return _without_password(arg)
    if " " in arg.strip():
        return _masked_sentence(arg)
    return _masked_word(arg)


def _masked_sentence(arg: str) -> str:
    """An argument that is itself a command line, a header or a title."""
    arg = _PEM.sub(MASK, arg)
    arg = _SCHEME_TOKEN.sub(rf"\g<scheme>\g<blank>{MASK}", arg)
    header = _ASSIGNMENT.fullmatch(arg)
    if header and _NAME.search(header["name"]):
        return f"{header['name']}{header['mark']}{MASK}"
    return " ".join(masked(["", *arg.split(" ")])[1:])


def _masked_word(arg: str) -> str:
    if re.fullmatch(r"-p\S+", arg):  # -pSECRET, but also -p80:80: nobody can tell
        return f"-p{MASK}"
    for option in _USER_OPTIONS:
        if arg.startswith((f"{option}=", option)) and ":" in arg and not arg.startswith("--user-"):
            return option + _without_password(arg[len(option) :])
    arg = _URL_USER.sub(_masked_url_user, _PEM.sub(MASK, arg))
    arg = _URL_QUERY.sub(_masked_parameter, arg)
    arg = _SHAPES.sub(MASK, _SCHEME_TOKEN.sub(rf"\g<scheme>\g<blank>{MASK}", arg))
    return _masked_assignment(arg)


def _masked_assignment(arg: str) -> str:
    match = _ASSIGNMENT.fullmatch(arg)
    if match is None or "://" in match["name"] + match["mark"] + match["value"][:2]:
        return arg
    if _NAME.search(match["name"]):
        return f"{match['name']}{match['mark']}{MASK}"
    return f"{match['name']}{match['mark']}{_masked_assignment(match['value'])}"


def _without_password(text: str) -> str:
    name, colon, password = text.partition(":")
    return f"{name}:{MASK}" if colon and password else _masked_word(text)


def _masked_url_user(match: re.Match[str]) -> str:
    name, colon, _ = match["user"].partition(":")
    # A token alone often stands where the user's name would.
    return f"{match['scheme']}{name if colon else MASK}{colon}{MASK if colon else ''}@"


def _masked_parameter(match: re.Match[str]) -> str:
    return f"{match['name']}={MASK if _NAME.search(match['name']) else match['value']}"
