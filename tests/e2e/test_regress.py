"""Faults that users of other servers met, asked of the real binary. tests/regress/README.md lists
them all; a test's name holds its row."""

import concurrent.futures
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest
from conftest import BINARY, TINY, Server, not_sanitized, run_cli, sse_events


def ids_of(server, prompt, **fields):
    fields = {"max_tokens": 16, "temperature": 0, "ignore_eos": True, "return_token_ids": True} | fields
    return server.complete(prompt, **fields)["choices"][0]["token_ids"]


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def raw_request(server, path, body, method="POST"):
    """A connection on which the request has been sent."""
    data = json.dumps(body).encode()
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                 f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return sock


def read_until(sock, word):
    data = b""
    while word not in data:
        piece = sock.recv(65536)
        assert piece, data
        data += piece
    return data


# Tokenizers and templates.


def test_row_011_one_bos_after_a_chat_template(tiny):
    expected = json.loads((TINY / "llama/expected.json").read_text())["chat"]
    ids = tiny.post("/tokenize", {"messages": expected["messages"]}).json()["tokens"]
    assert ids == expected["ids"]
    assert ids[0] != ids[1]
    answer = tiny.post("/v1/chat/completions", {"messages": expected["messages"], "max_tokens": 1}).json()
    assert answer["usage"]["prompt_tokens"] == len(expected["ids"])


def test_row_012_the_switch_for_special_tokens_works(tiny):
    expected = json.loads((TINY / "llama/expected.json").read_text())["chat"]
    body = {"prompt": expected["rendered"], "max_tokens": 1, "echo": True, "logprobs": 1,
            "return_token_ids": True, "add_special_tokens": False}
    choice = tiny.post("/v1/completions", body).json()["choices"][0]
    assert choice["prompt_token_ids"] == expected["ids"]
    assert len(choice["logprobs"]["tokens"]) == len(expected["ids"]) + 1


@pytest.mark.parametrize(("folder", "gguf"), [("llama", "llama-f16"), ("qwen3", "qwen3-bf16"),
                                              ("gemma3", "gemma3-q8_0")])
def test_row_021_a_gguf_prompts_like_its_folder(folder, gguf):
    chats = [
        [{"role": "user", "content": "Hello"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}],
        [{"role": "user", "content": "Grüße, 今天 🦙"}, {"role": "assistant", "content": "ok"},
         {"role": "user", "content": "  spaces  and\n\nlines  "}],
        [{"role": "user", "content": "<|im_end|> </s>"}],
        [{"role": "user", "content": ""}],
    ]
    for messages in chats:
        request = json.dumps({"messages": messages})
        texts = []
        for model in (TINY / folder, TINY / "gguf" / gguf / "model.gguf"):
            rendered = run_cli("render", model, stdin=request)
            assert rendered.returncode == 0, rendered.stderr
            ids = run_cli("tokenize", model, "--file", "-", "--ids", "--no-special",
                          stdin=rendered.stdout)
            assert ids.returncode == 0, ids.stderr
            texts.append((rendered.stdout, ids.stdout))
        assert texts[0] == texts[1]


# The API.


def test_row_031_tokens_join_to_the_text_and_offsets_fit(tiny):
    prompt = "\n1. Carol has 20"
    choice = tiny.complete(prompt, max_tokens=5, temperature=0, logprobs=1, echo=True,
                           skip_special_tokens=False, ignore_eos=True)["choices"][0]
    logprobs = choice["logprobs"]
    assert logprobs["token_logprobs"][0] is None
    assert all(isinstance(x, float) for x in logprobs["token_logprobs"][1:])
    assert logprobs["tokens"][0] == "<|bos|>"
    assert "".join(logprobs["tokens"][1:]).startswith(prompt)
    assert choice["text"].startswith(prompt)
    at = 0
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
        if "\ufffd" in token:  # a part of a character
            break
        assert offset == at, (token, offset, at)
        at += len(token)


