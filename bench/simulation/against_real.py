"""Simulates workloads and runs them on the real server, and prints how far apart they are:
bench/simulation/run [--repeats 3] [--only TEXT] [--json FILE]

First the model is measured (`kvasir bench calibrate`), and how long a request takes to the queue
and its token back; then each workload is simulated with that and replayed against `kvasir serve`
under the same flags, on a server whose memory has been used before. Ends with 1 where a figure is
off by more than 15 %, a count differs, or the variants of a comparison come in another order.
Nothing else should run on the machine meanwhile."""

import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request

import cases
import measures
from convert_weights import convert
from replay import replay

FIGURES = [("output_tokens_per_s", "throughput", 1, "tokens/s"), ("ttft_s", "median TTFT", 1e3, "ms"),
           ("itl_s", "median ITL", 1e3, "ms")]
COUNTS = [("preemptions", "preemptions"), ("cached_tokens", "tokens found cached")]
LIMIT_PERCENT = 15


def words(flags):
    return [str(flag) for flag in flags]


class Server:
    """`kvasir serve` on a port that the system chooses."""

    def __init__(self, binary, model, flags):
        self.process = subprocess.Popen([binary, "serve", model, "--port", "0", *words(flags)],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.port = None
        said = []
        for line in self.process.stdout:
            said.append(line)
            found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", line)
            if found:
                self.port = int(found.group(1))
                break
        if self.port is None:
            raise RuntimeError("the server did not start:\n" + "".join(said))
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def counters(self):
        names = [f"vllm:{name}_total" for name in ("num_preemptions", "prompt_tokens_cached")]
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as page:
            lines = page.read().decode().splitlines()
        return {name: sum(float(line.rsplit(" ", 1)[1]) for line in lines
                          if line.startswith((name + "{", name + " "))) for name in names}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)


class Bench:
    """The binary, the model and its calibration."""

    def __init__(self, arguments, folder):
        self.binary = arguments.binary
        self.model = arguments.model
        self.folder = folder
        self.calibration = arguments.calibration
        self.calibrates = not arguments.calibration
        self.overhead_s = 0.0

    def calibrate(self, point_seconds):
        if not self.calibrates:
            return
        self.calibration = str(self.folder / "calibration.json")
        subprocess.run([self.binary, "bench", "calibrate", self.model, "--output", self.calibration,
                        "--point-seconds", str(point_seconds), *words(cases.ENGINE)],
                       stdout=sys.stderr, check=True)

    def measure_overhead(self):
        """What a request takes beside its steps, with nobody else there."""
        case = cases.overhead()
        variants, lines = self.simulate(case)
        real = self.run(case, lines)["ttft_s"]
        self.overhead_s = max(0.0, real - measures.of_simulation(variants[0])["ttft_s"])
        print(f"a request takes {1e3 * self.overhead_s:.2f} ms beside its steps", flush=True)

    def simulate(self, case, *flags):
        requests = self.folder / "requests.jsonl"
        machine = (["--calibration", self.calibration] if self.calibration
                   else ["--hardware", "this"])
        shown = subprocess.run(
            [self.binary, "simulate", self.model, *machine, "--json", "--write-requests",
             str(requests), "--request-overhead", f"{1e3 * self.overhead_s:.3f}ms",
             *words(case.engine), *words(case.traffic), *words(flags)],
            stdout=subprocess.PIPE, text=True, check=True)
        lines = [json.loads(line) for line in requests.read_text().splitlines()]
        return json.loads(shown.stdout)["variants"], lines

    def simulate_formats(self, case, compare):
        """As simulate, for a machine of which only bandwidth and multiply rate were measured: step
        times hold for one format."""
        calibration, self.calibration = self.calibration, None
        try:
            return self.simulate(case, "--compare", compare)
        finally:
            self.calibration = calibration

    def converted(self, format_name):
        path = self.folder / f"{format_name}.gguf"
        if not path.exists():
            convert(self.model, path, format_name)
        return path

    def run(self, case, lines, flags=(), model=None):
        """One real run, on a server of its own whose cache is empty."""
        with Server(self.binary, str(model or self.model), [*case.engine, *flags]) as server:
            replay(server.port, warm_up([*case.engine, *flags]), users=1)
            before = server.counters()
            requests, tokens = replay(server.port, lines, case.users, case.at_once)
            after = server.counters()
        moved = {name: after[name] - before[name] for name in after}
        return measures.of_requests(requests, tokens, moved)


