import os
import threading

import pytest

from placement_advisor.remote_hosts.conversation import PipeStream


@pytest.fixture
def ends():
    """Two streams, each of which reads what the other one writes."""
    (to_first, from_second), (to_second, from_first) = os.pipe(), os.pipe()
    first, second = PipeStream(to_first, from_first), PipeStream(to_second, from_second)
    yield first, second
    for stream in (first, second):
        stream.close()


def test_a_stream_that_is_stopped_neither_waits_for_bytes_nor_for_room(ends):
    first, _ = ends
    ended = []

    def read():
        ended.append(first.read(None))

    def write():
        with pytest.raises(BrokenPipeError):
            first.write(bytes(1_000_000))
        ended.append(b"written")

    threads = [threading.Thread(target=run) for run in (read, write)]
    for thread in threads:
        thread.start()
    first.stop()
    for thread in threads:
        thread.join()
    assert sorted(ended) == [b"", b"written"]
    assert first.read(None) == b""


def test_the_end_of_one_side_is_the_end_for_the_other():
    to_first, from_second = os.pipe()
    to_second, from_first = os.pipe()
    first, second = PipeStream(to_first, from_first), PipeStream(to_second, from_second)
    second.write(b"last words")
    second.close()
    assert first.read(None) == b"last words"
    assert first.read(None) == b""
    with pytest.raises(BrokenPipeError):
        first.write(b"wait")
    first.close()
