"""The ``devcluster-node`` command."""

import sys

from devcluster.node import options


def main() -> int:
    """Read the command line and run the agent; returns the exit code."""
    flags = options.Flags()
    chosen = flags.set.resolve(sys.argv[1:], flags.options)
    # Here and not above, so that --help and --version load neither asyncio nor clients.
    from devcluster.node import app

    return app.run(chosen)


if __name__ == "__main__":
    sys.exit(main())
