"""Bundles: an archive as a BagIt bag in one canonical tar file, written, read and checked without unpacking."""
