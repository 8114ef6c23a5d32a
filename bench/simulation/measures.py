"""What is compared: a few figures of a simulation and of a real run, and how they differ."""

import math
import statistics


def of_simulation(report):
    """`report`: a variant of what `kvasir simulate --json` printed."""
    return {
        "output_tokens_per_s": report["output_tokens_per_s"],
        "ttft_s": report["ttft_s"]["p50"],
        "itl_s": report["itl_s"]["p50"],
        "itl_p99_s": report["itl_s"]["p99"],
        "preemptions": report["preemptions"],
        "cached_tokens": report["cached_tokens"],
    }


def percentile(values, percent):
    """By nearest rank, as the simulation's; 0 of none. Between the middle two of a few requests lies
    a whole step."""
    return sorted(values)[math.ceil(percent / 100 * len(values)) - 1] if values else 0.0


def of_requests(requests, tokens, counters):
    """`requests` and `tokens` as replay() returns them; `counters`: how far the server's counters
    moved meanwhile."""
    gaps = [b - a for request in requests
            for a, b in zip(request.event_s, request.event_s[1:])]
    return {
        "output_tokens_per_s": tokens / max(request.event_s[-1] for request in requests),
        "ttft_s": percentile([request.event_s[0] - request.sent_s for request in requests], 50),
        "itl_s": percentile(gaps, 50),
        "itl_p99_s": percentile(gaps, 99),
        "preemptions": counters["vllm:num_preemptions_total"],
        "cached_tokens": counters["vllm:prompt_tokens_cached_total"],
    }


def error(simulated, real):
    """Relative, in percent."""
    return 100 * (simulated / real - 1) if real else 0.0


def median_of(runs):
    """Of several real runs, figure by figure."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def order(values):
    """Indices from the smallest to the largest."""
    return sorted(range(len(values)), key=lambda i: values[i])
