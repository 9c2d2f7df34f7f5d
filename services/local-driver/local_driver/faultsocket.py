"""Faults changed at run time: a line protocol on a unix socket, for tests and for people.

One command a line; the answer is any number of lines and then ``ok``, or ``error: …``::

    add RPC:fault…   put a rule in force (see faultrules)
    clear [RPC]      end all rules, or those of one RPC
    list             the rules in force
    counts           how many calls of each RPC there were

``printf 'add *:latency=50ms\\n' | nc -NU faults.sock`` does for a start.
"""

import asyncio
import contextlib
import os
from collections.abc import Sequence

from bitts.core import logs

from local_driver import faultrules

LINE_LIMIT = 4096
IDLE_TIMEOUT = 3600.0
"""Seconds after which a silent client is cut off."""

_log = logs.get("faults")


def obey(line: str, rules: faultrules.FaultSet, methods: Sequence[str]) -> list[str]:
    """Carry out a command; return the lines of its answer."""
    command, _, argument = line.strip().partition(" ")
    match command:
        case "add":
            try:
                rules.add(faultrules.parse(argument.strip(), methods))
            except ValueError as error:
                return [f"error: {error}"]
            return ["ok"]
        case "clear":
            rules.clear(argument.strip() or faultrules.ANY)
            return ["ok"]
        case "list":
            return [*(rule.text for rule in rules.rules), "ok"]
        case "counts":
            return [*(f"{rpc} {count}" for rpc, count in sorted(rules.calls.items())), "ok"]
        case _:
            return [f"error: unknown command {command!r}; known are add, clear, list and counts"]


async def serve(path: str, rules: faultrules.FaultSet, methods: Sequence[str]) -> None:
    """Serve commands at ``path`` until cancelled; raises OSError when it cannot."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await asyncio.wait_for(reader.readline(), IDLE_TIMEOUT):
                answer = obey(line.decode(errors="replace"), rules, methods)
                writer.write("".join(f"{text}\n" for text in answer).encode())
                await writer.drain()
        except (OSError, ValueError) as error:
            _log.info("Fault client dropped", err=error)
        finally:
            writer.close()

    with contextlib.suppress(FileNotFoundError):
        await asyncio.to_thread(os.unlink, path)
    listener = await asyncio.start_unix_server(converse, path, limit=LINE_LIMIT)
    await asyncio.to_thread(os.chmod, path, 0o600)
    try:
        async with listener:
            await listener.serve_forever()
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
