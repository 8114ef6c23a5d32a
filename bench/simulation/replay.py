"""Sends a workload to a running server and notes when each token came. One thread and plain sockets,
so that the client takes as little as possible of the cores that the server computes on."""

import collections
import json
import re
import selectors
import socket
import time

EVENT = re.compile(rb'"choices":\[\{"index":(\d+)')
FINISH = re.compile(rb'"finish_reason":"')
USAGE = re.compile(rb'"completion_tokens":(\d+)')


class Request:
    """One prompt: when it was sent, and when each of its events came (seconds)."""

    def __init__(self, line):
        self.arrival_s = line["arrival_s"]
        self.prompt = line["prompt"]
        self.output_tokens = line["output_tokens"]
        self.sent_s = None
        self.event_s = []
        self.finished = False


class Connection:
    """One HTTP request: a prompt, or several of one output length that shall arrive together."""

    def __init__(self, port, requests, clock):
        body = json.dumps({
            "prompt": [request.prompt for request in requests],
            "max_tokens": requests[0].output_tokens, "ignore_eos": True, "temperature": 0,
            "stream": True, "stream_options": {"include_usage": True}}).encode()
        self.requests = requests
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in requests:
            request.sent_s = clock()
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                            b"Content-Type: application/json\r\nConnection: close\r\n"
                            b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.rest = b""
        self.head = None
        self.tokens = 0

    def read(self, now):
        """Returns the requests that have finished, or None at the connection's end."""
        data = self.socket.recv(1 << 20)
        if not data:
            return None
        if self.head is None:
            self.head = data.split(b"\r\n", 1)[0]
            if b" 200" not in self.head:
                raise RuntimeError(f"the server answered {data[:500]!r}")
        *events, self.rest = (self.rest + data).split(b"\n\n")
        done = []
        for event in events:
            usage = USAGE.search(event)
            if usage:
                self.tokens = int(usage.group(1))
            found = EVENT.search(event)
            if not found:
                continue
            request = self.requests[int(found.group(1))]
            request.event_s.append(now)
            if FINISH.search(event) and not request.finished:
                request.finished = True
                done.append(request)
        return done


def replay(port, lines, users=0, at_once=0):
    """Sends all and waits for the answers. `users`: each sends its next request when its last one is
    answered; `at_once`: so many in one HTTP request; else at their arrival times. The first of all
    users come in one HTTP request, too, where their lengths allow it: they arrive together, as they
    do in the simulation. Returns the requests and the tokens that the server counted."""
    requests = [Request(line) for line in lines]
    waiting = collections.deque(requests)
    selector = selectors.DefaultSelector()
    begin = time.monotonic()
    tokens = 0

    def clock():
        return time.monotonic() - begin

    def send(together):
        connection = Connection(port, together, clock)
        selector.register(connection.socket, selectors.EVENT_READ, connection)

    def take(count):
        return [waiting.popleft() for _ in range(min(count, len(waiting)))]

    first = take(users or at_once)
    if len({request.output_tokens for request in first}) == 1:
        send(first)
    else:
        for request in first:
            send([request])
    while waiting or selector.get_map():
        while not users and waiting and waiting[0].arrival_s <= clock():
            send(take(at_once or 1))
        timeout = max(0.0, waiting[0].arrival_s - clock()) if waiting and not users else None
        if not selector.get_map():
            time.sleep(timeout)
            continue
        for key, _ in selector.select(timeout):
            connection = key.data
            done = connection.read(clock())
            if done is None:
                tokens += connection.tokens
                selector.unregister(connection.socket)
                connection.socket.close()
                continue
            for _ in done if users else []:
                for request in take(1):
                    send([request])
    return requests, tokens
