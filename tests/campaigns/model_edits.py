"""Edits of all sample models, drawn at random: does a check fail where it must, and only there?

Each case is one edit of one model: of the samples, and of those that tests place by hand. It is
traced once, and checked under several placements: in a file, by a rule, by a search, as written.

What an edit is follows from the edit, not from the check.

- *Innocuous by construction*: the step computes the same from the same, where it did. Other names
  for layers; independent statements in another order. The check has to pass without a problem, but
  for a rule that places the step worse, which is for figures to tell as with any other edit.
- *Any other edit*: width, depth, batch, dtype, optimizer, a layer more, a name scope around a
  statement, a layer on another device. The edit says which layer was which, and by that each op has
  the device that was meant: that of its layer in the file, or where the rule puts it. The locked
  step and the edited one are simulated so, and compared by the table of `docs/ci.md`, whose figures
  stand here once more. The edit *matters* if a figure grew by more than it may, an op came to a GPU
  that has no kernel for it, a layer has no device in the file, a rule does not apply any more, or a
  layer was moved and copies, bytes or time grew at all. Else it is innocuous as well.

A *false alarm* is a check that fails where nothing matters, a *miss* one that passes where
something does. *Told wrongly* is a check that is right, but names an effect that there is not,
leaves one out, or takes layers for new, gone, renamed or moved that are not. Figures so close to
what is allowed that the three digits of a lock file decide count for neither side.

Left out: edits of two sorts at once, what takes a run to see, and other ways to write one thing,
which `tests/check/edits.py` has for the models that are placed by hand.
"""

from __future__ import annotations

import ast
import json
import random
import re
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign import ROOT, run_campaign
from silent import Silent

from placement_advisor.analysis.target_costs import assumed_uncertainty
from placement_advisor.analysis.tracing import trace_model
from placement_advisor.candidates import references
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.families import FAMILIES
from placement_advisor.candidates.references import as_written
from placement_advisor.check.check_step import check_step
from placement_advisor.check.code_lines import code_lines
from placement_advisor.check.placements import lay_out
from placement_advisor.check.problems import ModelResult, Place, Status
from placement_advisor.check.project_files import ModelConfig, lock_text, read_lock
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.errors import ModelError
from placement_advisor.graph.op import Role
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.presets import read_hardware
from placement_advisor.measurement.measurement import WORTHWHILE_RATIO
from placement_advisor.simulator.sensitivity import Sensitivity
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from placement_advisor.check.record import Record
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.tf.answers import Traced

# Drawn after the last change of what is checked.
SEEDS = (973_003, 636_054)
SORTS = {"innocuous": 100, "other": 150}
HARDWARE = "2xV100-NVLink"
CLUSTER = read_hardware(HARDWARE)
WRITTEN, AUTO = "as-written", "auto"
TURNED = {"GPU:0": "GPU:1", "GPU:1": "GPU:0"}
RULES = ("towers", "pipeline", "parameters-on-host", "alternating")
# What docs/ci.md allows: of the step and of each peak, of bytes. Copies may not grow at all.
GROWTH, MORE_BYTES = 0.05, 0.01
# Three digits of both figures: twice half a thousandth of each, at most.
ROUNDED = 0.011


def cases() -> list[str]:
    """Return all cases, each seed and sort in turn, so that a part of them is of all."""
    return [
        f"{seed} {sort} {number}"
        for number in range(max(SORTS.values()))
        for seed in SEEDS
        for sort, count in SORTS.items()
        if number < count
    ]