def test_row_045_a_seed_gives_the_same_set_and_different_choices(tiny):
    body = {"prompt": "Tell", "n": 3, "seed": 42, "temperature": 1, "max_tokens": 16,
            "ignore_eos": True}
    first = [c["text"] for c in tiny.post("/v1/completions", body).json()["choices"]]
    again = [c["text"] for c in tiny.post("/v1/completions", body).json()["choices"]]
    assert first == again
    assert len(set(first)) == 3
    # A stop that one choice meets early leaves the others whole.
    early = next(i for i, text in enumerate(first) if text[2] not in "".join(
        t for j, t in enumerate(first) if j != i))
    stop = first[early][2]
    stopped = tiny.post("/v1/completions", body | {"stop": [stop]}).json()["choices"]
    with tiny.client.stream("POST", "/v1/completions", json=body | {"stop": [stop], "stream": True}) as r:
        events = sse_events(r)
    for i, choice in enumerate(stopped):
        assert choice["finish_reason"] == ("stop" if i == early else "length")
        streamed = "".join(e["choices"][0]["text"] for e in events if e["choices"][0]["index"] == i)
        expected = first[i][:2] if i == early else first[i]
        assert choice["text"] == streamed == expected


def test_row_193_names_of_models_reach_no_path(tiny):
    for name in ("../../etc/passwd", "..%2f..%2fetc", "/etc/passwd", "a\u0000b", "x" * 10_000,
                 "C:\\windows", "file:///etc/passwd", "tiny/../llama"):
        for path, body in (("/v1/completions", {"prompt": "a"}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
                           ("/tokenize", {"prompt": "a"})):
            answer = tiny.post(path, body | {"model": name})
            assert answer.status_code == 404
            assert len(answer.content) < 500
            assert str(TINY) not in answer.text and "root:" not in answer.text
    for target in ("/v1/models/../../etc/passwd", "/v1/models/..%2f..%2fetc%2fpasswd",
                   "/v1/models//etc/passwd"):
        answer = tiny.client.get(target)
        assert answer.status_code == 404 and "root:" not in answer.text


# Scheduling and the cache.


def test_row_052_and_064_preempted_requests_are_whole_and_count_once():
    flags = ["--num-kv-blocks", 32, "--max-model-len", 300, "--no-enable-prefix-caching"]
    fields = {"max_tokens": 200, "temperature": 0, "ignore_eos": True, "return_token_ids": True,
              "logprobs": 0}
    with Server(TINY / "llama", *flags) as server:
        alone = [server.complete([5, 6, 7 + i], **fields) for i in range(4)]
        # A tiny model may be done with one before the next arrives: until they met.
        for _ in range(20):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                together = list(pool.map(lambda i: server.complete([5, 6, 7 + i], **fields),
                                         range(4)))
            if server.metric("vllm:num_preemptions_total") > 0:
                break
        assert server.metric("vllm:num_preemptions_total") > 0
        for a, b in zip(alone, together):
            assert b["usage"] == a["usage"]
            assert b["usage"]["completion_tokens"] == 200
            assert len(b["choices"][0]["logprobs"]["token_logprobs"]) == 200
            assert b["choices"][0]["token_ids"] == a["choices"][0]["token_ids"]
            assert b["choices"][0]["logprobs"] == a["choices"][0]["logprobs"]


def test_row_062_and_088_a_small_cache_serves_prompts_without_end():
    with Server(TINY / "llama", "--num-kv-blocks", 40, "--max-model-len", 320) as server:
        for i in range(200):
            prompt = [10 + (i * 7 + j * 3) % 300 for j in range(50 + i)]
            answer = server.complete(prompt, max_tokens=2, ignore_eos=True)
            assert answer["usage"]["completion_tokens"] == 2
        assert server.metric("kvasir:kv_blocks", state="used") == 0
        total = sum(server.metric("kvasir:kv_blocks", state=s) for s in ("used", "cached", "free"))
        assert total == 40
        assert server.metric("kvasir:kv_blocks", state="cached") > 0
        assert server.metric("vllm:num_preemptions_total") == 0


@pytest.mark.parametrize("model", ["gemma3", "mistral-swa", "llama"])
def test_rows_069_071_077_and_078_a_prefix_hit_changes_nothing(model):
    prompt = [10 + j * 7 % 300 for j in range(200)]
    with Server(TINY / model, "--kv-cache-memory-bytes", "64MiB") as server, \
            Server(TINY / model, "--no-enable-prefix-caching",
                   "--kv-cache-memory-bytes", "64MiB") as plain:
        fields = {"max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True,
                  "logprobs": 3}
        for _ in range(3):
            answer = server.complete(prompt, **fields)
            cold = plain.complete(prompt, **fields)
            assert answer["choices"] == cold["choices"]
            assert cached(cold) == 0
        assert cached(answer) >= 200 - 16  # the same prompt costs at most a block
        # Conversations that go on after 64 tokens, in the middle of a block and at its border.
        for cut in (63, 64, 65, 72, 160):
            turn = prompt[:cut] + [7, 8, 9, cut]
            answer = server.complete(turn, **fields)
            assert answer["choices"] == plain.complete(turn, **fields)["choices"]
            # What windows have left behind may have to be computed again.
            if model == "llama":
                assert cached(answer) >= cut - cut % 16
        # The answer belongs to the next turn's prefix.
        grown = prompt + answer["choices"][0]["token_ids"][:8]
        first = server.complete(prompt, **fields)["choices"][0]["token_ids"]
        grown = prompt + first + [5, 6]
        answer = server.complete(grown, **fields)
        assert answer["choices"] == plain.complete(grown, **fields)["choices"]
        assert cached(answer) >= 200 - 16


def test_row_084_four_equal_requests_at_once():
    with Server(TINY / "llama", "--max-model-len", 128) as server, \
            concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            answers = list(pool.map(lambda _: ids_of(server, "What is the meaning of life?",
                                                     max_tokens=90), range(4)))
            assert all(a == answers[0] for a in answers)


def test_row_188_many_streams_on_few_seats_all_have_a_begin_and_an_end():
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "stream": True,
            "temperature": 0, "ignore_eos": True}

    def run(server, client, _):
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            assert response.status_code == 200
            events = sse_events(response)
        assert events[0]["choices"][0]["delta"]["role"] == "assistant"
        assert [e for e in events if e["choices"][0]["finish_reason"]] == events[-1:]
        return "".join(e["choices"][0]["delta"].get("content") or "" for e in events)

    with Server(TINY / "llama", "--max-num-seqs", 4) as server, \
            concurrent.futures.ThreadPoolExecutor(64) as pool, \
            httpx.Client(base_url=server.url, timeout=60,
                         limits=httpx.Limits(max_connections=64)) as client:
        texts = list(pool.map(lambda i: run(server, client, i), range(128)))
        assert len(set(texts)) == 1 and texts[0]


