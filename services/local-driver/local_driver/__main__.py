"""The ``local-driver`` command."""

import sys

from bitts.core import beginning


def main() -> int:
    """Read the command line and run the driver; returns the exit code."""
    beginning.heed_signals()
    from local_driver import options

    flags = options.Flags()
    chosen = flags.set.resolve(sys.argv[1:], flags.options)
    # Here and not above, so that --help and --version load neither asyncio nor gRPC.
    from local_driver import app

    return app.run(chosen)


if __name__ == "__main__":
    sys.exit(main())