# --- Edits ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """A model of the samples, or one that is placed by hand, with what can be edited in it.

    ``widths`` and ``depths`` are patterns with a number in a group; ``batch`` has all places of the
    batch. ``more`` are lines behind which a layer can be put on what a variable holds.
    """

    path: Path
    widths: tuple[str, ...] = ()
    depths: tuple[str, ...] = ()
    batch: str = ""
    more: tuple[tuple[str, str], ...] = ()

    @property
    def is_by_hand(self) -> bool:
        """Whether `tf.device` scopes place it."""
        return self.path.parent != SAMPLES

    @property
    def text(self) -> str:
        """The file."""
        return self.path.read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Edit:
    """A text, and the former names that a layer in it may have had: None is that of a new one."""

    kind: str
    what: str
    text: str
    was: Callable[[str], Sequence[str | None]] = lambda name: (name,)


SAMPLES, BY_HAND = ROOT / "sample_models", ROOT / "tests" / "check" / "models"
_BATCH = r"^BATCH_SIZE = (\d+)"
MODELS = (
    Sample(SAMPLES / "deep_chain.py", (r"^UNITS = (\d+)",), (r"\"small\": (\d+)",), _BATCH,
           (("            *layers,", ""),)),
    Sample(SAMPLES / "deep_mnist.py", (r"convolutions=6, filters=(\d+)",),
           (r"images=512, convolutions=(\d+)",), r"\"small\": Size\(batch=(\d+)",
           (("            *convolutions,", ""),)),
    Sample(SAMPLES / "deepconn.py",
           (r"^EMBEDDING_WIDTH = (\d+)", r"^FILTERS = (\d+)", r"^DENSE_UNITS = (\d+)"), (), _BATCH,
           (('    user = tower(word_embedding(word_ids(user_review)), "user")', "user"),
            ('    item = tower(word_embedding(word_ids(item_review)), "item")', "item"))),
    Sample(SAMPLES / "dlrm.py",
           (r"^BOTTOM_UNITS = \((\d+)", r"^TOP_UNITS = \((\d+)", r"^TOP_UNITS = \(512, (\d+)"),
           (r"^BOTTOM_UNITS = \(()", r"^BOTTOM_UNITS = \(512, ()"), _BATCH,
           (("        vectors = [self.bottom_mlp(numbers)]", ""),)),
    Sample(SAMPLES / "function_on_devices.py", (r"samples=64, width=(\d+)",), (),
           r"\"small\": Size\(samples=(\d+)"),
    Sample(SAMPLES / "lstm_seq2seq.py", (r"layers=2, cells=(\d+)",), (r"000, layers=(2), ",),
           r"batch=(16)", (('source_embedding")(source)', "read"),
                           ('target_embedding")(target)', "written"))),
    Sample(SAMPLES / "mixture_of_experts.py", (r"heads=4, hidden=(\d+), experts=4",
                                               r"vocabulary=(1_000),"),
           (r"vocabulary=1_000, blocks=(\d+)",), r"batch=(4), words=32",
           (('name="last_norm")(vectors)', "vectors"),)),
    Sample(SAMPLES / "mnist_cnn.py", (r"^FILTERS = (\d+)", r"^DENSE_UNITS = (\d+)"), (), _BATCH,
           (('            keras.layers.MaxPooling2D(name="pool"),', ""),
            ('            keras.layers.Flatten(name="flatten"),', ""))),
    Sample(SAMPLES / "multi_tower_ranker.py",
           (r"^USER_UNITS = \((1_024)", r"^ITEM_UNITS = \((\d+)", r"^CONTEXT_UNITS = \((\d+)",
            r"^RANK_UNITS = (\d+)", r"^EMBEDDING_WIDTH = (\d+)"),
           (r"^ITEM_UNITS = \(512, 256()", r"^CONTEXT_UNITS = \(64, 32()"),
           r"\"small\": Size\(batch=(\d+)",
           (('name="rank")(towers)', "rank"),)),
    Sample(SAMPLES / "polynomial_fit.py", (), (), _BATCH),
    Sample(SAMPLES / "resnet50.py", (r"pixels=32, classes=(\d+)",), (),
           r"\"small\": Size\(batch=(\d+)"),
    Sample(SAMPLES / "transformer.py", (r"heads=4, hidden=(\d+)\)", r"vocabulary=(2_000),"),
           (r"layers=(2), width=128",), r"batch=(8), words=24",
           (('name="source_dropout")(embed(source))', "read"),
            ('name="target_dropout")(embed(target))', "written"))),
    Sample(BY_HAND / "deepconn.py", (r"UNITS = 50, (\d+)", r"UNITS = 50, 10, (\d+)"),
           (), r"^BATCH.* = (2_048),"),
    Sample(BY_HAND / "ranker.py", (r"USER_UNITS.* = \((1_024), 512", r"^RANK_UNITS = (\d+)",
                                   r"256\), \((512), 256\), \(64"), (), r"^BATCH.* = (8_192),"),
    Sample(BY_HAND / "deep_mnist.py", (), (), r"^BATCH.* = (1_024),"),
    Sample(BY_HAND / "transformer.py", (), (), r"^BATCH.* = (256),"),
)  # fmt: skip


_PRELUDE = {
    "rename": "def _called(name):\n    return {0}.get(name, name)\n\n\n",
    "dtype": 'tf.keras.mixed_precision.set_global_policy("{0}")\n\n',
}
# Nothing that draws numbers: texts among the examples are part of a graph.
_NOT_MODEL = ("random", "dataset", "Dataset", "super(", "_LENGTHS")


def innocuous(sample: Sample, layers: Sequence[str], rng: random.Random) -> Edit:
    """Return an edit after which the step computes the same from the same, where it did."""
    return rng.choice([_renamed, _reordered])(sample, layers, rng)


def other(sample: Sample, layers: Sequence[str], rng: random.Random) -> Edit:
    """Return an edit that may matter."""
    makers = [_batch, _dtype, _optimizer, _device]
    makers += [_width] * 2 * bool(sample.widths) + [_deeper] * 2 * bool(sample.depths)
    makers += [_one_more] * 2 * bool(sample.more)
    if sample.path.stem not in _COUNTED_SCOPES:
        makers.append(_scope)
    return rng.choice(makers)(sample, layers, rng)


# Their layers are scopes of TensorFlow's, which counts them anew within another scope.
_COUNTED_SCOPES = ("polynomial_fit", "function_on_devices", "mixture_of_experts")


def _renamed(sample: Sample, layers: Sequence[str], rng: random.Random) -> Edit:
    parts = sorted({part.partition("@")[0] for name in layers for part in name.split("/") if part})
    old = rng.sample(parts, rng.choice([1, len(parts) // 2, len(parts)]) or 1)
    style = rng.choice(["my_{0}", "{0}_b", "part_{1}", "{0}x"])
    new = {name: style.format(name, number) for number, name in enumerate(old)}
    keys = [
        keyword.value
        for call in ast.walk(ast.parse(sample.text))
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg == "name"
    ]
    text = _replaced(sample.text, [(key, "_called({})") for key in keys])
    text = _behind_imports(text, _PRELUDE["rename"].replace("{0}", repr(new)))
    back = {later: former for former, later in new.items()}

    def was(name: str) -> Sequence[str | None]:
        parts = (part.partition("@") for part in name.split("/"))
        return ("/".join(back.get(base, base) + at + count for base, at, count in parts),)

    return Edit("rename", f"{len(new)} names, {style}", text, was)


def _reordered(sample: Sample, layers: Sequence[str], rng: random.Random) -> Edit:
    text, count = sample.text, 0
    for _ in range(rng.randint(1, 4)):
        pairs = [
            (one, two)
            for body in _bodies(text)
            for one, two in pairwise(body)
            if _is_movable(one, text) and _is_movable(two, text) and _are_independent(one, two)
        ]
        if pairs:
            one, two = rng.choice(pairs)
            lines = text.splitlines(keepends=True)
            (a, b), (c, d) = ((each.lineno - 1, each.end_lineno) for each in (one, two))
            text = "".join([*lines[:a], *lines[c:d], *lines[b:c], *lines[a:b], *lines[d:]])
            count += 1
    return (
        Edit("reorder", f"{count} statements swapped", text)
        if count
        else _renamed(sample, layers, rng)
    )


def _width(sample: Sample, layers: Sequence[str], rng: random.Random) -> Edit:
    factor = rng.choice([0.5, 0.75, 1.25, 1.5, 2, 3])
    return _number("width", sample, rng.choice(sample.widths), lambda n: max(1, int(n * factor)))


def _batch(sample: Sample, layers: Sequence[str], rng: random.Random) -> Edit:
    factor = rng.choice([0.5, 2] if sample.is_by_hand else [0.5, 2, 3, 4])
    return _number("batch", sample, sample.batch, lambda n: max(1, int(n * factor)))


def _deeper(sample: Sample, layers: Sequence[str], rng: random.Random) -> Edit:
    pattern = rng.choice(sample.depths)
    edit = _number("depth", sample, pattern, lambda n: max(1, n + rng.choice([-1, 1, 2])))
    if "BOTTOM_UNITS" not in pattern:
        return edit
    at = pattern.count(",")

    def was(name: str) -> Sequence[str | None]:
        """Return what Keras called a dense layer before one more was put in."""
        found = re.fullmatch(r"(.*/dense)(?:_(\d+))?", name)
        if found is None:
            return (name,)
        number = int(found[2] or 0)
        before = f"{found[1]}_{number - 1}" if number > 1 else found[1]
        if number < at:
            return (name,)
        # The layer in front of the new one, or that behind it, is of another size than it was.
        return (None, name) if number == at else (before, None) if number == at + 1 else (before,)

    return replace(edit, was=was)


def _number(kind: str, sample: Sample, pattern: str, change: Callable[[int], int]) -> Edit:
    """Return an edit of the number in a pattern's group, or of one put in where that is empty."""
    found = re.search(pattern, sample.text, re.MULTILINE)
    assert found is not None, f"{sample.path}: nothing to edit: {pattern}"
    old = found[1]
    if old:
        new = f"{change(int(old.replace('_', '')))}"
    else:
        new = "384, " if found[0].endswith(("(", ", ")) else ", 192"
    text = sample.text[: found.start(1)] + new + sample.text[found.end(1) :]
    return Edit(kind, f"{found[0]} -> {new}", text)


