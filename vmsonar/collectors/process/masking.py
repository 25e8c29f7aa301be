"""Masks what looks like a secret in a command line; docs/jobs.md explains the rules."""

import re
from itertools import pairwise

from vmsonar.collectors.process import secrets as known
from vmsonar.collectors.process.interpreters import interpreter, takes_program_text

MASK = "***"
#: Characters of an argument that are examined, and how many at the cut are then hidden.
_LONGEST, _MARGIN = 8192, 1024

_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_BARE_NAME = re.compile(r"[A-Za-z0-9_.-]+")
# Anywhere in a word: password=x, {"password":"x"}, a=b,password=x, AccountName=a;AccountKey=x, auth('x'), <pin>x.
_ASSIGNMENT = re.compile(
    r"""(?P<name>(?<![\w.$\[\]-])[\w.$\[\]-]+)(?:\\*["'])?\s*(?:[=:]+>?|\(|(?<=[\w.-])>)\s*(?=[^\s=:])"""
)
_HEADER = re.compile(r"(?P<name>[\w.$\[\]-]+)(?P<mark>\s*[=:]\s*)(?P<value>.+)", re.DOTALL)
_URL_USER = re.compile(r"(?P<scheme>(?<![A-Za-z0-9+.-])[A-Za-z0-9+.-]+://)(?P<user>[^/?#\s]*)@")
# A slash in the password; but not https://host:8080/@name.
_URL_PASSWORD = re.compile(r"(?P<user>://[^:/?#\s@]{0,256}:)(?!\d{1,5}/)[^@\s]{1,256}@")
_BARE_USER = re.compile(
    r"^(?!mailto:)(?P<user>(?:[^=/@:\s]*=)?(?:[^/@:\s]+/)?[^/@:\s]+):[^/@\s]+@(?!sha\d+:)"
)
# sqlplus scott/tiger@db, but not actions/checkout@v4
_ORACLE = re.compile(
    r"(?P<user>(?:^|[=:])[^/@:=\s.]+/)[^/@\s]+@(?!v?\d[\w.-]*$|sha\d+:|(?:latest|main|master|next|beta|stable)$)(?=\S)"
)
_BOT = re.compile(r"(?<=/bot)\d{6,20}:[\w-]+")
_URL_QUERY = re.compile(r"(?P<mark>[?&;#])(?P<name>[^=?&;#\s]*)=(?P<value>[^&#\s]*)")
_SCHEME_TOKEN = re.compile(
    r"\b(?P<scheme>Bearer|Basic|Digest|Negotiate|Token)(?P<blank>[\s:]+)\S+", re.IGNORECASE
)
_SLASH_OPTION = re.compile(r"(?P<name>/g?p(?:w|wd|ass\w*)?:)\S+", re.IGNORECASE)
_ENDS_IN_USER = re.compile(r"-[A-Za-z]{1,16}[uU]")  # curl -sSu name:password
_PEM = re.compile(r"-----BEGIN.*", re.DOTALL)
_IDENTIFIED = re.compile(
    r"(?P<words>\bidentified\s+by\s+(?:password\s+)?|\bset\s+password\s[^=]{0,256}=\s*).*",
    re.IGNORECASE | re.DOTALL,
)
_MOUNT_USER = re.compile(r"(?P<user>\buser(?:name)?=[^,%\s]{1,256}%)[^,\s]+")
_MARKS = frozenset("=:(>")
_BLANKS = re.compile(r"(\s+)")
_OPTION = re.compile(r"--?[a-z][a-z-]*")
_SECRET_WORDS = ("bearer", "basic", "token", "login", "<<<")
_P_OPTIONS = ("-p", "-P", "--pass", "--pw", "-pw")

_LEAST = 20
_NO_WORD = 24
_RUN = re.compile(rf"[A-Za-z0-9_+/=-]{{{_LEAST},}}")
_SEGMENT = re.compile(rf"[A-Za-z0-9_=-]{{{_LEAST},}}")
_PIECES = re.compile(r"[A-Za-z0-9]+")
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
#: Where letters change to capitals or digits, or back.
_CHANGE = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[a-z0-9])|(?<=[0-9])(?=[A-Za-z])")


