"""Kvasir beside llama-server: the same file, the same client, one run, interleaved.

    bench/compare/run [--model smollm2|gemma3|PATH] [--cases decode,prefill,...] [--pairs 5]

Prints, for each case, the median of the paired ratios with its spread. Tokens are counted from the
servers' usage, never from chunks. Before each pair a memory-copy probe is taken, and during it the
share of CPU time that other processes used; pairs whose share is large are marked and left out.
"""

import argparse
import json
import os
import pathlib
import random
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}
VOCAB = {"smollm2": 49000, "gemma3": 250000}
# The least (for times: the most) that a ratio to the peer may be: case -> (SmolLM2, Gemma 3).
FLOORS = {
    "start": (0.5, 0.7), "decode": (1.3, 1.0), "decode-deep": (2.0, 1.5), "prefill": (2.0, 1.0),
    "throughput-8": (3.0, 1.5), "throughput-16": (3.0, 1.5), "burst-16": (0.3, 0.6),
    "interference": (0.05, 0.1), "shared-prefix": (0.5, 1.0),
}


class Server:
    """One server process on a port of its own."""

    def __init__(self, name, command, port, log):
        self.name, self.port = name, port
        began = time.monotonic()
        # Its own libraries lie beside the peer's binary.
        environment = {**os.environ, "LD_LIBRARY_PATH": str(pathlib.Path(command[0]).parent)}
        self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        while True:
            if self.process.poll() is not None:
                raise SystemExit(f"{name} ended with {self.process.returncode}: {command}")
            if self.healthy():
                break
            if time.monotonic() - began > 120:
                raise SystemExit(f"{name} was not ready after 120 s: {command}")
            time.sleep(0.005)
        self.start_s = time.monotonic() - began

    def healthy(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as sock:
                sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return b" 200 " in sock.recv(256).split(b"\r\n")[0]
        except OSError:
            return False

    def memory_mib(self, field):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
        raise ValueError(field)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Stream:
    """One streamed completion: when each piece came, and the usage at its end."""

    def __init__(self, server, prompt, max_tokens, delay_s=0.0):
        self.server, self.prompt, self.max_tokens, self.delay_s = server, prompt, max_tokens, delay_s
        self.times, self.data, self.sock, self.done = [], bytearray(), None, False

    def open(self):
        body = json.dumps({
            "prompt": self.prompt, "max_tokens": self.max_tokens, "temperature": 0,
            "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True},
        }).encode()
        self.sock = socket.create_connection(("127.0.0.1", self.server.port))
        self.sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                          b"Content-Type: application/json\r\nConnection: close\r\n"
                          b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.sock.setblocking(False)
        self.began = time.monotonic()

    def read(self):
        piece = self.sock.recv(1 << 16)
        if not piece:
            self.done = True
            return
        if b"data: {" in piece:
            self.times.append(time.monotonic())
        self.data += piece

    def finish(self):
        text = self.data.decode("utf-8", "replace")
        if " 200 " not in text.split("\r\n", 1)[0]:
            raise SystemExit(f"{self.server.name} answered: {text[:400]}")
        at = text.rfind('"usage":{')
        usage, _ = json.JSONDecoder().raw_decode(text[at + len('"usage":'):])
        self.tokens = usage["completion_tokens"]
        if self.tokens != self.max_tokens:
            raise SystemExit(f"{self.server.name} gave {self.tokens} of {self.max_tokens} tokens")
        self.ttft_s = self.times[0] - self.began
        # The last piece may hold the usage alone; it comes with the last token.
        self.decode_s = self.times[-1] - self.times[0]
        self.gap_s = max(b - a for a, b in zip(self.times, self.times[1:])) if len(self.times) > 1 else 0


def run_streams(streams):
    """Runs all streams at once (each after its delay) and returns the wall time in seconds."""
    selector = selectors.DefaultSelector()
    began = time.monotonic()
    waiting = sorted(streams, key=lambda s: s.delay_s)
    running = 0
    while waiting or running:
        while waiting and time.monotonic() - began >= waiting[0].delay_s:
            stream = waiting.pop(0)
            stream.open()
            selector.register(stream.sock, selectors.EVENT_READ, stream)
            running += 1
        timeout = max(0.0, waiting[0].delay_s - (time.monotonic() - began)) if waiting else None
        for key, _ in selector.select(timeout):
            key.data.read()
            if key.data.done:
                selector.unregister(key.fileobj)
                key.data.sock.close()
                running -= 1
    wall = time.monotonic() - began
    for stream in streams:
        stream.finish()
    return wall


class Case:
    """name, what it measures, unit, whether more is better, the context and slots it needs."""

    def __init__(self, name, unit, more_is_better, slots, context, measure):
        self.name, self.unit, self.more_is_better = name, unit, more_is_better
        self.slots, self.context, self.measure = slots, context, measure


def random_prompt(rng, vocab, length):
    return [rng.randrange(1000, vocab) for _ in range(length)]


def decode(depth, tokens):
    def measure(server, rng, vocab):
        stream = Stream(server, random_prompt(rng, vocab, depth), tokens)
        run_streams([stream])
        return (stream.tokens - 1) / stream.decode_s
    return measure


def prefill(length):
    def measure(server, rng, vocab):
        stream = Stream(server, random_prompt(rng, vocab, length), 1)
        run_streams([stream])
        return length / stream.ttft_s
    return measure


def throughput(streams_count):
    def measure(server, rng, vocab):
        streams = [Stream(server, random_prompt(rng, vocab, 64), 96) for _ in range(streams_count)]
        wall = run_streams(streams)
        return sum(s.tokens for s in streams) / wall
    return measure


def burst(server, rng, vocab):
    streams = [Stream(server, random_prompt(rng, vocab, 128), 8) for _ in range(16)]
    run_streams(streams)
    return statistics.mean(s.ttft_s for s in streams)


def interference(server, rng, vocab):
    steady = Stream(server, random_prompt(rng, vocab, 32), 400)
    long = Stream(server, random_prompt(rng, vocab, 1800), 4, delay_s=0.5)
    run_streams([steady, long])
    return steady.gap_s


def shared_prefix(server, rng, vocab):
    shared = random_prompt(rng, vocab, 1900)
    run_streams([Stream(server, shared + random_prompt(rng, vocab, 100), 1)])
    second = Stream(server, shared + random_prompt(rng, vocab, 100), 1)
    run_streams([second])
    return second.ttft_s


CASES = {case.name: case for case in [
    Case("decode", "tok/s", True, 1, 4096, decode(16, 128)),
    Case("decode-deep", "tok/s", True, 1, 4096, decode(3500, 64)),
    Case("prefill", "tok/s", True, 1, 4096, prefill(512)),
    Case("throughput-8", "tok/s", True, 8, 8 * 512, throughput(8)),
    Case("throughput-16", "tok/s", True, 16, 16 * 512, throughput(16)),
    Case("burst-16", "s", False, 16, 16 * 512, burst),
    Case("interference", "s", False, 2, 2 * 4096, interference),
    Case("shared-prefix", "s", False, 2, 2 * 4096, shared_prefix),
]}


def others_share():
    """CPU seconds spent so far by all, and by this process and its children (both servers)."""
    fields = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return sum(fields[:3]) + sum(fields[5:8]), fields[7] if len(fields) > 7 else 0


def tree_ticks(pids):
    ticks = 0
    for pid in pids:
        words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(words[11]) + int(words[12])
    return ticks


def bandwidth_probe():
    block = bytearray(64 << 20)
    best = 0.0
    for _ in range(6):
        began = time.monotonic()
        bytes(block)
        best = max(best, 2 * len(block) / (time.monotonic() - began))
    return best / 1e9


def peer_command(args, path, port, case):
    return [args.peer, "-m", path, "--host", "127.0.0.1", "--port", str(port), "-t", "2",
            "-np", str(case.slots), "-c", str(case.context), "-cram", "0", *args.peer_flags.split()]


def our_command(args, path, port, case):
    return [args.kvasir, "serve", path, "--host", "127.0.0.1", "--port", str(port),
            "--max-model-len", str(case.context // case.slots), *args.kvasir_flags.split()]


def compare(args, case, path, vocab, log):
    ports = random.sample(range(20000, 30000), 2)
    peer = Server("llama-server", peer_command(args, path, ports[0], case), ports[0], log)
    ours = Server("kvasir", our_command(args, path, ports[1], case), ports[1], log)
    rng = random.Random(1)
    rows = []
    try:
        for server in (peer, ours):  # warm up
            run_streams([Stream(server, random_prompt(rng, vocab, 16), 8)])
        for pair in range(args.pairs):
            bandwidth = bandwidth_probe()
            pids = [os.getpid(), peer.process.pid, ours.process.pid]
            total, stolen = others_share()
            mine = tree_ticks(pids)
            values = {}
            order = (peer, ours) if pair % 2 == 0 else (ours, peer)
            seed = rng.randrange(1 << 30)
            began = time.monotonic()
            for server in order:
                values[server.name] = case.measure(server, random.Random(seed), vocab)
            wall = time.monotonic() - began
            total_after, stolen_after = others_share()
            others = (total_after - total - (tree_ticks(pids) - mine)) / os.sysconf("SC_CLK_TCK")
            share = max(0.0, others / wall / os.cpu_count())
            rows.append((values["kvasir"], values["llama-server"], share, bandwidth))
            if pair == 0:
                first_round_mib = ours.memory_mib("VmHWM")
            print(f"  pair {pair + 1}: kvasir {values['kvasir']:.4g} {case.unit}, llama-server "
                  f"{values['llama-server']:.4g} {case.unit}, ratio "
                  f"{values['kvasir'] / values['llama-server']:.3f}; copy {bandwidth:.1f} GB/s, "
                  f"others took {share * 100:.0f} % of the CPU"
                  + (" (left out)" if share > args.max_share else ""), flush=True)
        memory = (ours.memory_mib("VmHWM"), peer.memory_mib("VmHWM"))
        start = (ours.start_s, peer.start_s)
    finally:
        peer.stop()
        ours.stop()
    quiet = [row for row in rows if row[2] <= args.max_share] or rows
    ratios = sorted(row[0] / row[1] for row in quiet)
    return {
        "case": case.name, "unit": case.unit, "pairs": len(quiet),
        "kvasir": statistics.median(row[0] for row in quiet),
        "llama_server": statistics.median(row[1] for row in quiet),
        "ratio": statistics.median(ratios), "ratio_low": ratios[0], "ratio_high": ratios[-1],
        "kvasir_peak_rss_mib": memory[0], "llama_server_peak_rss_mib": memory[1],
        "kvasir_first_round_rss_mib": first_round_mib,
        "kvasir_start_s": start[0], "llama_server_start_s": start[1],
    }


def start_case(args, path, log):
    """Start to ready, each server alone, alternating."""
    case = Case("start", "s", False, 1, 4096, None)
    rows = []
    for pair in range(args.pairs):
        seconds = {}
        makers = [("llama-server", peer_command), ("kvasir", our_command)]
        for name, maker in makers if pair % 2 == 0 else makers[::-1]:
            port = random.randrange(20000, 30000)
            server = Server(name, maker(args, path, port, case), port, log)
            seconds[name] = server.start_s
            server.stop()
        rows.append((seconds["kvasir"], seconds["llama-server"]))
        print(f"  pair {pair + 1}: kvasir {rows[-1][0]:.3f} s, llama-server {rows[-1][1]:.3f} s",
              flush=True)
    ratios = sorted(a / b for a, b in rows)
    return {"case": "start", "unit": "s", "pairs": len(rows),
            "kvasir": statistics.median(r[0] for r in rows),
            "llama_server": statistics.median(r[1] for r in rows),
            "ratio": statistics.median(ratios), "ratio_low": ratios[0], "ratio_high": ratios[-1]}


def floor_text(result, column):
    """Whether the ratio holds its floor, for the two models that have one."""
    if column is None:
        return ""
    floor = FLOORS[result["case"]][column]
    more_is_better = result["unit"] == "tok/s"
    met = result["ratio"] >= floor if more_is_better else result["ratio"] <= floor
    return f"{'>=' if more_is_better else '<='} {floor:g} {'met' if met else 'MISSED'}"


def print_memory_limit(args, path, result):
    """Peak RSS at 16 streams beside weights + live KV + 100 MB. That of the first round: later rounds
    find the prompts and answers of earlier ones still cached, for which memory is kept as long as the
    KV cache has room."""
    facts = json.loads(subprocess.run([args.kvasir, "inspect", path, "--json"], check=True,
                                      stdout=subprocess.PIPE).stdout)
    live_tokens = 16 * (64 + 96)
    mib = 1 << 20
    weights = facts["weights_bytes"] / mib
    kv = live_tokens * facts["kv_bytes_per_token"] / mib
    limit = weights + kv + 100e6 / mib
    peak = result["kvasir_first_round_rss_mib"]
    print(f"{'':<14} peak RSS of the first 16 streams {peak:.0f} MiB; weights {weights:.0f} + live KV {kv:.0f} + 95 MiB (100 MB) "
          f"= {limit:.0f} MiB: {'met' if peak <= limit else 'MISSED'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="smollm2, gemma3 or a .gguf (default smollm2)")
    parser.add_argument("--cases", default="all", help="comma-separated, or all: start," + ",".join(CASES))
    parser.add_argument("--pairs", type=int, default=5, help="pairs of measurements a case (default 5)")
    parser.add_argument("--kvasir", default=str(ROOT / "build/release/kvasir"))
    parser.add_argument("--kvasir-flags", default="")
    parser.add_argument("--peer", required=True, help="path of llama-server")
    parser.add_argument("--peer-flags", default="")
    parser.add_argument("--max-share", type=float, default=0.08,
                        help="leave out pairs in which others took more of the CPU (default 0.08)")
    parser.add_argument("--json", help="write the results to this file")
    args = parser.parse_args()
    cache = pathlib.Path(os.environ.get("KVASIR_MODEL_CACHE", ROOT / ".cache/models"))
    path = str(cache / MODELS[args.model]) if args.model in MODELS else args.model
    vocab = VOCAB.get(args.model, 30000)
    names = ["start", *CASES] if args.cases == "all" else args.cases.split(",")
    results = []
    with open(os.environ.get("COMPARE_LOG", os.devnull), "ab") as log:
        for name in names:
            print(f"{name}:", flush=True)
            results.append(start_case(args, path, log) if name == "start"
                           else compare(args, CASES[name], path, vocab, log))
    floors = {"smollm2": 0, "gemma3": 1}.get(args.model)
    print(f"\n{'case':<14} {'kvasir':>10} {'llama-server':>13} unit   {'ratio':>6}  spread           "
          "floor          peak RSS MiB (ours, peer)")
    for r in results:
        memory = (f"{r['kvasir_peak_rss_mib']:.0f}, {r['llama_server_peak_rss_mib']:.0f}"
                  if "kvasir_peak_rss_mib" in r else "")
        print(f"{r['case']:<14} {r['kvasir']:>10.4g} {r['llama_server']:>13.4g} {r['unit']:<6} "
              f"{r['ratio']:>6.3f}  [{r['ratio_low']:.3f}, {r['ratio_high']:.3f}]  "
              f"{floor_text(r, floors):<14} {memory}")
        if r["case"] == "throughput-16":
            print_memory_limit(args, path, r)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    sys.exit(main())
