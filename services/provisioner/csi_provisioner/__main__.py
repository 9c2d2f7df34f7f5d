"""csi-provisioner: parse flags, run the app, nothing else."""

import gc
import os
import sys

import bitts
from bitts.core import beginning


def main() -> int:
    """Run the program; the return value is its exit code."""
    beginning.heed_signals()
    from csi_provisioner import names, options

    flags = options.Flags(bitts.__version__)
    chosen = flags.set.resolve(sys.argv[1:], lambda values: flags.options(values, os.environ))
    gc.disable()  # a tenth of the time to load: what modules make is no garbage
    # Only now: --version and --help must not wait for asyncio and the clients to load.
    from bitts.core import process

    from csi_provisioner import app

    return process.run(lambda running: app.main(running, chosen), names.PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
