"""Files that a stranger could hand in, damaged: readers refuse each in one message, or read it."""

import gzip
import json
import random
import re
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from op_graphs import large
from placed_steps import diamond
from sample_analysis import as_json, sample

from placement_advisor.check.lock_file import lock_text, read_config, read_lock
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import read_placement
from placement_advisor.machine.cluster_file import cluster_as_toml, load_cluster, read_cluster
from placement_advisor.report.find_analysis import read_analysis
from placement_advisor.report.terminal import MOST_LINES, screen

# A file takes milliseconds; the limit is for what hangs, on a machine that does other things too.
LIMIT_S = 10.0
# What readers may take for files as small as these.
MOST_BYTES = 100_000_000
LONGEST_MESSAGE = 1_000

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\w.+-]+|\s+|.', re.DOTALL)
_WORDS = (
    *(b"null", b"true", b"0", b"-1", b"1e999", b"NaN", b"0.5", b"9" * 25, b"9" * 5_000),
    *(b'""', b'"\\ud800"', b'"\\u001b[2J"', b'"' + b"a" * 20_000 + b'"', b"[]", b"{}", b"[[]]"),
    *(b"[" * 20_000, b'{"":' * 20_000, b"\xff", b"\x00", b",", b"]", b"}", b"=", b"1979-05-27"),
)
SETTINGS = b"""
[project]
name = "theirs"

[tool.advisor]
hardware = "2xV100-NVLink"

[[tool.advisor.models]]
path = "models/ranker.py:train_step"
placement = "towers"
batch_size = 64
max_transfer_bytes = "3 MB"
max_peak_memory = "12 GB"
max_step_regression = "5 %"

[[tool.advisor.models]]
path = "models/encoder.py"
mode = "infer"
graph = "encoder.graph.json.gz"
"""
_LOCK = Path(__file__).parents[1] / "placements.lock.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """What is read, and how; ``seal`` makes a file of damaged text."""

    suffix: str
    sound: bytes
    read: Callable[[Path], object]
    seal: Callable[[bytes], bytes] = bytes


def readers():
    """Return what reads each kind of file that is no profile."""
    step = diamond()
    graph = OpGraph(*large(60, 150))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        graph.save(file)
        packed = file.read_bytes()
    placement = step.placement.as_json(step.graph, ("a", "b"))

    def read_and_show(path):
        assert len(screen(read_analysis(path), path.parent, 80)) <= MOST_LINES

    def read_and_lock(path):
        text = lock_text(read_lock(path))
        path.write_text(text, encoding="utf-8")
        assert lock_text(read_lock(path)) == text

    def read_twice(path):
        cluster = load_cluster(path)
        assert read_cluster(cluster_as_toml(cluster).encode(), "again") == cluster

    return {
        "graph": Reader(
            suffix=".graph.json.gz",
            sound=gzip.decompress(packed),
            read=OpGraph.load,
            seal=lambda text: gzip.compress(text, 1),
        ),
        "analysis": Reader(
            suffix=".json", sound=json.dumps(as_json(sample())).encode(), read=read_and_show
        ),
        "placement": Reader(
            suffix=".json",
            sound=json.dumps(placement).encode(),
            read=lambda path: read_placement(path, step.graph),
        ),
        "lock": Reader(suffix=".json", sound=_LOCK.read_bytes(), read=read_and_lock),
        "cluster": Reader(
            suffix=".toml", sound=cluster_as_toml(step.cluster).encode(), read=read_twice
        ),
        "settings": Reader(suffix=".toml", sound=SETTINGS, read=read_config),
    }


def examined(reader, seeds):
    """Read a damaged file for each seed; return how many were refused and read, and memory grown.

    A file that is answered otherwise is an `AssertionError` with its seed.
    """
    came_out = {"refused": 0, "read": 0}
    slowest_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{reader.suffix}"
        path.write_bytes(reader.seal(reader.sound))
        reader.read(path)
        before = _most_bytes()
        for seed in seeds:
            path.write_bytes(damaged_file(reader, seed))
            start = time.process_time()
            try:
                came_out["read" if _is_read(reader, path) else "refused"] += 1
            except Exception as error:
                raise AssertionError(f"seed {seed}") from error
            slowest_s = max(slowest_s, time.process_time() - start)
    return {**came_out, "grown_bytes": _most_bytes() - before, "slowest_s": round(slowest_s, 3)}


def damaged_file(reader, seed):
    """Return the sound file with damage that the seed draws: of its text, or of its bytes."""
    draw = random.Random(seed)
    if draw.randrange(4):
        return reader.seal(_with_other_words(reader.sound, draw))
    return damaged(reader.seal(reader.sound), draw)


def damaged(content, draw):
    """Return the bytes cut short, with bits flipped, or with lies where lengths and times are."""
    data = bytearray(content)
    way = draw.randrange(4)
    if way == 0:
        return bytes(data[: draw.randrange(len(data))])
    for _ in range(draw.randint(1, 8)):
        at = draw.randrange(len(data))
        if way == 1:
            data[at] ^= 1 << draw.randrange(8)
        elif way == 2:
            data[at : at + 1] = draw.choice(
                [b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x7f", b"\x80" * 10, b"\x00", b"\x7f"]
            )
        else:
            end = min(len(data), at + draw.randrange(40))
            data[at:end] = data[draw.randrange(len(data)) :][: end - at]
    return bytes(data)


def _with_other_words(text, draw):
    """Return JSON or TOML in which values, names and signs are others, gone, doubled or swapped."""
    tokens = _TOKEN.findall(text)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(tokens))
        way = draw.randrange(4)
        if way == 0:
            tokens[at] = draw.choice(_WORDS)
        elif way == 1:
            tokens[at] = b""
        elif way == 2:
            tokens.insert(at, tokens[at])
        else:
            tokens[at] = draw.choice(tokens)
    return b"".join(tokens)


def _is_read(reader, path):
    """Return whether a file is read; it may be refused instead, in a line that names it."""
    try:
        reader.read(path)
    except AdvisorError as error:
        said = error.message
    else:
        return True
    assert str(path) in said
    assert "\n" not in said
    assert len(said) < len(str(path)) + LONGEST_MESSAGE
    return False


def _most_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
