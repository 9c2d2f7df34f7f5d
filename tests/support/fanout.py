"""Load for an API server: many creations, and watchers that see each of them.

Run as ``python tests/support/fanout.py FOLDER EVENTS WATCHERS`` in a process of its own, so that
the tests' debugging of coroutines slows neither side. FOLDER is where ready.json stands. Prints
one JSON object; the test judges it, a person reads the rates.
"""

import asyncio
import json
import pathlib
import re
import ssl
import sys
import time

import aiohttp
import uvloop

PATH = "/api/v1/namespaces/default/configmaps"
WRITERS = 32
VERSION = re.compile(rb'"resourceVersion":"(\d+)"')


def session(folder: pathlib.Path) -> aiohttp.ClientSession:
    """Return a session with the server's certificate and token."""
    ready = json.loads((folder / "ready.json").read_text())
    token = (folder / "token").read_text().strip()
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    return aiohttp.ClientSession(
        ready["server"],
        connector=aiohttp.TCPConnector(ssl=context, limit=0),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        timeout=aiohttp.ClientTimeout(total=80),
        read_bufsize=2**20,
    )


async def follow(client: aiohttp.ClientSession, version: str, events: int) -> list[int]:
    """Watch until so many lines have come; return their resource versions."""
    seen, lines = bytearray(), 0
    query = {"watch": "1", "resourceVersion": version}
    async with client.get(PATH, params=query) as answer:
        async for chunk in answer.content.iter_any():
            seen += chunk
            lines += chunk.count(b"\n")
            if lines >= events:
                break
    return [int(found) for found in VERSION.findall(seen)][:events]


async def write(client: aiohttp.ClientSession, names: range) -> None:
    """Create one ConfigMap per number."""
    for number in names:
        body = b'{"metadata":{"name":"fanout-%d"},"data":{"k":"v"}}' % number
        async with client.post(PATH, data=body) as answer:
            assert answer.status == 201, await answer.text()


async def main(folder: pathlib.Path, events: int, watchers: int) -> dict[str, float]:
    """Create and watch; return what was seen and how fast."""
    async with session(folder) as client:
        async with client.get(PATH) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        following = [asyncio.create_task(follow(client, version, events)) for _ in range(watchers)]
        begin = time.perf_counter()
        await asyncio.gather(*(write(client, range(n, events, WRITERS)) for n in range(WRITERS)))
        written = time.perf_counter() - begin
        seen = await asyncio.gather(*following)
        delivered = time.perf_counter() - begin
    first = seen[0] if seen else []
    return {
        "creations_per_second": round(events / written),
        "deliveries_per_second": round(events * watchers / delivered),
        "events": len(set(first)),
        "sequences": len({tuple(one) for one in seen}),
        "is_ordered": first == sorted(first),
    }


if __name__ == "__main__":
    given = (pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    print(json.dumps(uvloop.run(main(*given))))  # noqa: T201 - its result
