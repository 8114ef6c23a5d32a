"""The real binary, started for a test and asked over loopback."""

import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

import httpx
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("KVASIR_BINARY", ROOT / "build/release/kvasir"))
TINY = ROOT / "tests/data/models"
CACHE = pathlib.Path(os.environ.get("KVASIR_MODEL_CACHE", ROOT / ".cache/models"))
SMOLLM2 = CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"

# clients/ runs in an environment of its own, which has these clients.
if importlib.util.find_spec("litellm") is None:
    collect_ignore = ["clients"]
else:  # Nothing there may look beyond this machine.
    os.environ.update({
        "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "LANGSMITH_TRACING": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True", "TOKENIZERS_PARALLELISM": "false",
        "OPENAI_API_KEY": "none",
    })


# Memory, libraries and the like are not the product's own where a sanitizer is built in.
SANITIZED = "KVASIR_SANITIZED" in os.environ
not_sanitized = pytest.mark.skipif(SANITIZED, reason="a sanitizer changes what this test looks at")


def scaled(count, least=2):
    """`count` streams, connections or rounds, fewer where a slow build is tested (KVASIR_TEST_SCALE)."""
    return max(least, round(count * float(os.environ.get("KVASIR_TEST_SCALE", "1"))))


def run_cli(*arguments, stdin="", timeout=60):
    """Runs the binary and returns the finished process with text output."""
    return subprocess.run([str(BINARY), *map(str, arguments)], input=stdin, capture_output=True,
                          text=True, timeout=timeout, check=False)


class Server:
    """`kvasir serve` on `port` (0: one that the system chooses), or on the unix socket `uds`."""

    def __init__(self, model, *flags, port=0, uds=None, ready_timeout_s=60):
        listen = ["--uds", str(uds)] if uds else ["--port", str(port)]
        self.process = subprocess.Popen(
            [str(BINARY), "serve", str(model), *listen, *map(str, flags)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.scheme = self.port = None
        self._seen = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._seen.wait(ready_timeout_s) or self.port is None:
            self.process.kill()
            raise RuntimeError("the server did not start:\n" + "".join(self.lines))
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"
        transport = httpx.HTTPTransport(uds=str(uds)) if uds else None
        self.client = httpx.Client(base_url=self.url, timeout=120, transport=transport)

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"(https?)://127\.0\.0\.1:(\d+)/v1|http\+unix:", line)
            if found and self.port is None:
                self.scheme, self.port = found.group(1) or "http", int(found.group(2) or 0)
                self._seen.set()
        self._seen.set()

    def post(self, path, body, **kwargs):
        return self.client.post(path, json=body, **kwargs)

    def complete(self, prompt, **fields):
        answer = self.post("/v1/completions", {"prompt": prompt, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def metric(self, name, **labels):
        """Sum of the samples of `name` whose labels include `labels`."""
        total, found = 0.0, False
        for line in self.client.get("/metrics").text.splitlines():
            if not line.startswith((name + "{", name + " ")):
                continue
            if all(f'{key}="{value}"' in line for key, value in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
                found = True
        assert found, f"no metric {name} {labels}"
        return total

    def wait_until(self, condition, timeout_s=30):
        """Polls `condition` until it holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come to hold"
            time.sleep(0.01)

    def stop(self):
        """SIGTERM; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.client.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        code = self.stop()
        assert code == 0, f"exit code {code}:\n" + "".join(self.lines[-20:])


@pytest.fixture(scope="module")
def tiny():
    """A tiny Llama, shared by the tests of one file."""
    with Server(TINY / "llama", "--max-num-seqs", 64, "--kv-cache-memory-bytes", "64MiB") as server:
        yield server


@pytest.fixture(scope="module")
def smollm2():
    """The real default model, shared by the tests of one file."""
    if not SMOLLM2.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{SMOLLM2} is missing")
        pytest.skip(f"{SMOLLM2} is missing")
    with Server(SMOLLM2, "--kv-cache-memory-bytes", "1GiB") as server:
        yield server


def sse_events(response):
    """The JSON objects of a streamed answer; checks that it ends with [DONE]."""
    objects, done = [], False
    for line in response.iter_lines():
        if not line:
            continue
        assert line.startswith("data: "), line
        assert not done, "data after [DONE]"
        if line == "data: [DONE]":
            done = True
        else:
            objects.append(json.loads(line[len("data: "):]))
    assert done, "the stream ended without [DONE]"
    return objects
