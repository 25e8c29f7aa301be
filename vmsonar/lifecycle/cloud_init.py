"""User-data for cloud-init: one part that installs, configures and starts vmsonar (cc_write_files, cc_runcmd)."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from vmsonar_archive.system.errors import UsageError, VmsonarError, reason_of

from vmsonar.config.file import parse_config
from vmsonar.lifecycle.install import shipped
from vmsonar.lifecycle.target import parse_target

_SETUP = "/usr/local/sbin/vmsonar-setup"
_REQUIREMENTS = "/etc/vmsonar/requirements.txt"
_ACCESS = "/etc/vmsonar/access.yaml"
_TLS = "/etc/systemd/system/vmsonar-serve.service.d/vmsonar-tls.conf"
_CERTIFICATE = "/etc/vmsonar/tls"
#: What cloud-init itself does not check: a misspelt top-level key is silently ignored.
KNOWN_KEYS = {"write_files", "runcmd", "merge_how"}
#: What the reader of the document is told.
_REASONS = {
    "merge_how": "Lists of this part are appended to those of other parts; none takes another's place.",
    "write_files": "The configuration, and a script that can run again and again; both belong to root.",
    "runcmd": "Runs once per instance, late, in cloud-init's final stage; a failure is reported and the boot goes on.",
}
_PINNED = re.compile(
    r"[A-Za-z0-9._-]+(?:\[[a-z0-9,-]+\])?==[A-Za-z0-9.!+_-]+(?:\s+--hash=sha256:[0-9a-f]{64})+"
)
_NO_SOURCE = (
    "say where vmsonar comes from: --wheels DIR (a folder on the image, by make wheelhouse), --single-file URL with "
    "--sha256 HEX (one file, by make single), or --index URL with --requirements FILE (an index of your own, and "
    "hashes). The name vmsonar in a public index is not ours"
)
_MERGE = "list(append)+dict(recurse_array)+str()"


@dataclass(frozen=True, slots=True)
class Site:
    """What a site gives its VMs: one place to install from, extras and a configuration."""

    #: A folder on the image that holds the wheels of `make wheelhouse`.
    wheels: str | None = None
    #: A single-file build, by its path on the image or its URL, and its SHA-256.
    single: tuple[str, str] | None = None
    #: A package index of the site's own, and versions with their hashes.
    index: tuple[str, str] | None = None
    #: What the wheels must hold beside the recorder.
    extras: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    #: Options of `vmsonar install`.
    options: tuple[str, ...] = ()
    #: Of a server, who may ask it, and what machines and people call it by.
    access: str | None = None
    serve_url: str | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """The options of `vmsonar cloud-init`."""

    interval: str | None = None
    upload_url: str | None = None
    token_file: str | None = None
    notice: str | None = None
    cluster: str | None = None
    kafka: str | None = None
    docker: bool = False
    nvidia: bool = False
    serve: bool = False


def config_for(choices: Choices) -> dict[str, Any]:
    """The configuration for these options; refuses what could not work on the VM."""
    if choices.upload_url is not None:
        target = parse_target(choices.upload_url, choices.token_file)
        # All VMs of a site share this text.
        if not choices.upload_url.startswith("@") and not target.takes_many:
            raise UsageError(
                "--upload-url takes one bundle only, of one VM: put {node} and {time} into it, or give "
                "s3://bucket/prefix/, mint+https://… or a folder"
            )
    if choices.kafka is not None and choices.cluster is None:
        raise UsageError("--kafka needs --cluster: topics are named after it")
    save = _given(to=choices.upload_url, token_file=choices.token_file, notice=choices.notice)
    brokers = None if choices.kafka is None else choices.kafka.split(",")
    forward = _given(cluster=choices.cluster, brokers=brokers)
    return _given(
        interval=choices.interval, save=save if any(save.values()) else None, forward=forward or None
    )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def extras_for(choices: Choices, *, saves: bool) -> tuple[str, ...]:
    """The extras that these options need."""
    needed = {
        "docker": choices.docker,
        "serve": choices.serve,
        "gpu": choices.nvidia,
        "kafka": choices.kafka is not None,
        "s3": (choices.upload_url or "").startswith("s3:"),
        "sign": saves,
    }
    return tuple(name for name, wanted in needed.items() if wanted)


def user_data(site: Site) -> str:
    """The part as text; refuses a configuration that the daemon would refuse."""
    content = yaml.safe_dump(site.config, sort_keys=False) if site.config else "# every key is optional\n"
    parse_config(content, "the configuration")
    script = shipped("setup.sh").read_text(encoding="utf-8")
    written = [("/etc/vmsonar/config.yaml", "0644", content), (_SETUP, "0755", script)]
    if site.index is not None:
        written.append((_REQUIREMENTS, "0644", site.index[1]))
    if site.access is not None:
        written.append((_ACCESS, "0644", site.access))
    if site.serve_url is not None:
        written.append((_TLS, "0644", _tls_drop_in(site.serve_url)))
    document: dict[str, Any] = {
        "merge_how": _MERGE,
        "write_files": [dict(zip(("path", "permissions", "content"), file, strict=True)) for file in written],
        "runcmd": [_command(site)],
    }
    check(document)
    text = "#cloud-config\n"
    if site.extras:
        # Nobody else can tell the builder of the wheels before the boot.
        wanted = ",".join(site.extras)
        text += f"# What is installed must hold these extras: make wheelhouse NODE_EXTRAS={wanted}\n"
    if "--serve" in site.options and site.access is None:
        text += f"# Nothing is served until {_ACCESS} says who may ask: give --access FILE, or put it on the image\n"
    if site.serve_url is not None:
        text += f"# Its certificate chain and key are not in here: {_CERTIFICATE}/cert.pem and key.pem, read as root\n"
    for key, value in document.items():
        part = yaml.dump({key: value}, Dumper=_Readable, sort_keys=False, width=110)
        text += f"# {_REASONS[key]}\n{part}"
    return text


def _tls_drop_in(url: str) -> str:
    """Has the server's unit listen beyond loopback; it has no right to a port below 1024."""
    found = re.fullmatch(r"https://[A-Za-z0-9.-]+:([0-9]{4,5})", url)
    if found is None or not 1024 <= int(found[1]) <= 65535:
        raise UsageError(f"--serve-url: {url!r} is not https://NAME:PORT with a port from 1024 on")
    start = re.search(
        r"(?m)^ExecStart=.+$", shipped("units/vmsonar-serve.service").read_text(encoding="utf-8")
    )
    assert start is not None
    place = "${CREDENTIALS_DIRECTORY}"
    return (
        f"[Service]\nLoadCredential=tls-cert:{_CERTIFICATE}/cert.pem\nLoadCredential=tls-key:{_CERTIFICATE}/key.pem\n"
        f"ExecStart=\n{start[0]} --listen 0.0.0.0:{found[1]} --url {url} "
        f"--tls-cert {place}/tls-cert --tls-key {place}/tls-key\n"
    )


