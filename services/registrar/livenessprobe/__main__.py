"""livenessprobe: parse flags, run the app, nothing else."""

import gc
import sys

import bitts
from bitts.core import beginning


def main() -> int:
    """Run the program; the return value is its exit code."""
    beginning.heed_signals()
    from livenessprobe import names, options

    flags = options.Flags(bitts.__version__)
    chosen = flags.set.resolve(sys.argv[1:], flags.options)
    gc.disable()  # a tenth of the time to load: what modules make is no garbage
    # Only now: --version and --help must not wait for asyncio and gRPC to load.
    from bitts.core import process

    from livenessprobe import app

    return process.run(
        lambda running: app.main(running, chosen),
        names.PROGRAM,
        use_uvloop=False,
        collections=process.OFTEN,
    )


if __name__ == "__main__":
    sys.exit(main())
