"""Credential plugins: run again before the token ends, and understood when they fail."""

import asyncio
import json
import pathlib
import stat
import sys
from typing import Any

import pytest
from bitts.kube import client as clients
from bitts.kube import config as configuration
from bitts.kube import credentials, errors, execplugin, kinds
from support import kubefake

VERSION = "client.authentication.k8s.io/v1"
PLUGIN = """#!{python}
import json, os, pathlib
folder = pathlib.Path(__file__).parent
count = folder / "count"
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
(folder / "asked").write_text(os.environ["KUBERNETES_EXEC_INFO"])
status = {{"token": f"{{os.environ['NAME']}}-{{number}}",
           "expirationTimestamp": "2026-01-01T00:00:00Z"}}
print(json.dumps({{"apiVersion": {version!r}, "kind": "ExecCredential", "status": status}}))
"""


def program(folder: pathlib.Path, text: str) -> pathlib.Path:
    script = folder / "plugin"
    script.write_text(text)
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def kubeconfig(folder: pathlib.Path, server: str, spec: dict[str, Any]) -> pathlib.Path:
    file = folder / "kubeconfig"
    content = {
        "current-context": "dev",
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"exec": {"apiVersion": VERSION, **spec}}}],
    }
    file.write_text(json.dumps(content))
    return file


async def test_the_token_is_used_and_asked_for_again(
    tmp_path: pathlib.Path, fake: kubefake.FakeApi
) -> None:
    program(tmp_path, PLUGIN.format(python=sys.executable, version=VERSION))
    spec = {
        "command": "./plugin",
        "env": [{"name": "NAME", "value": "token"}],
        "provideClusterInfo": True,
    }
    found = await configuration.load(str(kubeconfig(tmp_path, fake.url, spec)))
    fake.put("api/v1/nodes", {"metadata": {"name": "n"}})
    async with clients.Client.connect(found, user_agent="x") as client:
        await client.get(kinds.NODES, "n")
        assert fake.requests[-1].headers["Authorization"] == "Bearer token-1"
        fake.fail(status=401, reason="Unauthorized")
        with pytest.raises(errors.Unauthorized):  # the plugin ran a moment ago
            await client.get(kinds.NODES, "n")
    asked = json.loads((tmp_path / "asked").read_text())
    assert asked["spec"] == {"interactive": False, "cluster": {"server": fake.url}}


class Runs:
    """A plugin that gives numbered tokens, each good for ``life`` seconds."""

    def __init__(self, clock: list[float], life: float | None) -> None:
        self.clock, self.life, self.count, self.broken = clock, life, 0, False

    def __call__(self) -> execplugin.ExecCredential:
        if self.broken:
            raise errors.ConfigError("broken")
        self.count += 1
        expires = None if self.life is None else self.clock[0] + self.life
        return execplugin.ExecCredential(token=f"t{self.count}", expires=expires)


def source(life: float | None) -> tuple[credentials.ExecPlugin, Runs, list[float]]:
    now = [1000.0]
    runs = Runs(now, life)
    return credentials.ExecPlugin(runs, runs(), clock=lambda: now[0]), runs, now


async def test_a_token_is_renewed_a_minute_before_its_end() -> None:
    plugin, runs, now = source(3600)
    now[0] += 3539
    assert await plugin.header() == "Bearer t1"
    now[0] += 1
    assert await plugin.header() == "Bearer t2"
    runs.broken = True
    now[0] += 4000
    assert await plugin.header() == "Bearer t2", "the last one stays"
    assert not await plugin.renew()


async def test_short_lived_tokens_do_not_run_a_process_a_request() -> None:
    plugin, runs, now = source(5)
    for _ in range(3):
        assert await plugin.header() == "Bearer t1"
    now[0] += 10
    assert await plugin.header() == "Bearer t2"
    assert runs.count == 2


async def test_a_token_without_end_is_renewed_when_refused() -> None:
    plugin, _, now = source(None)
    now[0] += 10**6
    assert await plugin.header() == "Bearer t1"
    assert await plugin.renew()
    assert await plugin.header() == "Bearer t2"
    assert not await plugin.renew(), "not twice in a row"


async def test_a_certificate_instead_of_a_token(
    tmp_path: pathlib.Path, fake: kubefake.FakeApi
) -> None:
    status = {"clientCertificateData": "PEM one", "clientKeyData": "PEM two"}
    answer = json.dumps({"apiVersion": VERSION, "status": status})
    program(tmp_path, f"#!/bin/sh\necho '{answer}'\n")
    file = kubeconfig(tmp_path, "https://127.0.0.1:1", {"command": "./plugin"})
    found = await configuration.load(str(file))
    assert found.cert_file is not None
    written = await asyncio.to_thread(pathlib.Path(found.cert_file).read_text)
    assert written == "PEM one"
    assert await found.credentials.header() is None


@pytest.mark.parametrize(
    ("script", "spec", "words"),
    [
        ("", {"command": "/none/such", "installHint": "get it"}, ["/none/such", "get it"]),
        ("", {"command": ""}, ["needs command"]),
        ("echo why >&2; exit 3", {}, ["returned 3", "why"]),
        ("echo no json", {}, ["no ExecCredential"]),
        ("echo '{}'", {}, ["no ExecCredential"]),
        ('echo \'{"apiVersion":"v0","status":{"token":"t"}}\'', {}, ["v0", VERSION]),
        (f'echo \'{{"apiVersion":"{VERSION}","status":{{}}}}\'', {}, ["neither token"]),
    ],
    ids=["missing", "unnamed", "failing", "text", "empty", "other version", "nothing"],
)
async def test_what_a_plugin_does_wrong_is_named(
    tmp_path: pathlib.Path, script: str, spec: dict[str, Any], words: list[str]
) -> None:
    program(tmp_path, f"#!/bin/sh\n{script}\n")
    file = kubeconfig(tmp_path, "http://127.0.0.1:1", {"command": "./plugin", **spec})
    with pytest.raises(configuration.ConfigError) as caught:
        await configuration.load(str(file))
    for word in [str(file), "user 'u'", "exec", *words]:
        assert word in str(caught.value)


async def test_a_plugin_that_may_not_run(tmp_path: pathlib.Path) -> None:
    program(tmp_path, "#!/bin/sh\n").chmod(0o600)
    file = kubeconfig(tmp_path, "http://127.0.0.1:1", {"command": "./plugin"})
    with pytest.raises(configuration.ConfigError, match=r"plugin failed: .*Permission"):
        await configuration.load(str(file))
