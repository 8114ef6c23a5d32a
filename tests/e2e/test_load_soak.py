"""A short soak; tests/soak/run is the long one."""

import asyncio
import pathlib
import sys

from conftest import SANITIZED, TINY, Server

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "soak"))
import soak  # noqa: E402


def test_random_traffic_leaves_nothing_behind():
    with Server(TINY / "llama", *soak.FLAGS) as server:
        began, ended, counts = asyncio.run(soak.soak(server, seconds=15, seed=1))
        soak.check(began, ended, memory=not SANITIZED)
        assert counts[200] > 100 and counts[400] > 20, counts
        assert server.metric("vllm:request_success_total", finished_reason="error") == 0
