"""Debian's Prometheus: promtool's check of the page, and a real scrape of it."""

import json
import os
import pathlib
import re
import socket
import subprocess

import httpx
import pytest

from conftest import ROOT

BIN = pathlib.Path(os.environ.get("KVASIR_PROMETHEUS", ROOT / ".cache/prometheus/usr/bin"))


def lint(page):
    """What promtool says about a page, as lines."""
    process = subprocess.run([BIN / "promtool", "check", "metrics"], input=page, text=True,
                             capture_output=True, timeout=60, check=False)
    assert process.returncode in (0, 3), process.stdout + process.stderr  # 3: lint only
    return (process.stdout + process.stderr).splitlines()


def test_promtool_finds_nothing_but_vllms_names(tiny):
    tiny.complete("Hi", max_tokens=3)
    page = tiny.client.get("/metrics").text
    # The names are vLLM's; dashboards and gateways that are written for it look for them.
    known = ("metric names should not contain ':'",
             'vllm:iteration_tokens_total non-counter metrics should not have "_total" suffix')
    assert [line for line in lint(page) if line and not line.endswith(known)] == []
    assert lint("# TYPE bad counter\nbad 1\n"), "promtool says nothing about anything"


def test_promtool_finds_nothing_in_plain_names(tiny):
    tiny.complete("Hi", max_tokens=3)
    page = tiny.client.get("/metrics?names=plain").text
    assert lint(page) == []
    # The same families with the same values: nothing is left out.
    plain = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M))
    ours = dict(re.findall(r"^# TYPE (\S+) (\S+)$", tiny.client.get("/metrics").text, re.M))
    renamed = {re.sub("^(vllm|kvasir):", "kvasir_", name): kind for name, kind in ours.items()}
    renamed["kvasir_iteration_tokens"] = renamed.pop("kvasir_iteration_tokens_total")
    assert plain == renamed
    tokens = re.search(r"^kvasir_generation_tokens_total\{.*\} (\S+)$", page, re.M)
    assert float(tokens.group(1)) == tiny.metric("vllm:generation_tokens_total")
    for query in ("extra=x&names=plain", "names=plain&z=1", "names=%70lain"):
        assert tiny.client.get(f"/metrics?{query}").text.startswith("# HELP kvasir_"), query
    refused = tiny.client.get("/metrics?names=short")
    assert refused.status_code == 400 and "expected vllm or plain" in refused.text


@pytest.fixture(name="prometheus")
def fixture_prometheus(tiny, tmp_path):
    """A Prometheus that scrapes `tiny` every second; gives its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = tmp_path / "prometheus.yml"
    config.write_text(json.dumps({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "kvasir", "static_configs": [
            {"targets": [f"127.0.0.1:{tiny.port}"]}]}]}), encoding="utf-8")
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            [BIN / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def query(url, expression):
    """The values that a query gives; empty as long as there are none or Prometheus is not up."""
    try:
        answer = httpx.get(url + "/api/v1/query", params={"query": expression}, timeout=10)
    except httpx.TransportError:
        return []
    if answer.status_code != 200:
        return []
    return [float(sample["value"][1]) for sample in answer.json()["data"]["result"]]


def test_a_scrape(tiny, prometheus):
    def wait(expression, wanted):
        tiny.wait_until(lambda: query(prometheus, expression) == wanted, timeout_s=60)

    wait('up{job="kvasir"}', [1.0])
    before = tiny.metric("vllm:generation_tokens_total")
    tiny.complete("Hi", max_tokens=7, ignore_eos=True)
    wait("vllm:generation_tokens_total", [before + 7])
    page = tiny.client.get("/metrics").text
    # The quantiles that dashboards draw.
    wait("histogram_quantile(0.5, sum by (le) (vllm:time_to_first_token_seconds_bucket)) > bool 0",
         [1.0])
    types = httpx.get(prometheus + "/api/v1/targets/metadata", params={"limit": 1000}).json()["data"]
    types = {entry["metric"]: entry["type"] for entry in types}
    declared = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M))
    assert {name: types.get(name) for name in declared} == declared
