"""Writes the examples in cloud-init/, for `make docs`: each is what `vmsonar cloud-init` prints for its options."""

import contextlib
import io
import sys
from pathlib import Path

from vmsonar.cli import run

_WHEELS = ("--wheels", "/opt/vmsonar-wheels")

#: Each file and the command line that prints it.
VARIANTS: dict[str, tuple[str, ...]] = {
    "vmsonar.yaml": _WHEELS,
    "variants/docker.yaml": (
        *_WHEELS,
        "--docker",
    ),
    "variants/nvidia.yaml": (
        *_WHEELS,
        "--nvidia",
    ),
    "variants/kafka.yaml": (*_WHEELS, "--cluster", "example", "--kafka", "broker.example.org:9093"),
    "variants/upload.yaml": (*_WHEELS, "--upload-url", "s3://example-bucket/vms/{node}/"),
    "variants/spot.yaml": (*_WHEELS, "--upload-url", "s3://example-bucket/vms/{node}/", "--notice", "aws"),
    "variants/offline.yaml": (*_WHEELS, "--save"),
    "variants/single-file.yaml": (
        "--single-file",
        "https://files.example.org/vmsonar.pyz",
        "--sha256",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "--save",
    ),
    "variants/mint.yaml": (
        *_WHEELS,
        "--upload-url",
        "mint+https://urls.example.org/vmsonar",
        "--token-file",
        "/etc/vmsonar/mint-token",
    ),
    "variants/serve.yaml": (*_WHEELS, "--serve", "--serve-url", "https://fleet.example.org:8443"),
    "variants/one-shot.yaml": (*_WHEELS, "--one-shot", "--process-io"),
}


def render(options: tuple[str, ...]) -> str:
    """The user-data for a command line."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = run(["cloud-init", *options])
    assert code == 0, options
    first, rest = output.getvalue().split("\n", 1)
    return f"{first}\n# vmsonar cloud-init{''.join(f' {word}' for word in options)}\n{rest}"


def main(folder: Path) -> None:
    """Writes all of them below a folder."""
    for name, options in VARIANTS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(render(options))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
