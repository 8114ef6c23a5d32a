"""kvasir chat at a terminal: editing, history, Ctrl-C and Ctrl-D."""

import contextlib
import fcntl
import os
import pty
import select
import subprocess
import termios
import time

import pytest
from conftest import BINARY, TINY

FLAGS = ["--max-tokens", "4", "--temperature", "0", "--kv-cache-memory-bytes", "4MiB"]


class Terminal:
    def __init__(self, *flags):
        self.fd, inner = pty.openpty()
        self.process = subprocess.Popen(
            [str(BINARY), "chat", str(TINY / "llama"), *FLAGS, *flags], stdin=inner, stdout=inner,
            stderr=inner, start_new_session=True, env=os.environ | {"TERM": "xterm", "LC_ALL": ""},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))  # so that keys send signals
        os.close(inner)
        self.shown = b""

    def read_until(self, text, timeout=30):
        """What came up to `text`, which is taken away with it."""
        deadline = time.monotonic() + timeout
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self.fd, 65536)
                except OSError:  # the other side is closed
                    raise AssertionError(self.shown) from None
        before, _, self.shown = self.shown.partition(text)
        return before

    def prompt(self):
        """The prompt is there, and keys are no longer taken by the terminal's own line."""
        self.read_until(b"> ")
        deadline = time.monotonic() + 30
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def type(self, keys):
        os.write(self.fd, keys)

    def end(self):
        with contextlib.suppress(OSError):
            while os.read(self.fd, 65536):
                pass
        return self.process.wait(timeout=30)


@pytest.fixture
def terminal():
    opened = Terminal()
    yield opened
    opened.process.kill()
    opened.process.wait()
    os.close(opened.fd)


def test_lines_are_edited_and_come_back(terminal):
    terminal.prompt()
    terminal.type("Hellö\x7fo\n".encode())  # one backspace takes the whole character
    terminal.read_until(b"tokens/s")
    terminal.prompt()
    terminal.type(b"\x1b[A")  # the line before
    terminal.read_until(b"Hello")
    terminal.type(b"\n")
    terminal.read_until(b"tokens/s")
    terminal.prompt()
    terminal.type(b"/nothing\n")
    terminal.read_until(b"/nothing is no command")
    terminal.prompt()
    terminal.type(b"\x04")  # Ctrl-D
    assert terminal.end() == 0


def test_bytes_that_are_no_character_are_left_out(terminal):
    terminal.prompt()
    terminal.type(b"Hel\xc3lo\xff\n")
    terminal.read_until(b"tokens/s")
    terminal.prompt()
    terminal.type(b"\x1b[A")  # the line before, as it was taken
    terminal.read_until(b"Hello")
    terminal.type(b"\n")
    terminal.read_until(b"tokens/s")
    terminal.prompt()
    terminal.type(b"\x04")
    assert terminal.end() == 0


def test_help_quit_and_a_full_context():
    opened = Terminal("--max-model-len", "32")
    try:
        opened.read_until(b"/help shows these lines.")
        opened.prompt()
        opened.type(b"/help\n")
        opened.read_until(b"/clear forgets the conversation")
        opened.prompt()
        opened.type(b"Hi\n")
        opened.read_until(b"tokens/s")
        opened.prompt()
        opened.type(b"Hello once more\n")
        opened.read_until(b"the context of 32 tokens is full: /clear forgets the conversation")
        opened.prompt()
        opened.type(b"/clear\n")
        opened.prompt()
        opened.type(b"Hi\n")
        opened.read_until(b"tokens/s")
        opened.prompt()
        opened.type(b"/quit\n")
        assert opened.end() == 0
    finally:
        opened.process.kill()
        opened.process.wait()
        os.close(opened.fd)


def test_ctrl_c_at_the_prompt_ends_it_and_leaves_the_terminal_as_it_was(terminal):
    terminal.prompt()
    terminal.type(b"half a li")
    terminal.read_until(b"li")
    terminal.type(b"\x03")
    assert terminal.end() == 0
