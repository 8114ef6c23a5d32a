"""A web page of another origin, in headless Chromium: preflight, headers, streams, errors."""

import http.server
import json
import shutil
import subprocess
import threading

import pytest

from conftest import TINY, Server

PAGE = """<!doctype html><meta charset="utf-8"><script>
const server = "%s";
const headers = {"Content-Type": "application/json", "Authorization": "Bearer key",
                 "X-Stainless-Lang": "js", "OpenAI-Organization": "none"};
async function told(work) {
  try { return await work(); } catch (error) { return {failed: String(error)}; }
}
async function models() {
  const answer = await fetch(server + "/v1/models", {headers});
  return {status: answer.status, id: (await answer.json()).data[0].id};
}
async function stream() {
  const answer = await fetch(server + "/v1/chat/completions", {method: "POST", headers,
    body: JSON.stringify({messages: [{role: "user", content: "Hi"}], stream: true, seed: 3,
                          max_tokens: 6, stream_options: {include_usage: true}})});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) { const {done, value} = await reader.read(); if (done) break; text += value; }
  return {status: answer.status, text, type: answer.headers.get("content-type"),
          id: answer.headers.get("x-request-id")};
}
async function refused() {
  const answer = await fetch(server + "/v1/completions", {method: "POST", headers,
    body: JSON.stringify({prompt: "Hi", temperature: 3})});
  return {status: answer.status, message: (await answer.json()).error.message};
}
async function aborted() {
  const abort = new AbortController();
  const answer = await fetch(server + "/v1/completions", {method: "POST", headers,
    signal: abort.signal, body: JSON.stringify(
      {prompt: "Hi", max_tokens: 480, n: 64, ignore_eos: true, stream: true})});
  await answer.body.getReader().read();
  abort.abort();
  return {status: answer.status};
}
async function forbidden() {
  await fetch("%s/v1/models", {headers});
}
(async () => {
  const result = {};
  for (const work of [models, stream, refused, aborted, forbidden])
    result[work.name] = await told(work);
  await fetch("/result", {method: "POST", body: JSON.stringify(result)});
})();
</script>"""


class Site:
    """Serves the page from an origin of its own and takes what the page reports."""

    def __init__(self, page):
        self.result, self.reported = None, threading.Event()
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(page.encode())

            def do_POST(self):
                site.result = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()
                site.reported.set()

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def visit(self, profile):
        """Opens the page in Chromium and returns its report."""
        browser = shutil.which("chromium") or pytest.fail("chromium is not installed")
        process = subprocess.Popen(
            [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             f"--user-data-dir={profile}", self.origin + "/"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert self.reported.wait(150), "the page reported nothing"
        finally:
            process.terminate()
            process.wait(30)
            self.http.shutdown()
            self.http.server_close()
        return self.result


def test_a_page_of_another_origin(tmp_path):
    with (Server(TINY / "llama", "--api-key", "key") as server,
          Server(TINY / "llama", "--allowed-origins", "https://example.org") as other):
        server.client.headers["Authorization"] = "Bearer key"
        result = Site(PAGE % (server.url, other.url)).visit(tmp_path)
        assert result["models"] == {"status": 200, "id": "llama"}
        stream = result["stream"]
        assert stream["status"] == 200
        assert stream["type"].startswith("text/event-stream")
        assert stream["id"]
        events = [line.removeprefix("data: ") for line in stream["text"].split("\n\n")]
        assert events[-2:] == ["[DONE]", ""]
        assert json.loads(events[-3])["usage"]["completion_tokens"] > 0
        assert result["refused"]["status"] == 400
        assert "temperature" in result["refused"]["message"]
        assert result["aborted"] == {"status": 200}
        server.wait_until(lambda: server.metric("vllm:num_requests_running") == 0)
        assert server.metric("vllm:request_success_total", finished_reason="abort") >= 1
        assert server.metric("http_requests_total", method="OPTIONS") >= 1
        assert "Failed to fetch" in result["forbidden"]["failed"]
        assert other.metric("http_requests_total", method="OPTIONS") >= 1
        assert 'handler="/v1/models",method="GET"' not in other.client.get("/metrics").text
