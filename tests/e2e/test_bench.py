"""kvasir bench, and traces that a server records: on a tiny model, for form and not for speed."""

import json
import re
import stat

import pytest
from conftest import TINY, Server, run_cli

LLAMA = TINY / "llama"
# Words that occur in no file of the product, so that finding them means content got out.
SECRET = "xylophone quagmire zephyr"


def bench_json(*arguments):
    shown = run_cli("bench", *arguments, "--json")
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def test_streams():
    shown = bench_json(LLAMA, "--streams", "1,3", "--prompt-tokens", 20, "--output-tokens", 6,
                       "--repeat", 2)
    assert shown["model"] == "llama" and shown["threads"] >= 1
    assert [row["streams"] for row in shown["streams"]] == [1, 3]
    for row in shown["streams"]:
        assert 0 < row["ttft_seconds_median"] <= row["ttft_seconds_max"]
        assert 0 < row["itl_seconds_median"] <= row["itl_seconds_p99"]
        assert row["prefill_tokens_per_second"] > 0
        assert row["output_tokens_per_second"] > 0


def test_table_has_units():
    shown = run_cli("bench", LLAMA, "--streams", "1", "--prompt-tokens", 8, "--output-tokens", 4,
                    "--repeat", 1)
    assert shown.returncode == 0, shown.stderr
    assert "first token, ms" in shown.stdout and "tokens/s" in shown.stdout
    assert "running streams: 100 %" in shown.stderr


def test_no_kv_cache():
    shown = bench_json(LLAMA, "--no-kv-cache", "--lengths", "8,64")
    assert [row["length_tokens"] for row in shown["lengths"]] == [8, 64]
    longest = shown["lengths"][-1]
    assert longest["recomputed_seconds"] > longest["cached_seconds"] > 0


@pytest.mark.parametrize("arguments, code, said", [
    ([], 2, "MODEL is required"),
    ([LLAMA, "--prompt-tokens", 100000], 2, "--prompt-tokens and --output-tokens: expected at most"),
    ([LLAMA, "--no-kv-cache", "--lengths", 100000], 2, "--lengths: expected a length of at most"),
    (["/no/such/model"], 3, "/no/such/model"),
    (["calibrate", LLAMA], 2, "--output is required"),
    (["calibrate", LLAMA, "--point-secnds", 1, "-o", "x"], 2, "--point-seconds"),
])
def test_errors(arguments, code, said):
    shown = run_cli("bench", *arguments)
    assert shown.returncode == code, shown.stderr
    assert said in shown.stderr


def test_calibrate_writes_a_file_that_predicts(tmp_path):
    path = tmp_path / "calibration.json"
    shown = bench_json("calibrate", LLAMA, "-o", path, "--point-seconds", 0, "--max-context", 64,
                       "--max-num-seqs", 4, "--max-num-batched-tokens", 32)
    assert shown["file"] == str(path) and shown["load_steps"] > 10
    assert shown["load_seconds"] > 0 and shown["load_seconds_predicted"] > 0
    written = json.loads(path.read_text())
    assert written["format"] == "kvasir-calibration" and written["version"] == 1
    assert len(written["points"]) == shown["points"]
    shapes = {(point["prefill_tokens"] > 0, point["decode_sequences"] > 0)
              for point in written["points"]}
    assert shapes == {(True, False), (False, True), (True, True)}
    assert max(point["decode_sequences"] for point in written["points"]) == 4


def test_calibrate_says_what_it_cannot_write():
    shown = run_cli("bench", "calibrate", LLAMA, "-o", "/no/such/folder/c.json", "--point-seconds",
                    0, "--max-context", 32, "--max-num-seqs", 2, "--max-num-batched-tokens", 16)
    assert shown.returncode == 1
    # Said at once, before anything is measured.
    assert shown.stderr == (
        "kvasir: /no/such/folder/c.json: cannot be written: No such file or directory\n")


