"""A conversation of two processes in messages, each of which notices when the other is gone.

A thread reads, another one writes. The writer sends a heartbeat whenever there has been nothing to
send for a while; any byte that comes tells that the other side lives, also one of a long message
over a slow line. Nobody who sends waits for the line.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from typing import TYPE_CHECKING

from placement_advisor.files.foreign_json import MisfitError
from placement_advisor.remote_hosts.frames import HEARTBEAT, FrameReader, framed
from placement_advisor.remote_hosts.values import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.remote_hosts.byte_streams import ByteStream

HEARTBEAT_S = 2.0
# Three heartbeats may be late. What notices that and tells takes less than 2 s more, which makes
# the 10 s in which the loss of a host is to be known.
SILENCE_S = 8.0
# Why a conversation is over of which the other side has taken leave, or its process ended.
ENDED = "the connection ended"
# For what was said last, as "this host is in use"; whoever reads takes it at once.
_FLUSH_S = 1.0
_JOIN_S = 2.0


class Conversation:
    """Messages over a byte stream, until one side ends it or is gone."""

    def __init__(
        self,
        stream: ByteStream,
        *,
        our_mark: bytes,
        their_mark: bytes,
        heard: Callable[[object, int], None],
        ended: Callable[[str], None],
        patience_s: float | None,
    ) -> None:
        """Take a stream over.

        ``heard`` is called with each message and when it came, by `time.time_ns`; it must not wait,
        and may raise `MisfitError`. ``ended`` is called once, with the reason, unless `close` comes
        first. Both are called in other threads. The other side may be silent for ``patience_s``
        before its first message, without end if that is None.
        """
        self._stream, self._mark = stream, our_mark
        self._frames = FrameReader(their_mark)
        self._heard, self._ended, self._patience_s = heard, ended, patience_s
        self._heartbeat_s, self._silence_s = HEARTBEAT_S, SILENCE_S
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._is_over, self._is_closed = threading.Event(), False
        self._one_ends = threading.Lock()
        self._threads = tuple(
            threading.Thread(target=run, daemon=True) for run in (self._read, self._write)
        )

    @property
    def skipped(self) -> str:
        """What the other side printed before it began to speak."""
        return self._frames.skipped

    def start(self) -> None:
        """Begin to read and to write."""
        for thread in self._threads:
            thread.start()

    def send(self, message: object) -> None:
        """Send a message when its turn comes; where nobody hears any more, nothing is sent.

        Raises:
            TypeError: it holds something that cannot be sent.
            MisfitError: it is too long.
        """
        self._outgoing.put(framed(encode(message)))

    def close(self) -> None:
        """Say what is left to say, for a moment, and end the conversation."""
        if self._is_closed:
            return
        self._is_closed = True
        self._end(None)
        self._outgoing.put(None)
        reader, writer = self._threads
        writer.join(_FLUSH_S)
        self._stream.stop()
        for thread in (reader, writer):
            thread.join(_JOIN_S)
        if not reader.is_alive() and not writer.is_alive():
            self._stream.close()

    def _read(self) -> None:
        why = ENDED
        try:
            while chunk := self._stream.read(self._limit_s()):
                came_ns = time.time_ns()
                for message in self._frames.feed(chunk):
                    self._heard(decode(message), came_ns)
        except TimeoutError:
            why = f"nothing was heard for {self._silence_s:g} s"
        except OSError as error:
            why = f"the connection broke: {error.strerror or error}"
        except MisfitError as misfit:
            why = f"what came cannot be understood: {misfit}"
        except Exception:
            why = f"what came could not be dealt with: {traceback.format_exc()}"
        self._end(why)

    def _limit_s(self) -> float | None:
        return self._silence_s if self._frames.is_open else self._patience_s

    def _write(self) -> None:
        try:
            self._stream.write(self._mark)
            while (data := self._next()) is not None:
                self._stream.write(data)
        except OSError as error:
            # What the other side said last is still to be read, and says more.
            self._is_over.wait(_FLUSH_S)
            self._end(f"the connection broke: {error.strerror or error}")

    def _next(self) -> bytes | None:
        try:
            return self._outgoing.get(timeout=self._heartbeat_s)
        except queue.Empty:
            return HEARTBEAT

    def _end(self, why: str | None) -> None:
        """Tell that it is over, if nobody has yet."""
        with self._one_ends:
            if self._is_over.is_set():
                return
            self._is_over.set()
        if why is not None:
            self._stream.stop()
            self._ended(why)
