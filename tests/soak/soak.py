"""Random traffic for a while: every endpoint, good requests and bad ones, clients that vanish, crawl and
stop. Then memory, descriptors, threads and blocks must be where they were after the first fifth.

    tests/soak/run --seconds 300
"""

import argparse
import asyncio
import collections
import dataclasses
import json
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from conftest import TINY, Server  # noqa: E402
from support import wire  # noqa: E402

FLAGS = ["--max-num-seqs", 24, "--max-num-queued-reqs", 20, "--kv-cache-memory-bytes", "1MiB",
         "--max-num-batched-tokens", 256, "--shutdown-timeout", 30]
CLIENTS = 32
# What malloc keeps in its arenas moves by some MiB; a leak of one request's state (some KiB) over the
# tens of thousands of a run is far more.
RSS_GROWTH_KIB_MAX = 16 * 1024


@dataclasses.dataclass
class Sample:
    """What a server holds while nobody asks anything of it."""
    rss_kib: int
    descriptors: int
    threads: int
    blocks_used: int
    running: int
    waiting: int
    in_flight: int

    def rest(self):
        return dataclasses.replace(self, rss_kib=0)


def sample(server):
    pid = server.process.pid
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    field = dict(line.split(":", 1) for line in status.splitlines())
    return Sample(
        rss_kib=int(field["VmRSS"].split()[0]), threads=int(field["Threads"]),
        descriptors=len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir())),
        blocks_used=int(server.metric("kvasir:kv_blocks", state="used")),
        running=int(server.metric("vllm:num_requests_running")),
        waiting=int(server.metric("vllm:num_requests_waiting")),
        in_flight=int(server.metric("kvasir:http_requests_in_flight")))


def bad_bodies():
    """(path, body) pairs that must each get a 4xx with a message."""
    completion, chat = "/v1/completions", "/v1/chat/completions"
    return [
        (completion, b""), (completion, b"{"), (completion, b"[]"), (completion, b"\xff\xfe{}"),
        (completion, b'{"prompt": "\\ud800", "max_tokens": "x"}'), (completion, {"prompt": []}),
        (completion, {"prompt": [5], "max_tokens": -1}), (completion, {"prompt": [10 ** 9]}),
        (completion, {"prompt": [5], "temperature": 1e9}), (completion, {"prompt": [5], "n": 0}),
        (completion, {"prompt": [5] * 600}), (completion, {"prompt": [5], "max_tokens": 10 ** 18}),
        (completion, {"prompt": [5], "stop": [""] * 99}), (completion, b"[" * 10000),
        (completion, {"prompt": [5], "model": "nobody"}), (completion, {"prompt": {"a": 1}}),
        (chat, {}), (chat, {"messages": []}), (chat, {"messages": "hello"}),
        (chat, {"messages": [{"content": "no role"}]}),
        (chat, {"messages": [{"role": "user", "content": "x"}], "logprobs": True,
                "top_logprobs": 999}),
        ("/tokenize", {}), ("/tokenize", {"prompt": 5}), ("/detokenize", {"tokens": ["a"]}),
        ("/detokenize", {"tokens": [-1]}), ("/v1/nothing", {}), ("/health", {}),
    ]


BAD_BYTES = [
    b"\r\n\r\n\x00\x01\x02 garbage\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
]
GETS = ["/v1/models", "/v1/models/llama", "/health", "/ready", "/ping", "/version", "/metrics", "/load",
        "/", "/tokenizer_info"]
STREAM_HEAVY = {"prompt": [9, 9, 9], "max_tokens": 400, "ignore_eos": True, "logprobs": 5}


