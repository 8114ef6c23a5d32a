"""LlamaIndex's OpenAILike, as a chat model and as a completion model."""

import asyncio

import openai
import pytest
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

MESSAGES = [ChatMessage(role="system", content="Be brief."),
            ChatMessage(role="user", content="Hello there")]
SAMPLED = {"temperature": 0.8, "seed": 5, "max_tokens": 12}


@pytest.fixture(name="make")
def fixture_make(tiny):
    model = tiny.client.get("/v1/models").json()["data"][0]["id"]
    return lambda **fields: OpenAILike(
        model=model, api_base=tiny.url + "/v1", api_key="none", context_window=512, max_retries=0,
        **{"temperature": 0.8, "max_tokens": 12, "additional_kwargs": {"seed": 5}, **fields})


@pytest.fixture(name="expected")
def fixture_expected(tiny):
    return tiny.post("/v1/chat/completions", {
        "messages": [{"role": "system", "content": "Be brief."},
                     {"role": "user", "content": "Hello there"}],
        **SAMPLED}).json()["choices"][0]["message"]["content"]


def test_chat_whole_streamed_and_asynchronous(make, expected):
    model = make(is_chat_model=True)
    assert model.chat(MESSAGES).message.content == expected
    deltas = list(model.stream_chat(MESSAGES))
    assert "".join(part.delta or "" for part in deltas) == expected
    assert deltas[-1].message.content == expected
    assert asyncio.run(model.achat(MESSAGES)).message.content == expected


def test_completions_whole_and_streamed(make, tiny):
    expected = tiny.complete("Once upon", **SAMPLED)["choices"][0]["text"]
    model = make(is_chat_model=False)
    assert model.complete("Once upon").text == expected
    assert list(model.stream_complete("Once upon"))[-1].text == expected


def test_what_is_refused_is_an_exception(make):
    with pytest.raises(openai.BadRequestError, match="logit_bias"):
        make(is_chat_model=True, additional_kwargs={"logit_bias": {"x": 1}}).chat(MESSAGES)