def _dtype(sample: Sample, layers: Sequence[str], rng: random.Random) -> Edit:
    policy = rng.choice(["mixed_float16", "float16", "bfloat16", "float64"])
    text = sample.text
    if "keras.layers" not in text:
        text = re.sub(r"((tf|np)\.)float32", r"\1float64", text)
        policy = "float64"
    return Edit("dtype", policy, _behind_imports(text, _PRELUDE["dtype"].format(policy)))


def _optimizer(sample: Sample, layers: Sequence[str], rng: random.Random) -> Edit:
    calls = [
        call
        for call in ast.walk(ast.parse(sample.text))
        if isinstance(call, ast.Call) and ".optimizers." in ast.unparse(call.func)
        if "schedules" not in ast.unparse(call.func)
    ]
    if not calls:
        return _batch(sample, layers, rng)
    kinds = ["SGD(0.01)", "SGD(0.01, 0.9)", "Adam(0.01)", "RMSprop(0.01)", "Adagrad(0.01)"]
    new = rng.choice([kind for kind in kinds if kind[:4] not in ast.unparse(calls[0])])
    text = _replaced(sample.text, [(calls[0], f"tf.keras.optimizers.{new}")])
    return Edit("optimizer", f"{ast.unparse(calls[0])} -> {new}", text)


