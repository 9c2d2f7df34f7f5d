"""Addresses of unix sockets as Kubernetes components write them."""

MAXIMUM_PATH = 107
"""Bytes in a unix socket's path: Linux has 108 with the final zero (unix(7))."""


def socket_path(address: str) -> str:
    """Return the path in an address: ``/path``, ``unix:///path`` or ``unix:path``.

    Raises ValueError that quotes the address and says what is accepted.
    """
    path = address
    if address.startswith("unix://"):
        path = address.removeprefix("unix://")
    elif address.startswith("unix:"):
        path = address.removeprefix("unix:")
    elif not address.startswith("/"):
        raise ValueError(
            f"address {address!r} is not a unix socket: write /path/to.sock or unix:///path/to.sock"
        )
    if not path:
        raise ValueError(f"address {address!r} has no path: write unix:///path/to.sock")
    check_length(path)
    return path


def check_length(path: str) -> None:
    """Raise ValueError if the kernel takes no socket path of this length."""
    size = len(path.encode())
    if size > MAXIMUM_PATH:
        text = f"socket path {path!r} has {size} bytes, Linux allows {MAXIMUM_PATH}"
        raise ValueError(f"{text}: use a shorter folder name")
