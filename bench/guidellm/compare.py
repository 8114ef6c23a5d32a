"""GuideLLM beside itself: the same settings against Kvasir and llama-server.

    bench/guidellm/run [--model smollm2|gemma3|PATH] [--streams 1,4,16] [--rounds 3]

For each number of streams and each round GuideLLM sends the same new prompts to one server, then to
the other, in alternating order; both servers run all the time, and only one has work. Prints the
medians over the rounds of what GuideLLM reports, and the ratio with its spread. Ends with an error
where a request failed. GuideLLM's own reports stay in the folder of --reports.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/compare"))
import compare  # noqa: E402

WORDS = ("time way year work day man world life hand part child eye place week case point company "
         "number group problem fact water money story month night house area room book").split()
# GuideLLM's name of a metric, what it is called here, unit, whether more is better.
METRICS = [
    ("output_tokens_per_second", "output tokens", "tok/s", True),
    ("time_to_first_token_ms", "first token", "ms", False),
    ("inter_token_latency_ms", "token to token", "ms", False),
]


def tokens_in(url, text):
    """How many tokens the server makes of a prompt."""
    request = urllib.request.Request(url + "/tokenize", json.dumps({"prompt": text}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return len(json.load(answer)["tokens"])


def write_prompts(path, url, rng, count, prompt_tokens, output_tokens):
    """`count` prompts of random words, each as long as `prompt_tokens` allows, as JSON lines."""
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            words = [rng.choice(WORDS) for _ in range(prompt_tokens)]
            while tokens_in(url, " ".join(words)) > prompt_tokens:
                words.pop()
            file.write(json.dumps({"prompt": " ".join(words), "prompt_tokens_count": prompt_tokens,
                                   "output_tokens_count": output_tokens}) + "\n")


def guidellm(server, prompts, streams, requests, report):
    """Runs GuideLLM at `streams` streams; returns {metric: number}."""
    process = subprocess.run(
        [sys.executable, "-m", "guidellm", "run", "--disable-console",
         "--backend", f"kind=openai_http,target=http://127.0.0.1:{server.port},"
                      "request_format=/v1/completions",
         "--data", f"kind=json_file,path={prompts}",
         "--profile", f"kind=concurrent,streams=[{streams}]",
         "--constraint", f"kind=max_requests,count={requests}",
         "--output", f"kind=json,path={report}"],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "USE_TORCH": "0",
             "PYTHONPATH": str(ROOT / "tests/e2e/clients/torch_stand_in")},
        cwd=report.parent, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise SystemExit(f"GuideLLM ended with {process.returncode}:\n{process.stderr[-3000:]}")
    (benchmark,) = json.loads(report.read_text(encoding="utf-8"))["benchmarks"]
    metrics = benchmark["metrics"]
    totals = metrics["request_totals"]
    if totals["errored"] or totals["successful"] != requests:
        raise SystemExit(f"{server.name}: {totals['successful']} of {requests} requests succeeded, "
                         f"{totals['errored']} failed")
    return {name: metrics[name]["successful"]["mean"] for name, *_ in METRICS}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="smollm2, gemma3 or a .gguf (default smollm2)")
    parser.add_argument("--streams", default="1,4,16", help="numbers of streams (default 1,4,16)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each server (default 3)")
    parser.add_argument("--requests", type=int, default=4, help="requests a stream (default 4)")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--kvasir", default=str(ROOT / "build/release/kvasir"))
    parser.add_argument("--kvasir-flags", default="")
    parser.add_argument("--peer", required=True, help="path of llama-server")
    parser.add_argument("--peer-flags", default="", help="for instance --peer-flags=--no-repack")
    parser.add_argument("--reports", type=pathlib.Path, help="folder for GuideLLM's reports")
    args = parser.parse_args()
    cache = pathlib.Path(os.environ.get("KVASIR_MODEL_CACHE", ROOT / ".cache/models"))
    path = str(cache / compare.MODELS[args.model]) if args.model in compare.MODELS else args.model
    levels = [int(level) for level in args.streams.split(",")]
    context = args.prompt_tokens + args.output_tokens + 64
    case = compare.Case("guidellm", "", True, max(levels), max(levels) * context, None)
    folder = args.reports or pathlib.Path(tempfile.mkdtemp(prefix="guidellm-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    ports = random.sample(range(20000, 30000), 2)
    servers = []
    rng = random.Random(1)
    rows = {}
    with open(folder / "servers.log", "wb") as log:
        try:
            servers.append(compare.Server(
                "llama-server", compare.peer_command(args, path, ports[0], case), ports[0], log))
            servers.append(compare.Server(
                "kvasir", compare.our_command(args, path, ports[1], case), ports[1], log))
            for level in levels:
                for turn in range(args.rounds):
                    prompts = folder / f"prompts-{level}-{turn}.jsonl"
                    count = args.requests * level
                    # GuideLLM reads ahead, and ends where a file of just `count` rows ends.
                    write_prompts(prompts, f"http://127.0.0.1:{ports[1]}", rng, count + level + 1,
                                  args.prompt_tokens, args.output_tokens)
                    for server in servers[::1 if turn % 2 == 0 else -1]:
                        report = folder / f"{server.name}-{level}-{turn}.json"
                        found = guidellm(server, prompts, level, count, report)
                        rows.setdefault((level, server.name), []).append(found)
                        print(f"{level} streams, round {turn + 1}, {server.name}: " + ", ".join(
                            f"{label} {found[name]:.4g} {unit}"
                            for name, label, unit, _ in METRICS), flush=True)
        finally:
            for server in servers:
                server.stop()
    print(f"\n{args.prompt_tokens} tokens in, {args.output_tokens} out, "
          f"{args.requests} requests a stream, no request failed; reports in {folder}\n")
    print("| streams | GuideLLM's mean of | Kvasir | llama-server | ratio | spread |")
    print("| --- | --- | --- | --- | --- | --- |")
    for level in levels:
        ours, peers = rows[level, "kvasir"], rows[level, "llama-server"]
        for name, label, unit, _ in METRICS:
            ratios = sorted(a[name] / b[name] for a, b in zip(ours, peers))
            print(f"| {level} | {label} | {statistics.median(r[name] for r in ours):.4g} {unit} | "
                  f"{statistics.median(r[name] for r in peers):.4g} {unit} | "
                  f"{statistics.median(ratios):.2f} | {ratios[0]:.2f} to {ratios[-1]:.2f} |")


if __name__ == "__main__":
    main()
