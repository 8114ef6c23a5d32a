"""GuideLLM: a short sweep against both completions endpoints, without a failed request."""

import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT, TINY


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_sweep_without_a_failed_request(tiny, tmp_path, path):
    process = subprocess.run(
        [sys.executable, "-m", "guidellm", "run", "--disable-console",
         "--backend", f"kind=openai_http,target={tiny.url},request_format={path}",
         "--tokenizer", f"kind=huggingface_auto,model={TINY / 'llama'}",
         "--data", "kind=synthetic_text,prompt_tokens=24,output_tokens=6",
         "--profile", "kind=sweep,sweep_size=3", "--constraint", "kind=max_requests,count=8",
         "--output", f"kind=json,path={tmp_path / 'report.json'}"],
        env={**os.environ, "USE_TORCH": "0",
             "PYTHONPATH": str(ROOT / "tests/e2e/clients/torch_stand_in")},
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert len(report["benchmarks"]) == 3
    for benchmark in report["benchmarks"]:
        totals = benchmark["metrics"]["request_totals"]
        assert totals["errored"] == 0
        assert totals["successful"] > 0
        assert benchmark["metrics"]["output_token_count"]["successful"]["mean"] == 6
    assert tiny.metric("http_requests_total", handler=path, status="2xx") > 0
    assert tiny.metric("vllm:request_success_total", finished_reason="error") == 0
