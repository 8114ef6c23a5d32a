"""The command line: what each subcommand prints, and with which exit code."""

import json
import os
import signal
import subprocess
import sys

import pytest
from conftest import BINARY, ROOT, TINY, Server, run_cli

COMMANDS = ["serve", "chat", "complete", "tokenize", "render", "inspect", "bench", "plan", "simulate",
            "completion"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command):
    shown = run_cli(command, "--help")
    assert shown.returncode == 0
    assert f"kvasir {command}" in shown.stdout or "Usage" in shown.stdout


def test_wrong_flag_suggests_the_nearest():
    shown = run_cli("serve", TINY / "llama", "--max-num-seq", "3")
    assert shown.returncode == 2
    assert "--max-num-seqs" in shown.stderr


@pytest.mark.parametrize("arguments, said", [
    ([], "expected a command: serve chat complete"),
    (["no-such-command"], "'no-such-command' is not a command"),
    (["serve"], "MODEL or --model is required: a folder, a .gguf, or 'default'"),
    (["inspect"], "MODEL is required"),
    (["complete", "x"], "TEXT is required"),
    (["tokenize", "x"], "expected either a text or --file"),
    (["serve", "x", "--prot", "9"], "not expected: '--prot' '9'"),
    (["serve", "x", "--ctx-size", "9"], "did you mean --max-model-len instead of --ctx-size"),
    (["serve", "x", "--tensor-parallel-size", "2"], "--tensor-parallel-size: one device serves"),
    (["serve", "x", "--api-key", "--port", "9"], "9"),
    (["serve", "x", "--api-key", "--port"], "--api-key"),
])
def test_usage_errors(arguments, said):
    shown = run_cli(*arguments)
    assert shown.returncode == 2
    assert said in shown.stderr


def test_missing_model_is_one_line():
    shown = run_cli("inspect", "/no/such/model")
    assert shown.returncode == 3
    assert shown.stderr.count("\n") == 1
    assert "/no/such/model" in shown.stderr


def test_render_equals_the_golden():
    expected = json.loads((TINY / "llama/expected.json").read_text())["chat"]
    request = json.dumps({"messages": expected["messages"]})
    shown = run_cli("render", TINY / "llama", stdin=request)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == expected["rendered"]


