"""Protobuf descriptors of .proto files, ours and upstream's, as plain sets that compare.

Upstream's files come out of Go modules through the Go module proxy, into Go's own cache.
"""

import importlib.resources
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator

from devcluster import gobuild
from google.protobuf import descriptor_pb2  # type: ignore[import-untyped]  # ships no types

PROTO = pathlib.Path(__file__).parent.parent.parent / "libs" / "proto"
FETCH_TIMEOUT = 300.0
SECRET_OPTION = 1059

Row = tuple[object, ...]


class UnavailableError(RuntimeError):
    """Upstream's file can't be had here; the text says why."""


def upstream(module: str, version: str, path: str) -> pathlib.Path:
    """Return a file of a Go module, downloading the module if it isn't in Go's cache.

    Raises UnavailableError where there is no Go, or no way to the module proxy.
    """
    try:
        command = [gobuild.toolchain(), "mod", "download", "-json", f"{module}@{version}"]
    except gobuild.ToolchainError as missing:
        raise UnavailableError(str(missing)) from missing
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_TIMEOUT, check=False
        )
    answer = json.loads(done.stdout or "{}")
    if "Dir" not in answer:
        reason = answer.get("Error") or done.stderr
        raise UnavailableError(f"cannot download {module}@{version}: {reason}")
    return pathlib.Path(answer["Dir"]) / path


def read(path: pathlib.Path) -> descriptor_pb2.FileDescriptorProto:
    """Compile one .proto file."""
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    with tempfile.NamedTemporaryFile(suffix=".fds") as target:
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{path.parent}", f"-I{well_known}"]
        command += [f"--descriptor_set_out={target.name}", path.name]
        subprocess.run(command, check=True, timeout=60)
        found = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(target.name).read_bytes())
    return found.file[0]


def rows(file: descriptor_pb2.FileDescriptorProto, local: Iterable[str] = ()) -> set[Row]:
    """Return every message, field, enum value and method of a file as a row.

    Types named in ``local`` are those of google.protobuf, whichever package they stand in.
    """
    names = {f".{file.package}.{name}": f".google.protobuf.{name}" for name in local}
    return {
        *_methods(file),
        *_enums(file.enum_type, ""),
        *_messages(file.message_type, "", names, set(local)),
    }


def _methods(file: descriptor_pb2.FileDescriptorProto) -> Iterator[Row]:
    for service in file.service:
        for method in service.method:
            signature = (method.input_type, method.output_type)
            streams = (method.client_streaming, method.server_streaming)
            yield ("method", f"/{file.package}.{service.name}/{method.name}", *signature, *streams)


def _enums(enums: Iterable[descriptor_pb2.EnumDescriptorProto], prefix: str) -> Iterator[Row]:
    for enum in enums:
        for value in enum.value:
            yield ("value", f"{prefix}{enum.name}", value.name, value.number)


def _messages(
    messages: Iterable[descriptor_pb2.DescriptorProto],
    prefix: str,
    names: dict[str, str],
    left_out: set[str],
) -> Iterator[Row]:
    for message in messages:
        if message.name in left_out:
            continue
        name = prefix + message.name
        yield ("message", name)
        yield from _enums(message.enum_type, f"{name}.")
        yield from _messages(message.nested_type, f"{name}.", names, set())
        for field in message.field:
            oneof = (
                message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
            )
            kind = (field.type, field.label, names.get(field.type_name, field.type_name))
            yield ("field", name, field.name, field.number, *kind, oneof, _is_secret(field))


def _is_secret(field: descriptor_pb2.FieldDescriptorProto) -> bool:
    # The option is an extension that Python doesn't know: its tag and the value true.
    tag = bytearray()
    key = SECRET_OPTION << 3
    while key > 127:
        tag.append(key & 127 | 128)
        key >>= 7
    tag += bytes((key, 1))
    return bytes(tag) in field.options.SerializeToString()
