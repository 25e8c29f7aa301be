"""The S3 fixture works: an object goes in by a presigned URL and comes out by the client."""

import urllib.request

from tests.parts import requires
from tests.real.s3 import S3Server


@requires("moto")
def test_an_object_goes_in_and_comes_out(s3_server: S3Server) -> None:
    client = s3_server.client()
    client.create_bucket(Bucket="smoke")
    url = client.generate_presigned_url("put_object", Params={"Bucket": "smoke", "Key": "a/b"})
    request = urllib.request.Request(url, b"payload", {"Content-Type": "application/x-tar"}, method="PUT")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200
    with client.get_object(Bucket="smoke", Key="a/b")["Body"] as body:
        assert body.read() == b"payload"