# Files.


def test_row_141_a_file_cut_short_while_it_is_served_ends_in_a_line(tmp_path):
    """Embeddings are read from the file as they are needed: what is gone cannot be made up for, but
    it is said, and no signal kills the process."""
    for source in (TINY / "llama", TINY / "gguf/llama-q8_0"):
        folder = tmp_path / source.name
        shutil.copytree(source, folder)
        weights = next(f for f in folder.iterdir() if f.suffix in (".gguf", ".safetensors"))
        server = Server(weights if weights.suffix == ".gguf" else folder)
        assert len(ids_of(server, list(range(5, 200)))) == 16
        os.truncate(weights, 10)
        with pytest.raises(httpx.TransportError):
            for first in range(5, 384, 60):
                ids_of(server, list(range(first, first + 60))[:384 - first], max_tokens=1)
        assert server.process.wait(timeout=30) == 3
        assert "cut short" in "".join(server.lines[-3:])


# Memory.


def test_rows_154_and_155_a_context_that_does_not_fit_names_one_that_does():
    flags = ["--kv-cache-memory-bytes", "64KiB", "--threads", 1]
    refused = run_cli("complete", TINY / "llama", "x", "--max-model-len", 512, *flags)
    assert refused.returncode == 3
    assert refused.stderr.count("\n") == 1
    assert re.search(r"\d+ bytes a token", refused.stderr), refused.stderr
    length = int(re.search(r"--max-model-len (\d+) fits", refused.stderr).group(1))
    assert 0 < length < 512
    fits = run_cli("complete", TINY / "llama", "x", "--max-model-len", length, "--max-tokens", 1, *flags)
    assert fits.returncode == 0, fits.stderr
    block = run_cli("complete", TINY / "llama", "x", "--max-model-len", length + 16, *flags)
    assert block.returncode == 3
    bytes_needed = re.search(r"--kv-cache-memory-bytes (\d+)", refused.stderr).group(1)
    grown = run_cli("complete", TINY / "llama", "x", "--max-model-len", 512, "--max-tokens", 1,
                    "--kv-cache-memory-bytes", bytes_needed, "--threads", 1)
    assert grown.returncode == 0, grown.stderr
    # Without a length of the operator's own, the server shortens it and says so.
    with Server(TINY / "llama", *flags) as server:
        models = server.client.get("/v1/models").json()["data"]
        assert models[0]["max_model_len"] == length
        assert any("requests may be" in line for line in server.lines)


