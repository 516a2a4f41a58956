import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.files.untrusted import MisfitError
from placement_advisor.remote_hosts import conversation
from placement_advisor.remote_hosts.conversation import (
    COMMAND_MARK,
    HEARTBEAT,
    WORKER_MARK,
    FrameReader,
    framed,
)


def test_a_message_stands_behind_its_length():
    assert framed(b"hello") == b"\0\0\0\5hello"
    reader = FrameReader(b"!")
    assert list(reader.feed(b"!\0\0\0\5hello\0\0\0\2")) == [b"hello"]
    assert list(reader.feed(b"yo")) == [b"yo"]


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(1, 30)), st.text(max_size=40))
def test_messages_come_out_however_the_bytes_arrive(messages, cuts, banner):
    line = banner.encode() + WORKER_MARK + b"".join(framed(each) + HEARTBEAT for each in messages)
    reader, found = FrameReader(WORKER_MARK), []
    for cut in [*cuts, len(line)]:
        found += reader.feed(line[:cut])
        line = line[cut:]
    assert found == [each for each in messages if each]
    assert reader.skipped == banner


def test_what_stands_before_the_mark_is_skipped_and_kept_to_be_shown():
    reader = FrameReader(WORKER_MARK)
    assert list(reader.feed(b"Welcome to b!\n")) == []
    assert not reader.is_open
    assert reader.skipped == "Welcome to b!\n"
    assert list(reader.feed(WORKER_MARK + framed(b"hello"))) == [b"hello"]
    assert reader.is_open
    assert reader.skipped == "Welcome to b!\n"


def test_a_terminal_that_echoes_what_it_is_sent_is_no_worker():
    reader = FrameReader(WORKER_MARK)
    assert list(reader.feed(COMMAND_MARK + framed(b"open"))) == []
    assert not reader.is_open


def test_a_banner_without_end_is_refused():
    with pytest.raises(MisfitError, match="64,000 bytes came, and none of them ours"):
        list(FrameReader(WORKER_MARK).feed(b"tick\n" * 20_000))


def test_a_message_that_is_too_long_is_not_sent(monkeypatch):
    monkeypatch.setattr(conversation, "LONGEST_FRAME_BYTES", 4)
    assert framed(b"four") == b"\0\0\0\4four"
    with pytest.raises(MisfitError, match="a message of 5 bytes; at most 4 can be sent"):
        framed(b"hello")
