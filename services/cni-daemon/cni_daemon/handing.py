"""Effects of ``devices``: links that change hands between host and container; blocking.

A link changes its namespace, name and alias within one ``send``, which a process does not die
in, so there is nothing between here and there. Renaming and moving in one step also leaves
udev and network managers nothing to race with, for which the reference needs a third namespace.
"""

import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bitts.core import logs
from bitts.net import links, taps
from bitts.net.errors import NetlinkError
from bitts.net.links import Change, Link
from bitts.net.sockets import Socket
from bitts.net.wire import Message

from cni_daemon import devices
from cni_daemon.devices import DeviceOperation
from cni_daemon.model import Place
from cni_daemon.scene import Scene

FALL_BACK_TIMEOUT = 2.0
"""Seconds until a device whose container's namespace died must be back on the host."""

_FALL_BACK_INTERVAL = 0.01
_COMMAND_TIMEOUT = 20.0
_ANY_FREE_NAME = "dev%d"
_EXEC_CONTEXT = "/proc/thread-self/attr/exec"


def act(operation: DeviceOperation, where: Scene) -> None:
    """Carry out one operation. Raises NetlinkError, NamespaceError, OSError."""
    match operation:
        case devices.MakeTap(place, tap, context, passing):
            if context:
                _make_labelled(tap, context, passing, where)
            else:
                with where.inside(place):
                    taps.make(tap)
        case devices.HandOver():
            _hand_over(operation, where)
        case devices.HandBack():
            _hand_back(operation, where)
        case devices.RemoveIdleVrf(name, place):
            _remove_idle_vrf(name, where.route(place))


def _make_labelled(tap: taps.Tap, context: str, passing: str, where: Scene) -> None:
    """Let ``ip`` make a device: it gets the context of the program that makes it."""
    command = ["ip", "tuntap", "add", "mode", "tap", "name", passing]
    command += ["multi_queue"] if tap.flags & taps.MULTI_QUEUE else []
    command += [] if tap.owner is None else ["user", str(tap.owner)]
    command += [] if tap.group is None else ["group", str(tap.group)]
    _label_programs(context)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise OSError(errno.ETIMEDOUT, "ip tuntap did not end") from None
    finally:
        _label_programs("")
    if done.returncode:
        raise OSError(errno.EIO, f"failed to run command ip tuntap: {done.stderr.strip()}")
    host = where.route(Place.HOST)
    made = links.decode(host.query(links.get(name=passing), passing))
    wanted = Change(netns_fd=where.descriptor, name=tap.name, new_index=tap.index)
    host.perform([links.change(made.index, wanted)], f"moving {passing}")


def _label_programs(context: str) -> None:
    """Set what programs started by this thread run as. Raises OSError, also without SELinux."""
    try:
        with open(_EXEC_CONTEXT, "wb", buffering=0) as file:
            file.write(context.encode() or b"\0")
    except OSError as error:
        raise OSError(error.errno, f"failed to set SELinux context {context!r}") from None


def _hand_over(operation: devices.HandOver, where: Scene) -> None:
    wanted = Change(netns_fd=where.descriptor, name=operation.ifname, new_index=operation.new_index)
    messages = [  # the alias first: whatever happens then, it tells where to give it back
        links.change(operation.index, Change(alias=operation.name)),
        links.change(operation.index, wanted),
    ]
    where.route(Place.HOST).perform(messages, f"moving {operation.name}")


def _hand_back(operation: devices.HandBack, where: Scene) -> None:
    if where.has_pod:
        inside = _in_container(where.route(Place.POD), operation)
        if inside is not None:
            _move_out(inside, operation, where)
            return
    if not operation.name:
        return
    found = _on_host(where.route(Place.HOST), operation)
    if found is None and not where.has_pod:
        found = _fallen_back(where.route(Place.HOST), operation)
    if found is not None:
        _restore(found, operation, where.route(Place.HOST))


def _every(channel: Socket) -> Sequence[Link]:
    return [links.decode(each) for each in channel.dump(links.every())]


def _in_container(channel: Socket, operation: devices.HandBack) -> Link | None:
    """Find a link that was handed over: its alias is its name on the host."""
    found = [each for each in _every(channel) if each.alias == (operation.name or each.alias or 0)]
    named = [each for each in found if each.name == operation.ifname]
    if named or not operation.name:
        return next(iter(named), None)
    return next(iter(found), None)


def _on_host(channel: Socket, operation: devices.HandBack) -> Link | None:
    """Find it on the host: back under a name of the container, not yet taken, or back already."""
    present = {each.name: each for each in _every(channel)}
    fallen = (
        each
        for each in present.values()
        if each.alias == operation.name
        and (each.name == operation.ifname or each.name.startswith(_ANY_FREE_NAME[:-2]))
    )
    return next(fallen, present.get(operation.name))


def _fallen_back(channel: Socket, operation: devices.HandBack) -> Link | None:
    """Wait until the kernel has moved a device back; a virtual one has died with its namespace."""
    deadline = time.monotonic() + FALL_BACK_TIMEOUT
    while time.monotonic() < deadline:
        found = _on_host(channel, operation)
        if found is not None:
            return found
        time.sleep(_FALL_BACK_INTERVAL)
    logs.get("handing").warning("The device is gone", link=operation.name)
    return None


def _restore(found: Link, operation: devices.HandBack, host: Socket) -> None:
    """Give it its old name and alias, unless somebody else has the name by now."""
    messages: list[Message] = []
    if found.name != operation.name:
        if any(each.name == operation.name for each in _every(host)):
            _warn_of_taken(operation.name)
            return
        messages.append(links.change(found.index, Change(cleared=links.UP)))
        messages.append(links.change(found.index, Change(name=operation.name)))
    if found.alias == operation.name:
        messages.append(links.change(found.index, Change(alias=operation.alias)))
    host.perform(messages, f"giving back {operation.name}")


def _warn_of_taken(name: str) -> None:
    logs.get("handing").warning("The name of a device is taken on the host", link=name)


def _move_out(link: Link, operation: devices.HandBack, where: Scene) -> None:
    """Move a link to the host, under its old name and index unless they are taken by now."""
    channel, name = where.route(Place.POD), operation.name or link.alias
    is_taken = any(each.name == name for each in _every(where.route(Place.HOST)))
    with _own_namespace() as descriptor:
        way = Change(netns_fd=descriptor, name=name, alias=operation.alias)
        if is_taken:
            _warn_of_taken(name)
            way = replace(way, name=_ANY_FREE_NAME, alias=name)
        else:  # so that nobody sees it on the host under a name of the container
            channel.attempt([links.change(link.index, each) for each in _prepared(name)])
        indexed = replace(way, new_index=operation.index or None)
        for each in (indexed, way):
            answer = channel.attempt([links.change(link.index, each)])[0]
            if answer.error != errno.EBUSY:
                break
    if answer.error:
        raise NetlinkError(answer.error, f"moving {link.name} to the host", answer.text)


def _prepared(name: str) -> tuple[Change, Change]:
    """Switch it off and give it its old name, which fails where that is taken inside."""
    return Change(cleared=links.UP), Change(name=name)


@contextlib.contextmanager
def _own_namespace() -> Iterator[int]:
    descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _remove_idle_vrf(name: str, channel: Socket) -> None:
    present = _every(channel)
    found = next((each for each in present if each.name == name and each.kind == "vrf"), None)
    if found is not None and not any(each.master == found.index for each in present):
        channel.perform([links.delete(index=found.index)], f"removing VRF {name}")
