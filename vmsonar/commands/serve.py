"""`vmsonar serve`: a fleet's answers, dashboard and uploads over HTTP."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from vmsonar_archive.system.errors import Exit, UsageError
from vmsonar_archive.system.rights import write_as_owner

from vmsonar.commands.options import ConfigOption, flag, option, seconds_of
from vmsonar.commands.output import say
from vmsonar.config.file import load_config
from vmsonar.config.quantities import parse_size
from vmsonar.daemon.log import Log


def serve_command(
    fleet: Annotated[Path | None, option("DIR", "The fleet. [env: VMSONAR_FLEET]", "--fleet")] = None,
    config: ConfigOption = None,
    create: Annotated[bool, flag("--create", "Begin a fleet in the folder where there is none.")] = False,
    listen: Annotated[str, option("HOST:PORT", "Or the full path of a Unix socket.")] = "127.0.0.1:8060",
    access: Annotated[Path | None, option("FILE", "Tokens and roles, in YAML.")] = None,
    open_to_all: Annotated[
        bool, flag("--open", "Everybody may see everything: on a loopback address only.")
    ] = False,
    tls_cert: Annotated[
        Path | None, option("FILE", "Certificate chain in PEM; needed beyond loopback.")
    ] = None,
    tls_key: Annotated[Path | None, option("FILE", "Its key.")] = None,
    no_uploads: Annotated[bool, flag("--no-uploads", "Answer only, take nothing in.")] = False,
    url: Annotated[str | None, option("URL", "What machines call us by, for minted addresses.")] = None,
    shipping: Annotated[
        str | None,
        option(
            "DURATION",
            "How often machines ship, by default as each does: late after 1.5 times that, lost after 3.",
        ),
    ] = None,
    max_upload: Annotated[str, option("SIZE", "The largest bundle that is taken.")] = "2GiB",
    state: Annotated[Path | None, option("DIR", "Prepared answers, beside the fleet by default.")] = None,
    new_token: Annotated[
        str | None, option("NAME", "Print a new token and the line for --access, and end.")
    ] = None,
) -> int:
    """Serves a fleet: a read-only API, a dashboard, and the taking in of uploads; SIGHUP reads tokens again.

    Example: vmsonar serve --fleet /srv/fleet --open

    Example: vmsonar serve --listen 0.0.0.0:443 --access access.yaml --tls-cert cert.pem --tls-key key.pem

    Example: vmsonar serve --new-token anna
    """
    if new_token is not None:
        from vmsonar.fleet.serve.access import new_token as make_token

        token, kept = make_token()
        say(f"token: {token}\n".rstrip())
        say(f"  - {{name: {new_token}, sha256: {kept}, role: user, user: {new_token}}}")
        return Exit.OK
    from vmsonar.fleet.serve.access import Access, read_access
    from vmsonar.fleet.serve.server import Wishes, need_server, serve
    from vmsonar.fleet.store import fleet_place, open_fleet
    from vmsonar.host.listening import Address

    need_server()
    try:
        largest = parse_size(max_upload)
    except ValueError as error:
        raise UsageError(f"--max-upload: {error}") from None
    if url is not None and not url.startswith("https://"):
        raise UsageError("--url: machines send to https:// only")
    configured = load_config(config)
    wishes = Wishes(
        Address.parse(listen), Access() if access is None else read_access(access), access, configured.fleet, tls_cert,
        tls_key,
        open_to_all, not no_uploads, None if url is None else url.rstrip("/"),
        None if shipping is None else timedelta(seconds=seconds_of(shipping, "--shipping")),
        largest, state,
    )  # fmt: skip
    root = fleet_place(fleet, configured.fleet.place)
    write_as_owner(root)
    serve(open_fleet(root, create=create), wishes, Log(configured.log).info)
    return Exit.OK
