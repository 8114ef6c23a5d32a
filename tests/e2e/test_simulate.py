"""`kvasir simulate`: what it prints, and that it counts what the real server counts."""

import json

import pytest
from conftest import TINY, Server, run_cli

MACHINE = ["--hardware", "epyc-milan-1s"]
SMALL = ["--requests", "50", "--prompt-tokens", "20..60", "--output-tokens", "8", "--max-model-len",
         "128"]


def simulate(*flags, model=TINY / "llama"):
    shown = run_cli("simulate", model, *MACHINE, *flags, "--json")
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def test_the_same_command_gives_the_same_figures():
    first = run_cli("simulate", TINY / "llama", *MACHINE, *SMALL, "--rate", "1000")
    assert first.returncode == 0, first.stderr
    assert "time to first token, median" in first.stdout
    assert run_cli("simulate", TINY / "llama", *MACHINE, *SMALL, "--rate", "1000").stdout == first.stdout
    assert run_cli("simulate", TINY / "llama", *MACHINE, *SMALL, "--rate", "1000", "--seed",
                   "1").stdout != first.stdout


def test_a_comparison_has_the_same_traffic_in_each_column():
    report = simulate(*SMALL, "--users", "8", "--num-kv-blocks", "20", "--compare", "kv-allocation")
    reserved, paged = report["variants"]
    assert [reserved["variant"], paged["variant"]] == ["reserved", "paged"]
    assert reserved["finished"] == paged["finished"] == 50
    assert reserved["prompt_tokens"] == paged["prompt_tokens"]
    assert reserved["running_max"] == 2 < paged["running_max"]
    assert reserved["fragmentation"] > paged["fragmentation"]


def test_find_names_the_most_users(tmp_path):
    page = tmp_path / "report.html"
    report = simulate(*SMALL, "--find", "users", "--max-ttft", "20ms", "--html", page)
    variant = report["variants"][0]
    assert variant["load_found"] >= 1
    for point in variant["loads"]:
        assert (point["slo_share"] >= 0.95) == (point["load"] <= variant["load_found"])
    assert page.read_text().lower().startswith("<!doctype html>")


@pytest.mark.parametrize("flags, words", [
    (["--compare", "colours"], "--compare"),
    (["--prompt-tokens", "many"], "--prompt-tokens"),
    (["--find", "users"], "--max-ttft"),
    (["--hardware", "h900"], "h900"),
    (["--rate", "0"], "--rate"),
    (["--users", "3", "--arrivals", "poisson"], "--users"),
    (["--loads", "1,x"], "--loads"),
    (["--calibration", "/no/such/file"], "/no/such/file"),
    (["--trace", "/no/such/file"], "/no/such/file"),
    (["--max-ttft", "soon"], "max-ttft"),
])
def test_what_is_wrong_is_named_in_one_line(flags, words):
    shown = run_cli("simulate", TINY / "llama", *flags)
    assert shown.returncode in (1, 2, 3)
    assert shown.stdout == ""
    assert shown.stderr.count("\n") == 1
    assert words in shown.stderr


def test_preemptions_and_hits_are_those_of_the_real_server(tmp_path):
    """Requests that arrive together take the same steps, whatever a step takes."""
    flags = ["--num-kv-blocks", "24", "--block-size", "8", "--max-num-seqs", "16",
             "--max-num-batched-tokens", "48", "--max-model-len", "128"]
    written = tmp_path / "requests.jsonl"
    report = simulate("--arrivals", "burst", "--burst-size", "12", "--requests", "12",
                      "--prefix-tokens", "20", "--prompt-tokens", "15", "--output-tokens", "40",
                      "--write-requests", written, *flags)
    simulated = report["variants"][0]
    prompts = [json.loads(line)["prompt"] for line in written.read_text().splitlines()]
    with Server(TINY / "llama", *flags) as server:
        answer = server.post("/v1/completions", {
            "model": server.client.get("/v1/models").json()["data"][0]["id"], "prompt": prompts,
            "max_tokens": 40, "ignore_eos": True, "temperature": 0})
        assert answer.status_code == 200, answer.text
        assert server.metric("vllm:num_preemptions_total") == simulated["preemptions"] > 0
        assert server.metric("vllm:prompt_tokens_cached_total") == simulated["cached_tokens"] > 0
        assert server.metric("kvasir:steps_total") == simulated["steps"]
