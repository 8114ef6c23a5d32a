"""`kvasir simulate`: what it prints, and that it counts what the real server counts."""

import json
import shutil

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


@pytest.mark.parametrize("flags, words", [
    (["--requests", "1"], "1 request: 1 request/s (Poisson); prompts of 512 tokens, answers of 128"),
    (["--requests", "2", "--rate", "0.5", "--prompt-tokens", "1", "--prefix-tokens", "1"],
     "2 requests: 0.5 requests/s (Poisson); prompts of 1 token, answers of 128; "
     "100 % begin with the same prefix of 1 token"),
    (["--requests", "2", "--users", "1", "--prefix-tokens", "9", "--prefixes", "2"],
     "2 requests: 1 user with one request at a time; prompts of 512 tokens, answers of 128; "
     "100 % begin with one of 2 prefixes of 9 tokens"),
    (["--requests", "1", "--turns", "2", "--turn-tokens", "1", "--documents", "1"],
     "1 conversation: 1 conversation/s (Poisson); prompts of 512 tokens, answers of 128; "
     "1 of 1 document of 1000 tokens; 2 turns of 1 new token, 0 s after an answer"),
    (["--requests", "2000000", "--arrivals", "burst", "--burst-size", "1", "--duration", "10s"],
     "2000000 requests: 1 request at once every 10 s; prompts of 512 tokens, answers of 128"),
])
def test_one_is_a_singular(flags, words):
    shown = run_cli("simulate", "llama-3.1-8b", "--hardware", "h200", *flags)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines()[1] == words


def test_find_names_the_most_users(tmp_path):
    page = tmp_path / "report.html"
    report = simulate(*SMALL, "--find", "users", "--max-ttft", "20ms", "--html", page)
    variant = report["variants"][0]
    assert variant["load_found"] >= 1
    for point in variant["loads"]:
        assert (point["slo_share"] >= 0.95) == (point["load"] <= variant["load_found"])
    assert page.read_text().lower().startswith("<!doctype html>")


def test_a_load_of_conversations_is_counted_in_conversations():
    flags = ["--requests", "30", "--prompt-tokens", "16", "--turns", "3", "--turn-tokens", "4",
             "--output-tokens", "4", "--max-model-len", "128"]
    report = simulate(*flags, "--find", "rate", "--max-ttft", "1s")
    assert report["load_unit"] == "conversations/s"
    assert simulate(*flags[:4], "--find", "rate", "--max-ttft", "1s")["load_unit"] == "requests/s"


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
    (["--max-itl", "50"], "--max-itl: expected a time with its unit, as 50ms or 2s, got '50'"),
    (["--trace", "/dev/zero"], "/dev/zero: expected a file or a pipe"),
    (["--calibration", "/dev/zero"], "/dev/zero: expected a file or a pipe"),
    (["--html", "/no/such/folder/page.html"], "page.html: cannot be written: No such file"),
    (["--write-requests", "/no/such/folder/r"], "/no/such/folder/r: cannot be written"),
    (["--kv-cache-memory-bytes", "1"], "--kv-cache-memory-bytes: expected at least"),
    (["--compare", "block-size=99999999999"], "from 1 to 1024"),
    (["--users", "2", "--loads", "0.5"], "--loads: expected whole numbers"),
    # What nothing would read.
    (["--users", "3", "--rate", "2"], "--rate does not go with --users"),
    (["--arrivals", "burst", "--rate", "2"], "--rate does not go with --arrivals burst"),
    (["--prefixes", "3"], "--prefixes goes with --prefix-tokens"),
    (["--prefix-share", "0.5"], "--prefix-share goes with --prefix-tokens"),
    (["--turn-tokens", "9"], "--turn-tokens goes with --turns"),
    (["--documents-per-request", "2"], "--documents-per-request goes with --documents"),
    (["--document-tokens", "2"], "--document-tokens goes with --documents"),
    (["--slo-share", "0.9"], "--slo-share goes with --find"),
    (["--find", "rate", "--max-ttft", "2s", "--rate", "4"], "--rate does not go with --find rate"),
    (["--slo-share", "0.9", "--max-ttft", "2s"], "--slo-share goes with --find"),
    (["--find", "users", "--max-ttft", "2s", "--users", "4"], "--users does not go with --find users"),
    (["--trace-speed", "2"], "--trace-speed goes with --trace"),
    (["--trace-format", "azure"], "--trace-format goes with --trace"),
    (["--loads", "1,2", "--find", "users", "--max-ttft", "2s"], "--loads does not go with --find"),
    (["--burst-size", "4"], "--burst-size goes with --arrivals burst"),
    (["--burst-every", "4s"], "--burst-every goes with --arrivals burst"),
    (["--variation", "3"], "--variation goes with --arrivals gamma"),
    (["--think-time", "3s"], "--think-time goes with --users"),
    (["--find", "users", "--max-ttft", "2s", "--arrivals", "burst"], "--find users goes with"),
    (["--compare", "block-size=8,16,8"], "--compare block-size: expected each value once, got '8' twice"),
    (["--loads", "1,2,1"], "--loads: expected each load once, got 1 twice"),
])
def test_what_is_wrong_is_named_in_one_line(flags, words):
    shown = run_cli("simulate", TINY / "llama", *flags)
    assert shown.returncode in (1, 2, 3)
    assert shown.stdout == ""
    assert shown.stderr.count("\n") == 1
    assert words in shown.stderr


