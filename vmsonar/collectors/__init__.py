"""The collectors, one file each; the list of them is in registry.py."""
