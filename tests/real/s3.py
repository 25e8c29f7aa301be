"""An S3 server on a loopback port (moto)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.parts import need


@dataclass(frozen=True)
class S3Server:
    """Where it listens, and credentials that it accepts."""

    endpoint: str
    access_key: str = "test-access-key"
    secret_key: str = "test-secret-key"
    region: str = "us-east-1"

    def client(self) -> Any:
        """A boto3 client of this server, which reads no configuration of the user's."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
        )

    def environment(self) -> dict[str, str]:
        """For a process that finds its credentials the usual way."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A running server for the whole session; use buckets of your own."""
    need("moto")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()
