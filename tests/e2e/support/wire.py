"""A light asyncio HTTP/1.1 client over raw sockets, for tests where hundreds of clients behave well or
badly at the byte level. Expects what Kvasir sends: Content-Length or chunked answers."""

import asyncio
import dataclasses
import json
import socket
import struct


@dataclasses.dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)


@dataclasses.dataclass
class Streamed:
    """What a streamed completion brought."""
    status: int
    text: str = ""
    token_ids: list = dataclasses.field(default_factory=list)
    finish_reason: str | None = None
    usage: dict | None = None
    error: dict | None = None
    done: bool = False


def request_bytes(method, path, body=None, headers=()):
    """The bytes of one request; `body` is sent as JSON unless it is bytes already."""
    lines = [f"{method} {path} HTTP/1.1", "Host: test"]
    lines += [f"{name}: {value}" for name, value in headers]
    payload = b""
    if body is not None:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines += ["Content-Type: application/json", f"Content-Length: {len(payload)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + payload


class Connection:
    """One connection to `address`: a port on loopback, or the path of a unix socket."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, address, receive_buffer=None):
        if isinstance(address, int):
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            target = ("127.0.0.1", address)
        else:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            target = str(address)
        sock.setblocking(False)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(sock, target)
        except OSError:
            sock.close()
            raise
        limit = receive_buffer or 2 ** 16
        return cls(*await asyncio.open_connection(sock=sock, limit=limit))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.close()

    def close(self):
        """An orderly end (FIN), without waiting for it."""
        self.writer.close()

    def reset(self):
        """A sudden end (RST), as of a client that was killed or lost its network."""
        self.writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def head(self):
        """Status and headers (lower case) of the next answer."""
        line = await self.reader.readline()
        if not line:
            raise ConnectionResetError("closed before an answer")
        status = int(line.split()[1])
        headers = {}
        while (line := await self.reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers

    async def chunks(self):
        """The chunks of a chunked body."""
        while True:
            size = int(await self.reader.readline(), 16)
            data = await self.reader.readexactly(size + 2)
            if size == 0:
                return
            yield data[:-2]

    async def body(self, headers):
        if headers.get("transfer-encoding") == "chunked":
            return b"".join([chunk async for chunk in self.chunks()])
        return await self.reader.readexactly(int(headers.get("content-length", 0)))

    async def ask(self, method, path, body=None, headers=()):
        """One whole exchange."""
        await self.send(request_bytes(method, path, body, headers))
        status, got = await self.head()
        return Answer(status, got, b"" if method == "HEAD" else await self.body(got))

    async def begin_stream(self, body, path="/v1/completions"):
        """Asks for a streamed answer; returns once its first chunk has come."""
        await self.send(request_bytes("POST", path, {**body, "stream": True}))
        status, headers = await self.head()
        assert status == 200, (status, await self.body(headers))
        await self.reader.readline()

    async def stream(self, body, on_token=None, path="/v1/completions"):
        """A streamed completion, read to its end. `on_token` is called for each event of a choice."""
        await self.send(request_bytes("POST", path, {
            "return_token_ids": True, "stream_options": {"include_usage": True}, **body,
            "stream": True}))
        status, headers = await self.head()
        result = Streamed(status)
        if status != 200:
            result.error = json.loads(await self.body(headers)).get("error")
            return result
        pending = b""
        async for chunk in self.chunks():
            pending += chunk
            *events, pending = pending.split(b"\n\n")
            for event in events:
                if event.startswith(b":"):
                    continue
                assert event.startswith(b"data: ") and not result.done, event
                self._take(event[len(b"data: "):], result, on_token)
        assert not pending, pending
        return result

    @staticmethod
    def _take(data, result, on_token):
        if data == b"[DONE]":
            result.done = True
            return
        event = json.loads(data)
        if "error" in event:
            result.error = event["error"]
            return
        if event.get("usage"):
            result.usage = event["usage"]
        for choice in event["choices"]:
            result.text += choice["text"]
            ids = choice.get("token_ids") or []
            result.token_ids += ids
            result.finish_reason = choice["finish_reason"] or result.finish_reason
            if on_token and ids:
                on_token()


async def ask(address, method, path, body=None, headers=()):
    """One exchange on a connection of its own."""
    async with await Connection.open(address) as connection:
        return await connection.ask(method, path, body, headers)


async def stream(address, body, on_token=None):
    """One streamed completion on a connection of its own."""
    async with await Connection.open(address) as connection:
        return await connection.stream(body, on_token)


async def complete(address, body):
    """One whole completion: (text, token ids) of its first choice."""
    answer = await ask(address, "POST", "/v1/completions", {"return_token_ids": True, **body})
    assert answer.status == 200, answer.body
    choice = answer.json()["choices"][0]
    return choice["text"], choice["token_ids"]


async def wait_until(condition, timeout_s=30):
    """Polls a condition until it holds; a coroutine function is awaited."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        holds = condition()
        if asyncio.iscoroutine(holds):
            holds = await holds
        if holds:
            return
        assert asyncio.get_running_loop().time() < deadline, "the condition did not come to hold"
        await asyncio.sleep(0.01)