def masked(args: list[str], room: int) -> list[str]:
    """The arguments with secrets replaced, up to a limit of characters."""
    line = _Line()
    shown: list[str] = []
    for index, arg in enumerate(args):
        text = line.shown(index, arg[:_LONGEST])
        # What would have given away the end of a part lies behind the cut.
        shown.append(text if len(arg) <= _LONGEST else f"{text[:-_MARGIN]}…")
        room -= len(shown[-1]) + 1
        if room < 0:
            break
    return shown


class _Line:
    """Reads a command line from left to right and remembers what the next word is."""

    def __init__(self) -> None:
        self._before = ""
        #: The next word is a secret; only one that is no option, where a bare word said so.
        self._hide = False
        self._hide_plain = False
        #: The program whose options these are, and what runs program text.
        self._program = ""
        self._runner = ""
        self._own: frozenset[str] = frozenset()
        #: Plain words still to come before those that are secrets.
        self._positional: int | None = None

    def shown(self, index: int, arg: str) -> str:
        """One word as it may be recorded."""
        if index and (self._hide or (self._hide_plain and not _OPTION.fullmatch(arg))):
            text = arg if self._is_plain(arg) else MASK
            if arg.strip("=: "):  # else `password = x`: the secret is still to come
                self._hide = self._hide_plain = False
                self._expect(index, arg)
            return text
        text = self._program_text(arg) if index else ""
        if not text and index and self._is_positional(arg):
            text = MASK
        text = text or self._argument(arg, index)
        self._expect(index, arg)
        return text

    def _is_plain(self, arg: str) -> bool:
        """True for values that are no secret although they stand in the place of one: a file, yes, no, ports."""
        if self._before in self._own or self._hands_over(self._before):
            return False
        if self._before not in _P_OPTIONS:
            return bool(known.PLAIN_VALUE.fullmatch(arg))
        if self._before in known.PASSWORD_P.get(self._program, ()):
            return False
        return bool(known.PORTS.fullmatch(arg) or known.PLAIN_VALUE.fullmatch(arg))

    def _expect(self, index: int, arg: str) -> None:
        """What this word says about the next one."""
        self._find_program(index, arg)
        is_share = self._program in known.SHARING and arg.startswith(("//", "\\\\"))
        self._hide = arg in self._own or (index > 0 and (is_share or self._hands_over(arg)))
        if not self._hide:
            asks = self._asks_for_secret(arg, index)
            self._hide, self._hide_plain = asks and arg.startswith("-"), asks and not arg.startswith("-")
        self._before = arg

    def _find_program(self, index: int, arg: str) -> None:
        name = arg.rpartition("/")[2]
        begins = self._program in known.WRAPPERS or self._before in ("&&", "||", ";", "|", "--", "-exec")
        # Of the words after a wrapper only those that we know are taken for its program.
        if index == 0 or (begins and (name in known.OTHER_P or name in known.WRAPPERS)):
            self._program = name
        if name in known.OF_PROGRAM:
            self._own = known.OF_PROGRAM[name]
        if any(name in some for some in (known.PASSWORD_P, known.POSITIONAL, known.SHARING, known.ASSIGNING)):
            self._program = name
        if interpreter(name) is not None or name in known.SHELLS_OUT:
            self._runner = name
        skip = known.POSITIONAL.get(self._program, {})
        if arg in skip:
            self._positional = skip[arg]
        elif name == self._program and "" in skip and self._positional is None:
            self._positional = skip[""]

    def _is_positional(self, arg: str) -> bool:
        """Whether this plain word is a secret by its place."""
        if self._positional is None or arg.startswith("-"):
            return False
        self._positional -= 1
        return self._positional < 0

    def _hands_over(self, arg: str) -> bool:
        """Whether program text follows, be it of an interpreter that sudo, env or timeout started."""
        return takes_program_text(self._runner, arg) or (self._runner in known.SHELLS_OUT and arg == "-c")

    def _program_text(self, arg: str) -> str:
        """The option alone, where program text is glued to it, such as perl -eTEXT or --eval=TEXT; else nothing."""
        one = interpreter(self._runner)
        if one is None or not takes_program_text(self._runner, arg.partition("=")[0]):
            return ""
        if arg.startswith("--"):
            return f"{arg.partition('=')[0]}={MASK}" if "=" in arg else ""
        end = min(place for place, letter in enumerate(arg) if place and f"-{letter}" in one.text) + 1
        # A shell takes its text from the next argument, whatever letters follow.
        return f"{arg[:end]}{MASK}" if arg[end:] and one is not interpreter("sh") else ""

    def _asks_for_secret(self, arg: str, index: int) -> bool:
        """Whether the argument after this one is a secret."""
        if arg in _P_OPTIONS:
            return self._program not in known.OTHER_P or arg not in ("-p", "-P")
        if arg.lower().rstrip(":") in _SECRET_WORDS:
            return index > 0
        if arg.rstrip(":") != arg:  # Password: or --header=Cookie:
            return _is_secret(arg)
        if not arg.startswith("-"):
            # `set password hunter2` and `aws_secret_access_key hunter2`, but not a file such as token.txt
            alone = index > 0 and "." not in arg and arg not in known.NOT_ALONE
            return alone and self._positional is None and bool(_BARE_NAME.fullmatch(arg)) and _is_secret(arg)
        return "=" not in arg and _is_secret(arg)

    def _argument(self, arg: str, index: int) -> str:
        if self._before in known.USER_OPTIONS or (":" in arg and _ENDS_IN_USER.fullmatch(self._before)):
            return _without_password(arg)
        if index and self._is_glued_password(arg):
            return f"{arg[:2]}{MASK}"
        for option in self._own:
            # A word after one dash is an option of its own in openssl.
            if arg.startswith(option) and arg != option and arg[1:2] != "-" and self._program != "openssl":
                return f"{option}{MASK}"
        if index and self._program in known.ASSIGNING and "=" in arg:
            return f"{arg.partition('=')[0]}={MASK}"
        return _masked_word(arg) if len(arg.split(None, 1)) < 2 else _masked_sentence(arg)

    def _is_glued_password(self, arg: str) -> bool:
        """-pSECRET differs from -pVALUE only by the program, or by the form of a port."""
        if arg[:2] not in ("-p", "-P") or len(arg) <= 2 or self._program in known.OTHER_P:
            return False
        is_port = known.PORTS.fullmatch(arg[2:]) and self._program not in known.PASSWORD_P
        return not is_port and arg[1:].partition(":")[0] not in known.P_WORDS


