"""Bytes between two sides: streams, frames, and conversations of messages."""

import os
import queue
from concurrent.futures import ThreadPoolExecutor

import pytest
from command_runs import HANGS_AFTER_S
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.files.untrusted import MisfitError
from placement_advisor.remote_hosts import conversation
from placement_advisor.remote_hosts.conversation import (
    COMMAND_MARK,
    HEARTBEAT,
    WORKER_MARK,
    Conversation,
    FrameReader,
    PipeStream,
    framed,
)


@pytest.fixture
def pipes():
    """Two streams, each of which reads what the other one writes."""
    (to_first, from_second), (to_second, from_first) = os.pipe(), os.pipe()
    return PipeStream(to_first, from_first), PipeStream(to_second, from_second)


def test_a_stream_that_is_stopped_neither_waits_for_bytes_nor_for_room(pipes):
    first, _ = pipes
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(first.read, None)
        writing = threads.submit(first.write, bytes(1_000_000))
        first.stop()
    assert reading.result() == b""
    with pytest.raises(BrokenPipeError):
        writing.result()
    for stream in pipes:
        stream.close()


def test_a_message_stands_behind_its_length_and_is_not_too_long(monkeypatch):
    assert framed(b"hello") == b"\0\0\0\5hello"
    reader = FrameReader(b"!")
    assert list(reader.feed(b"!\0\0\0\5hello\0\0\0\2")) == [b"hello"]
    assert list(reader.feed(b"yo")) == [b"yo"]
    with pytest.raises(MisfitError, match="64,000 bytes came, and none of them ours"):
        list(FrameReader(WORKER_MARK).feed(b"tick\n" * 20_000))
    monkeypatch.setattr(conversation, "LONGEST_FRAME_BYTES", 4)
    assert framed(b"four") == b"\0\0\0\4four"
    with pytest.raises(MisfitError, match="a message of 5 bytes; at most 4 can be sent"):
        framed(b"hello")


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(1, 30)), st.text(max_size=40))
def test_messages_come_out_however_the_bytes_arrive(messages, cuts, banner):
    line = banner.encode() + WORKER_MARK + b"".join(framed(each) + HEARTBEAT for each in messages)
    reader, found = FrameReader(WORKER_MARK), []
    for cut in [*cuts, len(line)]:
        found += reader.feed(line[:cut])
        line = line[cut:]
    assert found == [each for each in messages if each]
    assert reader.skipped == banner


def test_an_echo_is_no_worker():
    reader = FrameReader(WORKER_MARK)
    assert list(reader.feed(COMMAND_MARK + framed(b"open"))) == []
    assert not reader.is_open


class Side:
    """One side of a conversation, which keeps what it hears."""

    def __init__(self, stream, marks, patience_s):
        self.heard = queue.Queue()
        self.ended = queue.Queue()
        self.conversation = Conversation(
            stream,
            our_mark=marks[0],
            their_mark=marks[1],
            heard=self._hear,
            ended=self.ended.put,
            patience_s=patience_s,
        )
        self.conversation.start()

    def next(self):
        return self.heard.get(timeout=HANGS_AFTER_S)

    def why(self):
        return self.ended.get(timeout=HANGS_AFTER_S)

    def _hear(self, message, came_ns):
        assert came_ns > 0
        if message == "nonsense":
            raise MisfitError("a message that nobody sends")
        self.heard.put(message)


@pytest.fixture
def sides(pipes):
    command = Side(pipes[0], (COMMAND_MARK, WORKER_MARK), None)
    worker = Side(pipes[1], (WORKER_MARK, COMMAND_MARK), None)
    yield command, worker
    for side in (command, worker):
        side.conversation.close()


@pytest.fixture
def other(pipes):
    """A side, and what stands for the other one: bytes."""
    side = Side(pipes[0], (COMMAND_MARK, WORKER_MARK), None)
    yield side, pipes[1]
    side.conversation.close()
    pipes[1].close()


def test_messages_arrive_in_order_also_large_ones_both_ways_at_once(sides):
    command, worker = sides
    for number in range(100):
        command.conversation.send(("count", number))
    worker.conversation.send({"a": 1})
    assert [worker.next() for _ in range(100)] == [("count", number) for number in range(100)]
    assert command.next() == {"a": 1}
    large = os.urandom(3_000_000)
    for side in sides:
        side.conversation.send(large)
    assert [side.next() for side in sides] == [large, large]


def test_what_is_said_before_the_end_arrives(sides):
    command, worker = sides
    worker.conversation.send("in use")
    worker.conversation.close()
    command.conversation.send("too late")
    assert command.next() == "in use"
    assert command.why() == "the connection ended"
    assert worker.ended.empty()


@pytest.mark.usefixtures("soon_silent")
def test_sides_that_have_nothing_to_say_are_not_silent(sides):
    command, worker = sides
    with pytest.raises(queue.Empty):
        worker.ended.get(timeout=1.5 * conversation.SILENCE_S)
    assert command.ended.empty()


@pytest.mark.usefixtures("soon_silent")
def test_the_other_side_may_take_its_time_to_begin_and_not_to_go_on(other):
    side, bytes_of_other = other
    with pytest.raises(queue.Empty):
        side.ended.get(timeout=1.2 * conversation.SILENCE_S)
    bytes_of_other.write(b"Welcome!" + WORKER_MARK + HEARTBEAT)
    assert side.why() == "nothing was heard for 2 s"
    assert side.conversation.skipped == "Welcome!"


@pytest.mark.usefixtures("soon_silent")
def test_every_byte_of_a_long_message_tells_that_the_other_side_lives(other):
    side, bytes_of_other = other
    message = framed(b'"' + b"x" * 8 + b'"')
    bytes_of_other.write(WORKER_MARK)
    for byte in message:
        with pytest.raises(queue.Empty):
            side.ended.get(timeout=conversation.SILENCE_S / 10)
        bytes_of_other.write(bytes([byte]))
    assert side.next() == "x" * 8


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (framed(b"[1,"), "what came cannot be understood: no message of ours"),
        (framed(b'"nonsense"'), "what came cannot be understood: a message that nobody sends"),
        (b"Warning!", "what came cannot be understood: a message of 1,466,004,078 bytes"),
    ],
)
def test_what_cannot_be_understood_ends_the_conversation(other, said, why):
    side, bytes_of_other = other
    bytes_of_other.write(WORKER_MARK + said)
    assert side.why().startswith(why)


def test_a_side_that_does_not_read_does_not_keep_the_other_from_closing(other):
    side, _ = other
    side.conversation.send(bytes(1_000_000))
    side.conversation.close()
    assert side.ended.empty()
