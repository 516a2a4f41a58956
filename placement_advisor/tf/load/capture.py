"""Stops a training program within its first steps and notes what it trains, and on which batch.

Strategies of `tf.distribute` that the program makes are replaced by ones of a single replica.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.graph.op import UPDATE_KINDS
from placement_advisor.tf.answers import SourceLine
from placement_advisor.tf.load import session_step
from placement_advisor.tf.load.eager_step import EagerLoop, Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType


def one_replica_in_place_of(original: type, note: Callable[[], None]) -> type:
    """Return a class whose instances are one replica; ``note`` is called when one is made."""

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        note()
        return OneReplica("/cpu:0")

    return type(original.__name__, (original,), {"__new__": new})


class OneReplica(tf.distribute.OneDeviceStrategy):  # type: ignore[misc]
    """One replica, wherever it is."""

    def scope(self) -> Any:
        """Return the scope that is there already."""
        return nullcontext(self)

    def run(self, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """Call the function."""
        return fn(*args, **(kwargs or {}))

    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Return the value of the only replica, along an axis their sum or mean."""
        if axis is None:
            return value
        op = tf.distribute.ReduceOp(getattr(reduce_op, "value", reduce_op).upper())
        reduced = tf.reduce_sum if op is tf.distribute.ReduceOp.SUM else tf.reduce_mean
        return tf.nest.map_structure(lambda each: reduced(each, axis), value)

    def gather(self, value: Any, axis: Any) -> Any:
        """Return the value of the only replica."""
        return value

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Return the dataset."""
        return dataset

    def distribute_datasets_from_function(self, dataset_fn: Any, options: Any = None) -> Any:
        """Return the dataset of the only worker."""
        return dataset_fn(tf.distribute.InputContext())

    def experimental_local_results(self, value: Any) -> Any:
        """Return the value as the only one."""
        return (value,)


# The class of what `tf.function` returns, and what all sessions end in.
FUNCTION, SESSION = type(tf.function(lambda: None)), tf.compat.v1.Session.__mro__[1]
_RUN = SESSION.run
# Different batches show state that changes from step to step; few are enough to keep in memory.
KEPT_BATCHES = 4
# Other steps may follow the one that was called again: the five of a critic before the one of its
# generator, sixteen batches whose gradients are added up.
_MOST_CALLS = 40
_LONGEST_S = 2.0
_AGAIN = 2  # The call by which a step is one that repeats.
# Slow steps take turns, too: so many calls are waited for longer, as those five and one more.
_FEWEST_CALLS = 7
_LONGEST_OF_SLOW_S = 30.0
# A program that has done nothing but infer for so long is taken for one that never trains.
ONLY_INFERS_S = 60.0
# Keras' methods that make what is called for each batch, the attribute that holds it, and the step
# that it runs.
_KERAS = (
    ("make_train_function", "train_function", "train_step"),
    ("make_test_function", "test_function", "test_step"),
    ("make_predict_function", "predict_function", "predict_step"),
)
_KERAS_CALLS = frozenset(
    {"fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"}
)
_LOOPS = frozenset({"fit", "evaluate", "predict"})


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableAccess:
    """What a `tf.function` does to variables, which are told apart by the `id` of their handle.

    One that ``updates`` assigns trainable ones; one that ``differentiates`` has gradients, which it
    may add up in other variables for somebody else to update with.
    """

    reads: frozenset[Any]
    assigns: frozenset[Any]
    updates: bool
    differentiates: bool

    @property
    def trains(self) -> bool:
        """Whether it is part of a training step."""
        return self.updates or (self.differentiates and bool(self.assigns))


@dataclass(slots=True, kw_only=True)
class Step:
    """A step that the program called: of a Keras model, a `tf.function`, or fetches of a session.

    ``call`` is what the user calls it: ``model.fit``, the function's name, ``Session.run``.
    ``target`` is the model, the `tf.function`, or the session. ``run`` runs the step on what it was
    given, of a function its arguments.
    ``calls`` include the one that is under way. ``batches`` are the last ones that it was given, of
    a session what was fed and drawn. ``seconds`` are what each call took, ``dataset`` is what `fit`
    was given, if it is one.
    """

    call: str
    target: Any
    run: Any
    trains: bool
    is_loop: bool = False
    where: SourceLine | None = None
    touches: VariableAccess | None = None
    dataset: Any | None = None
    batches: deque[Any] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    calls: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """That of the model, else what the user calls it."""
        return str(getattr(self.target, "name", self.call))

    @property
    def names(self) -> tuple[str, ...]:
        """What a user may name it by: the call, the model, and where it was called first."""
        names = [self.call, self.name]
        if self.where is not None:
            names.append(self.where.name)
        return tuple(dict.fromkeys(names))

    @property
    def is_one_batch(self) -> bool:
        """Whether it is a `fit` of a single batch, or was stopped in its first."""
        return self.is_loop and self.calls == 1

    @property
    def total_s(self) -> float:
        """What it took in all; the first call also traces, and counts as the others did."""
        rest = self.seconds[1:] or self.seconds
        return self.calls * sum(rest) / max(1, len(rest))


class Capture:
    """What is seen of a program. ``stop`` is called within the step that is analysed."""

    def __init__(
        self,
        is_users: Callable[[str], bool],
        stop: Callable[[Capture], None],
        wanted: str | None = None,
    ) -> None:
        """Begin with nothing; ``is_users`` tells files of the program from installed ones.

        ``wanted`` names the step to wait for; None waits for those that train.
        """
        self.steps: dict[Any, Step] = {}
        self.strategies: list[tuple[str, SourceLine | None]] = []
        self._is_users = functools.cache(is_users)  # It asks the disk.
        self._stop = stop
        self._wanted = wanted
        self.order: list[Step] = []
        # When the newest of the training steps was done for the first time, and the calls before.
        self._newest_s: float | None = None
        self._calls_before = 0
        self._infers_s: float | None = None  # When the first other step was.
        self._lock = threading.RLock()
        self._within = threading.local()  # Its `step`: whether a thread is within a step.
        self._is_over = False
        self._undo: list[tuple[Any, str, Any, Any]] = []
        self._fitted: Any | None = None
        self._runs = session_step.Runs()
        self._recording = Recording(self._is_users)
        # What is hooked here stays so in copies of the process, in which nothing is seen.
        self._process = os.getpid()

    def chosen(self) -> Step | None:
        """Return the step to analyse: that asked for, else the dearest; None if none was seen.

        A step that trains goes before all that do not, and a `fit` of one batch behind all others.
        """
        steps = [step for step in self.steps.values() if self._wanted in (None, *step.names)]
        training = [step for step in steps if step.trains]
        repeated = [step for step in training if not step.is_one_batch]
        return max(repeated or training or steps, key=lambda step: step.total_s, default=None)

    @contextmanager
    def watching(self, *, steps: bool = True) -> Iterator[None]:
        """Hook what the program calls, until the block or the program is left.

        Without ``steps`` strategies give way, and nothing else is seen.
        """
        self._is_over = not steps
        self._hook_strategies()
        if steps:
            self._hook_steps()
        try:
            yield
        finally:
            self.unhook()

    def end(self) -> None:
        """Have a step of a session analysed, for good, whose program has ended by itself."""
        self._keep_widest_loop()
        step = self.chosen()
        if step is not None and isinstance(step.target, SessionRun):
            self._stand_still()

    def _keep_widest_loop(self) -> None:
        """Have the gradients of one turn, as those of a GAN, be those of one step."""
        turned = [step.target for step in self.steps.values() if isinstance(step.target, EagerLoop)]
        widest = max(turned, key=lambda loop: len(loop.step), default=None)
        for key, step in list(self.steps.items()):
            loop = step.target
            if isinstance(loop, EagerLoop):
                is_part = loop is not widest and self._wanted is None
                if is_part or not loop.step:
                    del self.steps[key]

    def _put(self, owner: Any, name: str, value: Any) -> None:
        self._undo.append((owner, name, getattr(owner, name), value))
        setattr(owner, name, value)

    def _hook(self, owner: Any, name: str, hook: Callable[..., Any]) -> None:
        """Have a hook called in place of a function: with that, and with its arguments."""
        original = getattr(owner, name)

        @functools.wraps(original, updated=())  # TensorFlow would look behind its own decorators.
        def hooked(*args: Any, **kwargs: Any) -> Any:
            return hook(original, *args, **kwargs)

        self._put(owner, name, hooked)

    def _hook_steps(self) -> None:
        for make, attribute, step in _KERAS:
            self._hook(keras.Model, make, functools.partial(self._keras_made, attribute, step))
        self._hook(keras.Model, "fit", self._fit)
        self._hook(FUNCTION, "__call__", self._function_call)
        self._hook(tf.GradientTape, "gradient", self._gradient)
        self._hook(SESSION, "run", self._session_run)
        self._hook(SESSION, "close", self._session_closed)
        self._hook(SESSION, "__init__", self._session_made)
        # The package and its attribute are two modules.
        for module in (tf.compat.v1, importlib.import_module("tensorflow.compat.v1")):
            for name in ("disable_v2_behavior", "disable_resource_variables"):
                self._hook(module, name, _disabled)

    def unhook(self) -> None:
        """Put back what was hooked."""
        self._is_over = True
        self._recording.end()
        while self._undo:
            owner, name, before, ours = self._undo.pop()
            if getattr(owner, name, None) is ours:  # Else somebody has put their own in its place.
                setattr(owner, name, before)

    def _keras_made(
        self, attribute: str, step: str, original: Any, model: Any, force: bool = False
    ) -> Any:
        made = original(model, force=force)
        inner = getattr(model, attribute)
        if not getattr(inner, "is_watched", False):
            key = object()  # A model that is compiled again has another step.

            def watched(given: Any) -> Any:
                return self._keras_call(key, model, step, inner, given)

            watched.is_watched = True  # type: ignore[attr-defined]
            setattr(model, attribute, watched)  # To be undone, it would have to be kept.
        return made

    def _fit(self, original: Any, model: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        self._fitted = x if isinstance(x, tf.data.Dataset) else None
        return original(model, x, *args, **kwargs)

    def _keras_call(self, key: object, model: Any, step: str, inner: Any, given: Any) -> Any:
        if self._is_elsewhere():
            return inner(given)
        if step == "predict_step":
            batches = list(given)
        else:
            batches = taken(given, model.steps_per_execution)
            given = iter(batches)

        def first() -> Step:
            call, where = self._called_from()
            name = call or step
            return Step(
                call=f"model.{name}",
                target=model,
                run=getattr(model, step),
                trains=step == "train_step",
                is_loop=name in _LOOPS,
                where=where,
                dataset=self._fitted if name == "fit" else None,
            )

        with self._seen(key, first, batches):
            return inner(given)

    def _function_call(self, original: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self._is_elsewhere() or not tf.executing_eagerly():
            return original(function, *args, **kwargs)
        if has_iterator((args, kwargs)):
            try:
                args, kwargs = tf.nest.map_structure(_with_batch, (args, kwargs))
            except StopIteration:  # The function says so in its own way.
                return original(function, *args, **kwargs)
        known = self.steps.get(id(function))
        step = known or Step(
            call=function_name(function),
            target=function,
            run=called(function.python_function),
            trains=False,
            where=self._called_from()[1],
        )
        with self._seen(id(function), lambda: step, [(args, kwargs)]):
            returned = original(function, *args, **kwargs)
        if known is None and not tf.config.functions_run_eagerly():
            step.touches = _touches(function, args, kwargs)
            step.trains = step.touches.trains
        return returned

    def _gradient(
        self, original: Any, tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if self._is_elsewhere() or not tf.executing_eagerly():
            return original(tape, target, sources, *args, **kwargs)
        loop = self._recording.turned(tape, sources)
        if loop is not None:

            def first() -> Step:
                return Step(
                    call="op-by-op loop", target=loop, run=None, trains=True, where=loop.where
                )

            step, now_s = self._begun(id(loop), first, [()])
            self._ended(step, now_s - loop.turn_s)  # The turn that is done.
        with self._recording.differentiating():
            return original(tape, target, sources, *args, **kwargs)

    def _session_run(
        self,
        original: Any,
        session: Any,
        fetches: Any,
        feed_dict: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if self._is_elsewhere():
            return original(session, fetches, feed_dict, *args, **kwargs)

        def own(fetches: Any = fetches, feeds: Any = feed_dict) -> Any:
            return original(session, fetches, feeds, *args, **kwargs)

        feeds = feed_dict or {}
        try:
            key, step = self._runs.told(session, fetches, feeds)
        except (TypeError, ValueError, KeyError):  # The session says what is wrong with it.
            return self._other_run(session, own)
        return self._session_call(key, session, step, fetches, feeds, own)

    def _other_run(self, session: Any, own: Callable[[], Any]) -> Any:
        """Return what a run of a session returns that nobody knows anything of."""
        return own()

    def _session_call(
        self,
        key: Any,
        session: Any,
        step: session_step.Fetched,
        fetches: Any,
        feeds: Any,
        own: Callable[..., Any],
    ) -> Any:
        """Return what a run of a session returns; ``own`` runs it, or other fetches and feeds."""
        if step.prepares:
            return own()

        def first() -> Step:
            return Step(
                call="Session.run",
                target=SessionRun(session, step),
                run=None,
                trains=step.trains,
                where=self._called_from()[1],
            )

        # No context manager here: a step may be so short that it would be seen.
        noted, began_s = self._begun(key, first, () if step.drawn else ((dict(feeds), ()),))
        try:
            if not step.drawn:
                return own()
            # In one run, so that no batch is lost.
            returned, values = own([fetches, list(step.drawn)])
            noted.batches.append((dict(feeds), values))
            return returned
        finally:
            self._ended(noted, began_s)

    def _session_closed(self, original: Any, session: Any) -> None:
        if not self._is_elsewhere():
            for step in self.steps.values():
                if isinstance(step.target, SessionRun) and step.target.session is session:
                    step.target.read()
        original(session)

    def _session_made(
        self, original: Any, session: Any, target: Any = "", graph: Any = None, config: Any = None
    ) -> None:
        ours = tf.compat.v1.ConfigProto()
        if config is not None:
            ours.CopyFrom(config)
        self._configure(ours)
        original(session, target, graph, ours)

    def _configure(self, config: Any) -> None:
        """Have a session take devices that this machine need not have."""
        config.allow_soft_placement = True

    def _hook_strategies(self) -> None:
        def note(name: str) -> None:
            self.strategies.append((name, self._called_from()[1]))
            self._given_way(name)

        base = tf.distribute.Strategy
        for owner in (tf.distribute, tf.distribute.experimental):
            for name, kind in [*vars(owner).items()]:
                if isinstance(kind, type) and issubclass(kind, base) and kind is not base:
                    noted = functools.partial(note, name)
                    self._put(owner, name, one_replica_in_place_of(kind, noted))

    def _given_way(self, strategy: str) -> None:
        """Do what there is to do where a strategy has given way to one replica."""

    def _is_elsewhere(self) -> bool:
        """Whether a call is none of the program's own: within a step, in a copy, or afterwards."""
        is_within = getattr(self._within, "step", False)
        return self._is_over or is_within or os.getpid() != self._process

    @contextmanager
    def _seen(self, key: Any, make: Callable[[], Step], batches: Sequence[Any]) -> Iterator[None]:
        """Note a call; does not return where it is the last one."""
        step, began_s = self._begun(key, make, batches)
        try:
            yield
        finally:
            self._ended(step, began_s)

    def _begun(
        self, key: Any, make: Callable[[], Step], batches: Sequence[Any]
    ) -> tuple[Step, float]:
        """Return the step that begins and when; does not return where it is the last call.

        Nothing is seen until it has ended.
        """
        with self._lock:
            step = self.steps.get(key)
            if step is None:
                step = self.steps[key] = make()
            step.calls += 1
            step.batches.extend(batches)
            self.order.append(step)
            now_s = time.monotonic()
            if self._is_enough(step, now_s):
                self._stand_still()
        self._within.step = True
        return step, now_s

    def _ended(self, step: Step, began_s: float) -> None:
        self._within.step = False
        now_s = time.monotonic()
        step.seconds.append(now_s - began_s)
        if self._infers_s is None:
            self._infers_s = now_s
        if step.trains and len(step.seconds) == 1:
            self._newest_s, self._calls_before = now_s, len(self.order)

    def _stand_still(self) -> None:
        """Have the step analysed from here, for good."""
        self._keep_widest_loop()
        step = self.chosen()
        assert step is not None
        self.unhook()
        _stop_started()
        if not isinstance(step.target, SessionRun):
            self._stop(self)
        step.target.read()
        # Eager execution cannot be switched on in a thread whose graph is in use.
        threading.Thread(target=self._stop_eagerly).start()
        threading.Event().wait()

    def _stop_eagerly(self) -> None:
        tf.compat.v1.enable_v2_behavior()
        self._stop(self)

    def _is_enough(self, step: Step, now_s: float) -> bool:
        if self._wanted is not None:
            return self._wanted in step.names and step.calls > 1
        if not step.trains:
            only_infers = self._infers_s is not None and now_s - self._infers_s > ONLY_INFERS_S
            return only_infers and not any(each.trains for each in self.steps.values())
        if step.calls == 1:
            return False
        if step.is_loop or (step.calls == _AGAIN and self._have_all_turned()):
            return True
        calls = len(self.order) - self._calls_before
        waited_s = now_s - (self._newest_s or now_s)
        longest_s = _LONGEST_S if calls > _FEWEST_CALLS else _LONGEST_OF_SLOW_S
        return calls > _MOST_CALLS or waited_s > longest_s

    def _have_all_turned(self) -> bool:
        """Whether several training steps take turns, each of which was called again."""
        training = [each for each in self.steps.values() if each.trains]
        return len(training) > 1 and all(each.calls > 1 for each in training)

    def _called_from(self) -> tuple[str, SourceLine | None]:
        """Return the method of Keras that the user's code has called, and the line that did."""
        frame: FrameType | None = sys._getframe(1)
        called = ""
        while frame is not None:
            if self._is_users(frame.f_code.co_filename):
                return called, SourceLine(frame.f_code.co_filename, frame.f_lineno)
            if frame.f_code.co_name in _KERAS_CALLS:
                called = frame.f_code.co_name
            frame = frame.f_back
        return called, None


