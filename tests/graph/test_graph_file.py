import gzip
import json
import os
import re
import subprocess
import sys
import zlib
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from op_graphs import chain, edge, graphs, large, op

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import (
    Arithmetic,
    Edge,
    Inside,
    Kernel,
    KernelFamily,
    Op,
    Role,
    WorkBasis,
)
from placement_advisor.graph.op_graph import OpGraph, TracedAs, load_graph

# Everything that an op can say, and an op that says as little as possible.
# Without the time of day, which would be in the names of tests.
packed = partial(gzip.compress, mtime=0)
FULL = Op(
    "conv/Conv2D",
    "Conv2D",
    Role.BACKWARD,
    layer="conv",
    variable="kernel",
    flops=90,
    bytes_accessed=40,
    work_basis=WorkBasis.FORMULA,
    trips=3,
    output_bytes=(16, None),
    parameter_bytes=12,
    device_kinds=frozenset({"GPU", "CPU"}),
    host_outputs=(1,),
    kernel=Kernel(KernelFamily.LINEAR, (1, 3, 5, 3)),
    inside=Inside(ops=7, copies=2, copied_bytes=None),
)
GRAPH = OpGraph(
    [FULL, Op("end", "NoOp")],
    [edge(FULL.name, "end", size_bytes=16), edge(FULL.name, "end", port=-1, size_bytes=None)],
)


def document():
    return {
        "schema_version": 1,
        "ops": [
            {"name": "a", "kind": "MatMul", "output_bytes": [8]},
            {"name": "b", "kind": "NoOp"},
        ],
        "edges": [[0, 1, 0, 8]],
    }


@pytest.fixture
def refused(tmp_path):
    """Returns what is wrong with a document, or with the bytes of a file."""

    def refuse(content):
        path = tmp_path / "graph.json.gz"
        if not isinstance(content, bytes):
            content = gzip.compress(json.dumps(content).encode())
        path.write_bytes(content)
        with pytest.raises(AdvisorError) as caught:
            OpGraph.load(path)
        assert "\n" not in caught.value.message
        assert caught.value.message.startswith(f"{path}: ")
        return caught.value.message.removeprefix(f"{path}: ")

    return refuse


def test_a_file_by_hand(tmp_path):
    GRAPH.save(tmp_path / "graph.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "graph.json.gz").read_bytes())) == {
        "schema_version": 1,
        "ops": [
            {
                "name": "conv/Conv2D",
                "kind": "Conv2D",
                "role": "backward",
                "layer": "conv",
                "variable": "kernel",
                "flops": 90,
                "bytes_accessed": 40,
                "work_basis": "formula",
                "trips": 3,
                "output_bytes": [16, None],
                "parameter_bytes": 12,
                "device_kinds": ["CPU", "GPU"],
                "host_outputs": [1],
                "kernel": ["linear", [1, 3, 5, 3]],
                "inside": [7, 2, None],
            },
            {"name": "end", "kind": "NoOp"},
        ],
        "edges": [[0, 1, -1, None], [0, 1, 0, 16]],
    }
    assert OpGraph.load(tmp_path / "graph.json.gz") == GRAPH


def test_the_example_of_the_documentation_loads_and_names_every_field(tmp_path):
    page = (Path(__file__).parents[2] / "docs/reference/contracts.md").read_text(encoding="utf-8")
    chapter = page.split("## graph.json.gz")[1]
    example = chapter.split("``` json\n")[1].split("```")[0]
    (tmp_path / "graph.json.gz").write_bytes(gzip.compress(example.encode()))
    assert len(OpGraph.load(tmp_path / "graph.json.gz").edges) == 1
    assert set(re.findall(r"`ops\[\]\.(\w+)`", chapter)) == set(Op._fields)


@given(graph=graphs())
def test_a_graph_loads_back_equal(tmp_path_factory, graph):
    path = tmp_path_factory.mktemp("graph") / "graph.json.gz"
    graph.save(path)
    loaded = OpGraph.load(path)
    assert loaded == graph
    assert loaded.fingerprint == graph.fingerprint


def test_equal_graphs_give_equal_bytes_whatever_the_file_is_called(tmp_path):
    chain("a", "b").save(tmp_path / "one.gz")
    again = OpGraph([op("a"), op("b")], [edge("a", "b")])
    again.save(tmp_path / "two.gz")
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()


def test_a_graph_of_many_slices_loads_back_equal(tmp_path):
    graph = OpGraph(*large(21_000, 25_000))
    graph.save(tmp_path / "graph.json.gz")
    assert OpGraph.load(tmp_path / "graph.json.gz") == graph


