"""langchain-openai: ChatOpenAI and OpenAI."""

import asyncio

import openai
import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI

MESSAGES = [SystemMessage("Be brief."), HumanMessage("Hello there")]
SAMPLED = {"temperature": 0.8, "seed": 5, "max_tokens": 12}


@pytest.fixture(name="make")
def fixture_make(tiny):
    model = tiny.client.get("/v1/models").json()["data"][0]["id"]
    return lambda kind, **fields: kind(model=model, base_url=tiny.url + "/v1", api_key="none",
                                       max_retries=0, **{**SAMPLED, **fields})


@pytest.fixture(name="expected")
def fixture_expected(tiny):
    return tiny.post("/v1/chat/completions", {
        "messages": [{"role": "system", "content": "Be brief."},
                     {"role": "user", "content": "Hello there"}], **SAMPLED}).json()


def test_invoke_is_the_servers_answer(make, expected):
    answer = make(ChatOpenAI).invoke(MESSAGES)
    assert answer.content == expected["choices"][0]["message"]["content"]
    assert answer.response_metadata["finish_reason"] == expected["choices"][0]["finish_reason"]
    assert answer.usage_metadata["input_tokens"] == expected["usage"]["prompt_tokens"]
    assert answer.usage_metadata["output_tokens"] == expected["usage"]["completion_tokens"]


def test_a_stream_adds_up_to_the_answer(make, expected):
    whole = None
    for chunk in make(ChatOpenAI, stream_usage=True).stream(MESSAGES):
        whole = chunk if whole is None else whole + chunk
    assert whole.content == expected["choices"][0]["message"]["content"]
    assert whole.usage_metadata["output_tokens"] == expected["usage"]["completion_tokens"]


def test_batches_and_asynchronous_calls(make, expected):
    model = make(ChatOpenAI)
    answers = model.batch([MESSAGES] * 4)
    answers.append(asyncio.run(model.ainvoke(MESSAGES)))
    assert {answer.content for answer in answers} == {expected["choices"][0]["message"]["content"]}


def test_content_parts_and_log_probabilities(make, expected):
    answer = make(ChatOpenAI).bind(logprobs=True, top_logprobs=3).invoke(
        [MESSAGES[0], HumanMessage([{"type": "text", "text": "Hello there"}])])
    assert answer.content == expected["choices"][0]["message"]["content"]
    entries = answer.response_metadata["logprobs"]["content"]
    assert len(entries) == expected["usage"]["completion_tokens"]
    assert all(len(entry["top_logprobs"]) == 3 for entry in entries)


def test_completions(make, tiny):
    expected = tiny.complete("Once upon", **SAMPLED)["choices"][0]["text"]
    model = make(OpenAI)
    assert model.invoke("Once upon") == expected
    assert "".join(model.stream("Once upon")) == expected


def test_what_is_refused_is_an_exception(make):
    with pytest.raises(openai.BadRequestError, match="temperature"):
        make(ChatOpenAI, temperature=3).invoke(MESSAGES)
