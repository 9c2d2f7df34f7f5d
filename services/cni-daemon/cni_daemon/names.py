"""Strings that others see: names of rule sets, marks by which we know what is ours, paths."""

PROGRAM = "cni-daemon"

TABLE = "bitts_cni"
"""Name of our nftables tables, in every family."""

ALIAS = "bitts-cni "
"""How aliases of our host links begin; the rest says whose they are. Only such are swept."""

FIRST_INDEX = 1 << 20
"""Host links that we make have indexes from this on; the kernel itself counts from 1."""

HAIRPIN_MARK = 13
"""The bit of packet marks that says: a published port was asked for (the reference's default)."""

ALLOWED_MARK = 12
"""The bit of packet marks that says: forwarding was allowed by the firewall plugin."""

SHARED_SETS = ("closed_bridges", "within_bridges", "isolated_bridges")
"""Sets that describe the node, not an attachment: their elements stay."""

CHAIN_TYPE = "bitts"
"""The plugin type that runs the plugins listed in its own configuration as one."""

SOCKET = "/run/bitts/cni.sock"
STATE_DIRECTORY = "/var/lib/bitts/cni-daemon"
PLUGIN_DIRECTORY = "/opt/cni/bin"
SPARES = "spares"
"""Folder below the state directory for files of addresses that were given back."""

INTENTS = "intents"
"""Folder below the state directory where the shim leaves DELs while the daemon is away."""
