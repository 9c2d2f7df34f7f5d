"""Where the API server is and how to talk to it: from a kubeconfig or from inside a pod.

kubernetes_asyncio reads the files (all of kubeconfig: contexts, merging, certificates, exec
plugins, auth providers); here is what it leaves open: errors that name file, context and
field, tokens that stay fresh, impersonation, and nothing that blocks the event loop.
"""

import asyncio
import dataclasses
import os
import pathlib
import ssl
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

from bitts.kube import credentials as credential_sources
from bitts.kube import errors

if TYPE_CHECKING:
    from bitts.kube import kubeconfig

SERVICE_ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")

ConfigError = errors.ConfigError


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """A resolved way to an API server.

    ``server`` has no trailing slash; ``origin`` says for messages where this comes from;
    ``namespace`` is the context's or the pod's, "" if none is named; ``headers`` go with
    every request (impersonation).
    """

    server: str
    origin: str
    credentials: credential_sources.Credentials
    namespace: str = ""
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    server_name: str | None = None
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


async def load(
    kubeconfig_path: str = "", *, use_environment: bool = False, in_cluster: bool = True
) -> Config:
    """Find the configuration: the given file, else ``$KUBECONFIG`` if the environment may
    be used, else the pod's service account if ``in_cluster``. Raises ConfigError.
    """
    environment = os.environ.get("KUBECONFIG", "") if use_environment else ""
    paths = kubeconfig_path or environment
    if paths:
        name = "--kubeconfig" if kubeconfig_path else "$KUBECONFIG"
        return await _from_kubeconfig(paths, name)
    if in_cluster:
        return await from_service_account()
    hint = " or set KUBECONFIG" if use_environment else ""
    raise ConfigError(f"no Kubernetes API server is configured: give --kubeconfig FILE{hint}")


async def from_service_account(directory: pathlib.Path = SERVICE_ACCOUNT) -> Config:
    """The configuration that Kubernetes gives to each pod. Raises ConfigError."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError(
            "not running in a pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not "
            "set): give --kubeconfig FILE"
        )
    token = credential_sources.TokenFile(directory / "token")
    if await token.header() is None:
        raise ConfigError(
            f"service account token {directory / 'token'} cannot be read: does the pod set "
            "automountServiceAccountToken: false?"
        )
    authority = directory / "ca.crt"
    if not await asyncio.to_thread(authority.is_file):
        raise ConfigError(f"cluster certificate {authority} does not exist")
    return Config(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        origin="the pod's service account",
        credentials=token,
        namespace=await asyncio.to_thread(_namespace, directory / "namespace"),
        ca_file=str(authority),
        proxy=_environment_proxy(f"https://{host}:{port}"),
    )


async def _from_kubeconfig(paths: str, source: str) -> Config:
    found = await asyncio.to_thread(_read, paths, source)
    return Config(
        server=found.server,
        origin=found.origin,
        credentials=found.credentials,
        namespace=found.namespace,
        ca_file=found.ca_file,
        cert_file=found.cert_file,
        key_file=found.key_file,
        verify=found.verify,
        server_name=found.server_name,
        proxy=found.proxy or _environment_proxy(found.server),
        headers=found.headers,
    )


def _read(paths: str, source: str) -> "kubeconfig.Found":
    from bitts.kube import kubeconfig  # 7 MB and 60 ms that a pod has no use for

    return kubeconfig.read(paths, source)


def ssl_context(config: Config) -> ssl.SSLContext | None:
    """The TLS settings, ``None`` for plain HTTP. Blocks on files. Raises ConfigError."""
    if not config.server.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cafile=config.ca_file)
        if config.cert_file:
            context.load_cert_chain(config.cert_file, keyfile=config.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{config.origin}: certificates cannot be loaded ({error}): check "
            "certificate-authority, client-certificate and client-key"
        ) from error
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _namespace(file: pathlib.Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _environment_proxy(server: str) -> str | None:
    # Looked up once: aiohttp's trust_env does it on each request, in a thread.
    url = urllib.parse.urlsplit(server)
    if not url.hostname or urllib.request.proxy_bypass(url.netloc):
        return None
    return urllib.request.getproxies().get(url.scheme)
