"""What is compared: a few figures of a simulation and of a real run, and how they differ."""

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


def of_requests(requests, tokens, counters):
    """`requests` and `tokens` as replay() returns them; `counters`: how far the server's counters
    moved meanwhile."""
    gaps = [b - a for request in requests
            for a, b in zip(request.event_s, request.event_s[1:])]
    gaps.sort()
    return {
        "output_tokens_per_s": tokens / max(request.event_s[-1] for request in requests),
        "ttft_s": statistics.median(request.event_s[0] - request.sent_s for request in requests),
        "itl_s": gaps[len(gaps) // 2] if gaps else 0.0,
        "itl_p99_s": gaps[int(0.99 * len(gaps))] if gaps else 0.0,
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
