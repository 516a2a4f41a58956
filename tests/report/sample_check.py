"""Results of checks, written by hand."""

from dataclasses import replace

from hypothesis import strategies as st
from record_cases import ONE, TWO, cut, layer, record

from placement_advisor.check.lock_record import Cut, Difference, Move, Part, difference
from placement_advisor.check.problem_codes import (
    CheckResult,
    Effect,
    ModelResult,
    Place,
    Problem,
    ProblemCode,
    Status,
)

UNCHANGED = {
    "embedding": layer("11", ONE, busy_us=4_000),
    "dense_1": layer("22", ONE, busy_us=2_000),
}
BEFORE = record(
    hardware="2xV100-NVLink",
    devices="5f0c11aa",
    placement="placements/ranker.json",
    graph="00aa",
    placed="00bb",
    layers={
        **UNCHANGED,
        "dense_2": layer("33", TWO, busy_us=3_000),
        "head": layer("44", TWO, busy_us=500),
    },
    cuts=(cut("dense_1/Relu:0", 1_048_576), cut("keys:0", 65_536)),
    copies=4,
    bytes_across=1_114_112,
    step_us=9_960,
    single_step_us=15_000,
    memory_bytes={
        ONE: {"variables": 2_000_000_000, "activations": 400_000_000},
        TWO: {"variables": 1_000_000_000},
    },
)
AFTER = replace(
    BEFORE,
    graph="11aa",
    placed="11bb",
    layers={
        **UNCHANGED,
        "dense_2": layer("33", TWO, backward=ONE, busy_us=3_000),
        "head_wide": layer("55", TWO, busy_us=900),
    },
    on_host={"head_wide": ("StringToHashBucketFast",)},
    cuts=(cut("dense_2/kernel", 2_097_152), cut("dense_1/Relu:0", 1_048_576), cut("grads:0", None)),
    copies=8,
    bytes_across=3_145_728,
    step_us=11_000,
    memory_bytes=BEFORE.memory_bytes
    | {ONE: {"variables": 2_000_000_000, "activations": 900_000_000}},
)
DIFFERENCE = difference(BEFORE, AFTER, [[ONE, TWO]])
COPIES = Problem(
    code=ProblemCode.COPIES,
    what="+4 copies per step (4 -> 8)",
    culprits=("dense_2/kernel GPU:0 -> GPU:1 +2.10 MB (models/ranker.py:41)", "2 more"),
    action="compute what is read there on that side, or send one tensor for several",
    place=Place("models/ranker.py", 41),
)
LEFT = Problem(
    code=ProblemCode.BACKWARD_LEFT,
    what="the backward pass of 1 layer has left GPU:1: its ops have no device and run on GPU:0",
    culprits=(
        "backward pass of dense_2: GPU:1 -> GPU:0 (models/ranker.py:41)",
        "dense_2/kernel GPU:0 -> GPU:1 +2.10 MB (models/ranker.py:41)",
        "1 more",
    ),
    effects=(
        Effect(
            code=ProblemCode.SLOWER,
            what="the predicted step takes 10.4% longer (9.96 ms -> 11.0 ms, 5% are allowed)",
        ),
        Effect(code=ProblemCode.COPIES, what="+4 copies per step (4 -> 8)"),
    ),
    action="compute gradients with tf.gradients(loss, variables) inside the tf.function",
    place=Place("models/ranker.py", 41),
    source="gradients = tape.gradient(loss, variables)",
)
BUDGET = Problem(
    code=ProblemCode.OVER_BUDGET,
    what="GPU:0 needs 2.90 GB of memory, max_peak_memory is 2.50 GB",
    culprits=("2.00 GB variables", "900 MB activations"),
    action="make the batch smaller, move layers, or raise the budget in pyproject.toml",
)


def passed(name="models/deepconn.py", notes=()):
    return ModelResult(
        model=name,
        placement="towers",
        place=Place("pyproject.toml", 20),
        status=Status.PASSED,
        notes=tuple(notes),
        before=BEFORE,
        after=BEFORE,
    )


def failed(**changes):
    values = {
        "model": "models/ranker.py:train_step",
        "placement": "placements/ranker.json",
        "place": Place("pyproject.toml", 12),
        "status": Status.FAILED,
        "problems": (LEFT, BUDGET),
        "notes": ("renamed, which is no change: keys is names now",),
        "before": BEFORE,
        "after": AFTER,
        "difference": DIFFERENCE,
    }
    return ModelResult(**{**values, **changes})


def inconclusive(notes=("measured 1.02 to 1.09 of locked: too noisy",)):
    return replace(
        passed("models/words.py", notes),
        place=Place("pyproject.toml", 28),
        status=Status.INCONCLUSIVE,
    )


def could_not_run():
    return ModelResult(
        model="models/gone.py",
        placement="auto",
        place=Place("pyproject.toml", 24),
        status=Status.COULD_NOT_RUN,
        error="models/gone.py: no such file",
        hint="correct path in pyproject.toml",
    )


def check(*results, strict=False):
    return CheckResult(lock_file="placements.lock.json", results=results, strict=strict)


def sample():
    """Return a check with a model of each status."""
    better = "better: -2 copies, -1.05 MB across per step"
    return check(passed(notes=[better]), could_not_run(), failed(), inconclusive())


# What breaks one format or another, or drives a terminal or a CI system's log.
NASTY = (
    "\n::error::owned",
    "\r::stop-commands::x",
    "##[add-mask]x",
    "##vso[task.complete]",
    "%0A::error::x,y=z",
    "\x1b[2J\x00",
    "\u202e\u2028\ufffe\ud800",
    "a|b\\|",
    "<script></details><!--",
    "]]></failure>&amp;",
    "```\n~~~",
    "[x](https://example.com) ![y](z)",
    "@everyone #1",
    "- 1. > # *_`",
)
names = st.lists(st.one_of(st.sampled_from(NASTY), st.text()), min_size=1).map("".join)
hostile_names = names.filter(lambda name: bool(name.split()))


def hostile(name):
    """Return a check of models in which everything is called so."""
    there, here = Place(f"{name}.py", 1), Place(name, 2)
    device = f"{name}:0"
    before = replace(
        BEFORE, memory_bytes={device: {name: 1_000}}, layers={name: BEFORE.layers["head"]}
    )
    crossing = Cut(tensor=name, source=device, target=name, size_bytes=None)
    changed = Difference(
        before=before,
        after=replace(before, layers={f"{name}/new": layer("66", device, busy_us=1)}),
        renamed={name: name},
        gone=(name,),
        new=(f"{name}/new",),
        moves=(Move(layer=name, part=Part.VARIABLES, before=(device, name), after=(name,)),),
        growths=(),
        cuts_added=(crossing,) * 20,
        cuts_removed=(crossing,),
        on_host_added=((name, name),),
    )
    problem = Problem(
        code=ProblemCode.MEMORY,
        what=name,
        culprits=(name, name),
        effects=(Effect(code=ProblemCode.COPIES, what=name),),
        action=name,
        place=here,
        source=name,
    )
    bad = failed(
        model=name,
        placement=name,
        place=there,
        problems=(problem, problem),
        notes=(name,),
        before=changed.before,
        after=changed.after,
        difference=changed,
    )
    gone = replace(could_not_run(), model=name, place=there, error=name, hint=name)
    noisy = replace(inconclusive([name, name]), model=name)
    good = replace(passed(name, [name]), placement=name)
    return replace(check(bad, gone, noisy, good), lock_file=name)
