"""Damaged and malicious graph files: each is refused in one message, or loads as a sound graph."""

from __future__ import annotations

import copy
import gzip
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import graphs, large

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.layer_structure import (
    counting_layers,
    parallel_branches,
    repeated_blocks,
    towers,
)
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op_graph import OpGraph

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import DrawFn

# Of the processor's time: a file takes milliseconds.
LIMIT_S = 5.0

TOKENS = (
    *(b"NaN", b"Infinity", b"-1", b"1e999", b"0.5", b"9" * 5_000, b"[" * 20_000, b'{"":' * 20_000),
    *(b"null", b"true", b'"\\ud800"', b"\xff", b"\x00", b"[]", b"{}", b'""', b",", b"]", b"}"),
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([2**63, -(2**70), 10**400, 0.5, 1e308]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=3),
    st.sampled_from(["\ud800", "\x1b[2J", "a" * 20_000, [], {}, [[]], {"": 0}, "CPU", "forward"]),
)


def saved(graph: OpGraph, path: Path) -> bytes:
    graph.save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "graph.json.gz"


@pytest.fixture(scope="module")
def original(path: Path) -> bytes:
    return saved(OpGraph(*large(60, 150)), path)


def check(path: Path, content: bytes) -> None:
    """Check that the file is refused in one line, or loads as a graph that bears looking at."""
    path.write_bytes(content)
    began_s = time.process_time()
    look_at(path)
    assert time.process_time() - began_s < LIMIT_S


def look_at(path: Path) -> None:
    refusal = None
    try:
        graph = OpGraph.load(path)
    except AdvisorError as error:
        refusal = error.message
    if refusal is not None:
        assert refusal.startswith(f"{path}: ")
        assert "\n" not in refusal
        assert len(refusal) < len(str(path)) + 1_000
        return
    saved(graph, path)
    assert OpGraph.load(path) == graph
    view = layer_view(graph)
    towers(view, counting_layers(graph, view))
    parallel_branches(view)
    repeated_blocks(graph, view)


@st.composite
def byte_damage(draw: DrawFn) -> Callable[[bytes], bytes]:
    """Draw flips, cuts and insertions at places given as shares of the length."""
    damages = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["flip", "cut", "drop", "put"]),
                st.floats(0, 1),
                st.integers(0, 7),
                st.sampled_from(TOKENS),
            ),
            min_size=1,
            max_size=3,
        )
    )

    def damage(content: bytes) -> bytes:
        for kind, share, number, token in damages:
            at = min(int(share * len(content)), max(0, len(content) - 1))
            if kind == "flip" and content:
                flipped = bytes([content[at] ^ (1 << number)])
                content = content[:at] + flipped + content[at + 1 :]
            elif kind == "cut":
                content = content[:at]
            elif kind == "drop":
                content = content[:at] + content[at + number + 1 :]
            else:
                content = content[:at] + token + content[at:]
        return content

    return damage


@st.composite
def changed_documents(draw: DrawFn) -> Any:
    """Draw a graph's document in which values are replaced, removed, doubled or swapped."""
    with tempfile.TemporaryDirectory() as folder:
        packed = saved(draw(graphs()), Path(folder) / "graph.json.gz")
    changed: Any = json.loads(gzip.decompress(packed))
    for _ in range(draw(st.integers(1, 3))):
        spots = list(_spots(changed))
        if not spots:
            break
        inner, key = draw(st.sampled_from(spots))
        kind = draw(st.sampled_from(["replace", "remove", "double", "swap"]))
        if kind == "replace":
            inner[key] = draw(VALUES)
        elif kind == "remove":
            del inner[key]
        elif kind == "double" and isinstance(inner, list):
            inner.insert(key, copy.deepcopy(inner[key]))
        else:
            other, its_key = draw(st.sampled_from(spots))
            inner[key] = copy.deepcopy(other[its_key])
    return changed


def _spots(value: Any) -> Any:
    """Yield every list or object with a key of it, outermost first."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _spots(value[key])


@given(damage=byte_damage())
def test_damaged_files_and_texts_are_refused_in_one_line_or_a_sound_graph(
    path: Path, original: bytes, damage: Callable[[bytes], bytes]
) -> None:
    check(path, damage(original))
    check(path, gzip.compress(damage(gzip.decompress(original)), 1))


@given(document=changed_documents())
def test_a_changed_document_is_refused_in_one_line_or_a_sound_graph(
    path: Path, document: Any
) -> None:
    check(path, gzip.compress(json.dumps(document).encode(), 1))
