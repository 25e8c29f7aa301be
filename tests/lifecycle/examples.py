"""The repository's tool that writes the examples in cloud-init/, for tests of what it writes."""

from runpy import run_path

from vmsonar.lifecycle.install import shipped

_tool = run_path(str(shipped("examples.py")))
VARIANTS = _tool["VARIANTS"]
render = _tool["render"]
