"""Memory that is refused ends the requests that wanted it, never the server."""

import asyncio
import os
import pathlib
import resource

import pytest
from conftest import TINY, Server
from support import wire

SMALL = {"prompt": [5, 6, 7], "max_tokens": 20, "ignore_eos": True, "temperature": 0}
MIB = 2 ** 20


def greedy_bodies():
    """(path, body) pairs that are legal to send and want hundreds of MiB to be read."""
    ids = b'{"max_tokens": 1, "prompt": [' + b"5," * (10 * MIB) + b"5]}"
    text = b'{"max_tokens": 1, "prompt": "' + b"hello " * (5 * MIB) + b'"}'
    chat = (b'{"messages": [' + b'{"role": "user", "content": "hello"},' * MIB
            + b'{"role": "user", "content": "x"}]}')
    return [("/v1/completions", ids), ("/v1/completions", text), ("/v1/chat/completions", chat),
            ("/tokenize", text), ("/detokenize", ids.replace(b"prompt", b"tokens"))]


@pytest.mark.skipif("KVASIR_SANITIZED" in os.environ, reason="sanitizers need their address space")
def test_memory_that_is_refused_ends_requests_and_not_the_server():
    outcomes = []

    async def attempt(server, path, body):
        try:
            outcomes.append((await wire.ask(server.port, "POST", path, body)).status)
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            outcomes.append("cut")

    async def beside(server, others):
        """Small requests all the while: an answer is right or an error."""
        while not others.done():
            try:
                answer = await wire.ask(server.port, "POST", "/v1/completions", SMALL)
            except (ConnectionError, asyncio.IncompleteReadError):
                continue
            assert answer.status in (200, 429, 500, 503), answer
            if answer.status == 200:
                assert answer.json()["choices"][0]["text"] == expected[0]

    async def run(server):
        nonlocal expected
        expected = await wire.complete(server.port, SMALL)
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        size = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmSize"))
        _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_AS)
        for spare in (2, 20, 60, 120):
            resource.prlimit(server.process.pid, resource.RLIMIT_AS,
                             (size * 1024 + spare * MIB, hard))
            others = asyncio.gather(*(attempt(server, *greedy) for greedy in greedy_bodies()))
            await asyncio.gather(beside(server, others), others)
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (hard, hard))
        assert await wire.complete(server.port, SMALL) == expected
        await wire.wait_until(lambda: server.metric("kvasir:http_requests_in_flight") == 0)
        await wire.wait_until(lambda: server.metric("kvasir:kv_blocks", state="used") == 0)

    expected = None
    with Server(TINY / "llama", "--kv-cache-memory-bytes", "4MiB") as server:
        asyncio.run(run(server))
    # The limits were hit, and the clients were told.
    assert {500, 503, "cut"} & set(outcomes), outcomes
