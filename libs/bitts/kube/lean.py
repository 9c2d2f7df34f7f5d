"""Import kubernetes_asyncio without its roughly 900 generated model modules (72 → 39 MB).

Importing this module before anything below ``kubernetes_asyncio`` or ``aiohttp`` is all there is
to do, but for ``import_configuration``, which whoever reads kubeconfigs calls. A meta-path
finder replaces only the *execution* of four ``__init__.py`` files by a module ``__getattr__``
(PEP 562): the packages keep their real spec, path and file, submodules import as usual, and a
name such as ``client.V1Lease`` is imported when it is first asked for, from the file that the
original ``__init__.py`` says. If the package was imported before, nothing is changed: it works
as it is, only larger.

Reading a kubeconfig needs neither the generated API client nor urllib3 (3.4 MB, 50 ms), which
the modules that do it import all the same: the one is loaded when somebody calls for it, the
other when somebody looks into it (basic authentication does).

The same for aiohttp, which reads all of the system's certificates into two TLS contexts of its
own when it is imported (40 ms, 2 MB): ours are made from the cluster's certificate instead.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import sys
import types
from collections.abc import Callable, Sequence

ROOT = "kubernetes_asyncio"
_PACKAGES = frozenset({ROOT, f"{ROOT}.client", f"{ROOT}.client.models", f"{ROOT}.client.api"})
_EXPORT = re.compile(r"^from (kubernetes_asyncio\.\S+) import (\w+)\s*$", re.MULTILINE)
# OpenSSL's own variables for where the system's certificates are.
_NO_CERTIFICATES = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": "/nonexistent"}
_VERSION = re.compile(r'^__version__ = "([^"]+)"', re.MULTILINE)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _PACKAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = _Loader()
        return spec


class _Loader(importlib.abc.Loader):
    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__["__getattr__"] = _lookup(module)


def _lookup(module: types.ModuleType) -> Callable[[str], object]:
    """The package's attributes, found on demand."""
    source = module.__spec__.origin if module.__spec__ else None
    text = pathlib.Path(source).read_text(encoding="utf-8") if source else ""
    exports = {name: origin for origin, name in _EXPORT.findall(text)}

    def lookup(name: str) -> object:
        if name in exports:
            value: object = getattr(importlib.import_module(exports[name]), name)
        elif name == "__version__" and (version := _VERSION.search(text)):
            value = version[1]
        elif name.startswith("__"):
            raise AttributeError(name)
        else:
            value = _submodule(module.__name__, name)
        setattr(module, name, value)
        return value

    return lookup


def _submodule(package: str, name: str) -> types.ModuleType:
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.{name}":
            raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}") from None


def install() -> None:
    """Make later imports of kubernetes_asyncio lean; does nothing the second time."""
    if ROOT not in sys.modules and not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def import_aiohttp() -> None:
    """Import aiohttp without the system's certificates, if it is not imported yet."""
    if "aiohttp.connector" in sys.modules:
        return
    before = {name: os.environ.get(name) for name in _NO_CERTIFICATES}
    os.environ.update(_NO_CERTIFICATES)
    try:
        importlib.import_module("aiohttp")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def import_configuration() -> None:
    """Import the reading of kubeconfig files, if it is not imported yet."""
    if f"{ROOT}.config" in sys.modules:
        return
    _import_lazily("urllib3")
    client = importlib.import_module(f"{ROOT}.client")
    if "ApiClient" in vars(client):
        importlib.import_module(f"{ROOT}.config")
        return
    client.__dict__["ApiClient"] = _on_call(f"{ROOT}.client.api_client", "ApiClient")
    try:
        importlib.import_module(f"{ROOT}.config")
    finally:
        del client.__dict__["ApiClient"]  # whoever asks from now on gets the real one


def _on_call(origin: str, name: str) -> type:
    """A class that makes objects of another one, which is imported for the first of them."""

    def create(_: type, *positional: object, **named: object) -> object:
        return getattr(importlib.import_module(origin), name)(*positional, **named)

    return type(name, (), {"__new__": create})


def _import_lazily(name: str) -> None:
    """Import a module whose code runs when an attribute of it is first asked for.

    Not by ``importlib.util.LazyLoader``: up to Python 3.11 an import statement asks, too.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or (loader := spec.loader) is None:
        return  # there already, or for the importing module to complain about
    sys.modules[name] = module = importlib.util.module_from_spec(spec)

    def execute(attribute: str) -> object:
        del module.__dict__["__getattr__"]
        loader.exec_module(module)
        return getattr(module, attribute)

    module.__dict__["__getattr__"] = execute


install()
import_aiohttp()
