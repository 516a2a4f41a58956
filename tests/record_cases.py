"""Records of placed steps for tests of the check: by hand, and drawn."""

from dataclasses import asdict

from hypothesis import strategies as st

from placement_advisor.check.lock_record import Cut, LayerRecord, PredictedVerdict, Record, Versions

ONE, TWO = "GPU:0", "GPU:1"
ALIKE = [[ONE, TWO]]
VERSIONS = Versions(hardware="2xT4", devices="00ff", tensorflow="2.21.0", advisor="0.1.0")


def layer(made_of, forward, *, backward=None, busy_us=100):
    there = (backward or forward,)
    return LayerRecord(forward=(forward,), backward=there, fingerprint=made_of, busy_us=busy_us)


def cut(tensor, size_bytes, source=ONE, target=TWO):
    return Cut(tensor=tensor, source=source, target=target, size_bytes=size_bytes)


def record(**changes):
    """Return the record of two layers of different make, a device each."""
    values = {
        **asdict(VERSIONS),
        "placement": "as-written",
        "graph": "a0",
        "placed": "b0",
        "layers": {"lower": layer("11", ONE), "upper": layer("22", TWO)},
        "on_host": {},
        "cuts": (cut("lower/Relu:0", 1_000_000),),
        "copies": 1,
        "bytes_across": 1_000_000,
        "step_us": 1_000,
        "single_step_us": 1_500,
        "memory_bytes": {ONE: {"variables": 900_000_000}, TWO: {"variables": 800_000_000}},
        "standing": PredictedVerdict.SPLIT,
    }
    return Record(**{**values, **changes})


_texts = st.text(max_size=12)
_counts = st.integers(0, 2**63 - 1)
_cuts = st.builds(
    Cut, tensor=_texts, source=_texts, target=_texts, size_bytes=st.one_of(st.none(), _counts)
)
_devices = st.lists(_texts, min_size=1, max_size=3).map(tuple)
_layers = st.builds(
    LayerRecord,
    forward=_devices,
    backward=st.none() | _devices,
    variables=st.none() | _devices,
    fingerprint=_texts,
    busy_us=_counts,
)
records = st.builds(
    Record,
    **dict.fromkeys([*asdict(VERSIONS), "placement", "graph", "placed"], _texts),
    **dict.fromkeys(("copies", "bytes_across", "step_us", "single_step_us"), _counts),
    layers=st.dictionaries(_texts, _layers, max_size=3),
    on_host=st.dictionaries(_texts, st.lists(_texts, max_size=3).map(tuple), max_size=2),
    cuts=st.lists(_cuts, max_size=4).map(tuple),
    memory_bytes=st.dictionaries(_texts, st.dictionaries(_texts, _counts, max_size=2), max_size=2),
    standing=st.sampled_from(PredictedVerdict),
)
