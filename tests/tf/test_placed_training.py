"""Trainings whose step is placed while they run: the same training, and what is said of it."""

import itertools
from functools import cache

import pytest

from placement_advisor.processes import children
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.training.trial import Bill, SplitPlan, TrainingTrial

placed_training = RemoteModule("placed_training")

# What a script prints has to be the same for both trainings; numbers have four digits.
_FIT = """
import os
import numpy as np, keras, tensorflow as tf
from keras import layers
HERE = os.path.dirname(os.path.abspath(__file__))
keras.utils.set_random_seed(7)
def tower(name):
    given = keras.Input((6,), name=name)
    hidden = layers.Dense(8, activation="relu", name=f"{name}_hidden")(given)
    return given, layers.Dropout(0.4, seed=3, name=f"{name}_drop")(hidden)
def build(optimizer="adam", **how):
    (left, one), (right, other) = tower("left"), tower("right")
    both = layers.Concatenate()([one, other])
    made = keras.Model([left, right], layers.Dense(1, name="joined")(both))
    made.compile(optimizer, "mse", metrics=["mae"], **how)
    return made
draw = np.random.default_rng(1)
x = [draw.normal(size=(400, 6)).astype("float32") for _ in range(2)]
y = x[0].sum(1, keepdims=True) - x[1].sum(1, keepdims=True)
def show(*values):
    print(*(f"{float(np.asarray(v, 'float64').sum()):.4g}" for v in values))
"""
_LOOP = """
import numpy as np, tensorflow as tf
tf.random.set_seed(3)
draw = np.random.default_rng(1)
def made(*shape): return tf.Variable(draw.normal(size=shape).astype("float32"))
left, right = [made(6, 8), made(8, 4)], [made(6, 8), made(8, 4)]
optimizer = tf.keras.optimizers.Adagrad(0.1)
x = draw.normal(size=(2, 70, 6)).astype("float32")
y = x[0].sum(1)
data = tf.data.Dataset.from_tensor_slices((x[0], x[1], y)).shuffle(70, seed=2).batch(16).repeat(20)
@tf.function
def through(one, pair): return tf.tanh(tf.tanh(one @ pair[0]) @ pair[1])
@tf.function
def step(one, other, wanted):
    with tf.GradientTape() as tape:
        found = tf.reduce_sum(through(one, left) * through(other, right), 1)
        loss = tf.reduce_mean((found - wanted) ** 2)
    variables = left + right
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss
@tf.function
def score(): return tf.reduce_sum(through(x[0], left)) + tf.reduce_sum(through(x[1], right))
"""
_SESSION = """
import os, tempfile
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
tf.set_random_seed(5)
draw = np.random.default_rng(1)
def tower(given, name):
    with tf.variable_scope(name):
        first = tf.get_variable("first", initializer=draw.normal(size=(6, 8)).astype("float32"))
        second = tf.get_variable("second", initializer=draw.normal(size=(8, 4)).astype("float32"))
    return tf.tanh(tf.tanh(given @ first) @ second)
def losses(one, other, wanted):
    found = tf.reduce_sum(tower(one, "left") * tower(other, "right"), 1)
    return tf.reduce_mean((found - wanted) ** 2)
data = draw.normal(size=(2, 64, 6)).astype("float32")
def fed():
    return [tf.placeholder(tf.float32, shape) for shape in ([None, 6], [None, 6], [None])]
def feeds(given, first, size=16):
    rows = [data[j][first : first + size] for j in range(2)]
    return dict(zip(given, (*rows, rows[0].sum(1))))
"""
_FITTED = f"""{_FIT}
class Watching(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs): show(*logs.values(), *model.get_weights())
model = build("sgd")
model.fit(x, y, 16, epochs=3, verbose=0, validation_data=(x, y), callbacks=[Watching()])
"""
_TAUGHT = _LOOP + "for batch in data: step(*batch)"
_SCRIPTS = {
    "fit": f"""{_FIT}
class Counting(keras.callbacks.Callback):
    batches = epochs = 0
    def on_train_batch_end(self, batch, logs=None): self.batches += 1
    def on_epoch_end(self, epoch, logs=None): self.epochs += 1
model, counting = build(), Counting()
stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=1, min_delta=1e3)
keep = keras.callbacks.ModelCheckpoint(HERE + "/kept.weights.h5", save_weights_only=True)
for callbacks in ([counting, keep], [counting, stop]):
    fitted = model.fit(x, y, batch_size=32, epochs=4, verbose=0, callbacks=callbacks,
        validation_data=([v[:40] for v in x], y[:40]), sample_weight=np.linspace(0, 2, 400))
    for values in fitted.history.values(): show(*values)
print(counting.batches, counting.epochs, int(model.optimizer.iterations))
show(*model.evaluate(x, y, verbose=0), model.predict(x, verbose=0), *model.get_weights())
model.save(HERE + "/kept.keras")
again = keras.models.load_model(HERE + "/kept.keras")
show(again.predict(x, verbose=0)); print(int(again.optimizer.iterations))
model.load_weights(HERE + "/kept.weights.h5")
show(*model.fit(x, y, batch_size=32, epochs=1, verbose=0).history["loss"])
""",
    "several steps a call": _FITTED.replace('("sgd"', '("sgd", steps_per_execution=3'),
    "train_on_batch": f"""{_FIT}
model = build("adagrad")
for i in range(60):
    some = slice(2 * i, 2 * i + 20)
    show(*model.train_on_batch([v[some] for v in x], y[some], return_dict=True).values())
    if i % 9 == 0: show(*model.test_on_batch(x, y))
""",
    "own train_step, two models": _FIT
    + """
class Own(keras.Model):
    def train_step(self, data):
        given, wanted = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=wanted, y_pred=self(given, training=True))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss, "half": loss / 2}
inner = build()
model = Own(inner.inputs, inner.outputs)
model.compile("rmsprop", "mse")
other = build("sgd")
for _ in range(2):
    show(*model.fit(x, y, batch_size=20, verbose=0).history["half"])
    show(*other.fit(x, y, batch_size=50, verbose=0).history["loss"])
""",
    "a loop over a function": _LOOP
    + """
print(f"{float(score()):.4g}")
for i, batch in enumerate(data):
    loss = step(*batch)
    if i % 7 == 0: print(i, f"{float(loss):.4g} {float(score()):.4g}")
for variable in left + right + list(optimizer.variables):
    print(f"{float(tf.reduce_sum(variable)):.4g}")
print(int(optimizer.iterations))
""",
    "a session that is fed": _SESSION
    + """
given = fed()
loss = losses(*given)
train = tf.train.AdamOptimizer(0.05).minimize(loss)
saver = tf.train.Saver()
with tf.Session() as session, tempfile.TemporaryDirectory() as folder:
    session.run(tf.global_variables_initializer())
    for i in range(120):
        found, _ = session.run((loss, train), feeds(given, i % 48, 5 if i % 10 == 9 else 16))
        print(f"{found:.4g}")
        if i % 25 == 24:
            saver.save(session, folder + "/kept")
            print(f"{session.run({'all': loss}, feeds(given, 0, 64))['all']:.4g}")
        if i == 99: saver.restore(session, folder + "/kept")
    for variable in tf.global_variables(): print(f"{session.run(variable).sum():.4g}")
""",
    "fit, with whatever changes in between": _FIT
    + """
optimizer = keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=7)
model = build(optimizer)
class Watching(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        show(model.predict([v[:9] for v in x], verbose=0), *logs.values())
        if epoch == 4: tf.saved_model.save(model, HERE + "/saved")
        if epoch == 5: model.export(HERE + "/exported", verbose=False)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
callbacks = [
    Watching(),
    keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
    keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=1e3),
    keras.callbacks.EarlyStopping(monitor="loss", patience=5, restore_best_weights=True),
    keras.callbacks.BackupAndRestore(HERE + "/backup"),
]
model.fit(x, y, batch_size=40, epochs=7, verbose=0, callbacks=callbacks)
path = checkpoint.save(HERE + "/kept")
show(*model.get_weights(), *optimizer.variables)
model.fit(x, y, batch_size=40, epochs=2, verbose=0)
checkpoint.restore(path)
show(*model.get_weights(), *optimizer.variables)
model.compile(optimizer, "mae")
show(*model.fit(x, y, batch_size=40, epochs=3, verbose=0).history["loss"])
for name in ("saved", "exported"):
    again = tf.saved_model.load(HERE + "/" + name)
    show(*again.signatures["serving_default"](**dict(zip(*(
        (again.signatures["serving_default"].structured_input_signature[1], x)))
    )).values())
""",
    "fit under a strategy": _FIT
    + """
strategy = tf.distribute.MirroredStrategy(["CPU:0"])
with strategy.scope(): model = build()
show(*model.fit(x, y, batch_size=40, epochs=4, verbose=0).history["loss"], *model.get_weights())
""",
    "a loop that is exported": _LOOP
    + """
import os
HERE = os.path.dirname(os.path.abspath(__file__))
class Net(tf.Module):
    def __init__(self): self.left, self.right = left, right
    @tf.function(input_signature=[tf.TensorSpec([None, 6])] * 2)
    def __call__(self, one, other): return tf.reduce_sum(through(one, left) * through(other, right))
    @tf.function
    def half(self, one): return tf.reduce_sum(through(one, left)) / 2
net = Net()
for i, batch in enumerate(data):
    step(*batch)
    if i == 60: print(f"{float(net(*batch[:2])):.4g} {float(net.half(batch[0])):.4g}")
    if i == 80:
        signature = net.__call__.get_concrete_function()
        tf.saved_model.save(net, HERE + "/net", signatures=signature)
again = tf.saved_model.load(HERE + "/net")
print(f"{float(again(x[0], x[1])):.4g} {float(again.half(x[0][:16])):.4g}")
print(f"{float(score()):.4g}")
""",
    "a session for each fold": _SESSION
    + """
given = fed()
loss = losses(*given)
train = tf.train.AdagradOptimizer(0.05).minimize(loss)
for fold, count in enumerate((1, 60, 5)):
    with tf.Session() as session:
        try: session.run(loss, {})
        except tf.errors.OpError: print("refused")
        session.run(tf.global_variables_initializer())
        for i in range(count):
            fetches = [train, loss, given[2]] if i % 10 == 9 else [train, loss]
            print(f"{session.run(fetches, feeds(given, i % 40))[1]:.4g}")
""",
    "two sessions": _SESSION
    + """
def graph_of():
    graph = tf.Graph()
    with graph.as_default():
        given = fed()
        loss = losses(*given)
        train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
        return graph, given, loss, train, tf.train.Saver()
graph, given, loss, train, saver = graph_of()
draw = np.random.default_rng(2)
shown, seen, its_loss, _, loader = graph_of()
with tf.Session(graph=graph) as session, tf.Session(graph=shown) as other, \
        tf.Session(graph=graph) as third, tempfile.TemporaryDirectory() as folder:
    for each in (session, third):
        with graph.as_default(): each.run(tf.variables_initializer(tf.global_variables()))
    for i in range(90):
        print(f"{session.run([loss, train], feeds(given, i % 48))[0]:.4g}")
        if i % 20 == 19:
            loader.restore(other, saver.save(session, folder + "/kept"))
            print(f"{other.run(its_loss, feeds(seen, i % 48)):.4g}")
            print(f"{third.run([loss, train], feeds(given, i % 48))[0]:.4g}")
""",
    "a monitored session": _SESSION
    + """
rows = tf.data.Dataset.from_tensor_slices((data[0], data[1], data[0].sum(1))).batch(10).repeat(14)
loss = losses(*tf.data.make_one_shot_iterator(rows).get_next())
step = tf.train.get_or_create_global_step()
train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
with tf.train.MonitoredTrainingSession() as session:
    while not session.should_stop():
        found, number, _ = session.run([loss, step, train])
        print(f"{found:.4g}")
""",
}


