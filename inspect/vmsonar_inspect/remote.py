"""Object stores through pyarrow, so that DuckDB itself never goes on the network."""

import os
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vmsonar_archive.errors import UsageError, VmsonarError, missing_extra


def open_store(url: str) -> tuple[Any, str]:
    """The file system behind an s3:// address, and the path in it; credentials come from the environment."""
    try:
        from pyarrow import fs
    except ImportError:
        raise missing_extra("s3", "an object store") from None
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc:
        raise UsageError(f"{url} is not an address such as s3://bucket/prefix")
    settings: dict[str, Any] = {}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        settings = {"endpoint_override": urlsplit(endpoint).netloc, "scheme": urlsplit(endpoint).scheme}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        settings["region"] = region
    return fs.S3FileSystem(**settings), f"{parts.netloc}{parts.path}".rstrip("/")


def list_files(store: Any, prefix: str) -> list[str]:
    """The names of all files below a prefix, relative to it."""
    from pyarrow import fs

    try:
        found = store.get_file_info(fs.FileSelector(prefix, recursive=True, allow_not_found=True))
    except OSError as error:
        raise VmsonarError(f"cannot list s3://{prefix}: {' '.join(str(error).split())[:300]}") from None
    return sorted(info.path[len(prefix) + 1 :] for info in found if info.is_file)


def fingerprint(store: Any, path: str) -> str:
    """Changes whenever the object does."""
    info = store.get_file_info(path)
    return f"s3://{path}:{info.size}:{info.mtime_ns}"


def download(store: Any, path: str, target: Path) -> None:
    """Copies one object to a file."""
    try:
        with store.open_input_stream(path) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 4 * 1024 * 1024)
    except OSError as error:
        raise VmsonarError(f"cannot fetch s3://{path}: {' '.join(str(error).split())[:300]}") from None
