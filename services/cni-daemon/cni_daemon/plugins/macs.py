"""The MAC address that was asked for (pure): the later source wins."""

from bitts.cni import args
from bitts.cni.config import PluginConfig
from bitts.cni.errors import CniError, Code
from bitts.net import links

from cni_daemon.model import Call

_SIZE = 6


def requested_mac(config: PluginConfig, call: Call) -> str:
    """Return CNI_ARGS' MAC, else that of ``args.cni``, else the runtime's; empty for none."""
    try:
        known = args.parse(call.invocation.args, {"MAC"})
    except ValueError as error:
        raise CniError(Code.INTERNAL, str(error)) from None
    found = known.get("MAC", "")
    found = config.fields.nested("args").nested("cni").text("mac") or found
    found = config.fields.nested("runtimeConfig").text("mac") or found
    return normal(found)


def normal(text: str) -> str:
    """Return a MAC address in its usual form, empty for none. Raises CniError for any other."""
    if not text:
        return ""
    try:
        packed = links.mac_bytes(text)
    except ValueError:
        packed = b""
    if len(packed) != _SIZE:
        raise CniError(Code.INTERNAL, f"address {text}: invalid MAC address")
    return links.mac_text(packed)