@pytest.mark.parametrize("flags, compare", [
    (["--weights", "fp8"], "weights=bf16,fp8"), (["--hardware", "l4"], "hardware=l4,h200"),
    (["--block-size", "8"], "block-size=8,16"), (["--kv-allocation", "paged"], "kv-allocation"),
    (["--batching", "static"], "batching"), (["--enable-prefix-caching"], "prefix-caching"),
    (["--no-enable-prefix-caching"], "prefix-caching"),
    (["--no-enable-chunked-prefill"], "chunked-prefill"), (["--max-num-seqs", "4"], "max-num-seqs=2,4"),
    (["--max-num-batched-tokens", "99"], "max-num-batched-tokens=64,128")])
def test_what_is_compared_is_not_given_beside(flags, compare):
    shown = run_cli("simulate", TINY / "llama", *flags, "--compare", compare)
    assert (shown.returncode, shown.stdout) == (2, "")
    flag = flags[0].replace("--no-", "--")
    assert shown.stderr == (f"kvasir: {flag} does not go with --compare {compare.split('=')[0]}: "
                            "each variant has its own\n")


def test_what_a_comparison_reads_goes_with_it():
    blocks = simulate(*SMALL, "--block-size", "8", "--num-kv-blocks", "64", "--compare", "block-size=16,32")
    assert [variant["kv_tokens"] for variant in blocks["variants"]] == [512, 512]
    simulate(*SMALL, "--max-num-seqs", "8", "--num-kv-blocks", "64", "--compare", "weights=bf16,fp8")
    shown = run_cli("simulate", TINY / "llama", *SMALL, "--compare", "hardware=l4,h200")
    assert shown.returncode == 0
    assert "llama on NVIDIA L4 24 GB, NVIDIA H200" in shown.stdout.splitlines()[0]


TRACE = '{"timestamp": 0, "input_length": 20, "output_length": 4}\n'


@pytest.mark.parametrize("flags", [
    ["--prompt-tokens", "9"], ["--output-tokens", "9"], ["--arrivals", "poisson"], ["--users", "2"],
    ["--workload", "chat"], ["--turns", "2"], ["--documents", "4"], ["--prefix-tokens", "9"],
    ["--rate", "2"], ["--think-time", "1s"]])
