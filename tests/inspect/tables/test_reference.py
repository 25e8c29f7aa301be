"""The generated pages are the ones that are checked in."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_the_generated_pages_are_fresh(tmp_path: Path) -> None:
    subprocess.run([sys.executable, DOCS / "reference.py", tmp_path], check=True, timeout=60)
    made = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")]
    assert {"tables.md", "answers.md", "metrics.md", "grafana/vmsonar-node.json"} <= set(map(str, made))
    for name in made:
        assert (DOCS / name).read_text() == (tmp_path / name).read_text(), "run: make docs"