@pytest.mark.parametrize("model", ["llama", "llama-rope-yarn"])
def test_rows_099_and_112_the_longest_context_is_the_configs(model):
    config = json.loads((TINY / model / "config.json").read_text())
    longest = config["max_position_embeddings"]
    refused = run_cli("complete", TINY / model, "x", "--max-model-len", longest + 1)
    assert refused.returncode == 3
    assert str(longest) in refused.stderr and str(longest + 1) in refused.stderr
    with Server(TINY / model, "--max-model-len", longest) as server:
        assert server.client.get("/v1/models").json()["data"][0]["max_model_len"] == longest
        assert len(ids_of(server, [5] * (longest - 4), max_tokens=4)) == 4


def test_row_172_the_start_tells_where_memory_goes():
    with Server(TINY / "llama", "--kv-cache-memory-bytes", "2MiB") as server:
        log = "".join(server.lines)
        assert re.search(r"weights [\d.]+ KiB in memory", log), log
        assert re.search(r"KV cache: .* a token, \d+ blocks of 16 tokens \(2\.0 MiB\)", log), log


# Operation.


@not_sanitized  # UndefinedBehaviorSanitizer needs descriptors of its own to look at a pointer
def test_row_173_clients_beyond_the_descriptors_cut_nobody_off():
    """The soft limit is raised to the hard one; beyond that new clients wait in the backlog."""
    def limits():
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 96))

    process = subprocess.Popen(
        [str(BINARY), "serve", str(TINY / "llama"), "--port", "0"], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, preexec_fn=limits)
    try:
        port = int(re.search(r":(\d+)/v1", process.stdout.readline()).group(1))
        descriptors = pathlib.Path(f"/proc/{process.pid}/fd")
        base = len(list(descriptors.iterdir()))
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client, \
                client.stream("POST", "/v1/completions", json={
                    "prompt": [5, 6], "max_tokens": 400, "stream": True, "ignore_eos": True}) as stream:
            lines = stream.iter_lines()
            next(lines)
            more = [socket.create_connection(("127.0.0.1", port)) for _ in range(150)]
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        for sock in idle + more:
            sock.close()
        deadline = time.monotonic() + 30
        while len(list(descriptors.iterdir())) > base + 6:  # what threads make for themselves
            assert time.monotonic() < deadline, list(descriptors.iterdir())
            time.sleep(0.02)
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


def test_row_176_what_outlives_the_drain_ends_with_an_error():
    server = Server(TINY / "llama", "--shutdown-timeout", 0, "--max-num-seqs", 1)
    body = {"prompt": [5], "max_tokens": 500, "ignore_eos": True, "stream": True}
    running = raw_request(server, "/v1/completions", body)
    read_until(running, b"data: ")
    waiting = raw_request(server, "/v1/completions", body | {"stream": False})
    server.wait_until(lambda: server.metric("vllm:num_requests_waiting") == 1
                      or server.metric("vllm:num_requests_running") == 0)
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    rest = b"".join(iter(lambda: running.recv(65536), b""))
    answer = b"".join(iter(lambda: waiting.recv(65536), b""))
    assert server.process.wait(timeout=30) == 0
    assert time.monotonic() - began < 10
    # Whoever was not done hears it, and does not wait for ever.
    assert b"[DONE]" in rest
    assert b'"finish_reason":"length"' in rest or b'"error"' in rest
    assert b"503" in answer.split(b"\r\n")[0] or b"200" in answer.split(b"\r\n")[0]


