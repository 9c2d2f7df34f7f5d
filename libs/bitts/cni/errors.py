"""What a plugin answers when it cannot do what is asked (specification, "Error").

One exception class, since callers decide by the code alone::

    CniError(Code.TRY_AGAIN_LATER, "daemon is restarting")

Codes 0–99 belong to the specification, 999 is what Go's plugins print for everything untyped.
containerd takes any text with "not found" for "already gone", so such words must not
appear in an error after which a retry is wanted.
"""

import enum

from bitts.cni import documents


class Code(enum.IntEnum):
    """Error codes of the specification; INVALID_NETNS and INTERNAL are Go's additions."""

    UNKNOWN = 0
    INCOMPATIBLE_VERSION = 1
    UNSUPPORTED_FIELD = 2
    UNKNOWN_CONTAINER = 3
    INVALID_ENVIRONMENT = 4
    IO_FAILURE = 5
    DECODING_FAILURE = 6
    INVALID_CONFIG = 7
    INVALID_NETNS = 8
    TRY_AGAIN_LATER = 11
    NOT_READY = 50
    LIMITED_CONNECTIVITY = 51
    INTERNAL = 999


class CniError(Exception):
    """The request fails with ``code``; ``message`` and ``details`` are for people."""

    def __init__(self, code: int, message: str, details: str = "") -> None:
        super().__init__(message)
        self.code = int(code)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        """Render as Go's callers do."""
        return f"{self.message}; {self.details}" if self.details else self.message


def encode(error: CniError, version: str = "") -> str:
    """Return the error object to print. ``version`` is added if known, as the text demands."""
    document: dict[str, object] = {"cniVersion": version} if version else {}
    document |= {"code": error.code, "msg": error.message}
    if error.details:
        document["details"] = error.details
    return documents.render(document)


def decode(text: bytes) -> CniError:
    """Read a plugin's error object; raises DocumentError when it is none."""
    fields = documents.Fields(documents.parse(text))
    return CniError(fields.integer("code", low=0), fields.text("msg"), fields.text("details"))
