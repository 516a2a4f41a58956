"""Training steps built by hand: forward, backward, slots and updates from a list of layer calls."""

from dataclasses import dataclass

from hypothesis import strategies as st
from placed_steps import price
from sample_values import links_between

from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Cluster, Device


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a layer; ``feeds`` names the calls and inputs (``in:…``) that it reads."""

    name: str
    feeds: tuple[str, ...]
    out_bytes: int | None = 100
    variables: tuple[tuple[str, int], ...] = ()
    table: str | None = None
    cost_ns: int = 100


def calls_of(text):
    """Return calls that semicolons part: `name ns < what it reads`; they take 100 ns if not said.

    Among what is read `w=40` is a variable of 40 bytes.
    """
    found = []
    for each in text.split("; "):
        words, _, read = each.partition(" < ")
        name, cost_ns = (*words.split(), 100)[:2]
        feeds = tuple(word for word in read.split() if "=" not in word)
        held = (word.split("=") for word in read.split() if "=" in word)
        variables = tuple((variable, int(size)) for variable, size in held)
        found.append(Call(name=name, feeds=feeds, variables=variables, cost_ns=int(cost_ns)))
    return found


def cluster_of(*devices, hosts=(), latency_ns=10):
    """Return devices (or CPUs of these names), all linked: 10 ns a copy and 1 for each byte."""
    devices = tuple(Device(name=d, kind="CPU") if isinstance(d, str) else d for d in devices)
    links = links_between([each.name for each in (*devices, *hosts)], latency_ns)
    return Cluster(devices=devices, hosts=tuple(hosts), links=links)


def proposed(propose, graph, costs, *devices, **more):
    """Return what a family proposes, which fits, for devices on which every op takes the same."""
    cluster = cluster_of(*devices, **more)
    found = propose(graph, costs.everywhere(cluster), cluster)
    if isinstance(found, Placement):
        found.check(graph, cluster.place_names())
    return found


class _Builder:
    def __init__(self):
        self.ops, self.edges, self.sizes, self.cost_ns = {}, set(), {}, {}

    def op(self, name, role, inputs=(), *, kind="Op", layer=None, variable=None, size=4, cost=0):
        if name not in self.ops:
            parameter_bytes = size if role is Role.VARIABLE and kind == "VarHandleOp" else 0
            out = 0 if role is Role.VARIABLE else size
            self.ops[name] = Op(
                name, kind, role, layer=layer, variable=variable,
                output_bytes=(out,), parameter_bytes=parameter_bytes,
            )  # fmt: skip
            self.sizes[name] = out
            self.cost_ns[name] = cost
        for producer in inputs:
            self.edges.add(Edge(producer, name, 0, self.sizes[producer]))
        return name

    def after(self, before, name):
        self.edges.add(Edge(before, name, CONTROL_PORT, 0))


def training_step(calls):
    """Return the step with Adam-like updates, and a cost table; the last call is the loss.

    The cost of a call is half in its forward op ``<call>/op``, half in ``grad/<call>``.
    """
    build = _Builder()
    by_name = {call.name: call for call in calls}
    found_in: dict[str, str] = {}
    for call in calls:
        _forward(build, call, found_in)
    users: dict[str, list[str]] = {call.name: [] for call in calls}
    for call in calls:
        for feed in call.feeds:
            if feed in users:
                users[feed].append(call.name)
    gradients: dict[str, list[str]] = {}
    for call in reversed(calls):
        if call.table is not None:
            continue
        reads = [f"{call.name}/read/{variable}" for variable, _ in call.variables]
        forward = [f"{feed}/op" for feed in call.feeds if feed in by_name]
        later = [f"grad/{user}" for user in users[call.name] if by_name[user].table is None]
        gradient = build.op(
            f"grad/{call.name}", Role.BACKWARD, [*later, *forward, *reads], layer=call.name,
            size=sum(by_name[f].out_bytes or 0 for f in call.feeds if f in by_name),
            cost=call.cost_ns - call.cost_ns // 2,
        )  # fmt: skip
        for variable, _ in call.variables:
            gradients.setdefault(variable, []).append(gradient)
    for variable, parts in gradients.items():
        _update(build, variable, parts, found_in[variable])
    _metric(build, f"{calls[-1].name}/op")
    graph = OpGraph(build.ops.values(), build.edges)
    return graph, price(build.cost_ns)


def _forward(build, call, found_in):
    inputs = []
    for feed in call.feeds:
        if feed.startswith("in:"):
            inputs.append(build.op(feed, Role.INPUT, kind="Placeholder", size=10))
        else:
            inputs.append(f"{feed}/op")
    for variable, size in call.variables:
        found_in.setdefault(variable, call.name)
        handle = build.op(
            variable, Role.VARIABLE, kind="VarHandleOp", layer=found_in[variable],
            variable=variable, size=size,
        )  # fmt: skip
        inputs.append(build.op(
            f"{call.name}/read/{variable}", Role.FORWARD, [handle], kind="ReadVariableOp",
            layer=call.name, variable=variable, size=size,
        ))  # fmt: skip
    if call.table is not None:
        known = call.table in build.ops
        handle = build.op(
            call.table, Role.VARIABLE, kind="HashTableV2", layer=call.name, variable=call.table
        )
        inputs.append(handle)
        if known:  # TensorFlow orders lookups in one table.
            build.after(found_in[call.table], f"{call.name}/op")
        found_in[call.table] = f"{call.name}/op"
    build.op(
        f"{call.name}/op", Role.FORWARD, inputs, layer=call.name, variable=call.table,
        size=call.out_bytes, cost=call.cost_ns // 2,
    )  # fmt: skip


def _update(build, variable, gradients, layer):
    """The shape of Keras' Adam: every variable reads the learning rate anew."""
    size = build.ops[variable].parameter_bytes
    rate = build.op("rate", Role.VARIABLE, kind="VarHandleOp", variable="rate")
    read_rate = build.op(f"{variable}/read_rate", Role.UPDATE, [rate], layer=layer, variable="rate")
    one = build.op(f"{variable}/one", Role.CONSTANT)
    cast = build.op(f"{variable}/cast", Role.UPDATE, [one], layer=layer)
    scale = build.op(f"{variable}/scale", Role.UPDATE, [read_rate, cast], layer=layer)
    total = build.op(f"{variable}/total", Role.UPDATE, gradients, layer=layer, size=size)
    slot = build.op(
        f"{variable}/m", Role.VARIABLE, kind="VarHandleOp", layer=layer, variable=f"{variable}/m",
        size=size,
    )  # fmt: skip
    old = build.op(f"{variable}/read_m", Role.UPDATE, [slot], layer=layer, variable=slot, size=size)
    change = build.op(f"{variable}/change", Role.UPDATE, [old, total], layer=layer, size=size)
    keep = build.op(f"{variable}/keep_m", Role.UPDATE, [slot, change], layer=layer, variable=slot)
    again = build.op(
        f"{variable}/again_m", Role.UPDATE, [slot], layer=layer, variable=slot, size=size
    )
    build.after(keep, again)
    delta = build.op(f"{variable}/delta", Role.UPDATE, [again, scale], layer=layer, size=size)
    assign = build.op(
        f"{variable}/assign", Role.UPDATE, [variable, delta], layer=layer, variable=variable
    )
    build.op("done", Role.UPDATE, kind="NoOp")
    build.after(assign, "done")


