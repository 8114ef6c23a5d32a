"""Ends under load: in order, by SIGTERM, and out of order, by SIGKILL."""

import asyncio
import signal
import socket

from conftest import SMOLLM2, TINY, Server
from support import wire

BODY = {"max_tokens": 40, "ignore_eos": True, "temperature": 0}


def test_sigterm_under_load():
    requests = [{**BODY, "prompt": [100 + i] * (i + 1)} for i in range(16)]

    async def late(server, path, body):
        answer = await wire.ask(server.port, "POST", path, body)
        assert answer.status == 503, answer
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["message"]

    async def run(server):
        expected = [await wire.complete(server.port, {**r, "cache_salt": "alone"}) for r in requests]
        begun = asyncio.Semaphore(0)
        # More than the seats: some still wait in the queue when the signal comes.
        streams = [asyncio.create_task(wire.stream(server.port, r, begun.release)) for r in requests]
        idle = await wire.Connection.open(server.port)
        assert (await idle.ask("GET", "/ready")).status == 200
        await begun.acquire()
        server.process.send_signal(signal.SIGTERM)
        await wire.wait_until(lambda: not_ready(server))
        assert not all(stream.done() for stream in streams)
        await late(server, "/v1/completions", {**BODY, "prompt": "late"})
        await late(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": "late"}]})
        assert (await idle.ask("GET", "/health")).status == 200
        results = await asyncio.gather(*streams)
        for (text, ids), result in zip(expected, results):
            assert result.done and result.error is None, result
            assert (result.text, result.token_ids) == (text, ids)
            assert result.finish_reason == "length"

    async def not_ready(server):
        return (await wire.ask(server.port, "GET", "/ready")).status == 503

    server = Server(SMOLLM2, "--max-num-seqs", 6, "--kv-cache-memory-bytes", "256MiB",
                    "--shutdown-timeout", 1800)
    try:
        asyncio.run(run(server))
        assert server.process.wait(timeout=30) == 0
    finally:
        server.process.kill()


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def check_kill_and_start_again(address, **listen):
    """Three times: streams run, SIGKILL, and at once a server at the same place that answers."""
    async def load():
        streams = [await wire.Connection.open(address) for _ in range(8)]
        await asyncio.gather(*(s.begin_stream({**BODY, "max_tokens": 480, "prompt": [5, 6, i]})
                               for i, s in enumerate(streams)))
        return streams

    async def run():
        expected = None
        for _ in range(3):
            server = Server(TINY / "llama", "--kv-cache-memory-bytes", "16MiB", **listen)
            try:
                got = await wire.complete(address, {**BODY, "prompt": [5, 6, 7]})
                assert expected in (None, got)
                expected = got
                streams = await load()
            finally:
                server.process.kill()
                server.process.wait()
            for stream in streams:
                stream.close()
        with Server(TINY / "llama", "--kv-cache-memory-bytes", "16MiB", **listen):
            assert await wire.complete(address, {**BODY, "prompt": [5, 6, 7]}) == expected

    asyncio.run(run())


def test_kill_9_and_start_again_at_once_on_the_same_port():
    port = free_port()
    check_kill_and_start_again(port, port=port)


def test_kill_9_and_start_again_at_once_on_the_same_unix_socket(tmp_path):
    path = tmp_path / "kvasir.sock"
    check_kill_and_start_again(path, uds=path)
    assert not path.exists()
