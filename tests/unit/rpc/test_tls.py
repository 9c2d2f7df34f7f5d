"""Both ends of mutual TLS: who is let in, who is turned away, and certificates that change."""

import asyncio
import contextlib
import pathlib
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from bitts.rpc import channel, codes, endpoints, listeners, server, tls
from support import pki, rpcs, waiting

SERVER, CLIENT = "node-1.nodes.example", "controller.example"


@dataclass(frozen=True)
class Kit:
    """Every certificate that the tests show, of one authority and of a foreign one."""

    server: tls.Files
    client: tls.Files
    other_node: tls.Files
    nameless: tls.Files
    server_only: tls.Files
    foreign_server: tls.Files
    foreign_client: tls.Files


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    authority = pki.Authority(tmp_path_factory.mktemp("pki"))
    foreign = pki.Authority(tmp_path_factory.mktemp("foreign"))
    return Kit(
        server=authority.issue(SERVER),
        client=authority.issue(CLIENT),
        other_node=authority.issue("node-2.nodes.example", "*.nodes.example"),
        nameless=authority.issue(),
        server_only=authority.issue(CLIENT, file="server-only", client=False),
        foreign_server=foreign.issue(SERVER),
        foreign_client=foreign.issue(CLIENT),
    )


@contextlib.asynccontextmanager
async def serving(
    files: tls.Files, sample: rpcs.Sample, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """Serve the sample at a free port and return that."""
    place = listeners.TlsListener(host, 0, tls.Credentials(files), CLIENT)
    running = server.Server([sample], place)
    await running.start()
    try:
        yield int(running.socket_path.rpartition(":")[2])
    finally:
        await running.stop(grace=0.0)


@contextlib.asynccontextmanager
async def calling(
    port: int, files: tls.Files, host: str = "127.0.0.1"
) -> AsyncIterator[channel.Channel]:
    place = endpoints.TlsEndpoint(host, port, tls.Credentials(files), SERVER)
    opened = channel.Channel(place)
    try:
        yield opened
    finally:
        await opened.close()


async def echo(opened: channel.Channel, text: str = "hello") -> str:
    reply = await opened.unary(f"{rpcs.PREFIX}Echo", rpcs.Text(text), rpcs.Text, timeout=10)
    return reply.text


async def refusal(opened: channel.Channel) -> str:
    """Call, and return why that is not possible."""
    with pytest.raises(codes.RpcError) as caught:
        await echo(opened)
    assert caught.value.code is codes.Code.UNAVAILABLE
    return caught.value.message


async def test_the_two_that_are_meant_talk_to_each_other(kit: Kit, sample: rpcs.Sample) -> None:
    async with serving(kit.server, sample) as port, calling(port, kit.client) as opened:
        long = "x" * 300_000
        assert await asyncio.gather(*(echo(opened, f"{n}{long}") for n in range(5))) == [
            f"{n}{long}" for n in range(5)
        ]


async def test_without_a_host_every_address_is_listened_at(kit: Kit, sample: rpcs.Sample) -> None:
    hosts = ["127.0.0.1", *(["::1"] if socket.has_dualstack_ipv6() else [])]
    async with serving(kit.server, sample, "") as port:
        for host in hosts:
            async with calling(port, kit.client, host) as opened:
                assert await echo(opened) == "hello"


async def test_an_address_that_is_not_here_is_refused(kit: Kit, sample: rpcs.Sample) -> None:
    with pytest.raises(OSError, match="assign"):
        async with serving(kit.server, sample, "192.0.2.77"):
            pass


async def test_another_node_cannot_answer(kit: Kit, sample: rpcs.Sample) -> None:
    async with serving(kit.other_node, sample) as port, calling(port, kit.client) as opened:
        text = await refusal(opened)
    assert text.endswith(f"*.nodes.example, node-2.nodes.example, not for {SERVER}")


@pytest.mark.parametrize("shown", ["other_node", "nameless"])
async def test_a_client_with_another_name_is_not_heard(
    shown: str, kit: Kit, sample: rpcs.Sample
) -> None:
    async with serving(kit.server, sample) as port:
        async with calling(port, getattr(kit, shown)) as opened:
            await refusal(opened)
        async with calling(port, kit.client) as opened:
            assert await echo(opened) == "hello"


async def test_certificates_of_another_authority_are_refused_at_either_end(
    kit: Kit, sample: rpcs.Sample
) -> None:
    async with serving(kit.server, sample) as port:
        async with calling(port, kit.foreign_client) as opened:
            assert "CERTIFICATE_VERIFY_FAILED" in await refusal(opened)
        mixed = tls.Files(
            kit.foreign_client.certificate, kit.foreign_client.key, kit.client.authority
        )
        async with calling(port, mixed) as opened:
            await refusal(opened)


def vars_of(files: tls.Files) -> tuple[str, str, str]:
    return files.certificate, files.key, files.authority


async def test_a_certificate_for_servers_alone_does_not_make_a_client(
    kit: Kit, sample: rpcs.Sample
) -> None:
    async with serving(kit.server, sample) as port, calling(port, kit.server_only) as opened:
        await refusal(opened)


async def test_who_speaks_no_tls_or_an_older_one_is_turned_away(
    kit: Kit, sample: rpcs.Sample
) -> None:
    async with serving(kit.server, sample) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        await asyncio.wait_for(reader.read(), 10)  # an alert at most, then the end
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        old = await asyncio.to_thread(old_context, kit.client)
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=old)
        async with calling(port, kit.client) as opened:
            assert await echo(opened) == "hello"


