"""The command line of ``bitts``. Everything heavy is imported by the command that needs it.

``--help`` and ``--version`` answer in a tenth of a second, because this module loads neither
asyncio nor a client.
"""

import enum
import pathlib
from typing import Annotated

import bitts
import typer

app = typer.Typer(
    help="Kubernetes storage sidecars on this machine: start them, see them work, end them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # rich help costs 150 ms of imports
    pretty_exceptions_enable=False,
)


class Backend(enum.StrEnum):
    """Where the driver keeps volumes."""

    DIRECTORY = "directory"
    IMAGE = "image"
    BTRFS = "btrfs"


class Chosen(enum.StrEnum):
    """On which backends the demo runs."""

    DIRECTORY = "directory"
    IMAGE = "image"
    BTRFS = "btrfs"
    ALL = "all"


class Store(enum.StrEnum):
    """Where the API server keeps objects."""

    MEMORY = "memory"
    SQLITE = "sqlite"


def _show_version(value: bool) -> None:  # noqa: FBT001  # the signature is typer's
    if value:
        typer.echo(f"bitts {bitts.__version__}")
        raise typer.Exit


Directory = Annotated[
    str, typer.Option("--dir", help="State folder; default: ~/.local/state/bitts/dev.")
]


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Kubernetes storage sidecars on this machine: start them, see them work, end them."""


@app.command(short_help="Start a cluster, a driver and the sidecars.")
def up(
    *,
    directory: Directory = "",
    nodes: Annotated[
        int, typer.Option(min=1, max=16, help="How many nodes; volumes are on the first.")
    ] = 1,
    backend: Annotated[
        Backend, typer.Option(help="Backend of classes that name none.")
    ] = Backend.DIRECTORY,
    store: Annotated[
        Store, typer.Option(help="sqlite outlives the stack, memory does not.")
    ] = Store.MEMORY,
    detach: Annotated[
        bool, typer.Option("--detach/--foreground", help="Return when ready, or stay.")
    ] = False,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="A full Kubernetes instead of the embedded API.")
    ] = False,
) -> None:
    """Start a cluster, a driver and the sidecars, each as a process of its own."""
    from bitts_console import commands  # heavy: loaded by the command, not by --help

    commands.up(
        directory,
        nodes=nodes,
        backend=backend,
        store=store,
        detach=detach,
        kind="kubernetes" if kubernetes else "embedded",
    )


@app.command(short_help="End them and remove what they left.")
def down(
    *,
    directory: Directory = "",
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove a sqlite cluster and its volumes too.")
    ] = False,
) -> None:
    """End a stack and remove what it left, however it ended."""
    from bitts_console import commands  # heavy: loaded by the command, not by --help

    commands.down(directory, purge=purge)


@app.command(short_help="See claims become volumes, checked to the last byte.")
def demo(
    *,
    use: Annotated[bool, typer.Option("--use", help="Use the stack of `bitts up`.")] = False,
    directory: Directory = "",
    manifests: Annotated[
        pathlib.Path | None, typer.Option(help="Folder with the manifests to apply.")
    ] = None,
    backend: Annotated[
        Chosen | None,
        typer.Option(help="Keep all claims there; all: one run for each that works here."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds to wait at most for each step.")
    ] = 60.0,
    network: Annotated[
        bool, typer.Option("--network", help="Containers on a network instead; needs root.")
    ] = False,
) -> None:
    """Claims become volumes, pods write and read them, all goes again; every step is checked."""
    from bitts_console import commands  # heavy: loaded by the command, not by --help

    if network:
        commands.network_demo()
        return
    commands.demo(directory, use=use, manifests=manifests, backend=backend or "", timeout=timeout)
