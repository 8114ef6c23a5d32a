"""Clients that vanish, storm, crawl or stop, and clients that a full queue sends away: the server gives
back what they held, and the others notice nothing."""

import asyncio
import random

from conftest import SMOLLM2, TINY, Server, scaled
from support import wire

LONG = {"max_tokens": 480, "ignore_eos": True, "temperature": 1, "seed": 1}


def used_blocks(server):
    """Blocks that requests hold."""
    return server.metric("kvasir:kv_blocks", state="used")


def test_half_the_clients_vanish_and_their_blocks_are_free_within_a_step():
    # The reference kernels take some tenths of a second for a step of this model: long enough to see
    # in which step the blocks came back. Each stream holds one block.
    body = {"max_tokens": 13, "ignore_eos": True, "temperature": 0}

    async def vanish(server, streams):
        for i, stream in enumerate(streams):
            if i % 2:
                stream.reset()
            else:
                stream.close()
        await asyncio.sleep(0)
        return server.metric("kvasir:steps_total")

    async def run(server):
        streams = [await wire.Connection.open(server.port) for _ in range(8)]
        await asyncio.gather(*(s.begin_stream({**body, "prompt": [100 + i]})
                               for i, s in enumerate(streams)))
        assert server.metric("vllm:num_requests_running") == 8
        assert used_blocks(server) == 8
        for left in (4, 0):
            steps = await vanish(server, streams[:4])
            del streams[:4]
            await wire.wait_until(lambda left=left: used_blocks(server) == left)
            # The step that was under way, and one that may have begun before the news came.
            assert server.metric("kvasir:steps_total") <= steps + 2
            assert server.metric("vllm:num_requests_running") == left
        assert server.metric("vllm:request_success_total", finished_reason="abort") == 8

    with Server(SMOLLM2, "--kernels", "ref", "--kv-cache-memory-bytes", "256MiB") as server:
        asyncio.run(run(server))


def test_a_storm_of_cancels():
    rng = random.Random(1)
    steady = {"prompt": [7, 8, 9], "max_tokens": 120, "ignore_eos": True, "temperature": 0.8, "seed": 4}

    async def one(server, number):
        """Leaves at a random moment: while connecting, sending, waiting, or in the midst of the answer."""
        connection = await wire.Connection.open(server.port)
        request = wire.request_bytes("POST", "/v1/completions", {
            **LONG, "prompt": [3 + number % 300] * rng.randint(1, 30), "stream": number % 4 != 0,
            "n": rng.choice([1, 1, 3])})
        when = rng.random()
        if when < 0.2:
            request = request[:rng.randrange(len(request))]
        await connection.send(request)
        if when > 0.4:
            await connection.reader.read(rng.randint(1, 4000))
        if number % 2:
            connection.reset()
        else:
            connection.close()

    async def run(server):
        expected = await wire.complete(server.port, steady)
        storm = asyncio.gather(*(one(server, i) for i in range(scaled(600))))
        while not storm.done():
            assert await wire.complete(server.port, steady) == expected
        await storm
        assert await wire.complete(server.port, steady) == expected
        await wire.wait_until(lambda: server.metric("kvasir:http_requests_in_flight") == 0)
        await wire.wait_until(lambda: used_blocks(server) == 0)
        assert server.metric("vllm:num_requests_waiting") == 0
        assert server.metric("vllm:request_success_total", finished_reason="error") == 0
        assert server.metric("vllm:request_success_total", finished_reason="abort") > 0

    with Server(TINY / "llama", "--kv-cache-memory-bytes", "16MiB") as server:
        asyncio.run(run(server))


