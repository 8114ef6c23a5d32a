"""Errors that only a real model can give."""

import pytest


@pytest.mark.parametrize(("fields", "param"), [
    ({"min_tokens": 1, "stop_token_ids": [5], "allowed_token_ids": [5]}, "allowed_token_ids"),
    ({"min_tokens": 1, "stop_token_ids": list(range(384))}, "min_tokens"),
    ({"min_tokens": 9, "max_tokens": 5}, "min_tokens"),
    ({"stop_token_ids": [384]}, "stop_token_ids"),
    ({"allowed_token_ids": [384]}, "allowed_token_ids"),
    ({"max_tokens": 513}, "max_tokens"),
])
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_drawn_names_the_field(tiny, fields, param, stream):
    for path, prompt in (("/v1/completions", {"prompt": "Hi"}),
                         ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})):
        answer = tiny.post(path, {"max_tokens": 4, "stream": stream, **prompt, **fields})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param, answer.text