@pytest.mark.parametrize("phase", ["loading", "idle", "prefill", "decode", "stuck reader"])
def test_row_178_ctrl_c_ends_it_in_every_phase(phase):
    if phase == "loading":
        # A shell's background jobs ignore Ctrl-C, and so do their children unless told otherwise.
        process = subprocess.Popen(
            [str(BINARY), "serve", str(TINY / "llama"), "--port", "0"], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) in (0, 130, -signal.SIGINT)
        return
    server = Server(TINY / "llama", "--shutdown-timeout", 1)
    sock = None
    if phase == "prefill":
        sock = raw_request(server, "/v1/completions", {"prompt": [5] * 500, "max_tokens": 1})
    elif phase == "decode":
        sock = raw_request(server, "/v1/completions", {"prompt": [5], "max_tokens": 500, "stream": True})
        read_until(sock, b"data: ")
    elif phase == "stuck reader":
        sock = raw_request(server, "/v1/completions", {
            "prompt": [5], "max_tokens": 500, "stream": True, "logprobs": 20, "ignore_eos": True})
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(timeout=30) == 0
    if sock is not None:
        sock.close()


def test_row_219_one_port_on_loopback_is_all_that_listens():
    with Server(TINY / "llama") as server:
        inodes = {os.readlink(f).removeprefix("socket:[").rstrip("]")
                  for f in pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()
                  if os.readlink(f).startswith("socket:[")}
        listening = []
        for table in ("tcp", "tcp6", "udp", "udp6"):
            for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[9] in inodes and (fields[3] == "0A" or table.startswith("udp")):
                    listening.append(fields[1])
        assert listening == [f"0100007F:{server.port:04X}"]
        children = subprocess.run(["ps", "--ppid", str(server.process.pid)], capture_output=True,
                                  text=True, check=False).stdout
        assert len(children.splitlines()) == 1, children


def test_rows_170_and_150_options_and_models_that_are_not_there_end_at_once(tmp_path):
    assert run_cli("serve", TINY / "llama", "--kv-cache-dtype", "fp8").returncode == 2
    assert run_cli("serve", TINY / "llama", "--kv-cache-memory", "1GiB").returncode == 2
    (tmp_path / "config.json").write_text('{"architectures": ["FooForCausalLM"]}')
    for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        shutil.copy(TINY / "llama" / name, tmp_path / name)
    for architectures in (["FooForCausalLM"], [], ["FooForCausalLM", "LlamaForCausalLM"], "x", [5]):
        (tmp_path / "config.json").write_text(json.dumps({"architectures": architectures}))
        refused = run_cli("serve", tmp_path, "--port", 0)
        assert refused.returncode == 3, refused.stderr
        assert refused.stderr.count("kvasir:") == 1


def test_row_185_health_answers_while_a_thousand_prompts_come():
    with Server(TINY / "llama", "--max-num-queued-reqs", 2000) as server:
        body = {"prompt": [5] * 400, "max_tokens": 2, "ignore_eos": True}
        stop, began_asking = threading.Event(), threading.Event()
        slow = []

        def ask():
            with httpx.Client(base_url=server.url, timeout=30) as client:
                while not stop.is_set():
                    began = time.monotonic()
                    assert client.get("/health").status_code == 200
                    slow.append(time.monotonic() - began)
                    began_asking.set()

        asker = threading.Thread(target=ask)
        asker.start()
        assert began_asking.wait(30)
        socks = [raw_request(server, "/v1/completions", body) for _ in range(300)]
        for sock in socks:
            assert b"200 OK" in read_until(sock, b"usage")
            sock.close()
        stop.set()
        asker.join()
        # All of them answered; a busy machine makes some of them late, never most.
        slow.sort()
        assert slow[len(slow) // 2] < 0.5


def test_row_014_a_template_that_cannot_be_parsed_leaves_completions(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(TINY / "llama", folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = "{{ bos_token }}\n{% unheard_of %}"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with Server(folder) as server:
        assert any("warning" in line and "unheard_of" in line for line in server.lines)
        assert len(ids_of(server, "x", max_tokens=2)) == 2
        refused = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
        assert refused.status_code == 400
        assert "unheard_of" in refused.text and "line 2" in refused.text
        assert "--chat-template" in refused.text
    # One that the operator gives must be right.
    broken = tmp_path / "t.jinja"
    broken.write_text("{% unheard_of %}")
    refused = run_cli("serve", folder, "--port", 0, "--chat-template", broken)
    assert refused.returncode == 3 and "unheard_of" in refused.stderr
    assert run_cli("chat", folder, stdin="hi\n").returncode == 3