def test_record_trace_holds_lengths_and_no_content(tmp_path):
    path = tmp_path / "trace.jsonl"
    flags = ["--record-trace", path, "--num-kv-blocks", 256, "--block-size", 16]
    with Server(LLAMA, *flags) as server:
        tokens = server.post("/tokenize", {"prompt": SECRET * 4}).json()["count"]
        server.complete(SECRET * 4, max_tokens=5, ignore_eos=True, temperature=0)
        server.complete(SECRET * 4 + " and more", max_tokens=3, ignore_eos=True, n=2)
        answer = server.complete(SECRET, max_tokens=2, ignore_eos=True)["choices"][0]["text"]
        # A line is there soon after its request's end, not at the server's.
        server.wait_until(lambda: path.read_text().count("\n") == 4)
    text = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["output_length"] for row in rows] == [5, 3, 3, 2]
    assert rows[0]["input_length"] == tokens
    assert all(row["block_size"] == 16 for row in rows)
    full = tokens // 16
    assert full > 0 and rows[0]["hash_ids"] == rows[1]["hash_ids"][:full]
    assert rows[0]["timestamp"] <= rows[1]["timestamp"] <= rows[3]["timestamp"]
    for word in [*SECRET.split(), *answer.split()]:
        if len(word) > 3:
            assert word not in text
    assert {key for row in rows for key in row} == {
        "timestamp", "input_length", "output_length", "block_size", "hash_ids", "session"}

    # Another run appends, and names the same blocks otherwise.
    with Server(LLAMA, *flags) as server:
        server.complete(SECRET * 4, max_tokens=5, ignore_eos=True, temperature=0)
    again = [json.loads(line) for line in path.read_text().splitlines()]
    assert again[:4] == rows and len(again) == 5
    assert again[4]["input_length"] == tokens
    assert not set(again[4]["hash_ids"]) & set(rows[0]["hash_ids"])


def test_a_recorded_trace_simulates_back(tmp_path):
    path = tmp_path / "trace.jsonl"
    with Server(LLAMA, "--record-trace", path, "--num-kv-blocks", 256) as server:
        def ask(prompt, output):
            choice = server.complete(prompt, max_tokens=output, ignore_eos=True, temperature=0,
                                     logprobs=0, return_tokens_as_token_ids=True)["choices"][0]
            return [int(token.removeprefix("token_id:")) for token in choice["logprobs"]["tokens"]]

        system = list(range(10, 60))
        answer = ask(system + [70] * 20, 40)
        ask(system + [80] * 30, 5)
        # The next turn of the first, which also finds the blocks of its answer.
        ask(system + [70] * 20 + answer + [90] * 10, 6)
        ask([100] * 33, 4)
        queries = server.metric("vllm:prefix_cache_queries_total")
        hits = server.metric("vllm:prefix_cache_hits_total")
    assert hits > 2 * 48
    shown = run_cli("simulate", LLAMA, "--hardware", "l4", "--trace", path, "--num-kv-blocks", 256,
                    "--json")
    assert shown.returncode == 0, shown.stderr
    simulated = json.loads(shown.stdout)["variants"][0]
    assert simulated["finished"] == 4
    assert simulated["prompt_tokens"] == queries
    assert simulated["output_tokens"] == 40 + 5 + 6 + 4
    assert simulated["cached_tokens"] == hits


def test_page_of_a_simulation(tmp_path):
    page = tmp_path / "page.html"
    shown = run_cli("simulate", LLAMA, "--hardware", "l4", "--rate", 400, "--requests", 60,
                    "--prompt-tokens", "20..200", "--output-tokens", "5..60", "--num-kv-blocks", 64,
                    "--compare", "kv-allocation", "--html", page)
    assert shown.returncode == 0, shown.stderr
    text = page.read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S).group(1))
    assert [variant["name"] for variant in data["variants"]] == ["reserved", "paged"]
    for variant in data["variants"]:
        assert [point["load"] for point in variant["curve"]] == [100, 200, 300, 400, 600, 800]
        assert len(variant["timeline"]["rows"]) > 10 and len(variant["snapshots"]) > 10
        assert sum(variant["snapshots"][0]["runs"][1::2]) == variant["blocks_count"] == 64
    assert f"--html {page}" in text


def test_record_trace_must_be_writable():
    shown = run_cli("serve", LLAMA, "--record-trace", "/no/such/folder/trace")
    assert shown.returncode == 2
    assert shown.stderr.splitlines()[-1] == (
        "kvasir: --record-trace: /no/such/folder/trace: cannot be written: "
        "No such file or directory")
