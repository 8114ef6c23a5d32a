"""Model files that lie, given to the real binary: one line, an exit code, little memory, no crash.

tests/regress/bad_model_files_test.cc tries all of them in process; here a sample of each kind goes
the whole way.
"""

import json
import os
import shutil
import struct
import subprocess
import sys

import pytest
from conftest import BINARY, TINY, Server

GGUF = TINY / "gguf/llama-q4_0/model.gguf"
CHAT = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
BAD_NUMBERS = [0, 1, 2**31, 2**63 - 1]
# The binary itself takes about 20 MiB to refuse a file. A limit on address space would not do: the
# kernels' arenas and the stacks of threads reserve much and touch little.
PEAK_RSS_MIB_MAX = 300
# A process that takes so long hangs.
HANG_S = 60
# Runs its arguments and tells their exit code and peak RSS. From a small process: a child's peak
# begins with that of the process it was forked from.
WATCH = """
import os, sys
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
sys.stderr.write(f"{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss}\\n")
"""
COMMANDS = {
    "inspect": ["inspect"],
    "serve": ["serve", "--port", "0", "--log-level", "error", "--kv-cache-memory-bytes", "4MiB"],
    "tokenize": ["tokenize", "Hello"],
    "render": ["render"],
}


def run(command, model, *flags):
    """Runs a subcommand on a model; returns exit code, stdout, stderr, and peak RSS in MiB."""
    watched = subprocess.run(
        [sys.executable, "-I", "-S", "-c", WATCH, str(BINARY), command, str(model), *map(str, flags)],
        input=CHAT, capture_output=True, encoding="utf-8", timeout=HANG_S, check=True)
    stderr, _, last = watched.stderr.removesuffix("\n").rpartition("\n")
    code, peak_kib = map(int, last.split())
    return code, watched.stdout, stderr + "\n" if stderr else "", peak_kib / 1024


def expect_refused(command, model, *more_flags):
    """Returns the one line that the command said."""
    name, *flags = COMMANDS[command]
    code, _, stderr, peak_mib = run(name, model, *flags, *more_flags)
    assert code == 3, f"exit code {code}: {stderr}"
    assert stderr.count("\n") == 1 and stderr.startswith("kvasir: "), stderr
    assert stderr[:-1].isprintable() and len(stderr) < 1000, stderr
    assert peak_mib < PEAK_RSS_MIB_MAX
    return stderr


def cut(path, percent):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * percent // 100])


@pytest.fixture
def folder(tmp_path):
    """A good folder of a tiny model, to be broken."""
    target = tmp_path / "model"
    shutil.copytree(TINY / "llama", target)
    return target


@pytest.mark.parametrize("command", COMMANDS)
def test_gguf_cut_short(command, tmp_path):
    path = tmp_path / "model.gguf"
    for percent in (0, 1, 50, 99):
        shutil.copy(GGUF, path)
        cut(path, percent)
        assert "model.gguf" in expect_refused(command, path)


