"""`kvasir plan` beside the real server: figures it prints, and the memory that it takes."""

import json
import re
import shutil
import threading

import pytest
from conftest import SANITIZED, SMOLLM2, TINY, Server, run_cli

USERS = 8
CONTEXT = 256  # tokens of a user, prompt and answer
STEP_TOKENS = 128

MODELS = [TINY / "llama", TINY / "gemma3", TINY / "qwen3", SMOLLM2]


def plan_json(*arguments):
    shown = run_cli("plan", *arguments, "--json")
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def machine_of(server):
    """A machine of the catalogue with the kernels that the server chose."""
    kernels = re.search(r"with (\w+) kernels", "".join(server.lines)).group(1)
    if kernels == "ref":
        pytest.skip("this machine has no fast kernels")
    return {"avx2": "epyc-milan-1s", "avx512": "epyc-genoa-1s"}[kernels]


def peak_bytes(process):
    status = open(f"/proc/{process.pid}/status", encoding="utf-8").read()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024


def shows(text, value):
    """Whether `text` ("92.0 MiB") is `value` bytes as the server rounds them."""
    number, unit = re.fullmatch(r"([\d.]+) (B|[KMG]iB)", text).groups()
    return abs(float(number) - value / 1024 ** ["B", "KiB", "MiB", "GiB"].index(unit)) <= 0.051


