"""LiteLLM, as `hosted_vllm/` and as `openai/`."""

import asyncio

import litellm
import pytest

from conftest import TINY, Server

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello there"}]
SAMPLED = {"temperature": 0.8, "seed": 5, "max_tokens": 12}


@pytest.fixture(name="ask", params=["hosted_vllm/", "openai/"])
def fixture_ask(tiny, request):
    model = request.param + tiny.client.get("/v1/models").json()["data"][0]["id"]
    return {"model": model, "api_base": tiny.url + "/v1", "api_key": "none", "max_retries": 0}


@pytest.fixture(name="expected")
def fixture_expected(tiny):
    answer = tiny.post("/v1/chat/completions", {"messages": MESSAGES, **SAMPLED})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_answer_is_the_servers(ask, expected):
    answer = litellm.completion(**ask, messages=MESSAGES, **SAMPLED)
    assert answer.choices[0].message.content == expected["choices"][0]["message"]["content"]
    assert answer.choices[0].finish_reason == expected["choices"][0]["finish_reason"]
    assert answer.usage.prompt_tokens == expected["usage"]["prompt_tokens"]
    assert answer.usage.completion_tokens == expected["usage"]["completion_tokens"]


def test_a_stream_is_the_same_answer(ask, expected):
    chunks = list(litellm.completion(**ask, messages=MESSAGES, stream=True,
                                     stream_options={"include_usage": True}, **SAMPLED))
    whole = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
    assert whole.choices[0].message.content == expected["choices"][0]["message"]["content"]
    assert whole.choices[0].finish_reason == expected["choices"][0]["finish_reason"]
    assert whole.usage.completion_tokens == expected["usage"]["completion_tokens"]


def test_asynchronous_answers_are_the_same(ask, expected):
    async def run():
        answers = await asyncio.gather(*[
            litellm.acompletion(**ask, messages=MESSAGES, **SAMPLED) for _ in range(4)])
        stream = await litellm.acompletion(**ask, messages=MESSAGES, stream=True, **SAMPLED)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert {answer.choices[0].message.content for answer in answers} | {text} == {
            expected["choices"][0]["message"]["content"]}

    asyncio.run(run())


def test_text_completion(tiny):
    model = tiny.client.get("/v1/models").json()["data"][0]["id"]
    expected = tiny.complete("Once upon", **SAMPLED)
    answer = litellm.text_completion(model="text-completion-openai/" + model, prompt="Once upon",
                                     api_base=tiny.url + "/v1", api_key="none", **SAMPLED)
    assert answer.choices[0].text == expected["choices"][0]["text"]


def test_errors_are_litellms_classes(ask):
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(**ask, messages=[{"role": "user", "content": "too long " * 5000}])
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        litellm.completion(**ask, messages=MESSAGES, temperature=3)
    with pytest.raises(litellm.NotFoundError, match="does not exist"):
        litellm.completion(**{**ask, "model": ask["model"].split("/")[0] + "/none"}, messages=MESSAGES)


def test_a_wrong_key_is_an_authentication_error():
    with Server(TINY / "llama", "--api-key", "right") as server:
        ask = {"model": "hosted_vllm/llama", "api_base": server.url + "/v1", "max_retries": 0,
               "messages": MESSAGES, "max_tokens": 2}
        with pytest.raises(litellm.AuthenticationError):
            litellm.completion(**ask, api_key="wrong")
        server.client.headers["Authorization"] = "Bearer right"
        assert litellm.completion(**ask, api_key="right").choices[0].finish_reason == "length"
