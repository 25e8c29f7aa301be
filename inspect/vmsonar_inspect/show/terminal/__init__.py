"""Views for the terminal, drawn with rich.

Comes in: answers. Goes out: renderables that fit the width by dropping columns, never by wrapping.
"""

__all__ = ["lists", "reel", "screen", "top", "views"]