def test_a_gguf_cut_anywhere_is_called_cut_short(tmp_path):
    data = GGUF.read_bytes()
    path = tmp_path / "model.gguf"
    # Within the header, metadata of every kind (the tokenizer's arrays too), tensors, data.
    for size in [*range(4, 40), *range(40, len(data), len(data) // 60)]:
        path.write_bytes(data[:size])
        said = expect_refused("inspect", path)
        assert "cut short (incomplete download?)" in said, (size, said)


@pytest.mark.parametrize(("change", "said"), [
    ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "quantized safetensors"),
    ({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"},
     "architecture 'MixtralForCausalLM' is not supported"),
])
def test_what_cannot_run_at_all_is_said_before_what_is_missing(change, said, folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    for command in ("serve", "inspect"):
        assert said in expect_refused(command, folder)


@pytest.mark.parametrize("name,commands", [
    ("model.safetensors", ["inspect", "serve"]),
    ("config.json", ["inspect", "serve", "tokenize", "render"]),
    ("tokenizer.json", ["inspect", "serve", "tokenize", "render"]),
    ("tokenizer_config.json", ["serve", "render"]),
    ("generation_config.json", ["serve", "tokenize"]),
])
def test_folder_file_cut_short(name, commands, folder):
    for percent in (0, 40, 97):
        shutil.copy(TINY / "llama" / name, folder / name)
        cut(folder / name, percent)
        for command in commands:
            assert str(folder) in expect_refused(command, folder)


@pytest.mark.parametrize("number", BAD_NUMBERS)
def test_gguf_numbers(number, tmp_path):
    good = GGUF.read_bytes()
    path = tmp_path / "model.gguf"
    for at, width in ((4, 4), (8, 8), (16, 8), (24, 8)):  # version, tensors, entries, a key's length
        path.write_bytes(good[:at] + struct.pack("<Q", number)[:width] + good[at + width:])
        expect_refused("serve", path)


@pytest.mark.parametrize("number", BAD_NUMBERS)
def test_safetensors_numbers(number, folder):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    first = next(name for name in header if name != "__metadata__")
    changes = [struct.pack("<Q", number) + data[8:]]
    for field, index in (("shape", 0), ("data_offsets", 0), ("data_offsets", 1)):
        if header[first][field][index] == number:
            continue
        changed = json.loads(json.dumps(header))
        changed[first][field][index] = number
        text = json.dumps(changed).encode()
        changes.append(struct.pack("<Q", len(text)) + text + data[8 + length:])
    for change in changes:
        path.write_bytes(change)
        expect_refused("serve", folder)


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                                 "intermediate_size"])
def test_config_numbers(key, folder):
    good = json.loads((TINY / "llama/config.json").read_text())
    for number in (0, 2**31, 2**63 - 1, -1, 1.5, "x\ny", None):
        (folder / "config.json").write_text(json.dumps({**good, key: number}))
        expect_refused("serve", folder)


def test_tokenizer_with_a_huge_id(folder):
    tokenizer = json.loads((TINY / "llama/tokenizer.json").read_text())
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "content": "<far>", "id": 2**24 - 1})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert "16777215" in expect_refused("tokenize", folder)


def test_broken_templates(folder):
    for template in ("{% for m in messages %}{{ m.content }}", "{{ messages[0]['content'",
                     "{% if %}{% endif %}", "{% macro", "{{ 'a", "{# never closed",
                     "{{ x | no_such_filter }}", "{{ " + "(" * 5000):
        (folder / "chat_template.jinja").write_text(template)
        for command in ("inspect", "render"):
            assert "line 1" in expect_refused(command, folder), template
        # Completions need no template: a model's own is a warning there, a given one an error.
        assert "line 1" in expect_refused("serve", folder, "--chat-template", folder / "chat_template.jinja")


@pytest.mark.parametrize("template", [
    "{% for i in range(25000) %}{% for j in range(25000) %}x{% endfor %}{% endfor %}",
    "{{ 'x' * 1000000000 }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ range(10 ** 12) | list }}", "{{ raise_exception('two\\nlines\\x1b[31m') }}", "{{ ''.__class__.__mro__[1] }}"])
def test_hostile_templates_fail_the_request_alone(template, folder):
    (folder / "chat_template.jinja").write_text(template)
    code, stdout, stderr, peak_mib = run("render", folder)
    assert code == 1, stderr
    assert stdout == "" and stderr.count("\n") == 1 and stderr[:-1].isprintable(), stderr
    assert peak_mib < 1024  # the limit on a render's values is 512 MiB


def test_names_that_are_not_utf8_do_not_end_inspect(tmp_path):
    data = GGUF.read_bytes()
    path = tmp_path / "model.gguf"
    for text in (b"output_norm.weight", b"llama.block_count"):
        assert text in data
        path.write_bytes(data.replace(text, b"\xff\x1b[31m\n" + text[7:]))
        for flags in ((), ("--json",), ("--json", "--tensors"), ("--tensors",)):
            code, stdout, stderr, _ = run("inspect", path, *flags)
            assert code in (0, 3) and stderr.count("\n") <= 1, stderr
            assert "\x1b" not in stdout + stderr


def test_a_folder_whose_name_is_not_utf8_is_served(tmp_path):
    folder = os.path.join(os.fsencode(tmp_path), b"mod\xff")
    shutil.copytree(os.fsencode(TINY / "llama"), folder)
    with Server(os.fsdecode(folder)) as server:
        assert server.client.get("/v1/models").json()["data"][0]["id"] == "mod\\xff"
        assert server.complete("Hi", max_tokens=1)["model"] == "mod\\xff"
        assert 'model_name="mod\\\\xff"' in server.client.get("/metrics").text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_the_right_to_read_it(folder):
    (folder / "config.json").chmod(0)
    expect_refused("serve", folder)
