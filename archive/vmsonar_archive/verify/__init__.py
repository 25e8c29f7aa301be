"""Proves an archive or a bundle whole and unaltered, and saves what is readable of a damaged one.

Comes in: a path, perhaps hostile. Goes out: a report of findings, within bounded memory. Imports everything below,
nothing of bundle.
"""

__all__ = ["archive", "bundle", "path", "recover", "signature"]
