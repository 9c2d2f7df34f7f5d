"""Configurations are found, and what is wrong with one is said with file, context and field."""

import asyncio
import base64
import datetime as dt
import ipaddress
import json
import pathlib
import ssl
import subprocess
import sys
from typing import Any

import pytest
import yaml
from bitts.kube import client as clients
from bitts.kube import config as configuration
from bitts.kube import credentials, errors, kinds
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from support import kubefake

JsonObject = dict[str, Any]


def kubeconfig(
    folder: pathlib.Path,
    *,
    cluster: JsonObject | None = None,
    user: JsonObject | None = None,
    context: JsonObject | None = None,
    **top: object,
) -> pathlib.Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u", **(context or {})}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        **top,
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    return file


async def test_token_namespace_and_impersonation(tmp_path: pathlib.Path) -> None:
    user = {"token": "t\n", "as": "jane", "as-groups": ["a", "b"], "as-uid": "7"}
    file = kubeconfig(tmp_path, user=user, context={"namespace": "shop"})
    found = await configuration.load(str(file))
    assert found.server == "http://127.0.0.1:1"
    assert found.namespace == "shop"
    assert await found.credentials.header() == "Bearer t"
    assert not await found.credentials.renew()
    assert found.headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
    )
    assert str(file) in found.origin
    assert "'dev'" in found.origin


async def test_name_and_password_and_an_auth_provider(tmp_path: pathlib.Path) -> None:
    file = kubeconfig(tmp_path, user={"username": "u", "password": "p"})
    found = await configuration.load(str(file))
    assert await found.credentials.header() == "Basic dTpw"
    provider = {"name": "gcp", "config": {"access-token": "g", "expiry": "2999-01-01T00:00:00Z"}}
    file = kubeconfig(tmp_path, user={"auth-provider": provider})
    found = await configuration.load(str(file))
    assert await found.credentials.header() == "Bearer g"


async def test_the_environments_proxy_is_looked_up_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = kubeconfig(tmp_path, cluster={"server": "http://api.example:1"})
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    assert (await configuration.load(str(file))).proxy == "http://proxy.example:3128"
    monkeypatch.setenv("no_proxy", "api.example")
    assert (await configuration.load(str(file))).proxy is None
    own = {"server": "http://api.example:1", "proxy-url": "http://own.example:1"}
    found = await configuration.load(str(kubeconfig(tmp_path, cluster=own)))
    assert found.proxy == "http://own.example:1"


async def test_no_user_is_anonymous(tmp_path: pathlib.Path) -> None:
    found = await configuration.load(str(kubeconfig(tmp_path, context={"user": ""})))
    assert await found.credentials.header() is None


