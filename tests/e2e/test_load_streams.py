"""Many streams at once: everyone's answer is the one it gets alone, and nobody starves."""

import asyncio
import random

import pytest
from conftest import TINY, Server, scaled
from support import wire


def mixed_requests(count, seed, vocab, prompt_max, output_max):
    """Requests of mixed lengths, greedy and sampled; a third begins alike, so that they share blocks."""
    rng = random.Random(seed)
    common = [rng.randrange(3, vocab) for _ in range(prompt_max)]
    requests = []
    for i in range(count):
        length = rng.randint(1, prompt_max)
        shared = rng.randint(0, length) if i % 3 == 0 else 0
        prompt = common[:shared] + [rng.randrange(3, vocab) for _ in range(length - shared)]
        requests.append({"prompt": prompt, "max_tokens": rng.randint(1, output_max),
                         "ignore_eos": True, "temperature": rng.choice([0, 0.7, 1.3]), "seed": i})
    return requests


async def alone(address, requests):
    """What each request gets with nobody beside it. The salt keeps its blocks to itself."""
    return [await wire.complete(address, {**request, "cache_salt": f"alone-{i}"})
            for i, request in enumerate(requests)]


def check_against(expected, results, requests):
    for i, (result, (text, ids), request) in enumerate(zip(results, expected, requests)):
        assert result.error is None and result.done, (i, result)
        assert result.text == text, i
        assert result.token_ids == ids, i
        assert result.finish_reason == "length", i
        assert result.usage["completion_tokens"] == request["max_tokens"], i


async def nothing_is_held(server):
    """Waits until nothing runs, nothing waits and no block is used."""
    async def idle():
        page = (await wire.ask(server.port, "GET", "/metrics")).body.decode()
        values = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                  for line in page.splitlines() if line and not line.startswith("#")}
        held = {key: value for key, value in values.items() if value and key.startswith((
            "vllm:num_requests_running", "vllm:num_requests_waiting", "kvasir:queue_tokens",
            "kvasir:http_requests_in_flight")) or (value and 'state="used"' in key)}
        return not held
    await wire.wait_until(idle)


@pytest.mark.parametrize("flags", [(), ("--max-num-seqs", 8), ("--no-enable-prefix-caching",),
                                   ("--max-num-batched-tokens", 64)],
                         ids=["wide", "seats-8", "no-prefix-cache", "budget-64"])
def test_64_streams_of_mixed_lengths_equal_what_each_is_alone(flags):
    requests = mixed_requests(scaled(64), seed=7, vocab=384, prompt_max=300, output_max=200)

    async def run(server):
        expected = await alone(server.port, requests)
        results = await asyncio.gather(*(wire.stream(server.port, r) for r in requests))
        check_against(expected, results, requests)
        await nothing_is_held(server)

    with Server(TINY / "llama", "--kv-cache-memory-bytes", "64MiB", *flags) as server:
        asyncio.run(run(server))


def test_64_streams_of_the_default_model_are_exact_and_nobody_starves(smollm2):
    requests = mixed_requests(scaled(64), seed=11, vocab=49152, prompt_max=48, output_max=16)
    heard = [0] * len(requests)  # tokens so far, of each stream
    since = [list(heard) for _ in requests]  # everyone's count when this stream last heard something
    longest = [0] * len(requests)  # most tokens that any other got between two of this one's

    def note(i):
        heard[i] += 1
        others = max(now - then for j, (now, then) in enumerate(zip(heard, since[i])) if j != i)
        longest[i] = max(longest[i], others)
        since[i] = list(heard)

    async def run():
        expected = await alone(smollm2.port, requests)
        results = await asyncio.gather(
            *(wire.stream(smollm2.port, r, lambda i=i: note(i)) for i, r in enumerate(requests)))
        check_against(expected, results, requests)
        await nothing_is_held(smollm2)

    asyncio.run(run())
    assert heard == [request["max_tokens"] for request in requests]
    # All 64 have a seat, so whoever waits misses a step or two, or the rest of the prompts at first.
    assert max(longest) <= 16, longest


@pytest.mark.parametrize("model,prompt_max,output_max", [("llama", 60, 100), ("gemma3", 40, 40)])
def test_a_cache_of_20_blocks_under_32_requests(model, prompt_max, output_max):
    requests = mixed_requests(32, 3, 380, prompt_max, output_max)

    async def run(server):
        expected = await alone(server.port, requests)
        results = await asyncio.gather(*(wire.stream(server.port, r) for r in requests))
        check_against(expected, results, requests)
        again = await asyncio.gather(*(wire.complete(server.port, r) for r in requests))
        assert again == expected
        await nothing_is_held(server)
        assert server.metric("vllm:num_preemptions_total") > 0
        assert server.metric("vllm:request_success_total", finished_reason="error") == 0

    with Server(TINY / model, "--num-kv-blocks", 20) as server:
        asyncio.run(run(server))


def test_1000_idle_connections_beside_200_busy_ones():
    requests = mixed_requests(20, seed=5, vocab=384, prompt_max=40, output_max=40)

    async def busy(server, first, expected):
        async with await wire.Connection.open(server.port) as connection:
            for i in range(first, first + 5):
                request = requests[i % len(requests)]
                if i % 2:
                    answer = await connection.ask("POST", "/v1/completions",
                                                  {**request, "return_token_ids": True})
                    assert answer.status == 200, answer.body
                    choice = answer.json()["choices"][0]
                    got = choice["text"], choice["token_ids"]
                else:
                    result = await connection.stream(request)
                    assert result.done and result.error is None, result
                    got = result.text, result.token_ids
                assert got == expected[i % len(requests)]

    async def run(server):
        expected = await alone(server.port, requests)
        idle = []
        for _ in range(scaled(1000)):
            idle.append(await wire.Connection.open(server.port))
            assert (await idle[-1].ask("GET", "/health")).status == 200
        await asyncio.gather(*(busy(server, first, expected) for first in range(scaled(200))))
        # Those that were idle all the while are as good as on the first day.
        answers = await asyncio.gather(*(c.ask("GET", "/v1/models") for c in idle))
        assert all(a.status == 200 and a.json()["data"] for a in answers)
        for connection in idle:
            connection.close()
        await nothing_is_held(server)
        assert server.metric("kvasir:client_disconnects_total") == 0

    with Server(TINY / "llama", "--kv-cache-memory-bytes", "64MiB") as server:
        asyncio.run(run(server))
