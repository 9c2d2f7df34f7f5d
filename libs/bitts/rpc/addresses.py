"""Addresses as Kubernetes components write them: of unix sockets, and of hosts with a port."""

from bitts.core import socketpaths


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
    socketpaths.check(path)
    return path


def host_port(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[ipv6]:port``; the host may be empty.

    Raises ValueError that quotes the address and says what is accepted.
    """
    host, colon, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if is_bracketed:
        host = host[1:-1]
    is_number = port.isascii() and port.isdecimal() and int(port) < 1 << 16
    if not colon or not is_number or (":" in host) is not is_bracketed:
        raise ValueError(f"address {address!r}: write host:port, or [address]:port for IPv6")
    return host, int(port)