def bytes_of_kv(inspected):
    return {"F32": 4, "F16": 2, "BF16": 2}[inspected["kv_cache_dtype"]]


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_plan_equals_the_server(model):
    if not model.exists():
        pytest.skip(f"{model} is missing")
    inspected = json.loads(run_cli("inspect", model, "--json").stdout)
    length = min(CONTEXT, inspected["max_positions"])
    with Server(model, "--max-num-batched-tokens", STEP_TOKENS, "--max-num-seqs", USERS,
                "--kv-cache-dtype", "f32", "--kv-cache-memory-bytes", "1GiB") as server:
        plan = plan_json(model, "--hardware", machine_of(server), "--users", USERS, "--context",
                         length, "--max-num-batched-tokens", STEP_TOKENS, "--kv-cache-dtype", "f32")
        log = "".join(server.lines)

        assert plan["weights_bytes"] == inspected["weights_bytes"]
        assert plan["model"]["parameters_count"] == inspected["parameters_count"]
        weights = re.search(r"weights ([\d.]+ \w+) in memory", log).group(1)
        assert shows(weights, plan["weights_packed_bytes"])
        token, blocks = re.search(r"KV cache: ([\d.]+ \w+) a token, (\d+) blocks of 16", log).groups()
        per_token = plan["kv_groups_count"] * plan["kv_block_bytes"] / 16
        assert per_token == inspected["kv_bytes_per_token"] * 4 / bytes_of_kv(inspected)
        assert shows(token, per_token)
        assert int(blocks) == (1 << 30) // plan["kv_block_bytes"]

        def run(user):
            # Prompts differ from their first token, so nothing is shared.
            prompt = [(7 * user + 3 * i) % (inspected["vocab_size"] - 20) + 10 for i in range(length - 16)]
            server.complete(prompt, max_tokens=16, ignore_eos=True, temperature=0)

        threads = [threading.Thread(target=run, args=(user,)) for user in range(USERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        used = peak_bytes(server.process)
    planned = plan["peak_bytes_per_device"]
    assert SANITIZED or abs(used - planned) <= 0.05 * planned + 32e6, \
        f"{used:,} B used, {planned:,} B planned"


def test_figures_of_gpt_oss():
    plan = plan_json("gpt-oss-120b", "--hardware", "h100-80gb")
    assert plan["kv_bytes_per_token"] == 73_728
    assert plan["kv_bytes_per_token_growing"] == 36_864
    assert plan["devices_needed"] == 1
    assert plan["users_reserved"] == 3
    assert 50 <= plan["users_paged"] <= 60
    shown = run_cli("plan", "gpt-oss-120b", "--hardware", "h100-80gb", "--explain")
    assert shown.returncode == 0
    assert "73,728 B a token" in shown.stdout and "memory bandwidth binds" in shown.stdout


def test_what_does_not_fit_has_no_speed():
    arguments = ["llama-3.3-70b", "--hardware", "h100-80gb", "--users", 4]
    shown = run_cli("plan", *arguments, "--explain")
    assert shown.returncode == 0
    assert "does not fit on h100-80gb" in shown.stdout
    assert "4 users of 8k tokens take 2 x h100-80gb (tensor parallel 2)" in shown.stdout
    assert "tokens/s" not in shown.stdout and "windowed" not in shown.stdout
    plan = plan_json(*arguments)
    for key in ["decode_one", "decode_many", "prefill", "usd_per_million_output_tokens"]:
        assert plan[key] is None
    assert "windowed" in run_cli("plan", "gpt-oss-20b", "--hardware", "h100-80gb", "--explain").stdout


def test_list_and_goal():
    listed = run_cli("plan", "--list").stdout
    for name in ["gpt-oss-120b", "llama-3.3-70b", "deepseek-v3", "gemma-3-270m", "h100-80gb", "l4", "this"]:
        assert re.search(rf"^  {re.escape(name)} ", listed, re.MULTILINE), name
    goal = ["gpt-oss-120b", "--users", 50, "--context", "8k", "--max-ttft", "2s", "--max-itl", "50ms"]
    found = plan_json(*goal)
    assert found["satisfying"] and found["failing"]
    prices = [item["price_per_hour_usd"] for item in found["satisfying"] if item["price_per_hour_usd"]]
    assert prices == sorted(prices)
    assert all(item["fails"] for item in found["failing"])
    assert "What fails elsewhere" in run_cli("plan", *goal).stdout


def test_this_machine_and_a_file(tmp_path):
    this = plan_json("smollm2-135m", "--hardware", "this")["hardware"]
    assert this["cores"] >= 1 and this["kernels"] in ("ref", "avx2", "avx512")
    # Above a slow disk and below the fastest memory: a loaded or instrumented run measures less.
    assert 1e8 < this["bandwidth_bytes_per_second"] < 5e12
    machine = tmp_path / "mine.json"
    machine.write_text(json.dumps({"memory_gib": 24, "bandwidth_gb_per_s": 500, "peak_tflops": {"bf16": 100}}))
    assert plan_json("qwen3-8b", "--hardware", machine)["hardware"]["name"] == "mine"


@pytest.mark.parametrize("arguments, code, field", [
    (["no-such-model"], 3, "model"),
    (["qwen3-8b", "--hardware", "h1000"], 2, "hardware"),
    (["qwen3-8b", "--hardware", "l4", "--weights", "int3"], 2, "--weights"),
    (["qwen3-8b", "--hardware", "l4", "--context", "1g"], 2, "--context"),
    (["qwen3-8b", "--hardware", "l4", "--context", "900k"], 2, "--context"),
    (["qwen3-8b", "--hardware", "l4", "--tensor-parallel", 3], 2, "--tensor-parallel"),
    (["qwen3-8b", "--hardware", "l4", "--max-itl", "soon"], 2, "--max-itl"),
    (["qwen3-8b", "--hardware", "l4,h200"], 2, "--hardware"),
    (["qwen3-8b", "--hardware", "l4", "--max-itl", "50"], 2, "--max-itl: expected a time with its unit"),
    (["qwen3-8b", "--hardware", "/no/such.json"], 3, "/no/such.json"),
    (["qwen3-8b", "--hardware", "l4", "--max-itl", "50ms", "--explain"], 2, "--explain: expected none beside"),
    (["qwen3-8b", "--hardware", "l4", "--max-itl", "50ms", "--max-model-len", "8k"], 2,
     "--max-model-len: expected none beside"),
    (["qwen3-8b", "--hardware", "l4", "l4", "--max-itl", "50ms"], 2, "--hardware: expected each machine once, got l4 twice"),
    (["--list", "extra"], 2, "--list: expected no model beside it, got 'extra'"),
    ([], 2, "model"),
])
def test_bad_input_is_one_line(arguments, code, field):
    shown = run_cli("plan", *arguments)
    assert shown.returncode == code
    assert shown.stdout == ""
    assert shown.stderr.count("\n") == 1 and field in shown.stderr


def test_a_config_without_a_field(tmp_path):
    config = json.loads((TINY / "llama/config.json").read_text())
    del config["num_hidden_layers"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    shown = run_cli("plan", tmp_path / "config.json", "--hardware", "l4")
    assert shown.returncode == 3
    assert shown.stderr.count("\n") == 1 and "num_hidden_layers" in shown.stderr


@pytest.mark.parametrize("command", [["plan", "--hardware", "l4"], ["inspect"], ["complete", "x"]])
def test_architectures_that_are_no_list_of_names(command, tmp_path):
    """Though model_type would name the family."""
    model = tmp_path / "model"
    shutil.copytree(TINY / "llama", model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "architectures": 5}))
    shown = run_cli(command[0], model, *command[1:])
    assert shown.returncode == 3
    assert "architectures: expected a list with the model's architecture, got 5" in shown.stderr
