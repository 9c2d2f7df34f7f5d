"""Starting and ending: what is missing is named, and the exit codes are upstream's."""

import asyncio
import subprocess

import pytest
from support import cluster as clusters
from support import processes, provisioning
from support.smalldriver import SmallDriver


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [processes.script("csi-provisioner"), *words]
    environ = {**processes.environment(), "KUBECONFIG": ""}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, env=environ
    )


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--version"], 0, ""),
        (["--help"], 0, "--intent-journal"),
        (["--no-such-flag"], 2, "unknown flag --no-such-flag"),
        (["--timeout=15"], 2, "--timeout"),
        (["--node-deployment", "--version"], 0, "csi-provisioner "),
        (["--version", "--no-such-flag"], 2, "unknown flag --no-such-flag"),
        (["--timeout=15", "--version"], 2, "--timeout"),
        (["--node-deployment"], 255, "--node-deployment is not supported by this version"),
        (["--enable-capacity"], 255, "NAMESPACE"),
        (["--csi-address=tcp://host:1"], 1, "--csi-address"),
        (["--http-endpoint=:1", "--metrics-address=:2"], 1, "--http-endpoint"),
        (["--logging-format=xml"], 1, "--logging-format"),
        (["--kubeconfig=/no/such/file"], 255, "/no/such/file"),
        ([], 255, "give --kubeconfig FILE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_exit_codes_and_what_is_said(words: list[str], code: int, text: str) -> None:
    done = run(*words)
    assert done.returncode == code, done.stderr
    assert text in done.stdout + done.stderr


def test_help_and_version_load_neither_asyncio_nor_clients() -> None:
    code = (
        "import sys; from csi_provisioner.__main__ import main; sys.argv[1:] = ['--version']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'asyncio', 'aiohttp', 'grpclib', 'kubernetes_asyncio', 'msgspec', 'logging'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    command = [str(processes.BIN / "python"), "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr


async def test_a_driver_without_a_name_or_ready_answer_is_named(cluster: clusters.Cluster) -> None:
    socket = cluster.directory / "csi.sock"
    async with SmallDriver(str(socket), ""):
        process = await cluster.start_provisioner(socket)
        assert await process.wait() == 255
        assert "GetPluginInfo returned no name" in process.output()


async def test_an_address_in_use_is_named(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        port = cluster.server.access.port
        process = await stand.launch(f"--http-endpoint=127.0.0.1:{port}")
        assert await process.wait() == 255
        assert f"cannot listen on --http-endpoint=127.0.0.1:{port}" in process.output()


async def test_a_driver_that_goes_away_ends_the_process_even_while_idle(
    cluster: clusters.Cluster,
) -> None:
    async with provisioning.stand(cluster) as stand:
        process = await stand.provisioner()
        stand.driver.process.kill()
        assert await process.wait() == 1
        assert "Lost connection to CSI driver, exiting" in process.output()


async def test_a_stop_during_start_up_is_quick(cluster: clusters.Cluster) -> None:
    process = await cluster.start_provisioner(cluster.directory / "nobody.sock")
    await process.wait_for_output('"Starting"')
    assert await process.stop() == 0


async def test_without_a_place_for_the_socket_it_works_and_says_what_is_missing(
    cluster: clusters.Cluster,
) -> None:
    async with provisioning.stand(cluster) as stand:
        in_the_way = stand.folder / "bitts-csi-provisioner.sock"
        await asyncio.to_thread(in_the_way.write_text, "a file")
        process = await stand.provisioner()
        assert "Introspection is off" in process.output()
        assert "set --introspection-socket to a path" in process.output()
        await stand.claim("data", await stand.make_class())
        await stand.bound("data")


async def test_a_socket_that_was_asked_for_and_cannot_be_is_an_error(
    cluster: clusters.Cluster,
) -> None:
    async with provisioning.stand(cluster) as stand:
        process = await stand.launch("--introspection-socket=/proc/nowhere/socket")
        assert await process.wait() == 1
        assert "--introspection-socket: cannot listen at /proc/nowhere" in process.output()


async def test_flags_that_charts_still_carry_are_warned_about(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        process = await stand.provisioner(
            "--provisioner=x", "--enable-leader-election", "--feature-gates=Topology=true"
        )
        log = process.output()
        assert "flag --provisioner no longer exists and is ignored" in log
        assert "feature gate Topology is generally available" in log
