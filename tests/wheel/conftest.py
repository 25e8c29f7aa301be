"""The wheel is tested by `make wheel`, which installs one; without it there is nothing to collect."""

import os

collect_ignore = [] if "VMSONAR_WHEEL" in os.environ else ["test_wheel.py"]
