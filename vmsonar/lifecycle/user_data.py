"""User-data for cloud-init: one part that installs, configures and starts vmsonar (cc_write_files, cc_runcmd)."""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from vmsonar_archive.errors import UsageError

from vmsonar.config_file import parse_config
from vmsonar.lifecycle.shipped import shipped
from vmsonar.lifecycle.target import parse_target

_SETUP = "/usr/local/sbin/vmsonar-setup"
#: What cloud-init itself does not check: a misspelt top-level key is silently ignored.
KNOWN_KEYS = {"write_files", "runcmd", "merge_how"}
#: What the reader of the document is told.
_REASONS = {
    "merge_how": "Lists of this part are appended to those of other parts; none takes another's place.",
    "write_files": "The configuration, and a script that can run again and again; both belong to root.",
    "runcmd": "Runs once per instance, late, in cloud-init's final stage; a failure is reported and the boot goes on.",
}
_MERGE = "list(append)+dict(recurse_array)+str()"


@dataclass(frozen=True, slots=True)
class Site:
    """What differs from site to site."""

    package: str = "vmsonar"
    #: A folder on the image that holds the wheels, for machines that reach no package index.
    wheels: str | None = None
    #: A single-file build, by its path on the image or its URL, and its SHA-256.
    single: tuple[str, str] | None = None
    config: dict[str, Any] = field(default_factory=dict)
    #: Options of `vmsonar install`.
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choices:
    """What the generator is asked for."""

    interval: str | None = None
    upload_url: str | None = None
    token_file: str | None = None
    notice: str | None = None
    cluster: str | None = None
    kafka: str | None = None
    docker: bool = False
    nvidia: bool = False


def config_for(choices: Choices) -> dict[str, Any]:
    """The configuration that says the same; refuses what could not work on the VM."""
    config: dict[str, Any] = {}
    if choices.interval is not None:
        config["interval"] = choices.interval
    save = {"to": choices.upload_url, "token_file": choices.token_file, "notice": choices.notice}
    if any(save.values()):
        config["save"] = {key: value for key, value in save.items() if value is not None}
    if choices.upload_url is not None:
        _check_target(choices.upload_url, choices.token_file)
    if choices.kafka is not None and choices.cluster is None:
        raise UsageError("--kafka needs --cluster: topics are named after it")
    if choices.kafka is not None:
        config["forward"] = {"cluster": choices.cluster, "brokers": choices.kafka.split(",")}
    elif choices.cluster is not None:
        config["forward"] = {"cluster": choices.cluster}
    return config


def _check_target(url: str, token_file: str | None) -> None:
    """A whole site shares this text: what takes one bundle of one VM cannot be meant."""
    target = parse_target(url, token_file)
    if not url.startswith("@") and not target.takes_many:
        raise UsageError(
            "--upload-url takes one bundle only, of one VM: put {node} and {time} into it, or give "
            "s3://bucket/prefix/, mint+https://… or a folder"
        )


def extras_for(choices: Choices, *, saves: bool) -> str:
    """What pip is to install beside the recorder."""
    needed = {
        "docker": choices.docker,
        "gpu": choices.nvidia,
        "kafka": choices.kafka is not None,
        "s3": (choices.upload_url or "").startswith("s3:"),
        "sign": saves,
    }
    names = [name for name, wanted in needed.items() if wanted]
    return f"[{','.join(names)}]" if names else ""


def with_extras(package: str, extras: str) -> str:
    """The requirement with extras; a path, a URL or one that has its own is left as it is."""
    return re.sub(r"^([A-Za-z0-9._-]+)(?=$|[<>=~!])", rf"\1{extras}", package)


def user_data(site: Site) -> str:
    """The part as text; refuses a configuration that the daemon would refuse."""
    content = yaml.safe_dump(site.config, sort_keys=False) if site.config else "# every key is optional\n"
    parse_config(content, "the configuration")
    document = {
        "merge_how": _MERGE,
        "write_files": [
            {"path": "/etc/vmsonar/config.yaml", "permissions": "0644", "content": content},
            {
                "path": _SETUP,
                "permissions": "0755",
                "content": shipped("setup.sh").read_text(encoding="utf-8"),
            },
        ],
        "runcmd": [_command(site)],
    }
    check(document)
    return "#cloud-config\n" + "".join(_part(key, document[key]) for key in document)


def _part(key: str, value: Any) -> str:
    """One top-level key, and why it is there."""
    text: str = yaml.dump({key: value}, Dumper=_Readable, sort_keys=False, width=110)
    return f"# {_REASONS[key]}\n{text}"


def _command(site: Site) -> list[str]:
    """A list, so that no shell looks at it; cloud-init reports a command that fails and goes on."""
    settings = [f"VMSONAR_PACKAGE={site.package}"]
    if site.wheels is not None:
        settings = [f"VMSONAR_WHEELS={site.wheels}"]
    if site.single is not None:
        settings = [f"VMSONAR_SINGLE={site.single[0]}", f"VMSONAR_SHA256={site.single[1]}"]
    return ["env", *settings, _SETUP, *site.options]


def single_file(url: str | None, sha256: str | None, wheels: str | None) -> tuple[str, str] | None:
    """The single-file build that is meant; refuses one that nobody could check."""
    if url is None:
        if sha256 is not None:
            raise UsageError("--sha256 is that of --single-file: give both")
        return None
    if wheels is not None:
        raise UsageError("--single-file and --wheels exclude each other: give one of them")
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
