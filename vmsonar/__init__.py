"""vmsonar: what runs on the node."""

__version__ = "0.1.0"
