import os
import pty
import subprocess
import sys

from command_runs import LAUNCH

from placement_advisor.remote_hosts.conversation import (
    COMMAND_MARK,
    HEARTBEAT,
    WORKER_MARK,
    FrameReader,
    decode,
    encode,
    framed,
)

WORKER = [sys.executable, "-c", LAUNCH, "worker", "--stdio"]


def test_a_worker_that_nobody_speaks_to_says_so_and_ends_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ran = subprocess.run(WORKER, input=b"", capture_output=True, check=False)
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []
    assert ran.returncode == 2
    assert b"error: no command has asked for this worker: the connection ended" in ran.stderr


def test_on_its_output_a_worker_speaks_in_frames_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pipe = subprocess.PIPE
    with subprocess.Popen(WORKER, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(COMMAND_MARK + framed(encode(("open", "erika"))))
        process.stdin.flush()
        reader, heard = FrameReader(WORKER_MARK), []
        while len(heard) < 2:
            heard += map(decode, reader.feed(os.read(process.stdout.fileno(), 65_536)))
        process.stdin.close()
        assert process.stdout.read() in (b"", HEARTBEAT)
        assert process.stderr.read() == b""
    assert process.returncode == 0
    assert reader.skipped == ""
    assert [message[0] for message in heard] == ["versions", "opened"]


def test_it_takes_no_orders_from_a_terminal_or_without_being_told_where_from():
    ours, theirs = pty.openpty()
    for words, stdin in ((WORKER, theirs), (WORKER[:-1], subprocess.DEVNULL)):
        ran = subprocess.run(words, stdin=stdin, capture_output=True, check=False, timeout=600)
        assert ran.returncode == 2
        assert ran.stdout == b""
        assert b"error: worker: no command gives orders here" in ran.stderr
    for end in (ours, theirs):
        os.close(end)