class Soak:
    def __init__(self, server, seed):
        self.server = server
        self.seed = seed
        self.counts = collections.Counter()
        self.known = []  # (body, expected text and tokens)

    async def learn(self):
        """What some requests get while they are alone."""
        rng = random.Random(self.seed)
        for i in range(40):
            prompt = [rng.randrange(3, 384) for _ in range(rng.randint(1, 200))]
            if i % 3 == 0:
                prompt = [7] * 60 + prompt[:100]
            body = {"prompt": prompt, "max_tokens": rng.randint(1, 100), "ignore_eos": True,
                    "temperature": rng.choice([0, 1.0]), "seed": i}
            self.known.append((body, await wire.complete(self.server.port, {**body, "cache_salt": "x"})))

    async def traffic(self, seconds, phase):
        until = time.monotonic() + seconds
        await asyncio.gather(*(self.client(random.Random(f"{self.seed} {phase} {i}"), until)
                               for i in range(CLIENTS)))

    async def client(self, rng, until):
        """One client after the other; some keep their connection for several requests."""
        kinds = [self.whole] * 6 + [self.streamed] * 6 + [self.chat] * 3 + [self.get] * 3 + [
            self.tokens] * 3 + [self.bad_body] * 6 + [self.bad_bytes] * 2 + [self.vanish] * 4 + [
            self.half_request] * 2 + [self.crawl] + [self.stop_reading] + [self.options]
        connection = None
        while time.monotonic() < until:
            kind = rng.choice(kinds)
            if connection is None:
                connection = await wire.Connection.open(
                    self.server.port, 2048 if kind == self.stop_reading else None)
            try:
                keep = await kind(rng, connection)
            except Exception as error:
                raise AssertionError(f"{kind.__name__}: {type(error).__name__}: {error}") from error
            self.counts[kind.__name__] += 1
            if not keep or rng.random() < 0.3:
                connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def count(self, answer):
        self.counts[answer.status] += 1
        return answer

    @staticmethod
    def choices(rng, body):
        return rng.choice([1, 1, 2]) if body["temperature"] else 1

    async def whole(self, rng, connection):
        body, expected = rng.choice(self.known)
        answer = self.count(await connection.ask("POST", "/v1/completions",
                                                 {**body, "return_token_ids": True,
                                                  "n": self.choices(rng, body)}))
        if answer.status == 429:
            assert int(answer.headers["retry-after"]) >= 1
            await asyncio.sleep(0.1)
            return True
        assert answer.status == 200, answer
        choice = answer.json()["choices"][0]
        assert (choice["text"], choice["token_ids"]) == expected, body
        return True

    async def streamed(self, rng, connection):
        body, expected = rng.choice(self.known)
        result = await connection.stream({**body, "priority": rng.choice([0, 0, 1, -1])})
        self.counts[result.status] += 1
        if result.status == 429:
            await asyncio.sleep(0.1)
            return True
        assert result.status == 200 and result.done and result.error is None, result
        assert (result.text, result.token_ids) == expected, body
        return True

    async def chat(self, rng, connection):
        body = {"messages": [{"role": "user", "content": "hello " * rng.randint(1, 8)}],
                "max_tokens": rng.randint(1, 30), "stop": ["e", "zz"], "logprobs": True,
                "top_logprobs": 3, "n": rng.choice([1, 3]), "stream": rng.random() < 0.5}
        answer = self.count(await connection.ask("POST", "/v1/chat/completions", body))
        assert answer.status in (200, 429), answer
        if answer.status == 200 and body["stream"]:
            assert answer.body.endswith(b"data: [DONE]\n\n"), answer.body[-200:]
        return True

    async def get(self, rng, connection):
        path = rng.choice(GETS)
        answer = self.count(await connection.ask(rng.choice(["GET", "GET", "HEAD"]), path))
        assert answer.status == 200, (path, answer)
        return answer.headers.get("connection") != "close"

    async def options(self, _rng, connection):
        answer = self.count(await connection.ask("OPTIONS", "/v1/completions", headers=[
            ("Origin", "http://page"), ("Access-Control-Request-Method", "POST")]))
        assert answer.status == 200, answer
        return True

    async def tokens(self, rng, connection):
        text = "".join(rng.choice("abc é世\n") for _ in range(rng.randint(1, 300)))
        answer = self.count(await connection.ask("POST", "/tokenize",
                                                 {"prompt": text, "add_special_tokens": False}))
        assert answer.status == 200, answer
        back = self.count(await connection.ask("POST", "/detokenize",
                                               {"tokens": answer.json()["tokens"]}))
        assert back.status == 200 and back.json()["prompt"] == text, (text, back)
        return True

    async def bad_body(self, rng, connection):
        path, body = rng.choice(bad_bodies())
        answer = self.count(await connection.ask("POST", path, body))
        assert 400 <= answer.status < 500, (path, body, answer)
        assert answer.json()["error"]["message"], answer
        return answer.headers.get("connection") != "close"

    async def bad_bytes(self, rng, connection):
        await connection.send(rng.choice(BAD_BYTES))
        status, headers = await connection.head()
        self.counts[status] += 1
        assert 400 <= status < 600, status
        await connection.body(headers)
        return False

    async def vanish(self, rng, connection):
        body, _ = rng.choice(self.known)
        await connection.send(wire.request_bytes("POST", "/v1/completions", {
            **body, "stream": rng.random() < 0.7, "n": self.choices(rng, body)}))
        if rng.random() < 0.8:
            await connection.reader.read(rng.randint(1, 5000))
        if rng.random() < 0.5:
            connection.reset()
        return False

    async def half_request(self, rng, connection):
        request = wire.request_bytes("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "never sent whole"}]})
        await connection.send(request[:rng.randrange(1, len(request))])
        return False

    async def crawl(self, rng, connection):
        body, expected = rng.choice(self.known)
        request = wire.request_bytes("POST", "/v1/completions", {**body, "return_token_ids": True})
        at = rng.randrange(1, len(request) - 1)
        await connection.send(request[:at])
        await asyncio.sleep(1)
        await connection.send(request[at:at + 1])
        await asyncio.sleep(1)
        await connection.send(request[at + 1:])
        status, headers = await connection.head()
        answer = self.count(wire.Answer(status, headers, await connection.body(headers)))
        assert answer.status in (200, 429), answer
        if answer.status == 200:
            choice = answer.json()["choices"][0]
            assert (choice["text"], choice["token_ids"]) == expected
        return True

    async def stop_reading(self, rng, connection):
        await connection.send(wire.request_bytes("POST", "/v1/completions",
                                                 {**STREAM_HEAVY, "stream": True}))
        await asyncio.sleep(rng.uniform(0, 2))
        if rng.random() < 0.5:
            connection.reset()
        return False


async def quiet(server):
    """Waits until the server holds nothing, then what it takes besides."""
    def idle():
        now = sample(server)
        return now.blocks_used == now.running == now.waiting == now.in_flight == 0
    await wire.wait_until(idle, 60)
    # Ends of connections that a client cut are seen a moment later.
    before = -1
    while before != (now := sample(server).descriptors):
        before = now
        await asyncio.sleep(0.3)
    return sample(server)


async def soak(server, seconds, seed, say=lambda text: None):
    """Returns what the server held after the first fifth of the time, and at the end."""
    run = Soak(server, seed)
    await run.learn()
    say("warming up")
    await run.traffic(seconds / 5, 0)
    began = await quiet(server)
    say(f"after {seconds / 5:.0f} s:   {began}")
    for phase in range(1, 5):
        await run.traffic(seconds / 5, phase)
        ended = await quiet(server)
        say(f"after {seconds * (phase + 1) / 5:.0f} s:   {ended}")
    return began, ended, run.counts


def check(began, ended, memory=True):
    assert ended.rest() == began.rest(), (began, ended)
    assert not memory or ended.rss_kib - began.rss_kib <= RSS_GROWTH_KIB_MAX, (began, ended)


def main():
    parser = argparse.ArgumentParser(prog="tests/soak/run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="of traffic; default 300")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the traffic; default: the time")
    arguments = parser.parse_args()
    print(f"soak of {arguments.seconds:.0f} s, seed {arguments.seed}", flush=True)
    with Server(TINY / "llama", *FLAGS) as server:
        began, ended, counts = asyncio.run(soak(server, arguments.seconds, arguments.seed,
                                                lambda text: print(text, flush=True)))
        print(json.dumps({str(key): count for key, count in sorted(counts.items(), key=str)}, indent=1))
        check(began, ended)
    print(f"held: memory {began.rss_kib} KiB -> {ended.rss_kib} KiB, descriptors "
          f"{began.descriptors} -> {ended.descriptors}, threads {began.threads} -> {ended.threads}, "
          f"blocks {began.blocks_used} -> {ended.blocks_used}; exit code 0")


if __name__ == "__main__":
    main()
