"""The requests of `vllm bench serve`, and what that script takes from the answers."""

import asyncio
import json
import time

import aiohttp
import pytest

TOKENS = 12


async def benchmark_request(session, url, payload):
    """Sends one request as the script does and takes from its stream what the script reports.

    It cuts the stream at empty lines, leaves out comments, counts an event with choices as output
    and reads usage only from an event without.
    """
    headers = {"Content-Type": "application/json", "Authorization": "Bearer none",
               "x-request-id": "bench-" + str(id(payload))}
    told = {"text": "", "times": [], "tokens": None, "done": False}
    began, buffered = time.perf_counter(), ""
    async with session.post(url, json=payload, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        async for piece in answer.content.iter_any():
            buffered += piece.decode()
            while "\n\n" in buffered:
                event, buffered = buffered.split("\n\n", 1)
                event = event.strip()
                if not event or event.startswith(":"):
                    continue
                data = event.removeprefix("data: ")
                if data == "[DONE]":
                    told["done"] = True
                    continue
                data = json.loads(data)
                if data.get("choices"):
                    choice = data["choices"][0]
                    text = choice["text"] if "text" in choice else choice["delta"].get("content")
                    told["text"] += text or ""
                    told["times"].append(time.perf_counter() - began)
                elif data.get("usage"):
                    told["tokens"] = data["usage"]["completion_tokens"]
    assert buffered == ""
    return told


def bodies(path, model, count):
    """The script's own bodies: random words, nulls where an option is not set."""
    for i in range(count):
        prompt = f"request {i}: " + "word " * (5 + i % 7)
        shared = {"model": model, "stream": True, "stream_options": {"include_usage": True},
                  "ignore_eos": True, "temperature": 0.0, "repetition_penalty": 1.0}
        if path == "/v1/completions":
            yield {**shared, "prompt": prompt, "max_tokens": TOKENS, "logprobs": None}
        else:
            yield {**shared, "max_completion_tokens": TOKENS, "messages": [
                {"role": "user", "content": [{"type": "text", "text": prompt}]}]}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_every_request_succeeds_and_is_counted_right(tiny, path):
    async def run():
        timeout = aiohttp.ClientTimeout(total=6 * 3600)
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=60)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            async with session.get(tiny.url + "/v1/models") as answer:
                entry = (await answer.json())["data"][0]
                model = entry["id"]
                assert entry["root"]
            requests = list(bodies(path, model, 32))
            await benchmark_request(session, tiny.url + path, requests[0])  # the script's own test
            return requests, await asyncio.gather(*[
                benchmark_request(session, tiny.url + path, body) for body in requests])

    requests, results = asyncio.run(run())
    for body, told in zip(requests, results):
        assert told["done"]
        assert told["tokens"] == TOKENS
        # One event a token that shows text, so that the script's gaps are gaps between tokens.
        assert 1 <= len(told["times"]) <= TOKENS + 1
        whole = tiny.post(path, {**body, "stream": False, "stream_options": None}).json()["choices"][0]
        assert told["text"] == (whole["text"] if "text" in whole else whole["message"]["content"])


def test_the_script_s_other_questions(tiny):
    model = tiny.client.get("/v1/models").json()["data"][0]["id"]
    ids = tiny.post("/tokenize", {"model": model, "prompt": "some words",
                                  "add_special_tokens": False}).json()["tokens"]
    assert tiny.post("/detokenize", {"model": model, "tokens": ids}).json()["prompt"] == "some words"
    # Speculative decoding is reported only where there are such counters.
    assert "vllm:spec_decode" not in tiny.client.get("/metrics").text
    assert tiny.post("/start_profile", {}).status_code == 404
