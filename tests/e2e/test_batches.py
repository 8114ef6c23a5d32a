"""The prompts of one call belong together: an idle server takes them all, whatever its queue's limits."""

import pytest
from conftest import TINY, Server, run_cli


def test_a_batch_larger_than_the_queue_is_served_by_an_idle_server():
    with Server(TINY / "llama", "--max-num-queued-reqs", 2, "--max-num-queued-tokens", 100) as server:
        for _ in range(3):
            answer = server.complete([[5] * 60, [6] * 60, [7] * 60], temperature=0, max_tokens=3)
            assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]


@pytest.mark.parametrize("flags,word", [
    (["--num-kv-blocks", "99999999999"], "--num-kv-blocks"),
    (["--kv-cache-memory-bytes", "abc"], "--kv-cache-memory-bytes"),
    (["--shutdown-timeout", "nan"], "--shutdown-timeout"),
    (["--max-queue-wait", "inf"], "--max-queue-wait"),
    (["--api-key", ""], "--api-key"),
    (["--served-model-name", ""], "--served-model-name"),
    (["--ssl-certfile", "x.pem"], "--ssl-keyfile"),
    (["--override-generation-config", "{\"temperature\": 9}"], "temperature"),
])
def test_values_that_cannot_be_are_refused_in_a_line_that_names_the_flag(flags, word):
    shown = run_cli("serve", TINY / "llama", "--port", 0, *flags)
    assert shown.returncode in (2, 3)
    assert word in shown.stderr


def test_an_absurd_cache_size_is_cut_to_what_can_be():
    with Server(TINY / "llama", "--kv-cache-memory-bytes", "100TiB") as server:
        assert server.complete([5, 6], max_tokens=2)["usage"]["completion_tokens"] == 2