def called(function, *given):
    """Call a function in a child of its own."""
    with children.Child("child") as child:
        found = child.call(function, *given)
    assert isinstance(found, dict), found
    return found


@pytest.fixture(scope="module")
def train_own(tmp_path_factory):
    """Return a function that runs a script in a child as it is, once for all tests."""

    @cache
    def trained(text):
        path = tmp_path_factory.mktemp("own") / "train.py"
        path.write_text(text)
        return called(placed_training.trained, str(path), None, {})

    return trained


@pytest.fixture(scope="module")
def draw(tmp_path_factory):
    """Return a function that writes a drawn placement of a script's step, once for all tests."""

    @cache
    def drawn(text, seed):
        folder = tmp_path_factory.mktemp("drawn")
        path, placement = folder / "train.py", folder / "drawn.json"
        path.write_text(text)
        with children.Child("child") as child:
            child.call(tracer.load_workload, ModelSource(path=str(path)))
            child.call(tracer.trace_workload, str(path), None)
            child.call(placed_training.save_placement, str(placement), seed)
        return placement

    return drawn


@pytest.fixture
def train(tmp_path, train_own, draw):
    """Return a function that runs a script in a child, as it is or (a seed) with a drawn split."""

    def trained(text, seed=None, *, samples=None, drawn_for=None, **how):
        if seed is None:
            return train_own(text)
        path = tmp_path / "train.py"
        path.write_text(text)
        placement = draw(drawn_for or text, seed)
        plan = SplitPlan(
            label="batch" if samples else "drawn",
            family="batch",
            devices=("worker:0", "worker:1"),
            placement=None if samples else placement,
            samples=samples,
            single=placement,
        )
        return called(placed_training.trained, str(path), plan, how)

    return trained