def test_crawling_clients_beside_quick_ones():
    body = {**LONG, "prompt": [5, 6, 7], "max_tokens": 20}
    request = wire.request_bytes("POST", "/v1/completions", {**body, "return_token_ids": True})

    async def slow_writer(server, expected, where):
        """Sends all but a few bytes at `where`, and these one a second."""
        async with await wire.Connection.open(server.port) as connection:
            await connection.send(request[:where])
            for byte in request[where:where + 3]:
                await asyncio.sleep(1)
                await connection.send(bytes([byte]))
            await connection.send(request[where + 3:])
            status, headers = await connection.head()
            choice = wire.Answer(status, headers, await connection.body(headers)).json()["choices"][0]
            assert (choice["text"], choice["token_ids"]) == expected

    async def slow_reader(server):
        """Asks for more than the buffers on the way hold, and reads a byte a second."""
        async with await wire.Connection.open(server.port, receive_buffer=2048) as connection:
            await connection.send(wire.request_bytes("POST", "/v1/completions", {
                **LONG, "prompt": [9, 9], "stream": True, "logprobs": 5}))
            for _ in range(4):
                assert await connection.reader.readexactly(1)
                await asyncio.sleep(1)

    async def quick(server, expected, others):
        asked = 0
        while not others.done():
            assert await wire.complete(server.port, body) == expected
            asked += 1
        return asked

    async def run(server):
        expected = await wire.complete(server.port, body)
        places = [1, 20, request.index(b"\r\n\r\n") + 1, len(request) - 10]
        crawlers = asyncio.gather(*(slow_writer(server, expected, w) for w in places * 5),
                                  *(slow_reader(server) for _ in range(20)))
        asked = await quick(server, expected, crawlers)
        await crawlers
        # 4 s and more, in which nobody waited for a crawler.
        assert asked > 20, asked
        await wire.wait_until(lambda: used_blocks(server) == 0)

    with Server(TINY / "llama", "--kv-cache-memory-bytes", "16MiB") as server:
        asyncio.run(run(server))


def test_a_reader_that_stops_is_cut_and_its_blocks_come_back():
    # Far more than the kernel's buffers and the server's own hold: 16 choices of 480 tokens with 20
    # logprobs each.
    body = {**LONG, "prompt": [5, 6, 7], "n": 16, "logprobs": 20}
    steady = {"prompt": [7, 8, 9], "max_tokens": 100, "ignore_eos": True, "temperature": 0}

    async def run(server):
        expected = await wire.complete(server.port, steady)
        stopped = [await wire.Connection.open(server.port, receive_buffer=2048) for _ in range(4)]
        await asyncio.gather(*(s.begin_stream(body) for s in stopped))
        while server.metric("kvasir:client_disconnects_total") < 4:
            assert await wire.complete(server.port, steady) == expected
        await wire.wait_until(lambda: used_blocks(server) == 0)
        assert server.metric("kvasir:http_requests_in_flight") == 0
        for connection in stopped:
            connection.reset()

    with Server(TINY / "llama", "--max-logprobs", 20, "--kv-cache-memory-bytes", "64MiB") as server:
        asyncio.run(run(server))


def test_a_full_queue_sends_away_and_the_retry_works():
    requests = [{**LONG, "prompt": [5 + i, 6], "n": 8} for i in range(12)]
    refused = []

    async def patient(server, request):
        """Comes back after as long as it was told, as OpenAI's clients do."""
        while True:
            answer = await wire.ask(server.port, "POST", "/v1/completions",
                                    {**request, "return_token_ids": True})
            if answer.status == 200:
                return [(c["text"], c["token_ids"]) for c in answer.json()["choices"]]
            assert answer.status == 429, answer
            assert answer.json()["error"]["type"] == "rate_limit_error"
            assert "queue is full" in answer.json()["error"]["message"]
            refused.append(request)
            await asyncio.sleep(int(answer.headers["retry-after"]))

    async def run(server):
        expected = [await patient(server, request) for request in requests]
        assert not refused
        assert await asyncio.gather(*(patient(server, r) for r in requests)) == expected
        assert refused
        assert server.metric("kvasir:requests_rejected_total") == len(refused)
        await wire.wait_until(lambda: used_blocks(server) == 0)

    with Server(TINY / "llama", "--max-num-seqs", 1, "--max-num-queued-reqs", 3,
                "--kv-cache-memory-bytes", "16MiB") as server:
        asyncio.run(run(server))
