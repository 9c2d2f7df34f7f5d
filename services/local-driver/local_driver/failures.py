"""What the system's errors mean to a CSI client. Pure.

An errno becomes a gRPC code once, here. CSI clients act on the code ("Error Scheme"): out of
space sends a claim to another node, anything unknown is retried.
"""

import errno

from bitts.rpc.codes import Code, RpcError

_CODES = {
    errno.ENOSPC: Code.RESOURCE_EXHAUSTED,
    errno.EDQUOT: Code.RESOURCE_EXHAUSTED,
    errno.EFBIG: Code.OUT_OF_RANGE,
    errno.ENAMETOOLONG: Code.INVALID_ARGUMENT,
    errno.EPERM: Code.FAILED_PRECONDITION,
    errno.EACCES: Code.FAILED_PRECONDITION,
    errno.EBUSY: Code.FAILED_PRECONDITION,
    errno.ENOTEMPTY: Code.FAILED_PRECONDITION,
    errno.EROFS: Code.FAILED_PRECONDITION,
}
_HINTS = {
    errno.EPERM: ": run the driver as root with CAP_SYS_ADMIN",
    errno.EACCES: ": run the driver as root with CAP_SYS_ADMIN",
    errno.EBUSY: ": a process still uses it",
    errno.EROFS: ": the disk has met errors, or was mounted so: see dmesg",
    errno.EFBIG: ": the node's file system cannot hold so large a file",
}


def rpc_error(error: OSError, subject: str) -> RpcError:
    """Return what a client is told of ``error``, which happened to ``subject``."""
    number = error.errno or 0
    code = _CODES.get(number, Code.INTERNAL)
    return RpcError(code, f"{subject}: {error}{_HINTS.get(number, '')}")