async def test_a_token_file_is_relative_to_the_kubeconfig(tmp_path: pathlib.Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    found = await configuration.load(str(kubeconfig(tmp_path, user={"tokenFile": "token"})))
    assert await found.credentials.header() == "Bearer from-file"
    (tmp_path / "token").write_text("newer")
    assert await found.credentials.header() == "Bearer from-file"
    assert await found.credentials.renew()
    assert await found.credentials.header() == "Bearer newer"


async def test_several_files_are_merged(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    first = kubeconfig(tmp_path / "one", users=[])
    (tmp_path / "two").mkdir()
    second = kubeconfig(tmp_path / "two", user={"token": "second"}, contexts=[], clusters=[])
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'absent'}:{second}")
    found = await configuration.load(use_environment=True)
    assert await found.credentials.header() == "Bearer second"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"current-context": None}, ["current-context", "one of dev"]),
        ({"current-context": "prod"}, ["current-context", "'prod'", "'dev'"]),
        ({"contexts": []}, ["current-context", "'dev' is not among contexts"]),
        ({"context": {"cluster": ""}}, ["context 'dev'", "cluster: not set"]),
        ({"context": {"cluster": "x"}}, ["context 'dev': cluster", "'x' is not among clusters"]),
        ({"context": {"user": "x"}}, ["context 'dev': user", "'x' is not among users"]),
        ({"cluster": {"server": "127.0.0.1"}}, ["cluster 'c'", "server", "https://HOST:PORT"]),
        ({"cluster": {"certificate-authority": "ca"}}, ["certificate-authority", "does not exist"]),
        ({"cluster": {"certificate-authority-data": "%"}}, ["authority-data", "not base64"]),
        ({"user": {"tokenFile": "none"}}, ["user 'u'", "tokenFile", "does not exist"]),
        ({"users": "none"}, ["users: must be a list"]),
        ({"clusters": [{"name": "c", "cluster": ["x"]}]}, ["cluster: must be a mapping"]),
        ({"user": {"auth-provider": {"name": "oidc", "config": {}}}}, ["user 'u'", "oidc"]),
        ({"users": [{"user": {}}]}, ["users: must be a list of entries with a name"]),
    ],
)
async def test_what_is_wrong_is_named(
    tmp_path: pathlib.Path, changes: JsonObject, words: list[str]
) -> None:
    file = kubeconfig(tmp_path, **changes)
    with pytest.raises(configuration.ConfigError) as caught:
        await configuration.load(str(file))
    for word in [str(file), *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("content", ["a: [", "- list", "", "\x00"])
async def test_what_is_no_kubeconfig_is_said_so(tmp_path: pathlib.Path, content: str) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    with pytest.raises(configuration.ConfigError, match="kubeconfig"):
        await configuration.load(str(file))


async def test_a_missing_file_and_no_configuration_at_all(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(configuration.ConfigError, match=r"--kubeconfig: .*does not exist"):
        await configuration.load(str(tmp_path / "none"))
    with pytest.raises(configuration.ConfigError, match="not running in a pod"):
        await configuration.load()
    with pytest.raises(configuration.ConfigError, match="--kubeconfig FILE or set KUBECONFIG"):
        await configuration.load(use_environment=True, in_cluster=False)


async def test_a_refused_token_is_read_again_at_once(
    tmp_path: pathlib.Path, fake: kubefake.FakeApi
) -> None:
    (tmp_path / "token").write_text("old")
    file = kubeconfig(tmp_path, cluster={"server": fake.url}, user={"tokenFile": "token"})
    fake.put("api/v1/nodes", {"metadata": {"name": "n"}})
    async with clients.Client.connect(
        await configuration.load(str(file)), user_agent="x"
    ) as client:
        await client.get(kinds.NODES, "n")
        (tmp_path / "token").write_text("new")
        fake.fail(status=401, reason="Unauthorized")
        await client.get(kinds.NODES, "n")
        assert fake.requests[-1].headers["Authorization"] == "Bearer new"
        (tmp_path / "token").write_text("newer")
        fake.fail(path="watch", status=401, reason="Unauthorized")
        async with client.watch(kinds.NODES, "1"):
            assert fake.requests[-1].headers["Authorization"] == "Bearer newer"
        fake.fail(path="watch", status=401, reason="Unauthorized")
        with pytest.raises(errors.Unauthorized):
            async with client.watch(kinds.NODES, "1"):
                pass
        fake.fail(times=2, status=401, reason="Unauthorized")
        with pytest.raises(errors.Unauthorized):
            await client.get(kinds.NODES, "n")


async def test_a_token_file_is_read_again_once_a_minute(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "token"
    file.write_text(" first \n")
    now = [0.0]
    source = credentials.TokenFile(file, clock=lambda: now[0])
    assert await source.header() == "Bearer first"
    file.write_text("second")
    now[0] = 59.0
    assert await source.header() == "Bearer first"
    now[0] = 61.0
    assert await source.header() == "Bearer second"
    file.write_text("")
    now[0] = 122.0
    assert await source.header() == "Bearer second"
    file.unlink()
    now[0] = 183.0
    assert await source.header() == "Bearer second"


async def test_inside_a_pod(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(configuration.ConfigError, match="automountServiceAccountToken"):
        await configuration.from_service_account(tmp_path)
    (tmp_path / "token").write_text("pod\n")
    with pytest.raises(configuration.ConfigError, match=r"ca\.crt"):
        await configuration.from_service_account(tmp_path)
    (tmp_path / "ca.crt").write_text("ca")
    found = await configuration.from_service_account(tmp_path)
    assert (found.server, found.namespace) == ("https://[fd00::1]:443", "")
    (tmp_path / "namespace").write_text("kube-system\n")
    assert (await configuration.from_service_account(tmp_path)).namespace == "kube-system"
    with pytest.raises(configuration.ConfigError, match="certificates cannot be loaded"):
        async with clients.Client.connect(found, user_agent="x"):
            pass


def authority(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    files = folder / "tls.crt", folder / "tls.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    body = json.dumps({"gitVersion": "v1"}).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
    writer.write(b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def test_certificates(tmp_path: pathlib.Path) -> None:
    crt, key = authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(crt, key)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    data = base64.b64encode(crt.read_bytes()).decode()
    cases: list[JsonObject] = [
        {"certificate-authority": crt.name},
        {"certificate-authority-data": data},
        {"insecure-skip-tls-verify": True},
    ]
    async with server:
        for case in cases:
            file = kubeconfig(tmp_path, cluster={"server": address, **case})
            trusting = await configuration.load(str(file))
            async with clients.Client.connect(trusting, user_agent="x") as client:
                assert await client.server_version() == "v1"
        file = kubeconfig(tmp_path, cluster={"server": address})
        doubting = await configuration.load(str(file))
        async with clients.Client.connect(doubting, user_agent="x") as client:
            with pytest.raises(errors.Unreachable, match=r"TLS: .*certificate-authority.*'dev'"):
                await client.server_version()


LEAN = """
import bitts.kube.client, bitts.kube.kubeconfig, sys
models = [name for name in sys.modules if name.startswith("kubernetes_asyncio.client.models.")]
import kubernetes_asyncio
from kubernetes_asyncio import client
from kubernetes_asyncio.client import V1Lease, CoordinationV1Api
assert client.V1Lease is V1Lease and kubernetes_asyncio.__version__.count(".") == 2
try:
    client.NoSuchThing
except AttributeError:
    print(len(models), "kubernetes_asyncio.client.models.v1_pod" in sys.modules)
"""


def test_the_client_library_is_imported_lean() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAN], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["0", "False"]


UNUSED = """
import bitts.kube.kubeconfig, sys
unused = ("urllib3.util", "dateutil", "kubernetes_asyncio.client.api_client")
print([name in sys.modules for name in unused])
from kubernetes_asyncio.client import ApiClient, Configuration
settings = Configuration(username="a", password="b")
print(settings.get_basic_auth_token(), ApiClient.__module__)
from kubernetes_asyncio.config import kube_config

async def main():
    async with kube_config.ApiClient(settings) as client:
        print(type(client) is ApiClient)

import asyncio
asyncio.run(main())
"""


def test_what_reading_a_kubeconfig_does_not_need_is_imported_when_it_is_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNUSED], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == [
        "[False, False, False]",
        "Basic YTpi kubernetes_asyncio.client.api_client",
        "True",
    ]


def test_a_pod_loads_nothing_that_reads_kubeconfigs() -> None:
    names = "['yaml', 'kubernetes_asyncio', 'bitts.kube.kubeconfig']"
    code = f"import bitts.kube.client, sys; print([n for n in {names} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_a_fat_import_before_ours_works_too() -> None:
    code = "import kubernetes_asyncio.client; import bitts.kube.kubeconfig; print('ok')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["ok"]