class SessionRun:
    """A run of a session, and what variables hold: it is `read` while the session is open."""

    def __init__(self, session: Any, step: session_step.Fetched) -> None:
        self.session, self.step = session, step
        self.variables: list[session_step.SessionVariable] | None = None

    def run(self, fetches: Any) -> Any:
        """Return what the session returns, unseen."""
        return _RUN(self.session, fetches)

    def read(self) -> None:
        """Keep what variables hold, unless the session was closed: then that is known."""
        if self.variables is None:
            self.variables = session_step.session_variables(self.run, self.step)


def _disabled(disable: Any) -> None:
    """Switch to TF1, but leave variables of TF2: others cannot be placed anew."""
    disable()
    tf.compat.v1.enable_resource_variables()


def _stop_started() -> None:
    """Have the processes that the program has started stand still, too: they end with this one."""
    for path in Path("/proc/self/task").glob("*/children"):
        for pid in path.read_text(encoding="ascii").split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGSTOP)


def function_name(function: Any) -> str:
    """Return what the user calls a `tf.function`."""
    return getattr(function, "__name__", None) or type(function).__name__


def called(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a function as one of its positional and its keyword arguments."""

    def run(given: Any) -> Any:
        args, kwargs = given
        return function(*args, **kwargs)

    return run


def taken(iterator: Any, count: int) -> list[Any]:
    """Return the next batches of an iterator, at most ``count``.

    Raises:
        StopIteration: there is none.
    """
    batches = []
    for _ in range(count):
        try:
            batches.append(next(iterator))
        except (StopIteration, tf.errors.OutOfRangeError):
            break
    if not batches:
        raise StopIteration
    return batches


def has_iterator(given: Any) -> bool:
    """Say whether there are iterators among arguments, of which a function takes the next batch."""
    return any(isinstance(each, tf.data.Iterator) for each in tf.nest.flatten(given))


def _with_batch(value: Any) -> Any:
    return Again(next(value)) if isinstance(value, tf.data.Iterator) else value


class Again:
    """An iterator over one batch, again and again: what a step that takes the next one is given."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __iter__(self) -> Again:
        return self

    def __next__(self) -> Any:
        return self.batch

    get_next = __next__


def _touches(function: Any, args: Any, kwargs: Any) -> VariableAccess:
    """Return what a call of a function does to variables; it was traced before."""
    graph = function.get_concrete_function(*args, **kwargs).graph
    bodies = [node for each in graph.as_graph_def().library.function for node in each.node_def]
    outer = {id(inner): id(outer) for outer, inner in graph.captures}
    ops = graph.get_operations()
    assigning = [op for op in ops if op.type.startswith(UPDATE_KINDS)]
    if any(node.op.startswith(UPDATE_KINDS) for node in bodies):  # Within a loop or conditional.
        assigned = {id(variable.handle) for variable in graph.variables}
    else:
        assigned = {outer[id(op.inputs[0])] for op in assigning if id(op.inputs[0]) in outer}
    trainable = {id(variable.handle) for variable in graph.variables if variable.trainable}
    return VariableAccess(
        reads=frozenset(outer.values()),
        assigns=frozenset(assigned),
        updates=bool(assigned & trainable),
        differentiates=any("gradient_tape/" in op.name or "gradients/" in op.name for op in ops),
    )
