"""The ``cni-daemon`` command: serve, or ``install`` and ``uninstall`` the shim."""

import sys

from bitts.core import beginning


def main() -> int:
    """Read the command line and do what it says; returns the exit code."""
    beginning.heed_signals()
    if sys.argv[1:2] in (["install"], ["uninstall"]):
        from cni_daemon import installing  # each half loads only what it needs

        return installing.run(sys.argv[1], sys.argv[2:])
    from cni_daemon import options

    chosen = options.Flags().resolve(sys.argv[1:])
    # Here and not above, so that --help and --version load neither asyncio nor gRPC.
    from cni_daemon import app

    return app.run(chosen)


if __name__ == "__main__":
    sys.exit(main())
