"""A conversation of two processes in messages, as JSON in frames on a pair of byte streams.

Each side notices when the other is gone.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import select
import struct
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from placement_advisor import errors
from placement_advisor.cost.collectives import CollectiveTimes
from placement_advisor.files.untrusted import MisfitError, shown
from placement_advisor.machine import nvidia
from placement_advisor.machine.this_machine import OtherWork, Slot
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.profile.worker_steps import PlannedCopy
from placement_advisor.remote_hosts.host_facts import HostFacts, NetworkPlace, WayTried
from placement_advisor.tf.answers import Prepared
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from enum import Enum


_CHUNK_BYTES = 65_536
_MS_PER_S = 1_000


class PipeStream:
    """Bytes from the other side and to it: a pipe each way."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        """Take over two descriptors."""
        self._incoming, self._outgoing = incoming, outgoing
        self._stopped = os.eventfd(0)
        self._reading, self._writing = select.poll(), select.poll()
        for poll in (self._reading, self._writing):
            poll.register(self._stopped, select.POLLIN)
        self._reading.register(incoming, select.POLLIN)
        self._writing.register(outgoing, select.POLLOUT)

    def read(self, limit_s: float | None) -> bytes:
        """Return what has come, some bytes at least; none at the end, or once this is stopped.

        Raises:
            TimeoutError: nothing came for so long.
            OSError: it cannot be read.
        """
        ready = dict(self._reading.poll(None if limit_s is None else limit_s * _MS_PER_S))
        if not ready:
            raise TimeoutError
        return b"" if self._stopped in ready else os.read(self._incoming, _CHUNK_BYTES)

    def write(self, data: bytes) -> None:
        """Send all of it, however long that takes.

        Raises:
            OSError: nobody reads it any more, or this is stopped.
        """
        left = memoryview(data)
        while left:
            if self._stopped in dict(self._writing.poll()):
                raise BrokenPipeError("stopped")
            # So much a pipe that can be written to takes at once; more could wait for its reader.
            # Not made non-blocking: other processes may write to the same pipe.
            left = left[os.write(self._outgoing, left[: select.PIPE_BUF]) :]

    def stop(self) -> None:
        """Let reading and writing end, in whichever threads they go on."""
        os.eventfd_write(self._stopped, 1)

    def close(self) -> None:
        """Let go of both pipes, once nobody reads or writes."""
        for descriptor in (self._incoming, self._outgoing, self._stopped):
            os.close(descriptor)


def take_standard_streams() -> PipeStream:
    """Take standard input and output for a conversation, and from all else in this process.

    What is printed from now on goes to standard error; processes that are started inherit neither.
    """
    taken = PipeStream(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return taken


# Zero bytes stand in no text.
COMMAND_MARK = b"\0placement-advisor command\0"
WORKER_MARK = b"\0placement-advisor worker\0"
# The graph of 210,000 ops has a tenth of that. Text says at least 538 MB as a length.
LONGEST_FRAME_BYTES = 500_000_000
# Judgement: the longest message of the day is a page or two.
MOST_SKIPPED_BYTES = 64_000
HEARTBEAT = b"\0\0\0\0"

_LENGTH = struct.Struct(">I")


def framed(message: bytes) -> bytes:
    """Return a message behind its length.

    Raises:
        MisfitError: it is too long.
    """
    _check_length(len(message))
    return _LENGTH.pack(len(message)) + message


class FrameReader:
    """Takes bytes as they come and gives the messages in them."""

    def __init__(self, mark: bytes) -> None:
        """Skip what comes before a mark."""
        self._mark = mark
        self._buffer = bytearray()
        self.is_open = False

    @property
    def skipped(self) -> str:
        """What came instead of the mark so far, or before it."""
        return (self._skipped if self.is_open else bytes(self._buffer)).decode(errors="replace")

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Give the messages that are complete with this chunk; heartbeats are none.

        Raises:
            MisfitError: no mark comes, or a length is nonsense.
        """
        self._buffer += chunk
        if not self.is_open and not self._has_opened():
            return
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            _check_length(length)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            message = bytes(memoryview(self._buffer)[_LENGTH.size : end])
            del self._buffer[:end]
            if message:
                yield message

    def _has_opened(self) -> bool:
        before, mark, behind = self._buffer.partition(self._mark)
        if len(before) > MOST_SKIPPED_BYTES:
            raise MisfitError(f"{MOST_SKIPPED_BYTES:,} bytes came, and none of them ours")
        if not mark:
            return False
        self.is_open, self._skipped, self._buffer = True, bytes(before), behind
        return True