def _is_secret(name: str) -> bool:
    """Whether a name is that of a secret."""
    words = [word.lower() for word in _NAME_WORD.findall(name)]
    if not words or (words[-1] in known.DESCRIBING and "webhook" not in words):
        return False
    if words[-1] == "key" and len(words) > 1 and words[-2] in known.ORDERING:
        return False
    return any(map(_is_secret_word, words)) or any(pair in known.PAIRS for pair in pairwise(words))


def _is_secret_word(word: str) -> bool:
    if word in known.INNOCENT:
        return False
    return word in known.WORDS or word.endswith(known.ENDS) or any(part in word for part in known.PARTS)


def _masked_sentence(arg: str) -> str:
    """An argument that is itself a command line, a header or a title."""
    arg = _PEM.sub(MASK, arg)
    arg = _IDENTIFIED.sub(rf"\g<words>{MASK}", arg)
    arg = _SCHEME_TOKEN.sub(rf"\g<scheme>\g<blank>{MASK}", arg)
    header = _HEADER.fullmatch(arg)
    if header and _is_secret(header["name"]):
        return f"{header['name']}{header['mark']}{MASK}"
    pieces = _BLANKS.split(arg)
    pieces[::2] = masked(["", *pieces[::2]], 2 * len(arg))[1:]
    return "".join(pieces)