def _one_more(sample: Sample, layers: Sequence[str], rng: random.Random) -> Edit:
    line, variable = rng.choice(sample.more)
    layer = rng.choice(["Dropout(0.1, ", "LayerNormalization(", 'Activation("tanh", '])
    extra = f'tf.keras.layers.{layer}name="extra")'
    at = sample.text.index(line) + len(line)
    indent = re.findall(r"^ *", sample.text[:at], re.MULTILINE)[-1]
    more = f"{variable} = {extra}({variable})" if variable else f"{extra},"
    return Edit("one more", extra, f"{sample.text[:at]}\n{indent}{more}{sample.text[at:]}")


def _scope(sample: Sample, layers: Sequence[str], rng: random.Random) -> Edit:
    found = [
        each
        for body in _bodies(sample.text)
        for each in body
        if isinstance(each, ast.Assign) and _is_movable(each, sample.text) and each.col_offset
        if isinstance(each.value, ast.Call)
    ]
    one = rng.choice(found)
    lines, indent = sample.text.splitlines(keepends=True), " " * one.col_offset
    inner = ["    " + line for line in lines[one.lineno - 1 : one.end_lineno]]
    head = f'{indent}with tf.name_scope("moved"), tf.keras.name_scope("moved"):\n'
    text = "".join([*lines[: one.lineno - 1], head, *inner, *lines[one.end_lineno or 0 :]])

    def was(name: str) -> Sequence[str | None]:
        former = "/".join(part for part in name.split("/") if part != "moved")
        return (former, None) if former != name else (name,)

    return Edit("scope", f"scope around {ast.unparse(one)[:60]}", text, was)


def _device(sample: Sample, layers: Sequence[str], rng: random.Random) -> Edit:
    """Return a layer on the other device: in the text, or for each placement file to be changed."""
    if not sample.is_by_hand:
        return Edit("device", f"moved: {rng.choice(list(layers))}", sample.text)
    scopes = [found.start(1) for found in re.finditer(r"tf\.device\((FIRST|SECOND)", sample.text)]
    at = rng.choice(scopes)
    is_first = sample.text.startswith("FIRST", at)
    old, new = ("FIRST", "SECOND") if is_first else ("SECOND", "FIRST")
    line = sample.text.count("\n", 0, at) + 1
    return Edit(
        "device", f"line {line} on {new}", sample.text[:at] + new + sample.text[at + len(old) :]
    )


def _bodies(text: str) -> Iterator[list[ast.stmt]]:
    """Yield the statements of each block of the file that builds or runs the model."""
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        is_data = isinstance(node, ast.FunctionDef) and "dataset" in node.name
        if isinstance(body, list) and not is_data and not isinstance(node, ast.ClassDef):
            yield body


def _is_movable(statement: ast.stmt, text: str) -> bool:
    source = ast.get_source_segment(text, statement) or ""
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return (isinstance(statement, ast.Assign | ast.AugAssign) or is_call) and not any(
        words in source for words in _NOT_MODEL
    )


def _are_independent(one: ast.stmt, two: ast.stmt) -> bool:
    (reads, writes), (others, written) = _touched(one), _touched(two)
    return not (writes & (others | written) or written & reads)