def _metric(build, loss):
    """A running sum of the loss, outside any layer."""
    total = build.op("metric", Role.VARIABLE, kind="VarHandleOp", variable="metric")
    old = build.op("metric/read", Role.FORWARD, [total], variable="metric")
    new = build.op("metric/add", Role.FORWARD, [old, loss])
    build.op("metric/assign", Role.FORWARD, [total, new], variable="metric")


def deepconn(*, word_bytes=400_000, vector_bytes=64_000):
    """Two towers that share one lookup table and one embedding, in the order of a real trace."""
    calls = []
    for side, again in (("item", ""), ("user", "@2")):
        calls.append(
            [
                Call(name=f"lookup{again}", feeds=(f"in:{side}",), out_bytes=2_560, table="vocab"),
                Call(name=f"embedding{again}", feeds=(f"lookup{again}",), out_bytes=vector_bytes,
                     variables=(("words", word_bytes),)),
                Call(name=f"{side}_conv", feeds=(f"embedding{again}",), out_bytes=12_000,
                     variables=((f"{side}_kernel", 6_000), (f"{side}_bias", 40)), cost_ns=4_000),
                Call(name=f"{side}_pool", feeds=(f"{side}_conv",), out_bytes=12_000, cost_ns=300),
                Call(name=f"{side}_flat", feeds=(f"{side}_pool",), out_bytes=12_000, cost_ns=0),
                Call(name=f"{side}_dense", feeds=(f"{side}_flat",), out_bytes=8_192,
                     variables=((f"{side}_weights", 248_000),), cost_ns=1_000),
            ]
        )  # fmt: skip
    return [
        *(call for pair in zip(*calls, strict=True) for call in pair),
        Call(name="rating", feeds=("user_dense", "item_dense"), out_bytes=128),
        Call(name="loss", feeds=("rating", "in:label"), out_bytes=4),
    ]


@st.composite
def models(draw):
    """Layered models with shared variables, tables, unknown sizes and any number of joins."""
    calls = []
    for i in range(draw(st.integers(1, 9))):
        earlier = [call.name for call in calls] + ["in:x", "in:y"]
        feeds = draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=3, unique=True))
        names = draw(st.lists(st.sampled_from("uvw"), max_size=2, unique=True))
        calls.append(
            Call(
                name=f"l{i}",
                feeds=tuple(feeds),
                out_bytes=draw(st.one_of(st.none(), st.integers(0, 500))),
                variables=tuple((name, 40 * (1 + ord(name) % 5)) for name in names),
                table=draw(st.sampled_from([None, None, "vocab"])),
                cost_ns=draw(st.integers(0, 1_000)),
            )
        )
    return calls