def test_a_trace_has_times_and_lengths_of_its_own(flags, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text(TRACE)
    shown = run_cli("simulate", TINY / "llama", *MACHINE, "--trace", trace, *flags)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith(f"kvasir: {flags[0]} does not go with --trace: ")
    assert shown.stderr.count("\n") == 1
    assert simulate("--trace", trace, "--trace-speed", "2")["variants"][0]["finished"] == 1


@pytest.mark.parametrize("flags, code, words", [
    (["--hardware", "h900"], 2, "--hardware: expected a machine"),
    (["--hardware", "/no/such.json"], 3, "/no/such.json"),
    (["--trace", "/no/such"], 3, "/no/such"),
    (["--calibration", "/no/such"], 3, "/no/such"),
    (["--html", "/no/such/page"], 1, "/no/such/page"),
    (["--write-requests", "/no/such/page"], 1, "/no/such/page"),
    (["--weights", "foo"], 2, "--weights: expected as-shipped or one of"),
    (["--seed", "-1"], 2, "--seed: expected a whole number from 0"),
    (["--max-model-len", "-1"], 2, "--max-model-len: Value -1 is below 0"),
    (["--bandwidth-share", "1e300"], 2, "--bandwidth-share: Value 1e300 not in range 0.01 to 1"),
])
def test_exit_codes_are_those_of_the_documentation(flags, code, words):
    shown = run_cli("simulate", TINY / "llama", *flags)
    assert (shown.returncode, shown.stdout) == (code, "")
    assert words in shown.stderr and len(shown.stderr) < 500


@pytest.mark.parametrize("flags, why", [
    (["--prompt-tokens", "200", "--max-model-len", "128"], "none of 10 requests finished: 10 longer than 128"),
    (["--rate", "1", "--duration", "1us"], "none came within --duration"),
])
def test_where_nothing_finishes_it_says_why(flags, why):
    shown = run_cli("simulate", TINY / "llama", *MACHINE, "--requests", "10", *flags)
    assert (shown.returncode, shown.stdout) == (1, "")
    assert why in shown.stderr and shown.stderr.count("\n") == 1


def test_a_page_that_cannot_be_made_leaves_the_old_one(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("old")
    shown = run_cli("simulate", TINY / "llama", *MACHINE, "--prompt-tokens", "200", "--max-model-len",
                    "128", "--html", page)
    assert shown.returncode == 1 and page.read_text() == "old"
    new = tmp_path / "new.html"
    run_cli("simulate", TINY / "llama", *MACHINE, "--rate", "0", "--html", new)
    assert not new.exists()


@pytest.mark.parametrize("output", ["--html", "--write-requests"])
def test_what_is_written_replaces_nothing_that_was_read(output, tmp_path):
    trace = tmp_path / "keep.jsonl"
    trace.write_text(TRACE)
    (tmp_path / "linked").symlink_to(trace)
    model = tmp_path / "model"
    shutil.copytree(TINY / "llama", model)
    config = (model / "config.json").read_text()

    def refused(other, path, *flags):
        shown = run_cli("simulate", model, *MACHINE, output, path, *flags)
        assert (shown.returncode, shown.stdout) == (2, "")
        assert shown.stderr.startswith(f"kvasir: {output}: expected a file other than {other}'s, got ")
        assert shown.stderr.count("\n") == 1

    for path in [trace, tmp_path / "linked", f"{tmp_path}/model/../keep.jsonl"]:
        refused("--trace", path, "--trace", trace)
    refused("--calibration", trace, "--calibration", trace)
    refused("model", model / "config.json")
    assert trace.read_text() == TRACE and (model / "config.json").read_text() == config
    for null in ["/dev/null", tmp_path / "other"]:
        assert run_cli("simulate", model, *MACHINE, output, null, "--trace", trace).returncode == 0


def test_a_page_and_requests_need_two_files(tmp_path):
    for other in ["same", "./same", "model/../same"]:
        shown = run_cli("simulate", TINY / "llama", *MACHINE, "--html", tmp_path / "same",
                        "--write-requests", f"{tmp_path}/{other}")
        assert (shown.returncode, shown.stdout) == (2, "")
        assert "--write-requests: expected a file other than --html's" in shown.stderr
    assert not (tmp_path / "same").exists()


def test_a_calibration_is_of_one_model_and_machine(tmp_path):
    path = tmp_path / "calibration.json"
    made = run_cli("bench", "calibrate", TINY / "llama", "-o", path, "--point-seconds", 0,
                   "--max-context", 64, "--max-num-seqs", 4, "--max-num-batched-tokens", 32)
    assert made.returncode == 0, made.stderr

    def with_calibration(*flags, model="llama"):
        return run_cli("simulate", TINY / model, "--calibration", path, "--requests", "5", *flags)

    short = with_calibration("--prompt-tokens", "20", "--output-tokens", "8")
    assert (short.returncode, short.stderr) == (0, "")
    beyond = with_calibration("--prompt-tokens", "200", "--output-tokens", "8")
    assert beyond.returncode == 0
    assert "of context, but 208 came" in beyond.stderr and beyond.stderr.count("\n") == 1
    other = with_calibration(model="qwen3")
    assert (other.returncode, other.stdout) == (2, "")
    assert "was measured for llama (" in other.stderr and "but qwen3 (" in other.stderr
    for flags in [["--hardware", "l4"], ["--tensor-parallel", "2"], ["--weights", "fp8"],
                  ["--bandwidth-share", "1"], ["--memory-utilization", "0.5"]]:
        refused = with_calibration(*flags)
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"kvasir: {flags[0]} does not go with --calibration: ")
    for compare in ["hardware=l4,h200", "weights=bf16,fp8"]:
        refused = with_calibration("--compare", compare)
        assert refused.returncode == 2 and "does not go with --calibration" in refused.stderr
    other_kv = "f16" if json.loads(path.read_text())["kv_dtype"] != "F16" else "bf16"
    assert with_calibration("--kv-cache-dtype", other_kv).returncode == 2


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
