"""lm-eval over HTTP gives the numbers that its `hf` backend gave on the same model."""

import json

import pytest

import lm_eval_runs as runs
from conftest import Server

# Log-probabilities in float32, computed in another order.
TOLERANCE = 2e-3


@pytest.fixture(name="server", scope="module")
def fixture_server():
    with Server(runs.MODEL, "--max-num-seqs", 16, "--kv-cache-memory-bytes", "64MiB") as server:
        yield server


@pytest.fixture(name="expected", scope="module")
def fixture_expected():
    return json.loads((runs.HERE / "lm_eval_expected.json").read_text(encoding="utf-8"))


def check(got, expected):
    """Equal in every metric and in every single answer."""
    assert got.keys() == expected.keys()
    for task, wanted in expected.items():
        assert got[task]["metrics"] == pytest.approx(wanted["metrics"], rel=TOLERANCE)
        assert len(got[task]["answers"]) == len(wanted["answers"]) > 0
        for answer, want in zip(got[task]["answers"], wanted["answers"]):
            for one, other in zip(answer, want, strict=True):
                if isinstance(other, list):
                    assert one[0] == pytest.approx(other[0], abs=TOLERANCE * 10)
                    assert one[1] == other[1], "is_greedy"
                elif isinstance(other, float):
                    assert one == pytest.approx(other, rel=TOLERANCE)
                else:
                    assert one == other


def completions(server, **arguments):
    return {"model": "llama-f32", "base_url": server.url + "/v1/completions",
            "tokenizer": str(runs.MODEL), "max_retries": 1, **arguments}


@pytest.mark.parametrize("way", [
    {"tokenizer_backend": "huggingface"},
    {"tokenizer_backend": "huggingface", "num_concurrent": 8, "batch_size": 3},
    {"tokenizer_backend": "remote", "tokenizer": None},
], ids=["one-by-one", "batches-at-once", "remote-tokenizer"])
def test_log_likelihoods_equal_hf(server, expected, way):
    got = runs.evaluate("local-completions", completions(
        server, max_length=runs.API_WINDOW, **way), runs.SCORED)
    check(got, expected["scored"])


@pytest.mark.parametrize("way, fields", [
    ({"tokenized_requests": True}, None),
    # A text gets the model's BOS, as in vLLM, unless told otherwise; `hf` was run without.
    ({"tokenized_requests": False, "num_concurrent": 4}, {"add_special_tokens": False}),
], ids=["ids", "text-at-once"])
def test_generated_texts_equal_hf(server, expected, way, fields):
    got = runs.evaluate("local-completions", completions(
        server, max_length=512, tokenizer_backend="huggingface", **way), runs.GENERATED,
        gen_kwargs=fields)
    check(got, expected["generated"])


def test_chat_answers_equal_hf(server, expected):
    got = runs.evaluate("local-chat-completions", {
        "model": "llama-f32", "base_url": server.url + "/v1/chat/completions", "max_retries": 1,
        "eos_string": "</s>", "num_concurrent": 2}, runs.GENERATED, chat=True)
    check(got, expected["chat"])
