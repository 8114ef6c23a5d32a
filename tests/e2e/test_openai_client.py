"""openai-python against the running server: sync, async, streams, errors."""

import asyncio
import contextlib
import threading

import httpx
import openai
import pytest

from conftest import TINY, Server

MESSAGES = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]


@pytest.fixture(name="client")
def fixture_client(smollm2):
    return openai.OpenAI(base_url=smollm2.url + "/v1", api_key="none")


def test_chat_answers_sensibly(client):
    models = client.models.list().data
    answer = client.chat.completions.create(model=models[0].id, messages=MESSAGES, temperature=0,
                                            max_tokens=40)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens > 10
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_stream_equals_whole(client):
    model = client.models.list().data[0].id
    fields = {"model": model, "messages": MESSAGES, "temperature": 0.8, "seed": 7, "max_tokens": 60}
    whole = client.chat.completions.create(**fields)
    chunks = list(client.chat.completions.create(**fields, stream=True,
                                                 stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [
        whole.choices[0].finish_reason]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({c.id for c in chunks}) == 1


def test_sixteen_streams_at_once_equal_each_alone(smollm2):
    async def run():
        client = openai.AsyncOpenAI(base_url=smollm2.url + "/v1", api_key="none")
        model = (await client.models.list()).data[0].id

        async def ask(i):
            stream = await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": f"Count from {i} upwards."}],
                temperature=1.0, seed=i, max_tokens=24, stream=True)
            return "".join([c.choices[0].delta.content or "" async for c in stream])

        alone = [await ask(i) for i in range(16)]
        together = await asyncio.gather(*[ask(i) for i in range(16)])
        assert alone == list(together)

    asyncio.run(run())


def test_logprobs_and_n(client):
    model = client.models.list().data[0].id
    answer = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=5, n=3, seed=1,
                                            temperature=1.0, logprobs=True, top_logprobs=4)
    assert [c.index for c in answer.choices] == [0, 1, 2]
    for choice in answer.choices:
        assert 0 < len(choice.logprobs.content) <= 5
        for entry in choice.logprobs.content:
            assert len(entry.top_logprobs) == 4
            tops = [t.logprob for t in entry.top_logprobs]
            assert tops == sorted(tops, reverse=True)
            assert entry.logprob <= tops[0]


def test_errors_are_the_clients_classes(client):
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(model="no-such-model", messages=MESSAGES)
    model = client.models.list().data[0].id
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model=model, messages=MESSAGES, temperature=3)
    with pytest.raises(openai.BadRequestError, match="max_model_len=8192"):
        client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=10_000_000)
    with pytest.raises(openai.BadRequestError, match="maximum context length") as overflow:
        client.chat.completions.create(model=model, messages=[
            {"role": "user", "content": "far too long " * 5000}])
    assert overflow.value.status_code == 400
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(model=model, messages=MESSAGES, tools=[
            {"type": "function", "function": {"name": "f", "parameters": {}}}])


def test_raw_response_and_completions(client, smollm2):
    model = client.models.list().data[0].id
    raw = client.completions.with_raw_response.create(model=model, prompt="Once upon a time",
                                                      max_tokens=8, temperature=0)
    assert raw.headers["content-type"].startswith("application/json")
    assert raw.parse().choices[0].text
    assert httpx.get(smollm2.url + "/health").status_code == 200


def test_raw_response_of_a_stream(client):
    with client.chat.completions.with_streaming_response.create(
            model="", messages=MESSAGES, max_tokens=4, stream=True) as raw:
        assert raw.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert raw.headers["x-request-id"]
        lines = [line for line in raw.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"


def test_a_stream_that_is_closed_early_ends_its_request(tiny):
    client = openai.OpenAI(base_url=tiny.url + "/v1", api_key="none")
    aborted = tiny.metric("vllm:request_success_total", finished_reason="abort")
    with client.completions.create(model="", prompt="Hi", n=64, max_tokens=480, stream=True,
                                   extra_body={"ignore_eos": True}) as stream:
        next(iter(stream))
    tiny.wait_until(lambda: tiny.metric("vllm:num_requests_running") == 0)
    assert tiny.metric("vllm:request_success_total", finished_reason="abort") > aborted


def test_keys_and_paths_are_the_clients_classes():
    with Server(TINY / "llama", "--api-key", "right") as server:
        server.client.headers["Authorization"] = "Bearer right"
        with pytest.raises(openai.AuthenticationError) as wrong:
            openai.OpenAI(base_url=server.url + "/v1", api_key="wrong").models.list()
        assert wrong.value.code == "invalid_api_key"
        right = openai.OpenAI(base_url=server.url + "/v1", api_key="right")
        assert right.models.retrieve("llama").id == "llama"
        with pytest.raises(openai.NotFoundError):
            right.embeddings.create(model="llama", input="Hi")


def test_a_full_queue_is_retried_after_what_the_server_says():
    seen = []  # status and Retry-After of each answer
    with Server(TINY / "llama", "--max-num-seqs", 1, "--max-num-queued-reqs", 1,
                "--kv-cache-memory-bytes", "64MiB") as server, contextlib.ExitStack() as streams:
        def occupy():
            body = {"prompt": "Hi", "max_tokens": 400, "n": 128, "ignore_eos": True, "stream": True}
            streams.enter_context(server.client.stream("POST", "/v1/completions", json=body))

        occupying = threading.Thread(target=lambda: [occupy(), occupy()])
        occupying.start()
        server.wait_until(lambda: server.metric("vllm:num_requests_waiting") >= 1)
        with pytest.raises(openai.RateLimitError) as full:
            openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                          max_retries=0).completions.create(model="", prompt="Hi", max_tokens=2)
        assert full.value.status_code == 429
        assert int(full.value.response.headers["retry-after"]) >= 1

        def free(response):
            seen.append((response.status_code, response.headers.get("retry-after")))
            if response.status_code == 429:  # the queue empties while the client waits
                occupying.join()
                streams.close()

        patient = openai.OpenAI(
            base_url=server.url + "/v1", api_key="none", max_retries=3,
            http_client=openai.DefaultHttpxClient(event_hooks={"response": [free]}))
        answer = patient.completions.create(model="", prompt="Hi", max_tokens=2)
        assert answer.usage.completion_tokens == 2
        assert seen == [(429, "1"), (200, None)]