def _touched(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """Return the names that a statement reads, and those that it may change."""
    reads, writes = set(), set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            (writes if isinstance(node.ctx, ast.Store) else reads).add(f"self.{node.attr}")
        elif isinstance(node, ast.Name) and node.id != "self":
            (writes if isinstance(node.ctx, ast.Store) else reads).add(node.id)
    if not isinstance(statement, ast.Assign):
        writes |= reads  # What is called may change what it is given.
    return reads, writes


def _replaced(text: str, changes: Sequence[tuple[ast.expr, str]]) -> str:
    """Return the text with expressions put into patterns."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, pattern in sorted(
        changes, key=lambda change: (-change[0].lineno, -change[0].col_offset)
    ):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        text = text[:begin] + pattern.format(text[begin:end]) + text[end:]
    return text


def _behind_imports(text: str, prelude: str) -> str:
    last = max(
        node.end_lineno or 0
        for node in ast.parse(text).body
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:last], "\n", prelude, *lines[last:]])


# --- What is to be said of them -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A simulated step: how it stands against one device is 0 (slower), 1 (unclear) or 2."""

    step_ns: int
    ratio: float
    standing: int
    copies: int
    bytes_across: int
    peak_bytes: Mapping[str, int]
    on_host: Counter[str]
    by_layer: Mapping[str, str]
    by_part: Mapping[str, Mapping[Role, str]]


def figures(graph: OpGraph, placement: Placement) -> Figures:
    """Simulate a step as it is placed."""
    costs = roofline_by_place(graph, CLUSTER)
    simulator = Simulator(graph, costs, CLUSTER)
    schedule = simulator.schedule(placement)
    alone = references.on_device(graph, CLUSTER.device_names()[0])
    standing = 0
    if alone.device_of != placement.device_of:
        doubt = assumed_uncertainty(costs, CLUSTER)
        ratio = Sensitivity(simulator, alone, doubt).ratio(placement, None)
        standing = 0 if ratio.low > WORTHWHILE_RATIO else 2 if ratio.high < WORTHWHILE_RATIO else 1
    crossing = [copy for copy in schedule.transfers if not copy.is_control]
    return Figures(
        step_ns=schedule.step_ns,
        ratio=schedule.step_ns / simulator.step_ns(alone),
        standing=standing,
        copies=len(crossing),
        bytes_across=sum(copy.size_bytes or 0 for copy in crossing),
        peak_bytes=schedule.peak_memory_bytes,
        on_host=Counter(
            kind
            for _, kind in {
                (graph.op(run.op).layer, graph.op(run.op).kind)
                for run in schedule.runs
                if graph.op(run.op).role in _COMPUTING and run.device != placement.device_of[run.op]
            }
        ),
        by_layer=placement.by_layer(graph),
        by_part=_by_part(graph, placement),
    )


def _by_part(graph: OpGraph, placement: Placement) -> dict[str, dict[Role, str]]:
    """Return where most ops of each role are, by layer."""
    votes: defaultdict[str, defaultdict[Role, Counter[str]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    for op in graph.ops:
        if op.role is not Role.CONSTANT:
            votes[op.layer or ""][op.role][placement.device_of[op.name]] += 1
    return {
        layer: {role: max(sorted(count), key=count.__getitem__) for role, count in parts.items()}
        for layer, parts in votes.items()
    }


_COMPUTING = (Role.FORWARD, Role.BACKWARD, Role.UPDATE, Role.VARIABLE)


def meant(
    graph: OpGraph, device_of_layer: Mapping[str, str], by_op: Mapping[str, str]
) -> Placement:
    """Return each op on the device of its layer, those apart as before, variables together."""

    def own(name: str, layer: str | None) -> str:
        return by_op.get(name, device_of_layer[layer or ""])

    homes = {
        op.variable or op.name: own(op.name, op.layer)
        for op in graph.ops
        if op.role is Role.VARIABLE
    }
    device_of = {
        op.name: homes.get(op.variable or "", own(op.name, op.layer))
        for op in graph.ops
        if op.role is not Role.CONSTANT
    }
    return Placement(label="meant", family="file", device_of=device_of, rationale="")


def worse(before: Figures, after: Figures, *, by_search: bool) -> tuple[set[str], set[str]]:
    """Return by what a check has to fail, and by what it may, since roundings decide."""
    must: set[str] = set()
    may: set[str] = set()

    def told(code: str, growth: float, allowed: float) -> bool:
        if abs(growth - allowed) <= ROUNDED:
            may.add(code)
        elif growth > allowed:
            must.add(code)
        return growth > allowed + ROUNDED

    slower = told("slower-step", after.step_ns / max(1, before.step_ns) - 1, GROWTH)
    if after.standing < before.standing:
        fell = told("verdict-changed", after.ratio / before.ratio - 1, GROWTH)
        # How sure a verdict is hangs on roundings as well.
        slower = slower or fell
    if by_search and "slower-step" in may:
        may |= {
            "more-copies",
            "more-bytes-across",
            *(f"more-memory {d}" for d in before.peak_bytes),
        }
    if by_search and "slower-step" not in must:
        return must, may
    if after.copies > before.copies:
        must.add("more-copies")
    if after.bytes_across > (1 + MORE_BYTES) * before.bytes_across:
        must.add("more-bytes-across")
    for device, peak in after.peak_bytes.items():
        if peak:
            told(
                f"more-memory {device}", peak / max(1, before.peak_bytes.get(device, 0)) - 1, GROWTH
            )
    return must, may


# --- Checks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """What is locked of a step under a placement, the figures of that, and its file if any."""

    record: Record
    figures: Figures
    file: dict[str, Any] | None


class Workplace:
    """Traces models, and checks them against what they were before an edit."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._root = Path(self._folder.name)
        self._known: dict[Path, tuple[Traced, dict[str, Locked]]] = {}

    def locked(self, sample: Sample) -> tuple[Traced, dict[str, Locked]]:
        """Return a model as it is, under all placements that there are for it."""
        if sample.path not in self._known:
            traced = self.traced(sample, sample.text)
            self._known[sample.path] = traced, dict(self._placements(sample, traced))
        return self._known[sample.path]

    def _placements(self, sample: Sample, traced: Traced) -> Iterator[tuple[str, Locked]]:
        graph, costs = traced.graph, roofline_by_place(traced.graph, CLUSTER)
        names = [AUTO, WRITTEN]
        for rule in RULES:
            placement = FAMILIES[rule](graph, costs, CLUSTER)
            if isinstance(placement, Placement):
                names += [rule, f"{sample.path.parent.name}-{sample.path.stem}-{rule}.json"]
                placement.save(self._root / names[-1], graph, CLUSTER.place_names())
        for name in names:
            file = None
            if name.endswith(".json"):
                file = json.loads((self._root / name).read_text(encoding="utf-8"))
            record = self.check(sample, traced, name, None).after
            assert record is not None
            text = lock_text({"model": record})
            (self._root / "lock.json").write_text(text, encoding="utf-8")
            placed = self.placed(traced, name, file)
            yield (
                name,
                Locked(
                    record=read_lock(self._root / "lock.json")["model"],
                    figures=figures(graph, placed),
                    file=file,
                ),
            )

    def traced(self, sample: Sample, text: str) -> Traced:
        """Trace a model whose file has that text."""
        path = self._root / sample.path.name
        path.write_text(text, encoding="utf-8")
        name = "train_step" if sample.is_by_hand else None
        source = ModelSource(
            path=str(path), name=name, mode=None, batch_size=None, outputs=(), time_limit_s=300.0
        )
        return trace_model(source, Silent())

    def check(
        self, sample: Sample, traced: Traced, placement: str, before: Record | None
    ) -> ModelResult:
        """Check a traced model."""
        place = Place("pyproject.toml", 1)
        path = sample.path.name
        return check_step(
            ModelResult(
                model=path,
                placement=placement,
                place=place,
                status=Status.COULD_NOT_RUN,
                before=before,
            ),
            ModelConfig(path=path, placement=placement, place=place),
            traced.graph,
            traced.requested_device_of,
            code_lines(traced.graph, traced.stack_of, traced.created_at, self._root),
            split=None,
            root=self._root,
            hardware=HARDWARE,
            cluster=CLUSTER,
            update=False,
        )[0]

    def placed(
        self,
        traced: Traced,
        name: str,
        file: Mapping[str, Any] | None,
        was: Mapping[str, str] | None = None,
    ) -> Placement:
        """Return a placement as it is meant; ``was`` has former names of layers.

        Raises:
            LookupError: a rule does not apply.
        """
        graph = traced.graph
        if file is not None:
            layers = {op.layer or "" for op in graph.ops if op.role is not Role.CONSTANT}
            former = was or {layer: layer for layer in layers}
            then = {
                op: layer for layer, row in file["structure"]["layers"].items() for op in row["ops"]
            }
            apart = {
                op: device
                for op, device in file["by_op"].items()
                if op in graph and former.get(graph.op(op).layer or "") == then[op]
            }
            by_layer = {layer: file["by_layer"][former[layer]] for layer in layers}
            return meant(graph, by_layer, apart)
        costs = roofline_by_place(graph, CLUSTER)
        if name == AUTO:
            return lay_out(AUTO, self._root, graph, None, costs, CLUSTER, {}).placement
        if name == WRITTEN:
            found = as_written(graph, traced.requested_device_of, CLUSTER)
            return found or references.on_device(graph, CLUSTER.device_names()[0])
        placement = FAMILIES[name](graph, costs, CLUSTER)
        if isinstance(placement, NotApplicable):
            raise LookupError(placement.reason)
        return placement

    def judged(
        self, sample: Sample, edit: Edit, traced: Traced, name: str, *, kind: str
    ) -> dict[str, Any]:
        """Return what the check of an edited model comes to, and whether that is right."""
        original, of_placement = self.locked(sample)
        locked = of_placement[name]
        file, kept = locked.file, self._root / name
        if file is not None and kind == "device" and not sample.is_by_hand:
            layer = edit.what.partition(": ")[2]
            by_layer = file["by_layer"]
            file = {**file, "by_layer": by_layer | {layer: TURNED.get(by_layer[layer], "GPU:0")}}
            kept.write_text(json.dumps(file), encoding="utf-8")
        try:
            result = self.check(sample, traced, name, locked.record)
        finally:
            if file is not None and locked.file is not None:
                kept.write_text(json.dumps(locked.file), encoding="utf-8")
        truth = _truth(original, traced, edit)
        expected = self._expected(traced, name, file, locked, truth, kind)
        return _compared(result, expected, None if kind == "innocuous" else truth)

    def _expected(
        self,
        traced: Traced,
        name: str,
        file: Mapping[str, Any] | None,
        locked: Locked,
        truth: Truth,
        kind: str,
    ) -> Expected:
        is_new_layer_told = file is not None and bool(truth.new or truth.unsure)
        is_same = kind == "innocuous" or (
            kind == "scope" and (name == AUTO or not (truth.new or truth.unsure))
        )
        if is_same and name not in RULES:
            return Expected()
        if is_new_layer_told:
            return Expected(must=frozenset({"placement-does-not-fit"}))
        try:
            placement = self.placed(traced, name, file, truth.was)
        except LookupError:
            return Expected(must=frozenset({"placement-does-not-fit"}))
        after = figures(traced.graph, placement)
        before = _traded(locked.figures, after, truth)
        must, may = worse(before, after, by_search=name == AUTO)
        if file is None and name != WRITTEN:  # Which of the alike devices is which nobody said.
            others, maybe = worse(_turned(before), after, by_search=name == AUTO)
            may |= (must ^ others) | maybe
            must &= others
        if after.on_host - before.on_host:
            must.add("no-gpu-kernel")
        # Ops of no layer are no thing that could move.
        layers = [(now, then) for now, then in truth.was.items() if now and then]
        moved = [pair for pair in layers if after.by_layer[pair[0]] != before.by_layer[pair[1]]]
        if moved and (file is not None or name == WRITTEN):
            more = after.step_ns / max(1, before.step_ns) - 1
            grew = after.copies > before.copies or after.bytes_across > before.bytes_across
            if grew or more > ROUNDED:
                must.add("moved")
            elif must or more > -ROUNDED:
                may.add("moved")
        # Its gradients, variables or updates may move without a layer.
        is_torn = any(after.by_part[now] != before.by_part[then] for now, then in layers)
        if is_torn or (file is None and (moved or kind == "innocuous")):
            may.add("moved")
        return Expected(must=frozenset(must), may=frozenset(may))


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Which layer was which: by today's name its former one, those that are new, or may be."""

    was: Mapping[str, str]
    new: frozenset[str]
    unsure: frozenset[str]
    gone: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Codes of effects and causes that have to be told, and those that may be."""

    must: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()


def _layers(graph: OpGraph) -> set[str]:
    return {op.layer or "" for op in graph.ops if op.role is not Role.CONSTANT}


def _truth(original: Traced, traced: Traced, edit: Edit) -> Truth:
    before, claimed = _layers(original.graph), Counter[str]()
    former = edit.was if edit.kind != "scope" else _by_ops(original.graph, traced.graph, edit.was)
    candidates = {
        name: [each for each in former(name) if each is None or each in before] or [None]
        for name in sorted(_layers(traced.graph))
    }
    for names in candidates.values():
        claimed.update({name for name in names if name is not None})
    was, new, unsure = {}, set(), set()
    for name, names in candidates.items():
        first = next((each for each in names if each is not None), None)
        if first is None:
            new.add(name)
        elif claimed[first] > 1:
            unsure.add(name)
        else:
            was[name] = first
    gone = before - set(was.values()) - set(claimed)
    return Truth(was=was, new=frozenset(new), unsure=frozenset(unsure), gone=frozenset(gone))


def _by_ops(
    before: OpGraph, after: OpGraph, was: Callable[[str], Sequence[str | None]]
) -> Callable[[str], Sequence[str | None]]:
    """Return the former layer of one that a scope was put around, by its ops, if they have one."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for op in after.ops:
        then = "/".join(part for part in op.name.split("/") if part != "moved")
        if then in before and op.role is not Role.CONSTANT:
            found[op.layer or ""].add(before.op(then).layer or "")
    return lambda name: tuple(found[name]) if len(found[name]) == 1 else was(name)


def _traded(before: Figures, after: Figures, truth: Truth) -> Figures:
    """Return the older figures with alike devices in each other's place, if layers agree so."""
    pairs = [(before.by_layer[then], after.by_layer[now]) for now, then in truth.was.items()]
    kept = sum(old == new for old, new in pairs)
    traded = sum(TURNED.get(old, old) == new for old, new in pairs)
    return before if traded <= kept else _turned(before)


def _turned(before: Figures) -> Figures:
    """Return the figures with alike devices in each other's place."""
    return replace(
        before,
        by_layer={name: TURNED.get(device, device) for name, device in before.by_layer.items()},
        by_part={
            name: {role: TURNED.get(device, device) for role, device in parts.items()}
            for name, parts in before.by_part.items()
        },
        peak_bytes={TURNED.get(device, device): size for device, size in before.peak_bytes.items()},
    )


_MOVES = {"PA101", "scope-changed", "placement-changed", "layer-moved"}
_FIGURES = {"slower-step", "verdict-changed", "more-copies", "more-bytes-across"}


def _said(result: ModelResult) -> set[str]:
    """Return the codes of what a check says, more memory with its device."""
    said = set()
    for problem in result.problems:
        said.add("moved" if problem.code in _MOVES else problem.code.value)
        said |= {f"{effect.code} {effect.device}".strip() for effect in problem.effects}
        if problem.code == "more-memory":
            said.discard("more-memory")
            said.add(f"more-memory {problem.what.split(': ')[0]}")
    return said - {"layers-changed"}


def _compared(result: ModelResult, expected: Expected, truth: Truth | None) -> dict[str, Any]:
    said, failed = _said(result), result.status is Status.FAILED
    matters = bool(expected.must)
    found: dict[str, Any] = {"matters": matters}
    if failed and not expected.must | expected.may:
        found["wrong"] = "false alarm"
    elif not failed and matters:
        found["wrong"] = "miss"
    elif failed and not (expected.must <= said <= expected.must | expected.may):
        found["wrong"] = "told wrongly"
    elif truth is None:
        pass  # Which layer was which is not known of those that Keras names.
    elif failed and "placement-does-not-fit" in said:
        text = result.problems[0].what
        names = [name for name in sorted(truth.new) if f"{name or 'ops of no layer'}" not in text]
        if (names and "more" not in text) or (not truth.gone and "gone" in text):
            found["wrong"] = "told wrongly"
    elif (difference := result.difference) is not None and not truth.unsure:
        renamed = {now: then for then, now in difference.renamed.items()}
        really = {now: then for now, then in truth.was.items() if now != then}
        # Ops of no layer are in a record if they compute.
        told = (set(difference.new) - {""}, set(difference.gone) - {""}, renamed)
        meant_to_be = (truth.new - {""}, truth.gone - {""}, really)
        if told != meant_to_be:
            found["wrong"] = "told wrongly"
            found["layers"] = f"{told} for {meant_to_be}"[:300]
    if "wrong" in found:
        found |= {"said": sorted(said), "must": sorted(expected.must), "may": sorted(expected.may)}
        found["text"] = [problem.what for problem in result.problems][:2]
    return found


_workplace = cache(Workplace)


def examine(case: str) -> dict[str, Any]:
    """Return an edit, and under each placement whether it matters and what was wrong, if any."""
    _, sort, _ = case.split()
    rng = random.Random(case)
    work = _workplace()
    for _ in range(20):
        sample = rng.choice(MODELS)
        original, of_placement = work.locked(sample)
        layers = sorted(_layers(original.graph))
        maker = innocuous if sort == "innocuous" else other
        edit = maker(sample, layers, rng)
        kind = sort if sort == "innocuous" else edit.kind
        files = [name for name in of_placement if name.endswith(".json")]
        if edit.kind == "device" and not sample.is_by_hand:
            names = files
        else:
            rest = [name for name in of_placement if name not in files]
            names = [*rng.sample(files, min(2, len(files))), *rng.sample(rest, 1)]
        if sample.is_by_hand:
            names = list(dict.fromkeys([WRITTEN, *names]))
        try:
            traced = work.traced(sample, edit.text)
        except ModelError:
            continue  # No program any more, as where types do not fit.
        checks = {n: work.judged(sample, edit, traced, n, kind=kind) for n in names}
        model = sample.path.relative_to(ROOT).as_posix()
        return {"model": model, "kind": edit.kind, "edit": edit.what, "checks": checks}
    raise RuntimeError(f"{case}: no edit was a program")


def table(results: list[dict[str, Any]]) -> str:
    """Return by kind of edit how many matter, and how many checks were wrong."""
    wrongs = ("false alarm", "miss", "told wrongly")
    lines = [
        "| edit | edits | that matter | checks | to fail | false alarms | misses | told wrongly |",
        "|---|---|---|---|---|---|---|---|",
    ]
    by_kind: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        by_kind[result["kind"]].append(result)
    for kind, found in [*sorted(by_kind.items()), ("all", results)]:
        checks = [check for result in found for check in result["checks"].values()]
        matter = [any(c["matters"] for c in result["checks"].values()) for result in found]
        wrong = Counter(check.get("wrong") for check in checks)
        lines.append(
            f"| {kind} | {len(found)} | {sum(matter)} | {len(checks)} "
            f"| {sum(check['matters'] for check in checks)} "
            f"| {' | '.join(str(wrong[each]) for each in wrongs)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    run_campaign("model_edits", cases(), examine, table)
