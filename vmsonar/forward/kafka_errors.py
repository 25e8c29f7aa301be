"""What librdkafka's errors mean for us, and how they are told in one line."""

import re
import socket
import ssl
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Login:
    """Who logs in where, for the words of an error; no secrets."""

    brokers: str
    username: str | None = None
    ca_file: str | None = None


# What librdkafka puts around the cause: who met it, and how long that took.
_AROUND = re.compile(
    r"^(?:[a-z_]+://)?[^ ]*/(?:bootstrap|\d+): |\s*\(after \d+ms in state [A-Z_]+[^)]*\)"
    r"|SSL handshake failed: |error:[0-9A-F]+:SSL routines:[^:]*:|: broker certificate could not be verified.*"
)

# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_OTHER_HOST = (62, 64)


def gist(said: str) -> str:
    """The cause alone."""
    return _AROUND.sub("", said)


def why_untrusted(login: Login) -> ssl.SSLCertVerificationError | None:
    """Asks the first broker once more, because librdkafka does not tell what is wrong with a certificate."""
    host, _, port = login.brokers.split(",")[0].rpartition(":")
    host = host.strip("[]")
    try:
        context = ssl.create_default_context(cafile=login.ca_file)
        with socket.create_connection((host, int(port)), timeout=5) as plain:
            context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return error
    except (OSError, ValueError):
        return None
    return None


def not_taken(error: Any, codes: Any) -> bool:
    """This one message is at fault."""
    return error.code() in (
        codes.MSG_SIZE_TOO_LARGE,
        codes.RECORD_LIST_TOO_LARGE,
        codes.INVALID_MSG,
        codes.INVALID_RECORD,
        codes.POLICY_VIOLATION,
    )


def is_refusal(error: Any, codes: Any) -> bool:
    """Trying again will not help."""
    if error.code() == codes._SSL:
        return "certificate" in error.str().lower()
    return error.code() in (
        codes._AUTHENTICATION,
        codes.SASL_AUTHENTICATION_FAILED,
        codes.UNSUPPORTED_SASL_MECHANISM,
        codes.TOPIC_AUTHORIZATION_FAILED,
        codes.CLUSTER_AUTHORIZATION_FAILED,
        codes.UNKNOWN_TOPIC_OR_PART,
        codes._UNKNOWN_TOPIC,
        codes.TOPIC_EXCEPTION,
    )


def refusal(error: Any, login: Login, codes: Any, topic: str = "") -> str:
    """What, where, and what to do."""
    code, said = error.code(), gist(error.str())
    who = f"user {login.username}" if login.username else "this client"
    if code in (codes._AUTHENTICATION, codes.SASL_AUTHENTICATION_FAILED, codes.UNSUPPORTED_SASL_MECHANISM):
        return f"{login.brokers} refuses the login of {who} ({said}): check forward.auth, username and password_file"
    if code == codes._SSL:
        reason = why_untrusted(login)
        if reason is not None and reason.verify_code in _OTHER_HOST:
            said = reason.verify_message
            return f"the certificate of {login.brokers} is for another host ({said}): check forward.brokers"
        said = reason.verify_message if reason else said
        return f"the certificate of {login.brokers} is not trusted ({said}): check forward.tls.ca_file"
    if code in (codes.TOPIC_AUTHORIZATION_FAILED, codes.CLUSTER_AUTHORIZATION_FAILED):
        return f"{login.brokers} does not let {who} write topic {topic}: check forward.cluster and the broker's ACLs"
    if code in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC):
        return (
            f"{login.brokers} has no topic {topic} and does not make it: create it, or check forward.cluster"
        )
    return f"{login.brokers}: {said}"
