"""How long the path of a unix socket may be."""

MAXIMUM = 107
"""Bytes in a unix socket's path: Linux has 108 with the final zero (unix(7))."""


def check(path: str) -> None:
    """Raise ValueError if the kernel takes no socket path of this length."""
    size = len(path.encode())
    if size > MAXIMUM:
        text = f"socket path {path!r} has {size} bytes, Linux allows {MAXIMUM}"
        raise ValueError(f"{text}: use a shorter folder name")
