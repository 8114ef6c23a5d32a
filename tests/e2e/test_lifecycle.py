"""Clients that leave, queues that fill, signals that come."""

import concurrent.futures
import json
import signal
import socket
import threading
import time

import httpx
from conftest import SMOLLM2, TINY, Server, run_cli, sse_events


def open_stream(server, prompt, max_tokens):
    """A raw streaming request; returns the socket once the first data has come."""
    body = json.dumps({"prompt": prompt, "max_tokens": max_tokens, "stream": True,
                       "ignore_eos": True}).encode()
    sock = socket.create_connection(("127.0.0.1", server.port))
    sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    data = b""
    while b"data: " not in data:
        piece = sock.recv(4096)
        assert piece, data
        data += piece
    return sock


def test_half_the_clients_leave_and_the_blocks_come_back():
    with Server(TINY / "llama", "--no-enable-prefix-caching", "--kv-cache-memory-bytes", "64MiB") as server:
        alone = [server.complete([5, 6, i + 7], max_tokens=200, ignore_eos=True, temperature=0,
                                 return_token_ids=True)["choices"][0]["token_ids"] for i in range(8)]
        leaving = [open_stream(server, [9, 9, i], 480) for i in range(8)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            staying = [pool.submit(server.complete, [5, 6, i + 7], max_tokens=200, ignore_eos=True,
                                   temperature=0, return_token_ids=True) for i in range(8)]
            for sock in leaving:
                sock.close()
            answers = [f.result()["choices"][0]["token_ids"] for f in staying]
        assert answers == alone
        server.wait_until(lambda: server.metric("vllm:num_requests_running") == 0)
        server.wait_until(lambda: server.metric("kvasir:kv_blocks", state="used") == 0)
        # Who left late may have had all its tokens in the socket already, and counts as finished.
        ended = [server.metric("vllm:request_success_total", finished_reason=reason)
                 for reason in ("abort", "length")]
        assert sum(ended) == 24, ended


def test_a_full_queue_gives_429_with_retry_after():
    with Server(TINY / "llama", "--max-num-seqs", 1, "--max-num-queued-reqs", 1) as server:
        running = open_stream(server, [5, 6, 7], 500)
        waiting = threading.Thread(target=server.complete, args=([5, 6],),
                                   kwargs={"max_tokens": 1})
        waiting.start()
        server.wait_until(lambda: server.metric("vllm:num_requests_waiting") == 1
                          or not waiting.is_alive())
        if waiting.is_alive():
            refused = server.post("/v1/completions", {"prompt": [5], "max_tokens": 1})
            if refused.status_code != 200:
                assert refused.status_code == 429
                assert int(refused.headers["retry-after"]) >= 1
                assert refused.json()["error"]["type"] == "rate_limit_error"
        running.close()
        waiting.join()
        assert server.complete([5], max_tokens=1)["choices"][0]["finish_reason"] == "length"


def test_sigterm_finishes_what_runs_and_refuses_what_comes():
    server = Server(TINY / "llama", "--shutdown-timeout", 30)
    stream_began = threading.Event()
    seen = {}

    def read():
        with server.client.stream("POST", "/v1/completions", json={
                "prompt": [5, 6, 7], "max_tokens": 500, "stream": True, "ignore_eos": True,
                "stream_options": {"include_usage": True}}) as response:
            iterator = response.iter_lines()
            first = next(iterator)
            stream_began.set()
            seen["lines"] = [first, *iterator]

    reader = threading.Thread(target=read)
    reader.start()
    assert stream_began.wait(30)
    keep = httpx.Client(base_url=server.url)
    assert keep.get("/ready").status_code == 200
    server.process.send_signal(signal.SIGTERM)
    reader.join(60)
    lines = [line for line in seen["lines"] if line]
    assert lines[-1] == "data: [DONE]"
    usage = json.loads(lines[-2][len("data: "):])["usage"]
    assert usage["completion_tokens"] == 500
    assert server.process.wait(timeout=30) == 0
    keep.close()


def test_second_sigterm_ends_at_once():
    server = Server(SMOLLM2, "--shutdown-timeout", 600)
    sock = open_stream(server, [5, 6, 7], 8000)
    server.process.send_signal(signal.SIGTERM)
    server.wait_until(lambda: server.client.get("/ready").status_code == 503)
    time.sleep(0.2)  # within a tenth of a second it would be the first one's echo
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=30) == 128 + signal.SIGTERM
    sock.close()


def test_a_sigterm_that_comes_twice_at_once_is_one():
    """timeout(1) signals the process and its group: the running stream must still finish."""
    server = Server(SMOLLM2, "--shutdown-timeout", 600)
    sock = open_stream(server, [5, 6, 7], 60)
    server.process.send_signal(signal.SIGTERM)
    server.process.send_signal(signal.SIGTERM)
    data = b""
    while piece := sock.recv(65536):
        data += piece
    assert b"data: [DONE]" in data
    assert server.process.wait(timeout=30) == 0
    sock.close()


def test_port_in_use_is_one_line_and_exit_code_4(tiny):
    refused = run_cli("serve", TINY / "llama", "--port", tiny.port)
    assert refused.returncode == 4
    assert str(tiny.port) in refused.stderr


def test_stream_events_are_whole(tiny):
    with tiny.client.stream("POST", "/v1/completions", json={
            "prompt": [5, 6, 7], "max_tokens": 12, "stream": True, "ignore_eos": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = sse_events(response)
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 12
    counts = [e["usage"]["completion_tokens"] for e in events]
    assert counts == sorted(counts)