def _masked_word(arg: str) -> str:
    if ":" in arg and arg.startswith(known.USER_OPTIONS) and not arg.startswith(("--user-", "--cert-")):
        option = next(option for option in known.USER_OPTIONS if arg.startswith(option))
        return option + _without_password(arg[len(option) :])
    # Most words hold none of the marks that a pattern needs.
    if arg.startswith("/"):
        arg = _SLASH_OPTION.sub(rf"\g<name>{MASK}", arg)
    if "://" in arg:
        arg = _masked_url(arg)
    if "=" in arg:
        arg = _URL_QUERY.sub(_masked_parameter, _MOUNT_USER.sub(rf"\g<user>{MASK}", arg))
    if "@" in arg:
        arg = _ORACLE.sub(rf"\g<user>{MASK}@", _BARE_USER.sub(rf"\g<user>:{MASK}@", arg))
    arg = known.SHAPES.sub(MASK, _PEM.sub(MASK, arg))
    if not _MARKS.isdisjoint(arg):
        arg = _masked_assignment(_SCHEME_TOKEN.sub(rf"\g<scheme>\g<blank>{MASK}", arg))
    return _RUN.sub(_masked_run, arg)


def _masked_url(arg: str) -> str:
    arg = _URL_PASSWORD.sub(rf"\g<user>{MASK}@", _URL_USER.sub(_masked_url_user, arg))
    path = arg.find("/", arg.index("://") + 3)
    if path >= 0 and any(hook in arg.lower() for hook in known.HOOKS):
        return f"{arg[: path + 1]}{MASK}"
    return _BOT.sub(MASK, arg)


def _masked_assignment(arg: str) -> str:
    """All that follows the first name of a secret: what separates it from the next name is anybody's choice."""
    for match in _ASSIGNMENT.finditer(arg):
        if _is_secret(match["name"]) and not arg.startswith(MASK, match.end()):
            if known.PLAIN_VALUE.fullmatch(arg, match.end()):
                continue
            return arg[: match.end()] + MASK
    return arg


def _masked_run(match: re.Match[str]) -> str:
    """A long random token; hexadecimal ones stay, since commits and containers are called so."""
    text = match[0]
    if text.count("/") + text.count("+") <= len(text) // 12 and not text.startswith("/"):
        # Base 64, whose marks may stand anywhere.
        return MASK if _is_random(text) else text
    return _SEGMENT.sub(lambda found: MASK if _is_random(found[0]) else found[0], text)


def _is_random(text: str) -> bool:
    """Whether enough of it changes between letters, capitals and digits as no word does."""
    return sum(len(piece) for piece in _PIECES.findall(text) if _changes_often(piece)) >= _LEAST


def _changes_often(piece: str) -> bool:
    if len(piece) < 3 or _HEX.fullmatch(piece):
        return False
    has_digits = any(map(str.isdigit, piece))
    is_mixed = any(map(str.islower, piece)) and any(map(str.isupper, piece))
    # NamesLikeThis change at every fourth letter or so, letters and digits by chance at two of five.
    least = 0.35 if has_digits and is_mixed else 0.3 if has_digits else 0.42
    changes = len(_CHANGE.findall(piece))
    if changes > least * (len(piece) - 1):
        return True
    # No word is that long: a few digits among letters of one case, or as few vowels as chance gives, and it is none.
    is_sprinkled = has_digits and not is_mixed and changes > len(piece) / 6
    return len(piece) >= _NO_WORD and (is_sprinkled or (not has_digits and _few_vowels(piece)))


def _few_vowels(piece: str) -> bool:
    """Capitals alone are left: so are proteins and genes written."""
    return not piece.isupper() and sum(letter in "aeiouyAEIOUY" for letter in piece) < 0.3 * len(piece)


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
    hidden = match["name"].lower() in known.PARAMETERS or _is_secret(match["name"])
    return f"{match['mark']}{match['name']}={MASK if hidden else match['value']}"
