"""What a public example script finds in place of the network: data sets of the same shape.

Python imports this first where its folder is on PYTHONPATH. Modules are changed once they are
imported: Keras' data sets are drawn, what is fetched from an address is made here, and nothing is
plotted by Graphviz. What is not made here, such as weights, is an error that names its address.

With PUBLIC_SCRIPTS_STOP in the environment a program ends at the second call of a step of `fit`.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_STOPS = "PUBLIC_SCRIPTS_STOP" in os.environ


class _Changed:
    """Finds the modules that are changed, each by a function that is given it."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        change = _CHANGES.get(name)
        if change is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _keras_images(
    count: int, shape: tuple[int, ...], labels: tuple[int, ...], classes: int
) -> Callable[[ModuleType], None]:
    """Have a module load images of bytes, for training and for tests."""

    def change(module: ModuleType) -> None:
        def load_data(label_mode: str = "fine") -> Any:
            import public_sets

            return tuple(
                public_sets.images(each, shape, labels, classes) for each in (count, 10_000)
            )

        module.load_data = load_data  # type: ignore[attr-defined]

    return change


def _imdb(module: ModuleType) -> None:
    def load_data(path: str = "imdb.npz", num_words: int = 88_584, **_: Any) -> Any:
        import public_sets

        return public_sets.word_lists(num_words), public_sets.word_lists(num_words)

    module.load_data = load_data  # type: ignore[attr-defined]


def _fetched(module: ModuleType) -> None:
    original = module.get_file  # type: ignore[attr-defined]

    def get_file(fname: str | None = None, origin: str | None = None, **asked: Any) -> Any:
        import public_sets

        for check in ("md5_hash", "file_hash"):
            asked.pop(check, None)
        made = public_sets.fetched(str(origin))
        return original(fname or str(origin).rpartition("/")[2], made.as_uri(), **asked)

    module.get_file = get_file  # type: ignore[attr-defined]


def _tables(module: ModuleType) -> None:
    original = module.read_csv  # type: ignore[attr-defined]

    def read_csv(path: Any, *args: Any, **kwargs: Any) -> Any:
        import public_sets

        if str(path).startswith("http"):
            path = public_sets.fetched(str(path))
        return original(path, *args, **kwargs)

    module.read_csv = read_csv  # type: ignore[attr-defined]


def _texts(module: ModuleType) -> None:
    original = module.text_dataset_from_directory  # type: ignore[attr-defined]

    def text_dataset_from_directory(directory: Any, *args: Any, **kwargs: Any) -> Any:
        import public_sets

        public_sets.lay_texts(directory)
        return original(directory, *args, **kwargs)

    module.text_dataset_from_directory = text_dataset_from_directory  # type: ignore[attr-defined]


def _records(module: ModuleType) -> None:
    original = module.data.TFRecordDataset  # type: ignore[attr-defined]

    def records(names: Any, *args: Any, **kwargs: Any) -> Any:
        import public_sets

        if "ChestXRay2017" in str(names):
            return public_sets.x_rays(str(names))
        return original(names, *args, **kwargs)

    module.data.TFRecordDataset = records  # type: ignore[attr-defined]


def _plots_nothing(module: ModuleType) -> None:
    module.plot_model = lambda *_, **__: None  # type: ignore[attr-defined]


def _stops(module: ModuleType) -> None:
    trainer = module.TensorFlowTrainer  # type: ignore[attr-defined]
    original = trainer.make_train_function

    def make_train_function(model: Any, force: bool = False) -> None:
        original(model, force)
        step = model.train_function
        if getattr(step, "is_counted", False):
            return
        calls = 0

        def counted(given: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 2:
                os._exit(0)
            return step(given)

        counted.is_counted = True  # type: ignore[attr-defined]
        model.train_function = counted

    trainer.make_train_function = make_train_function


_CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "keras.src.datasets.mnist": _keras_images(60_000, (28, 28), (), 10),
    "keras.src.datasets.fashion_mnist": _keras_images(60_000, (28, 28), (), 10),
    "keras.src.datasets.cifar10": _keras_images(50_000, (32, 32, 3), (1,), 10),
    "keras.src.datasets.cifar100": _keras_images(50_000, (32, 32, 3), (1,), 100),
    "keras.src.datasets.imdb": _imdb,
    "keras.src.utils.file_utils": _fetched,
    "keras.src.utils.model_visualization": _plots_nothing,
    "keras.src.utils.text_dataset_utils": _texts,
    "pandas": _tables,
    "tensorflow": _records,
}
if _STOPS:
    _CHANGES["keras.src.backend.tensorflow.trainer"] = _stops
sys.meta_path.insert(0, _Changed)