def test_loading_imports_neither_tensorflow_nor_networkx(tmp_path):
    path = tmp_path / "graph.json.gz"
    GRAPH.save(path)
    program = (
        "import pathlib, sys\n"
        "from placement_advisor.graph.op_graph import OpGraph\n"
        f"OpGraph.load(pathlib.Path({str(path)!r}))\n"
        "print([name for name in ('tensorflow', 'networkx', 'numpy') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize(
    ("at", "value", "problem"),
    [
        (("schema_version",), 2, "schema_version: 2 is newer than the 1 that this advisor reads"),
        (("schema_version",), "1", "schema_version: '1' is not a version"),
        (("schema_version",), 0, "schema_version: 0 is not a version"),
        (("ops",), 5, "ops: 5 is not a list"),
        (("ops", 1), 5, "ops[1]: 5 is not [name, kind, role, "),
        (("ops", 1, "name"), 5, "ops[1].name: 5 is not a string"),
        (("ops", 1, "name"), "a", "op 'a' appears twice in the graph"),
        (("ops", 1, "name"), "\ud800", "not valid JSON: unexpected end of hex escape at line 1"),
        (("ops", 1, "colour"), 5, "ops[1].colour: unknown key; there are name, kind, role"),
        (("ops", 1, "kind"), None, "ops[1].kind: None is not a string"),
        (("ops", 1, "role"), "boss", "ops[1].role: 'boss' is not input, constant"),
        (("ops", 1, "role"), ["input"], "ops[1].role: ['input'] is not input, constant"),
        (("ops", 1, "flops"), 1.5, "ops[1].flops: 1.5 is not a whole number"),
        (("ops", 1, "flops"), True, "ops[1].flops: True is not a whole number"),
        (("ops", 1, "trips"), -1, "ops[1].trips: -1 is not a whole number"),
        (("ops", 1, "inside"), [7, 2], "ops[1].inside: [7, 2] is not [ops, copies, copied_bytes]"),
        (("ops", 1, "inside"), [7, -2, 0], "ops[1].inside[1]: -2 is not a whole number"),
        (("ops", 1, "inside"), [7, 2, -1], "ops[1].inside[2]: -1 is not a number of bytes"),
        (("ops", 1, "parameter_bytes"), 2**62, f"ops[1].parameter_bytes: {2**62} is"),
        (("ops", 0, "output_bytes", 0), -5, "ops[0].output_bytes[0]: -5 is not a number of bytes"),
        (("ops", 0, "output_bytes"), 8, "ops[0].output_bytes: 8 is not a list"),
        (("ops", 0, "device_kinds"), [["CPU"]], "ops[0].device_kinds[0]: ['CPU'] is not a string"),
        (("ops", 0, "host_outputs"), [1], "ops[0].host_outputs[0]: op 'a' has 1 outputs, none"),
        (("edges", 0), "abcd", "edges[0]: 'abcd' is not [producer, consumer, port"),
        (("edges", 0), [0, 1, 0], "edges[0]: [0, 1, 0] is not [producer, consumer, port, size"),
        (("edges", 0, 0), 2, "edges[0]: 2 is not an op: ops go from 0 to 1"),
        (("edges", 0, 1), -1, "edges[0][1]: -1 is not a whole number"),
        (("edges", 0, 2), 1, "edges[0]: op 'a' has 1 outputs, none of them number 1"),
        (("edges", 0, 2), -2, "edges[0][2]: -2 is not a port"),
        (("edges", 0, 3), -8, "edges[0][3]: -8 is not a number of bytes"),
        (("edges", 0), [0, 0, 0, 8], "the graph has a cycle: a → a"),
        (("edges",), [[0, 1, 0, 8], [1, 0, -1, 0]], "the graph has a cycle: a → b → a"),
        (("requested_device_of",), {"a": 1}, "requested_device_of.a: 1 is not a string"),
        (("requested_device_of",), ["a"], "requested_device_of: ['a'] is not an object"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(refused, at, value, problem):
    wrong = document()
    inner = wrong
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    assert refused(wrong).startswith(problem)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "cut off before its end"),
        (b"PK\x03\x04", "not a gzip file"),
        (packed(b"{}")[:-9], "cut off before its end"),
        (packed(b"{}")[:-8] + b"12345678", "damaged"),
        (packed(b"{}") + b"more", "has data after its end"),
        (packed(b'{"ops":'), "not valid JSON: EOF while parsing a value at line 1 column 7"),
        (packed(b'"\xff"'), "not valid JSON: invalid unicode code point at line 1 column 2"),
        (packed(b"[]"), "[] is not an object"),
        (packed(b"{}"), "no field 'schema_version'"),
        (packed(b'{"schema_version":1}'), "no field 'ops'"),
        (packed(b'{"schema_version":1,"ops":[{}]}'), "ops[0]: no field 'name'"),
        (packed(b'{"schema_version":NaN}'), "not valid JSON: expected value at line 1 column 19"),
        (packed(b'{"schema_version":1e999}'), "schema_version: inf is not a version"),
        (packed(b"[" * 1_000_000), "not valid JSON: recursion limit exceeded at line 1 column 202"),
    ],
)
def test_what_is_no_graph_file_says_so(refused, content, problem):
    assert refused(content) == problem