def _command(site: Site) -> list[str]:
    """A list, so that no shell looks at it; cloud-init reports a command that fails and goes on."""
    settings: list[str] = []
    if site.wheels is not None:
        settings = [f"VMSONAR_WHEELS={site.wheels}"]
    if site.single is not None:
        settings = [f"VMSONAR_SINGLE={site.single[0]}", f"VMSONAR_SHA256={site.single[1]}"]
    if site.index is not None:
        settings = [f"VMSONAR_INDEX={site.index[0]}", f"VMSONAR_REQUIREMENTS={_REQUIREMENTS}"]
    if not settings:
        raise UsageError(_NO_SOURCE)
    return ["env", *settings, _SETUP, *site.options]


def own_index(url: str | None, requirements: Path | None) -> tuple[str, str] | None:
    """The package index and the pinned packages; refuses a line without a hash."""
    if url is None and requirements is None:
        return None
    if url is None or requirements is None:
        raise UsageError("--index and --requirements belong together: give both")
    if not re.fullmatch(r"https://[!-~]+", url):
        raise UsageError("--index: give the https:// URL of a package index that is yours")
    try:
        text = requirements.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise VmsonarError(f"cannot read {requirements}: {reason_of(error)}") from None
    lines = [line.strip() for line in text.replace("\\\n", " ").split("\n")]
    pinned = [line for line in lines if line and not line.startswith("#")]
    for line in pinned:
        if not _PINNED.fullmatch(line):
            raise UsageError(
                f"{requirements}: {line[:60]!r} is not NAME==VERSION --hash=sha256:HEX, as make wheelhouse writes"
            )
    if not any(line.startswith(("vmsonar==", "vmsonar[")) for line in pinned):
        raise UsageError(f"{requirements} does not name vmsonar==VERSION")
    return url, "".join(f"{line}\n" for line in pinned)


def single_file(url: str | None, sha256: str | None) -> tuple[str, str] | None:
    """The single-file build; refuses one without a hash."""
    if url is None:
        if sha256 is not None:
            raise UsageError("--sha256 is that of --single-file: give both")
        return None
    if not url.startswith(("/", "https://")):
        raise UsageError(f"--single-file: {url!r} is neither a full path nor https://")
    if sha256 is None or not re.fullmatch("[0-9a-f]{64}", sha256):
        raise UsageError("--single-file needs --sha256 with the 64 digits that sha256sum prints")
    return url, sha256


def check(document: dict[str, Any]) -> None:
    """Refuses keys that cloud-init would silently ignore."""
    unknown = set(document) - KNOWN_KEYS
    if unknown:
        raise UsageError(f"user-data: unknown key {', '.join(sorted(unknown))}")


class _Readable(yaml.SafeDumper):
    """Writes texts of several lines as blocks, as a person would."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _represent_text)