_TRIED = {
    "fit": _FITTED,
    **{name: _SCRIPTS[name] for name in ("a loop over a function", "a session that is fed")},
}
_SLOW = (
    "fit, with whatever changes in between",
    "fit under a strategy",
    "a loop that is exported",
    "a session for each fold",
    "two sessions",
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in _SLOW)) for name in _SCRIPTS]
)
def test_a_placed_training_is_the_same_training(train, name):
    own, placed = train(_SCRIPTS[name]), train(_SCRIPTS[name], 1)
    assert own["error"] is None
    assert placed["bill"]["why_not"] is None, placed["told"]
    assert placed["bill"]["placed_steps"] > 10, placed
    assert (placed["out"], placed["error"]) == (own["out"], None)
    assert sum(" steps with drawn" in line for line in placed["told"]) == 1  # Not one an epoch.


_RESUMED = (
    _FIT
    + """
path = HERE + "/kept.keras"
model = keras.models.load_model(path) if os.path.exists(path) else build()
if os.path.exists(HERE + "/kept.weights.h5"): model.load_weights(HERE + "/kept.weights.h5")
show(*model.fit(x, y, batch_size=40, epochs=3, verbose=0).history["loss"], *model.get_weights())
print(int(model.optimizer.iterations))
model.save(path)
model.save_weights(HERE + "/kept.weights.h5")
"""
)