def test_a_name_of_millions_of_characters_is_refused_in_few(refused):
    wrong = document()
    wrong["ops"][0]["name"] = "x" * 1_000_000
    message = refused(wrong)
    assert message.startswith("ops[0].name: 'xxx")
    assert message.endswith("has more than 10,000 characters")
    assert len(message) < 200


@pytest.mark.slow
def test_no_bomb_takes_much_memory(tmp_path):
    path = tmp_path / "graph.json.gz"
    packing = zlib.compressobj(1, wbits=31)
    zeros = bytes(10_000_000)
    packed = b"".join(packing.compress(zeros) for _ in range(1_000)) + packing.flush()
    path.write_bytes(packed)
    program = (
        "import pathlib, re\n"
        "from placement_advisor.errors import AdvisorError\n"
        "from placement_advisor.graph.op_graph import OpGraph\n"
        "try:\n"
        f"    OpGraph.load(pathlib.Path({str(path)!r}))\n"
        "except AdvisorError as error:\n"
        "    print(error.message.endswith('unpacks to more than 256 MB'))\n"
        # Not `getrusage`: its peak includes that of the process which forked this one.
        "    status = pathlib.Path('/proc/self/status').read_text()\n"
        "    print(re.search(r'VmHWM:\\s*(\\d+)', status).group(1))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    says_so, peak_kb = ran.stdout.split()
    assert says_so == "True"
    assert int(peak_kb) < 700_000


def test_more_values_than_any_graph_has_are_refused_before_they_are_made(refused, monkeypatch):
    monkeypatch.setattr("placement_advisor.files.untrusted.MAX_VALUES", 1_000_000)
    assert refused(gzip.compress(b"[" + b"[]," * 500_001)) == "more than 1 million values"


def test_a_file_that_is_not_there_a_folder_and_a_pipe_are_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, problem in (("gone", "cannot be read: No such file"), ("", "not a file")):
        with pytest.raises(AdvisorError, match=problem):
            OpGraph.load(tmp_path / name)
    with pytest.raises(AdvisorError, match="pipe: cannot be read: not a file"):
        OpGraph.load(tmp_path / "pipe")


def test_an_edge_from_a_port_of_no_size_is_not_taken_back(tmp_path):
    bare = OpGraph([Op("a", "K"), op("b")], [Edge("a", "b", 0, 8)])
    bare.save(tmp_path / "graph.json.gz")
    with pytest.raises(AdvisorError, match="op 'a' has 0 outputs"):
        OpGraph.load(tmp_path / "graph.json.gz")


def test_scopes_and_how_a_step_was_traced_go_with_a_graph_and_are_no_part_of_it(tmp_path):
    plain, asking = tmp_path / "plain.gz", tmp_path / "asking.gz"
    GRAPH.save(plain)
    GRAPH.save(asking, {"end": "GPU:1"})
    assert load_graph(plain) == (GRAPH, None, None)
    assert load_graph(asking) == (GRAPH, {"end": "GPU:1"}, None)
    assert OpGraph.load(asking).fingerprint == GRAPH.fingerprint
    GRAPH.save(asking, {})
    assert load_graph(asking) == (GRAPH, {}, None)
    how = TracedAs(mode="train", batch_size=None, inputs=("int32 [8]",), outputs=())
    GRAPH.save(tmp_path / "graph.gz", traced_as=how)
    assert load_graph(tmp_path / "graph.gz") == (GRAPH, None, how)
    assert OpGraph.load(tmp_path / "graph.gz").fingerprint == GRAPH.fingerprint


def test_a_kernel_keeps_its_numbers_and_the_default_is_not_written(tmp_path):
    path = tmp_path / "graph.json.gz"
    for arithmetic in Arithmetic:
        kernel = Kernel(KernelFamily.RELU, (1, 8), arithmetic)
        given = OpGraph([Op("x", "Relu", kernel=kernel)], [])
        given.save(path)
        assert OpGraph.load(path) == given
        is_written = f'"{arithmetic}"'.encode() in gzip.decompress(path.read_bytes())
        assert is_written == (arithmetic is not Arithmetic.DEFAULT)
