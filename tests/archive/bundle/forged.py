"""Archives and bundles that are right in every hash, but whose identity is made to lead elsewhere."""

import json
from pathlib import Path

from vmsonar_archive.format.journal import GENESIS, Journal, Ledger

from tests.archive.bundle.hostile import ARCHIVE, canonical
from tests.making.bundles import make_archive


def forged_archive(root: Path, **fields: object) -> Path:
    """An archive of the product's own making, with other words in archive.json and a journal that vouches for them."""
    make_archive(root)
    path = root / "archive.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}) + "\n")
    entries = list(Ledger.of((root / "journal.jsonl").read_bytes().splitlines()).current.values())
    (root / "journal.jsonl").unlink()
    journal = Journal(root, lambda _point: None)
    for entry in entries:
        journal.append(entry)
    journal.close()
    return root


def forged_bundle(root: Path, **fields: object) -> Path:
    """The same as a bundle."""
    archive = forged_archive(root, **fields)
    small = ("archive.json", "journal.jsonl")
    segments = sorted(str(path.relative_to(archive)) for path in archive.rglob("*.zst"))
    payload = {name: (archive / name).read_bytes() for name in (*small, *segments)}
    head = Ledger.of(payload["journal.jsonl"].splitlines()).head
    assert head != GENESIS
    bundle = root.with_suffix(".tar")
    bundle.write_bytes(canonical(payload, head=head, archive=str(fields.get("archive", ARCHIVE))))
    return bundle