@pytest.mark.slow
def test_a_training_is_resumed_with_the_split_or_without(train, tmp_path):
    path, kept = tmp_path / "train.py", ("kept.keras", "kept.weights.h5")
    path.write_text(_RESUMED)
    printed = set()

    def run(seed):
        if seed is None:  # Not the run for all tests: it goes on where the last one stopped.
            return called(placed_training.trained, str(path), None, 0)
        return train(_RESUMED, seed)

    for first, second in itertools.product((None, 1), (None, 2)):
        for name in kept:
            (tmp_path / name).unlink(missing_ok=True)
        ran = [run(seed) for seed in (first, second)]
        assert [each["error"] for each in ran] == [None, None]
        for each, seed in zip(ran, (first, second), strict=True):
            assert seed is None or each["bill"]["placed_steps"] > 10, each["told"]
        printed.add(tuple(each["out"] for each in ran))
    assert len(printed) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fit", "a session that is fed"])
def test_split_steps_are_recorded(train, name):
    own, found = train(_TRIED[name]), train(_TRIED[name], 1, is_recorded=True)
    assert found["out"] == own["out"]
    compute, copies, following = found["told"][-3:]
    assert compute.startswith("compute  "), found["told"]
    assert copies.startswith("copies   ")
    assert following.startswith("next     ")


