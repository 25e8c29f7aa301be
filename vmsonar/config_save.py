"""The section `save` of the configuration."""

from typing import Annotated, Literal

from msgspec import Meta

from vmsonar.config_section import Section


class Save(Section, frozen=True):
    """Where `vmsonar teardown` brings what was recorded before the VM is gone."""

    to: Annotated[
        str | None,
        Meta(
            description="A folder, `s3://bucket/prefix/`, an `https://` URL that takes a PUT, `@FILE` with such a URL "
            "in it, or `mint+https://…`, an endpoint that gives a fresh one each time; `{archive}`, `{node}` and "
            "`{time}` are filled in, and a URL without `{time}` takes one bundle only. By default bundles stay in "
            "`waiting`."
        ),
    ] = None
    token_file: Annotated[
        str | None,
        Meta(
            description="For `mint+https://`: file with the token that the endpoint wants; a name without a slash "
            "is a systemd credential."
        ),
    ] = None
    sign: Annotated[
        str,
        Meta(
            description="An ed25519 key file, or the name of a systemd credential; `auto` is the credential "
            "`host-key` or the host's SSH key where it can be read, `none` does not sign."
        ),
    ] = "auto"
    waiting: Annotated[
        str, Meta(description="Where bundles wait that could not be sent; they go out at the next chance.")
    ] = "/var/lib/vmsonar-bundles"
    notice: Annotated[
        Literal["none", "aws", "gcp", "azure"],
        Meta(
            description="Whose metadata service is asked, every 5 s, whether this VM is about to be taken away."
        ),
    ] = "none"
