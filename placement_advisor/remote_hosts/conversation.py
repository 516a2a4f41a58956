"""A conversation of two processes in messages, as JSON in frames on a pair of byte streams.

Each side notices when the other is gone.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import queue
import select
import struct
import threading
import time
import traceback
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from placement_advisor import errors
from placement_advisor.cost.collectives import CollectiveTimes
from placement_advisor.files.contract import value_from
from placement_advisor.files.untrusted import MisfitError, shown, within
from placement_advisor.machine import nvidia
from placement_advisor.machine.this_machine import Slot
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.profile.worker_steps import PlannedCopy
from placement_advisor.remote_hosts.host_facts import HostFacts, NetworkPlace, WayTried
from placement_advisor.tf.answers import Prepared
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_CHUNK_BYTES = 65_536
_MS_PER_S = 1_000


class ByteStream(Protocol):
    """Bytes from the other side, and to it."""

    def read(self, limit_s: float | None) -> bytes:
        """Return what has come, some bytes at least; none at the end, or once this is stopped.

        Raises:
            TimeoutError: nothing came for so long.
            OSError: it cannot be read.
        """

    def write(self, data: bytes) -> None:
        """Send all of it, however long that takes.

        Raises:
            OSError: nobody reads it any more, or this is stopped.
        """

    def stop(self) -> None:
        """Let reading and writing end, in whichever threads they go on."""

    def close(self) -> None:
        """Let go of it, once nobody reads or writes."""


class PipeStream:
    """A pipe, or whatever has a descriptor, for each direction."""

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
        """Return what has come; see `ByteStream.read`."""
        ready = dict(self._reading.poll(None if limit_s is None else limit_s * _MS_PER_S))
        if not ready:
            raise TimeoutError
        return b"" if self._stopped in ready else os.read(self._incoming, _CHUNK_BYTES)

    def write(self, data: bytes) -> None:
        """Send all of it; see `ByteStream.write`."""
        left = memoryview(data)
        while left:
            if self._stopped in dict(self._writing.poll()):
                raise BrokenPipeError("stopped")
            # So much a pipe that can be written to takes at once; more could wait for its reader.
            # Not made non-blocking: other processes may write to the same pipe.
            left = left[os.write(self._outgoing, left[: select.PIPE_BUF]) :]

    def stop(self) -> None:
        """Let reading and writing end."""
        os.eventfd_write(self._stopped, 1)

    def close(self) -> None:
        """Close both pipes."""
        for descriptor in {self._incoming, self._outgoing, self._stopped}:
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
    text = json.dumps(_sent(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", _HALVES)


def decode(data: bytes) -> object:
    """Return the value that `encode` made JSON of.

    Raises:
        MisfitError: the JSON is not what `encode` writes.
    """
    try:
        return _value(json.loads(data.decode("utf-8", _HALVES), parse_constant=_no_number))
    except RecursionError:
        raise MisfitError("nested too deeply") from None
    except ValueError as error:
        raise MisfitError(f"not valid JSON: {error}") from None


def _sent(value: object) -> object:
    """Return a value as what JSON has."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}  # type: ignore[arg-type]
    if kind is list:
        return [_sent(each) for each in value]  # type: ignore[attr-defined]
    return _tagged(value)


def _tagged(value: object) -> dict[str, object]:
    kind = type(value)
    if kind in _RECORDS:
        return {"data": [kind.__name__, {n: _sent(getattr(value, n)) for n in _field_names(kind)}]}
    if isinstance(value, Enum) and kind in _ENUMS:
        return {"enum": [kind.__name__, value.name]}
    if isinstance(value, errors.AdvisorError) and kind in _ERRORS:
        return {"error": [kind.__name__, value.message, value.hint]}
    if isinstance(value, Mapping):
        return {"dict": [[_sent(key), _sent(member)] for key, member in value.items()]}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}  # type: ignore[arg-type]
    if kind in (tuple, frozenset):
        return {kind.__name__: [_sent(each) for each in value]}  # type: ignore[attr-defined]
    raise TypeError(f"{shown(value)} is a {kind.__qualname__}, which cannot be sent to other hosts")


def _value(sent: object) -> object:
    """Return the value that `_sent` made this of."""
    if isinstance(sent, list):
        return [within(f"[{i}]", _value, each) for i, each in enumerate(sent)]
    if not isinstance(sent, dict):
        return sent
    match list(sent.items()):
        case [(str(tag), content)] if tag in _READERS:
            return within(tag, _READERS[tag], content)
    raise MisfitError(f"{shown(sent)} is no value that is sent")


def _values(sent: object) -> list[object]:
    value = _value(value_from(list[Any], sent))
    assert isinstance(value, list)
    return value


def _dict(sent: object) -> dict[object, object]:
    return dict(map(_pair, value_from(list[Any], sent)))


def _pair(sent: object) -> tuple[Hashable, object]:
    match sent:
        case [key, member]:
            return _hashable(_value(key)), _value(member)
    raise MisfitError(f"{shown(sent)} is not a pair")


def _hashable(value: object) -> Hashable:
    try:
        hash(value)
    except TypeError:
        raise MisfitError(f"{shown(value)} cannot be a key") from None
    return value


def _float(sent: object) -> float:
    if sent not in ("nan", "inf", "-inf"):
        raise MisfitError(f"{shown(sent)} is no number")
    return float(sent)


def _bytes(sent: object) -> bytes:
    try:
        return base64.b64decode(_text(sent), validate=True)
    except (binascii.Error, ValueError):
        raise MisfitError(f"{shown(sent)} is not base64") from None


def _enum(sent: object) -> Enum:
    match sent:
        case [str(kind), str(name)] if kind in _ENUM_OF and name in _ENUM_OF[kind].__members__:
            return _ENUM_OF[kind][name]
    raise MisfitError(f"{shown(sent)} is no member of an enum that is sent")


def _record(sent: object) -> object:
    match sent:
        case [str(kind), held] if kind in _RECORD_OF:
            names = _field_names(_RECORD_OF[kind])
            members = within(kind, partial(value_from, dict[str, Any]), held)
            if set(members) != set(names):
                has = f"has the fields {shown(', '.join(members))}"
                raise MisfitError(f"{has}, where there are {', '.join(names)}", kind)
            return _RECORD_OF[kind](**{name: _value(members[name]) for name in names})
    raise MisfitError(f"{shown(sent)} is no record that is sent")


def _error(sent: object) -> errors.AdvisorError:
    match sent:
        case [str(kind), str(message), None | str() as hint] if kind in _ERROR_OF:
            return _ERROR_OF[kind](message, hint=hint)
    raise MisfitError(f"{shown(sent)} is no error that is sent")


def _field_names(kind: Any) -> tuple[str, ...]:
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    names: tuple[str, ...] = kind._fields
    return names


def _text(sent: object) -> str:
    if not isinstance(sent, str):
        raise MisfitError(f"{shown(sent)} is not a string")
    return sent


def _no_number(name: str) -> object:
    raise MisfitError(f"{name} is not a JSON number")


_READERS: dict[str, Callable[[object], object]] = {
    "bytes": _bytes,
    "data": _record,
    "dict": _dict,
    "enum": _enum,
    "error": _error,
    "float": _float,
    "frozenset": lambda sent: frozenset(map(_hashable, _values(sent))),
    "tuple": lambda sent: tuple(_values(sent)),
}


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
