"""csi-node-driver-registrar: parse flags, run the app, nothing else."""

import gc
import sys

import bitts
from bitts.core import beginning


def main() -> int:
    """Run the program; the return value is its exit code."""
    beginning.heed_signals()
    from node_driver_registrar import names, options

    flags = options.Flags(bitts.__version__)
    chosen = flags.set.resolve(sys.argv[1:], flags.options)
    if chosen.is_probe:
        return 0  # since upstream's 2.9 there is nothing to look at; old manifests still ask
    gc.disable()  # a tenth of the time to load: what modules make is no garbage
    # Only now: --version, --help and the probe must not wait for asyncio and gRPC to load.
    from bitts.core import process

    from node_driver_registrar import app

    return process.run(
        lambda running: app.main(running, chosen),
        names.PROGRAM,
        use_uvloop=False,
        collections=process.OFTEN,
    )


if __name__ == "__main__":
    sys.exit(main())
