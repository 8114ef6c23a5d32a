"""curl: what scripts and load balancers do with it."""

import json
import subprocess

import pytest

from conftest import TINY, Server

JSON = ["-H", "Content-Type: application/json"]


def curl(*arguments, stdin=b"", code=0):
    """Runs curl and returns what it printed; `code` is the exit code that it must have."""
    process = subprocess.run(["curl", "-sS", "--max-time", "60", *map(str, arguments)], input=stdin,
                             capture_output=True, timeout=90, check=False)
    assert process.returncode == code, process.stderr.decode()
    return process.stdout.decode()


def status(*arguments, **kwargs):
    return curl("-o", "/dev/null", "-w", "%{http_code}", *arguments, **kwargs)


def test_methods(tiny):
    assert status("-I", tiny.url + "/health") == "200"
    assert status("-I", tiny.url + "/v1/models") == "200"
    assert status(tiny.url + "/v1/completions") == "405"
    assert "POST" in curl("-D", "-", "-o", "/dev/null", tiny.url + "/v1/completions")
    assert status("-X", "DELETE", tiny.url + "/v1/models") == "405"
    assert status(tiny.url + "/no/such/path") == "404"
    assert status(tiny.url + "/metrics/") == "200"


def test_a_body_in_chunks_and_one_behind_100_continue(tiny):
    body = json.dumps({"prompt": "Hi", "max_tokens": 3, "seed": 1, "user": "x" * 2_000_000}).encode()
    url = tiny.url + "/v1/completions"
    sized = json.loads(curl(*JSON, "--data-binary", "@-", url, stdin=body))
    chunked = json.loads(curl(*JSON, "-H", "Transfer-Encoding: chunked", "--data-binary", "@-", url,
                              stdin=body))
    waited = curl(*JSON, "-v", "--stderr", "-", "-H", "Expect: 100-continue", "--data-binary", "@-",
                  url, stdin=body)
    assert "100 Continue" in waited
    assert sized["choices"][0]["text"] == chunked["choices"][0]["text"]
    assert json.dumps(sized["choices"][0]["text"], ensure_ascii=False) in waited


def test_a_stream_arrives_in_events(tiny):
    text = curl("-N", *JSON, "-d", json.dumps({
        "prompt": "Hi", "max_tokens": 8, "ignore_eos": True, "stream": True,
        "return_token_ids": True}), tiny.url + "/v1/completions")
    events = text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: ") and "\n" not in event for event in events[:-1])
    assert len(events) >= 8 + 2


def test_two_requests_share_a_connection(tiny):
    told = curl("-v", "--stderr", "-", *JSON, "-d", '{"prompt": "Hi", "max_tokens": 2, "stream": true}',
                tiny.url + "/v1/completions", tiny.url + "/v1/completions")
    assert "Re-using existing connection" in told


def test_other_versions_of_http(tiny):
    url = tiny.url + "/v1/models"
    assert status("--http1.0", url) == "200"
    assert status("--http2", url) == "200"  # offers an upgrade, which is declined


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded"])
def test_a_forgotten_content_type_is_told(tiny, content_type):
    answer = json.loads(curl("-H", "Content-Type: " + content_type, "-d", '{"prompt": "Hi"}',
                             tiny.url + "/v1/completions"))
    assert "application/json" in answer["error"]["message"]


def test_a_body_that_is_too_large(tmp_path):
    large = tmp_path / "large.json"
    large.write_bytes(b'{"prompt": "' + b"x" * (2 << 20) + b'"}')
    with Server(TINY / "llama", "--max-body-size", 1) as server:
        assert status(*JSON, "--data-binary", f"@{large}", server.url + "/v1/completions") == "413"


def test_a_unix_socket(tmp_path):
    path = tmp_path / "kvasir.sock"
    with Server(TINY / "llama", uds=path):
        assert status("--unix-socket", path, "http://localhost/health") == "200"


def test_tls_verified_against_its_certificate(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    with Server(TINY / "llama", "--ssl-certfile", certificate, "--ssl-keyfile", key) as server:
        url = f"https://localhost:{server.port}/v1/models"
        assert status("--cacert", certificate, url) == "200"
        assert status("--cacert", certificate, "--http2", url) == "200"
        assert status(url, code=60) == "000"  # unknown authority
        assert status("--cacert", certificate, "--tls-max", "1.1", url, code=35) == "000"