@pytest.mark.parametrize("name", _TRIED)
@pytest.mark.parametrize("slowed", ["own", "placed"])
def test_in_a_trial_both_steps_take_turns_and_the_faster_one_goes_on(train, name, slowed):
    own, found = train(_TRIED[name]), train(_TRIED[name], 1, trial_steps=10, slowed=slowed)
    assert found["out"] == own["out"], found
    bill = found["bill"]
    assert bill["trial"] is not None, bill
    assert (bill["trial"]["speedup"] > 1) == (slowed == "own")
    # Ten turns each, of one step that counts behind one that does not.
    least = 20
    assert bill["placed_steps"] >= least
    assert bill["own_steps"] >= least
    chosen = "drawn" if slowed == "own" else "your own step"
    assert any(line.startswith(f"trains with {chosen} from here on") for line in found["told"])
    assert (bill["placed_steps"] > least) == (slowed == "own")


def test_a_step_that_takes_its_batches_itself_stays_as_it_is(train):
    text = _LOOP + (
        "@tf.function\n"
        "def two_steps(iterator): return [step(*next(iterator)) for _ in range(2)]\n"
        "iterator = iter(data)\n"
        "try:\n"
        "    while True: print(*(f'{float(loss):.4g}' for loss in two_steps(iterator)))\n"
        "except tf.errors.OutOfRangeError: print('all of them')\n"
    )
    own, found = train(text), train(text, 1, drawn_for=_TAUGHT)
    assert (found["out"], found["error"]) == (own["out"], None)
    assert "all of them" in own["out"]
    assert not found["bill"]["placed_steps"]


def test_shares_of_the_batch_train_the_same_up_to_rounding(train):
    text = _SCRIPTS["a loop over a function"]
    own, found = train(text), train(text, 1, samples=(10, 6))
    assert found["bill"]["placed_steps"] > 10, found
    numbers = [[float(word) for word in each["out"].split()] for each in (own, found)]
    assert numbers[1] == pytest.approx(numbers[0], rel=2e-3, abs=1e-3)


_NORMED = _FITTED.replace(
    'layers.Dropout(0.4, seed=3, name=f"{name}_drop")', "layers.BatchNormalization()"
)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"text": _NORMED, "samples": (10, 6)}, "another training"),
        ({"text": _TAUGHT.replace("8", "9"), "drawn_for": _TAUGHT}, "written for another graph"),
        ({"text": _TAUGHT.replace("@tf.function\n", ""), "drawn_for": _TAUGHT}, "op by op"),
    ],
)
def test_what_is_not_the_same_trains_as_it_is_and_says_why(train, asked, why):
    found = train(seed=1, **asked)
    assert found["error"] is None
    assert why in (found["bill"]["why_not"] or ""), found
    assert not found["bill"]["placed_steps"]
    assert found["told"][-1].startswith("trained as it is")


_MISTAKES = {
    **dict.fromkeys(("dropped", "doubled", "scaled", "stale", "swapped")),
    **dict.fromkeys(("one_replica", "averaged_twice", "share_lost"), (8, 8)),
}


@pytest.mark.slow
@pytest.mark.parametrize(("mistake", "samples"), _MISTAKES.items())
def test_a_placed_step_or_shares_with_a_mistake_are_refused(train, mistake, samples):
    found = train(_SCRIPTS["a loop over a function"], 1, samples=samples, mistake=mistake)
    assert found["made"], "the mistake could not be made"
    assert "computes something else" in (found["bill"]["why_not"] or ""), found
    assert not found["bill"]["placed_steps"]


def test_where_variables_cannot_move_they_are_all_where_they_were(train):
    text = _SCRIPTS["a loop over a function"]
    own, found = train(text), train(text, 1, mistake="no room")
    assert (found["out"], found["error"]) == (own["out"], None)
    assert "no room" in found["bill"]["why_not"]


def test_variables_that_were_interrupted_on_their_way_are_all_found_again(train):
    text = _LOOP + (
        "for batch in data:\n"
        "    for _ in range(3):\n"
        "        try: loss = step(*batch)\n"
        "        except KeyboardInterrupt: continue\n"
        "        break\n"
        "    print(f'{float(loss):.4g}')\n"
    )
    own, found = train(text), train(text, 1, trial_steps=5, is_interrupted=True, drawn_for=_TAUGHT)
    assert found["pressed"] == ["take", "give_back"]
    assert (found["out"], found["error"]) == (own["out"], None)