def _check_length(length: int) -> None:
    if length > LONGEST_FRAME_BYTES:
        raise MisfitError(
            f"a message of {length:,} bytes; at most {LONGEST_FRAME_BYTES:,} can be sent"
        )


_ENUMS = (FailureCause, nvidia.Connection)
# Dataclasses and named tuples.
_RECORDS = (
    CallFailure,
    CollectiveTimes,
    PlannedCopy,
    HostFacts,
    ModelSource,
    NetworkPlace,
    OtherWork,
    Prepared,
    Slot,
    WayTried,
    nvidia.Gpu,
    nvidia.GpuPair,
    nvidia.Gpus,
)
_ERRORS = (
    errors.AdvisorError,
    errors.BatchSplitError,
    errors.ModelError,
    errors.PlacementError,
    errors.TestbedError,
)
_ENUM_OF: dict[str, type[Enum]] = {kind.__name__: kind for kind in _ENUMS}
_RECORD_OF: dict[str, Callable[..., Any]] = {kind.__name__: kind for kind in _RECORDS}
_ERROR_OF = {kind.__name__: kind for kind in _ERRORS}
# Strings may hold half characters (file names do), which only this writes and reads again.
_HALVES = "surrogatepass"


def encode(value: object) -> bytes:
    """Return a value as JSON.

    Raises:
        TypeError: it holds something that cannot be sent.
    """
    text = json.dumps(_tagged(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", _HALVES)


def decode(data: bytes) -> object:
    """Return the value that `encode` made JSON of.

    Raises:
        MisfitError: the JSON is not what `encode` writes.
    """
    try:
        value: object = _untagged(json.loads(data.decode("utf-8", _HALVES)))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise MisfitError(f"no message of ours: {error!r}") from None
    return value


def _tagged(value: Any) -> object:
    """Return a value as what JSON has: else as an object whose only key says what it is."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_tagged(each) for each in value]
    if kind in (tuple, frozenset):
        return {kind.__name__: [_tagged(each) for each in value]}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {"dict": [[_tagged(key), _tagged(member)] for key, member in value.items()]}
    if kind in _RECORDS:
        names = kind._fields if hasattr(kind, "_fields") else [each.name for each in fields(kind)]
        return {"data": [kind.__name__, {name: _tagged(getattr(value, name)) for name in names}]}
    if kind in _ENUMS:
        return {"enum": [kind.__name__, value.name]}
    if kind in _ERRORS:
        return {"error": [kind.__name__, value.message, value.hint]}
    raise TypeError(f"{shown(value)} is a {kind.__qualname__}, which cannot be sent to other hosts")


def _untagged(sent: Any) -> Any:
    if isinstance(sent, list):
        return [_untagged(each) for each in sent]
    if not isinstance(sent, dict):
        return sent
    ((tag, content),) = sent.items()
    match tag:
        case "tuple":
            return tuple(map(_untagged, content))
        case "frozenset":
            return frozenset(map(_untagged, content))
        case "bytes":
            return base64.b64decode(content, validate=True)
        case "dict":
            return {_untagged(key): _untagged(member) for key, member in content}
        case "data":
            kind, members = content
            return _RECORD_OF[kind](**{name: _untagged(held) for name, held in members.items()})
        case "enum":
            kind, name = content
            return _ENUM_OF[kind][name]
        case "error":
            kind, message, hint = content
            return _ERROR_OF[kind](message, hint=hint)
    raise ValueError(f"unknown tag {shown(tag)}")


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
        stream: PipeStream,
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
