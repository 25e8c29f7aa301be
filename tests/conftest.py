"""What every test may use: the mark `requires` and the real parts as fixtures."""

from tests.parts import pytest_configure, pytest_runtest_setup
from tests.real.kafka import kafka_broker

__all__ = [
    "kafka_broker",
    "pytest_configure",
    "pytest_runtest_setup",
]
