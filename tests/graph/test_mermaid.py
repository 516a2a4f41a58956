"""`graph --format mermaid`: layers as a flowchart."""

import re

import pytest
from hypothesis import assume, given
from layer_models import model
from op_graphs import NAMES, as_python_writes
from summary_graphs import edge, op, training_step

from placement_advisor.graph.exchange import DEVICE_COLORS, GraphFormat, graph_text
from placement_advisor.graph.op_graph import OpGraph

# 416 flops are dense's, backward and update included; nothing is known of the loop.
BY_HAND = """\
flowchart TD
  n0["ids<br/>0 % of flops"]
  n1["dense<br/>32 B · 100 % of flops"]
  n2["loop<br/>? of flops"]
  n0 -->|"16 B"| n1
  n1 -->|"8 B"| n2
"""
# Layer a has three ops on worker:0 and one on worker:1; b and d run on worker:1.
PLACED = """\
flowchart TD
  n0["a<br/>? of flops<br/>worker#58;0 75 %"]:::device0
  n1["b<br/>? of flops<br/>worker#58;1"]:::device1
  n2["c<br/>? of flops<br/>worker#58;0"]:::device0
  n3["d<br/>? of flops<br/>worker#58;1"]:::device1
  n0 ==>|"8 B"| n1
  n0 -->|"?"| n2
  n1 -->|"4 B"| n3
  classDef device0 fill:#b8ef81,color:#111111
  classDef device1 fill:#70d6ff,color:#111111
"""


def chart(graph, device_of=None, depth=None):
    return graph_text(graph, GraphFormat.MERMAID, device_of, depth=depth)


def boxes(text):
    return re.findall(r'^  n\d+\["(.*?)<br/>', text, re.MULTILINE)


def test_layers_by_hand():
    assert chart(training_step()) == BY_HAND
    assert chart(OpGraph([], [])) == "flowchart TD\n"


def test_devices_have_classes_and_what_crosses_is_thick():
    names = ("a1", "a2", "a3", "a4", "b1", "c1", "d1")
    graph = OpGraph(
        [op(name, "Relu", layer=name[0]) for name in names],
        [
            *(edge("a1", "a4", 8), edge("a1", "b1", 8), edge("a2", "c1", None)),
            # What only orders two ops is no tensor.
            *(edge("a3", "d1", None, port=-1), edge("b1", "d1", 4)),
        ],
    )
    on_other = ("a4", "b1", "d1")
    device_of = {name: f"worker:{int(name in on_other)}" for name in names}
    assert chart(graph, device_of) == PLACED


def test_colours_are_those_of_the_pictures_and_begin_again():
    layers = [f"l{i}" for i in range(9)]
    text = chart(model(*(f"in -> {name}" for name in layers)), {name: name for name in layers})
    used = re.findall("fill:(#......),", text)
    assert used == [*DEVICE_COLORS, *DEVICE_COLORS][:9]


@pytest.mark.parametrize(
    ("depth", "drawn"), [(None, 10), (1, 10), (2, 99)], ids=["what fits", "groups", "all"]
)
def test_many_layers_are_drawn_to_a_depth(depth, drawn):
    wires = [f"in -> block_{i // 10}/part_{i}" for i in range(99)]
    assert len(boxes(chart(model(*wires), depth=depth))) == drawn


@given(NAMES, NAMES)
def test_no_name_can_mean_anything_to_mermaid_markdown_or_html(layer, device):
    assume(layer != "b")
    graph = OpGraph([op("a", "Relu", layer=layer), op("b", "Relu", layer="b")], [edge("a", "b", 8)])
    text = chart(graph, {"a": device, "b": device})
    text.encode()  # No half of a character is in it.
    node, other = [line for line in text.splitlines() if "[" in line]
    name, share, where = re.fullmatch(r'  n\d\["(.*)"\]:::device0', node)[1].split("<br/>")
    assert share == "? of flops"
    assert other == f'  n1["b<br/>? of flops<br/>{where}"]:::device0'
    for shown, meant in ((name, layer), (where, device)):
        unnumbered = re.sub(r"#(\d+);", "", shown)
        assert re.fullmatch(r"[\w /@-]*", unnumbered)
        for sign in re.finditer("[ _/@-]", shown):
            around = shown[sign.start() - 1 : sign.start()], shown[sign.end() : sign.end() + 1]
            assert all(c.isalnum() for c in around)
        assert re.sub(r"#(\d+);", lambda c: chr(int(c[1])), shown) == as_python_writes(meant)
    assert text.count("\n") == 5


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("word_embedding@2", "word_embedding@2"),
        ("模型/b-1", "模型/b-1"),
        ('a"]; click n0', "a#34;#93;#59;#32;click n0"),
        ("<b>&", "#60;b#62;#38;"),
        ("%%{init}%%", "#37;#37;#123;init#125;#37;#37;"),
        # Emphasis, a list, the style of another node, a reference, a line break.
        ("_x_", "#95;x#95;"),
        ("1. x", "1#46;#32;x"),
        ("style:x#3", "style#58;x#35;3"),
        ("ﬂ°°60¶ß", "ﬂ#176;#176;60#182;ß"),
        ("a\nb", "a#92;nb"),
    ],
)
def test_names_by_hand(name, shown):
    graph = OpGraph([op("a", "Relu", layer=name)], [])
    assert boxes(chart(graph, depth=9)) == [shown]