def warm_up(flags):
    """Prompts that fill the whole cache: memory that is touched for the first time is slow."""
    value = dict(zip(flags, flags[1:]))
    length = min(1024, value["--max-model-len"] - 1)
    tokens = value["--num-kv-blocks"] * value.get("--block-size", 16)
    draw = random.Random(7)
    return [{"arrival_s": 0, "prompt": [draw.randrange(49152) for _ in range(length)],
             "output_tokens": 1} for _ in range(-(-tokens // length))]


def print_row(name, cells):
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def compare_figures(bench, arguments):
    """The six workloads. Returns the rows, and whether all are near."""
    saturated, _ = bench.simulate(cases.closed("saturation", 32, 128, "--prompt-tokens", 128,
                                               "--output-tokens", 64))
    rate = 0.8 * saturated[0]["requests_per_s"]
    rows, near = [], True
    print("| workload | " + " | ".join(f"{label}, simulated / real, {unit}"
                                       for _, label, _, unit in FIGURES)
          + " | " + " | ".join(f"{label}, simulated / real" for _, label in COUNTS) + " |")
    print("| --- |" + " --- |" * (len(FIGURES) + len(COUNTS)))
    for case in cases.workloads(rate):
        if arguments.only not in case.name:
            continue
        # Other machines' work comes and goes: the measured times have to be of now.
        bench.calibrate(arguments.point_seconds)
        variants, lines = bench.simulate(case)
        simulated = measures.of_simulation(variants[0])
        real = measures.median_of([bench.run(case, lines) for _ in range(arguments.repeats)])
        cells = []
        for figure, _, scale, _ in FIGURES:
            off = measures.error(simulated[figure], real[figure])
            near = near and abs(off) <= LIMIT_PERCENT
            cells.append(f"{scale * simulated[figure]:.1f} / {scale * real[figure]:.1f} "
                         f"({off:+.1f} %)")
        for count, _ in COUNTS:
            near = near and simulated[count] == real[count]
            cells.append(f"{simulated[count]:.0f} / {real[count]:.0f}")
        print_row(case.name, cells)
        rows.append({"workload": case.name, "simulated": simulated, "real": real})
    return rows, near


def compare_orders(bench, arguments):
    """Each --compare. Returns the rows, and whether all orders agree."""
    rows, agree = [], True
    print("\n| --compare | figure | simulated | real | order |")
    print("| --- | --- | --- | --- | --- |")
    for comparison in cases.COMPARISONS:
        if arguments.only not in comparison.compare:
            continue
        case = comparison.case
        base = [] if "--num-kv-blocks" in case.engine else ["--num-kv-blocks", 512]
        if comparison.formats:
            variants, lines = bench.simulate_formats(case, comparison.compare)
            runs = [{"model": bench.converted(name)} for name in comparison.variants]
        else:
            variants, lines = bench.simulate(case, *base, "--compare", comparison.compare)
            runs = [{"flags": flags} for flags in comparison.variants]
        simulated = [measures.of_simulation(variant)[comparison.figure] for variant in variants]
        real = [measures.median_of([bench.run(case, lines, **run)
                                    for _ in range(arguments.repeats)])[comparison.figure]
                for run in runs]
        same = measures.order(simulated) == measures.order(real)
        agree = agree and same
        print_row(comparison.compare,
                  [comparison.figure, " < ".join(f"{value:.4g}" for value in simulated)
                   if simulated == sorted(simulated)
                   else ", ".join(f"{value:.4g}" for value in simulated),
                   ", ".join(f"{value:.4g}" for value in real), "same" if same else "differs"])
        rows.append({"compare": comparison.compare, "figure": comparison.figure,
                     "simulated": simulated, "real": real, "same_order": same})
    return rows, agree


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default="build/release/kvasir")
    parser.add_argument("--model", required=True)
    parser.add_argument("--calibration", help="a calibration made before, in place of measuring")
    parser.add_argument("--point-seconds", type=float, default=0.3)
    parser.add_argument("--repeats", type=int, default=3, help="real runs of each, the median counts")
    parser.add_argument("--only", default="", help="workloads and comparisons whose name has this")
    parser.add_argument("--json", help="file for all figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        bench.calibrate(arguments.point_seconds)
        bench.measure_overhead()
        rows, near = compare_figures(bench, arguments)
        orders, agree = compare_orders(bench, arguments)
        if arguments.json:
            pathlib.Path(arguments.json).write_text(json.dumps(
                {"workloads": rows, "comparisons": orders, "request_overhead_s": bench.overhead_s,
                 "calibration": json.loads(pathlib.Path(bench.calibration).read_text())}, indent=1))
    print(f"\nfigures within {LIMIT_PERCENT} % and counts equal: {'yes' if near else 'NO'}; "
          f"orders agree: {'yes' if agree else 'NO'}")
    return 0 if near and agree else 1


if __name__ == "__main__":
    sys.exit(main())