def old_context(files: tls.Files) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    made.load_verify_locations(files.authority)
    made.load_cert_chain(files.certificate, files.key)
    return made


async def test_a_silent_client_keeps_nobody_else_waiting(kit: Kit, sample: rpcs.Sample) -> None:
    async with serving(kit.server, sample) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        async with calling(port, kit.client) as opened:
            assert await echo(opened) == "hello"
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_renewed_certificates_are_used_from_the_next_connection_on(
    kit: Kit, sample: rpcs.Sample, tmp_path: pathlib.Path
) -> None:
    at_server = await asyncio.to_thread(copied, kit.server, tmp_path)
    async with serving(at_server, sample) as port:
        async with calling(port, kit.client) as opened:
            assert await echo(opened) == "hello"
            await asyncio.to_thread(replace, at_server, kit.foreign_server)
            assert await echo(opened, "still") == "still"  # what is open goes on
        async with calling(port, kit.client) as opened:
            assert "CERTIFICATE_VERIFY_FAILED" in await refusal(opened)
        async with calling(port, kit.foreign_client) as opened:
            assert await echo(opened) == "hello"


async def test_files_that_are_half_written_leave_the_old_ones_in_use(
    kit: Kit, sample: rpcs.Sample, tmp_path: pathlib.Path
) -> None:
    at_server = await asyncio.to_thread(copied, kit.server, tmp_path)
    async with serving(at_server, sample) as port:
        await asyncio.to_thread(pathlib.Path(at_server.certificate).write_text, "-----BEGIN CERT")
        async with calling(port, kit.client) as opened:
            assert await echo(opened) == "hello"
        await asyncio.to_thread(pathlib.Path(at_server.key).unlink)
        async with calling(port, kit.client) as opened:
            assert await echo(opened) == "hello"


def copied(files: tls.Files, folder: pathlib.Path) -> tls.Files:
    """Copy files to where a test may change them."""
    made = tls.Files(*(str(folder / name) for name in ("tls.crt", "tls.key", "ca.crt")))
    replace(made, files)
    return made


def replace(target: tls.Files, source: tls.Files) -> None:
    for to, of in zip(vars_of(target), vars_of(source), strict=True):
        shutil.copy(of, f"{to}.new")
        pathlib.Path(f"{to}.new").rename(to)


@pytest.mark.parametrize("broken", ["certificate", "key", "authority"])
async def test_files_that_cannot_be_used_at_the_start_are_named(
    broken: str, kit: Kit, sample: rpcs.Sample, tmp_path: pathlib.Path
) -> None:
    files = await asyncio.to_thread(copied, kit.server, tmp_path)
    path = pathlib.Path(getattr(files, broken))
    await asyncio.to_thread(path.write_text, "nothing")
    with pytest.raises(OSError, match=path.name):
        async with serving(files, sample):
            pass
    await asyncio.to_thread(path.unlink)
    with pytest.raises(FileNotFoundError, match=path.name):
        async with serving(files, sample):
            pass


async def test_nobody_at_the_port_is_said_at_once(kit: Kit) -> None:
    async with calling(1, kit.client) as opened:
        assert "cannot connect to 127.0.0.1:1: " in await refusal(opened)


async def test_a_server_that_ends_tells_its_clients(kit: Kit, sample: rpcs.Sample) -> None:
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(kit.server, sample))
        opened = await stack.enter_async_context(calling(port, kit.client))
        held = asyncio.create_task(
            opened.unary(f"{rpcs.PREFIX}Hold", rpcs.Text("x"), rpcs.Text, timeout=30)
        )
        await sample.started.wait()
        held.cancel()
        await waiting.until(sample.cancelled.is_set, "the handler's end")
    assert not opened.is_connected


@pytest.mark.parametrize(
    ("certificate", "found"),
    [
        (None, frozenset()),
        ({}, frozenset()),
        (
            {"subjectAltName": (("DNS", "A.b"), ("IP Address", "1.2.3.4"), ("DNS", "c"))},
            frozenset({"a.b", "c"}),
        ),
    ],
    ids=["none", "no names", "names and an address"],
)
def test_only_dns_names_count(certificate: dict[str, object] | None, found: frozenset[str]) -> None:
    assert tls.names(certificate) == found