def test_render_error_goes_to_stderr(tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text("{{ raise_exception('roles must alternate') }}")
    shown = run_cli("render", "--chat-template", template, stdin='{"messages": [{"role": "user", "content": "x"}]}')
    assert shown.returncode == 1
    assert shown.stdout == ""
    assert "roles must alternate" in shown.stderr


def test_render_clock_and_tokens(tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text("{{ bos_token }}{{ strftime_now('%Y-%m-%d') }}{{ eos_token }}")
    shown = run_cli("render", "--chat-template", template, "--bos-token", "<b>", "--eos-token", "<e>",
                    "--now", "2026-11-29T12:34:56", stdin='{"messages": [{"role": "user", "content": "x"}]}')
    assert shown.stdout == "<b>2026-11-29<e>"


def test_inspect_json():
    shown = run_cli("inspect", TINY / "llama", "--json")
    facts = json.loads(shown.stdout)
    assert facts["architecture"] == "LlamaForCausalLM"
    assert facts["parameters_count"] > 0
    assert facts["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2


def test_complete_is_deterministic():
    first = run_cli("complete", TINY / "llama", "hello", "--max-tokens", 8, "--temperature", 0)
    second = run_cli("complete", TINY / "llama", "hello", "--max-tokens", 8, "--temperature", 0,
                     "--threads", 1)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout


@pytest.mark.parametrize(("typed", "offered"), [
    (["to"], {"tokenize"}),
    (["serve", "--max-num-s"], {"--max-num-seqs"}),
    (["serve", "--kv-cache-dtype", ""], {"auto", "f32", "f16", "bf16"}),
    (["simulate", "--batching", "s"], {"static"}),
    (["serve", "def"], {"default"}),
    (["tokenize", "def"], {"default"}),
    (["render", "def"], {"default"}),
    (["inspect", "def"], {"default"}),
    (["bench", "ca"], {"calibrate"}),
    (["bench", "--str"], {"--streams"}),
    (["bench", "calibrate", "--point"], {"--point-seconds"}),
    (["bench", "calibrate", "--kernels", "avx"], {"avx512", "avx2"}),
    (["bench", "calibrate", "def"], {"default"}),
    (["completion", "def"], set()),
])
def test_bash_completes_commands_flags_and_values(typed, offered, tmp_path):
    words = " ".join(f"'{word}'" for word in ["kvasir", *typed])
    script = (f"source /dev/stdin <<'END'\n{run_cli('completion').stdout}END\n"
              f"COMP_WORDS=({words}); COMP_CWORD={len(typed)}; _kvasir\n"
              "for word in \"${COMPREPLY[@]}\"; do echo \"$word\"; done")
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True,
                           cwd=tmp_path)
    assert set(shown.stdout.split()) == offered, shown.stderr


def test_flags_page_is_what_help_prints():
    shown = subprocess.run([sys.executable, ROOT / "scripts/make_flags_doc.py", BINARY],
                           capture_output=True, text=True, check=True).stdout
    assert shown == (ROOT / "docs/flags.md").read_text(), (
        "run: scripts/make_flags_doc.py build/release/kvasir > docs/flags.md")


def test_unknown_command_names_the_nearest():
    shown = run_cli("sreve", "x")
    assert shown.returncode == 2
    assert "did you mean 'serve'" in shown.stderr


@pytest.mark.parametrize(("command", "flags", "said"), [
    ("complete", ["--top-p", "0"], "--top-p: must be in (0, 1], got 0"),
    ("complete", ["--top-p", "nan"], "--top-p: must be in (0, 1], got nan"),
    ("complete", ["--temperature", "2.5"], "--temperature: must be in [0, 2], got 2.5"),
    ("complete", ["--temperature", "nan"], "--temperature: must be in [0, 2], got nan"),
    ("complete", ["--top-k", "-2"], "--top-k: must be 0 (disable), or at least 1, got -2"),
    ("complete", ["--min-p", "1.5"], "--min-p: must be in [0, 1], got 1.5"),
    ("complete", ["--repetition-penalty", "0"], "must be in [0.01, 100], got 0"),
    ("complete", ["--max-tokens", "-1"], "--max-tokens"),
    ("chat", ["--top-p", "0"], "--top-p: must be in (0, 1], got 0"),
    ("chat", ["--temperature", "-1"], "--temperature: must be in [0, 2], got -1"),
])
def test_sampling_flags_have_the_ranges_of_the_server(command, flags, said):
    text = ["hello"] if command == "complete" else []
    shown = run_cli(command, TINY / "llama", *text, *flags)
    assert shown.returncode == 2, shown.stderr
    assert said in shown.stderr
    assert shown.stdout == ""


def test_max_tokens_beyond_the_context_are_shortened_and_said():
    shown = run_cli("complete", TINY / "llama", "hello", "--temperature", 0, "--max-model-len", 32,
                    "--max-tokens", 1000)
    assert shown.returncode == 0, shown.stderr
    assert "--max-tokens 1000 is shortened to" in shown.stderr
    assert "context of 32 tokens" in shown.stderr
    silent = run_cli("complete", TINY / "llama", "hello", "--temperature", 0, "--max-model-len", 32)
    assert silent.returncode == 0 and silent.stderr == ""
    assert silent.stdout == shown.stdout


def test_the_address_is_tried_before_the_model_is_loaded(tiny, tmp_path):
    """A taken port must not cost the time of loading: here the model cannot even be found."""
    taken = run_cli("serve", "/no/such/model", "--port", tiny.port)
    assert taken.returncode == 4
    assert str(tiny.port) in taken.stderr
    no_pem = tmp_path / "cert.pem"
    no_pem.write_text("no certificate")
    broken = run_cli("serve", "/no/such/model", "--port", 0, "--ssl-certfile", no_pem,
                     "--ssl-keyfile", no_pem)
    assert broken.returncode == 4
    assert str(no_pem) in broken.stderr


@pytest.mark.parametrize("arguments", [
    ["plan", "llama-3.1-8b", "--hardware", "h200", "--shared-prefix", "nan"],
    ["plan", "llama-3.1-8b", "--hardware", "h200", "--memory-utilization", "nan"],
    ["plan", "llama-3.1-8b", "--hardware", "h200", "--price", "inf"],
    ["simulate", "llama-3.1-8b", "--hardware", "h100-80gb", "--bandwidth-share", "nan"],
    ["simulate", "llama-3.1-8b", "--hardware", "h100-80gb", "--rate", "inf"],
    ["simulate", "llama-3.1-8b", "--hardware", "h100-80gb", "--requests", "9223372036854775807"],
    ["simulate", "llama-3.1-8b", "--hardware", "h100-80gb", "--documents", "2000000000"],
    ["simulate", "llama-3.1-8b", "--hardware", "h100-80gb", "--documents-per-request", "2000000000"],
])
def test_numbers_that_are_none_or_absurd_are_refused(arguments):
    shown = run_cli(*arguments)
    assert shown.returncode == 2, shown
    assert arguments[-2] in shown.stderr and arguments[-1] in shown.stderr


@pytest.mark.parametrize("arguments", [
    ["serve", TINY / "llama", "--chat-template"], ["render", TINY / "llama", "--chat-template"],
    ["tokenize", TINY / "llama", "--file"], ["simulate", TINY / "llama", "--calibration"],
])
def test_a_folder_where_a_file_belongs_is_one_line(arguments, tmp_path):
    shown = run_cli(*arguments, tmp_path)
    assert shown.returncode in (1, 2, 3), shown
    assert f"{tmp_path}: cannot be read: Is a directory" in shown.stderr


def test_reserved_allocation_counts_the_blocks_behind_a_window():
    shown = run_cli("serve", TINY / "gemma2", "--port", 0, "--kv-allocation", "reserved",
                    "--max-model-len", 320, "--num-kv-blocks", 40)
    assert shown.returncode == 3, shown
    assert "a request of --max-model-len 320 tokens takes 60" in shown.stderr


def test_a_shortened_context_fits_once():
    with Server(TINY / "llama", "--num-kv-blocks", 3) as server:
        assert any("1.0 requests of 48 tokens" in line for line in server.lines), server.lines


LLAMA = TINY / "llama"


@pytest.mark.parametrize("arguments", [
    ["--help"],
    ["--version"],
    *([command, "--help"] for command in COMMANDS),
    ["completion"],
    ["inspect", LLAMA],
    ["inspect", LLAMA, "--tensors"],
    ["inspect", LLAMA, "--json"],
    ["tokenize", LLAMA, "Hello"],
    ["tokenize", LLAMA, "Hello " * 5000],  # more than a buffer
    ["tokenize", LLAMA, "Hello", "--ids"],
    ["render", LLAMA],
    ["complete", LLAMA, "Hello", "--max-tokens", 4],
    ["chat", LLAMA, "--max-tokens", 4],
    ["plan", LLAMA],
    ["plan", LLAMA, "--json"],
    ["simulate", LLAMA, "--requests", 10, "--prompt-tokens", 32, "--output-tokens", 4],
], ids=lambda arguments: " ".join(str(word)[-12:] for word in arguments)[:48])
def test_a_full_disk_is_said(arguments):
    stdin = '{"messages": [{"role": "user", "content": "Hi"}]}'
    if arguments[0] == "chat":
        stdin = "Hi\n"
    with open("/dev/full", "w") as full:
        shown = subprocess.run([str(BINARY), *map(str, arguments)], stdout=full, input=stdin,
                               stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert shown.returncode == 1, shown.stderr
    assert shown.stderr.endswith(
        "kvasir: cannot write to standard output: No space left on device\n"), shown.stderr


@pytest.mark.parametrize(("ignored", "code"), [(False, -signal.SIGPIPE), (True, 1)])
def test_a_closed_pipe_ends_it_in_silence(ignored, code):
    read_end, write_end = os.pipe()
    os.close(read_end)
    shown = subprocess.run(
        [str(BINARY), "inspect", str(LLAMA)], stdout=write_end, stderr=subprocess.PIPE, timeout=60,
        check=False, restore_signals=False,
        preexec_fn=lambda: signal.signal(signal.SIGPIPE,
                                         signal.SIG_IGN if ignored else signal.SIG_DFL))
    os.close(write_end)
    assert (shown.returncode, shown.stderr) == (code, b"")


def test_a_server_whose_output_nobody_takes_serves_on():
    with open("/dev/full", "w") as full:
        process = subprocess.Popen([str(BINARY), "serve", str(LLAMA), "--port", "0"], stdout=full,
                                   stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if "cannot be written to standard output" in line:
                break
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        process.stderr.close()


@pytest.mark.parametrize("flag", [
    "--model", "--uds", "--host", "--ssl-certfile", "--ssl-keyfile", "--api-key", "--response-role",
    "--served-model-name", "--record-trace", "--chat-template", "--kv-cache-memory-bytes",
    "--override-generation-config", "--default-chat-template-kwargs"])
def test_empty_texts_are_refused(flag):
    shown = run_cli("serve", *([] if flag == "--model" else [LLAMA]), flag, "")
    assert shown.returncode == 2
    assert f"kvasir: {flag}: expected a value, got an empty text\n" in shown.stderr


@pytest.mark.parametrize(("flags", "environment", "said"), [
    (["--api-key", "a\nb"], {}, "--api-key: expected a key of one line"),
    (["--api-key", "a\x1b"], {}, "--api-key: expected a key of one line"),
    (["--api-key", "a "], {}, "--api-key: expected a key without blanks"),
    ([], {"KVASIR_API_KEY": "a\r"}, "$KVASIR_API_KEY: expected a key of one line"),
    ([], {"VLLM_API_KEY": "a\n"}, "$VLLM_API_KEY: expected a key of one line"),
    ([], {"KVASIR_API_KEY": ""}, "$KVASIR_API_KEY: expected a key, got an empty one"),
    (["--served-model-name", b"mod\xff"], {}, "--served-model-name: expected UTF-8"),
    (["--served-model-name", "a\nb"], {}, "--served-model-name: expected UTF-8 without control"),
    (["--response-role", b"r\xff"], {}, "--response-role: expected UTF-8"),
    (["--sse-ping-interval", "1e-6"], {}, "--sse-ping-interval: expected 0 or at least 0.01 s"),
    (["--override-generation-config", '{"top_pp": 1}'], {},
     "--override-generation-config: expected the keys temperature, top_p, "),
    (["--override-generation-config", "[]"], {}, "--override-generation-config: expected a JSON"),
    *((["--default-chat-template-kwargs", json.dumps({name: None})], {},
       f"--default-chat-template-kwargs cannot set '{name}'")
      for name in ["messages", "tools", "documents", "add_generation_prompt", "bos_token",
                   "eos_token", "chat_template", "tokenize", "continue_final_message",
                   "strftime_now", "raise_exception", "namespace"]),
])
def test_values_that_serve_cannot_use(flags, environment, said):
    shown = subprocess.run([str(BINARY), "serve", str(LLAMA), *flags], capture_output=True,
                           text=True, timeout=30, check=False, env=os.environ | environment)
    assert shown.returncode == 2
    assert shown.stderr.startswith("kvasir: " + said) and shown.stderr.count("\n") == 1
    assert "a\n" not in shown.stderr[:-1] and "\x1b" not in shown.stderr


def test_a_fraction_of_a_second_is_said_as_it_is():
    with Server(LLAMA, "--shutdown-timeout", 0.2) as server:
        pass
    assert any("0 requests in flight, 0.2 s at most" in line for line in server.lines)