def test_what_a_training_was_watched_by_is_let_go(child):
    assert child.call(placed_training.captures_kept) == 0


def test_an_error_of_a_callback_is_the_script_s_and_nothing_is_lost(train):
    text = _FITTED.replace("model.fit(", "try: model.fit(").replace(
        "    def on_epoch_end",
        "    def on_train_batch_end(self, batch, logs):\n"
        "        if int(model.optimizer.iterations) == 12: raise OSError('disk full')\n"
        "    def on_epoch_end",
    )
    text += "finally: show(*model.get_weights())\n"
    own, placed = train(text), train(text, 1, drawn_for=_FITTED)
    assert placed["error"] == own["error"] == "OSError: disk full"
    assert placed["out"] == own["out"]
    assert placed["bill"]["placed_steps"] > 5


_MS = 1e-3


def _tried(own_s, placed_s, steps=20):
    """Return a trial in which steps take these times, over and over; the first of a turn 1 s."""
    trial, last = TrainingTrial(steps), None
    times = {False: itertools.cycle(own_s), True: itertools.cycle(placed_s)}
    while not trial.is_over:
        is_first = trial.is_placed is not last or trial._turn is None
        last = trial.is_placed
        trial.took(1.0 if is_first else next(times[last]))
    return trial


def test_both_take_turns_in_pairs_whose_order_changes_and_first_steps_do_not_count():
    trial = TrainingTrial(20)
    turns = []
    for _ in range(8):
        turns.append(trial.is_placed)
        for seconds in (1.0, 2.0, 2.0):
            assert trial.is_placed == turns[-1]
            trial.took(seconds)
    assert turns == [False, True, True, False, False, True, True, False]
    assert (trial.own_ns, trial.placed_ns) == (2e9, 2e9)


@pytest.mark.parametrize("steps", [1, 4, 10, 20, 45])
def test_as_many_steps_are_counted_each_way_as_were_asked_for(steps):
    trial = _tried([4 * _MS], [3 * _MS], steps)
    assert abs(trial.counted - steps) <= 5
    assert trial.speedup == pytest.approx(4 / 3)
    assert (trial.interval is None) == (steps < 8)


def test_turns_that_follow_each_other_are_compared_so_that_a_slow_while_meets_both():
    slow_while = [1 * _MS] * 10 + [5 * _MS] * 10
    trial = _tried(slow_while, [1.2 * each for each in slow_while])
    assert trial.speedup == pytest.approx(1 / 1.2)
    assert trial.interval.high < 1


def test_the_bill_says_what_ran_what_it_takes_and_what_it_saved():
    bill = Bill(label="towers", is_tried=True, placed_steps=2_000, own_steps=30, other_steps=1)
    bill.ready_s = 2.0
    bill.trial = _tried([30 * _MS], [20 * _MS])
    assert bill.told() == (
        "2,000 steps with towers, 30 of your own in the trial, 1 of your own on other batches or "
        "fetches: about 20 s saved, 2.00 s spent on getting ready (a step takes 20.0 ms with "
        "towers and 30.0 ms with your own (1.50×, 95 % interval 1.50–1.50; 20 steps each, in "
        "turns))"
    )
    assert bill.told(so_far=True).endswith("about 20 s saved, 2.00 s spent on getting ready")
    assert bill.decision().startswith("trains with towers from here on: a step takes 20.0 ms")


_SLOWER = {"placed_steps": 30, "own_steps": 30, "trial": _tried([20 * _MS], [30 * _MS])}


@pytest.mark.parametrize(
    ("ran", "end"),
    [
        ({}, "trained as it is: no step that towers is for was seen"),
        ({"why_not": "another graph"}, "as it is: another graph"),
        (
            {"placed_steps": 1},
            "1 step with towers; the training was too short for a trial, so the saving is unknown",
        ),
        (
            {"is_tried": False, "placed_steps": 12},
            "12 steps with towers; no trial, so the saving is unknown",
        ),
        (_SLOWER, "trained as it is: towers was no faster in the trial"),
    ],
)
def test_nothing_is_said_to_be_saved_that_nobody_has_seen(ran, end):
    assert Bill(**{"label": "towers", "is_tried": True, **ran}).told().endswith(end)
