"""Entry point of ``bitts`` and of ``python -m bitts_console``."""

from bitts_console import cli


def main() -> None:
    """Run the command line."""
    cli.app(prog_name="bitts")


if __name__ == "__main__":
    main()
