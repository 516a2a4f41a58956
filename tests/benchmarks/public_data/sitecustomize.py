"""What a public example script finds in place of the network: data sets of the same shape.

Python imports this first where its folder is on PYTHONPATH. Modules are changed once they are
imported: Keras' data sets are drawn, what is fetched from an address is made here, and nothing is
plotted by Graphviz. What is not made here, such as weights, is an error that names its address.

With PUBLIC_SCRIPTS_STOP in the environment a program ends at the second call of a step of `fit`.
"""

import os
import sys
from importlib.machinery import PathFinder
from itertools import count


class _Changed:
    """Finds the modules that are changed, each by a function that is given it."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        change = _CHANGES.get(name)
        if change is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


def _sets():
    import public_sets  # Once it is needed: it takes NumPy.

    return public_sets


def _puts(name, make):
    """Return a change that puts something in the place of a function: what is made of it."""

    def change(module):
        setattr(module, name, make(getattr(module, name)))

    return change


def _images(count, *kind):
    """Have a module load images of bytes, for training and for tests."""

    def load_data(label_mode="fine"):
        return tuple(_sets().images(each, *kind) for each in (count, 10_000))

    return _puts("load_data", lambda _: load_data)


def _word_lists(_):
    def load_data(path="imdb.npz", num_words=88_584, **_):
        return _sets().word_lists(num_words), _sets().word_lists(num_words)

    return load_data


def _fetched(original):
    def get_file(fname=None, origin=None, **asked):
        for check in ("md5_hash", "file_hash"):
            asked.pop(check, None)
        made = _sets().fetched(str(origin))
        return original(fname or str(origin).rpartition("/")[2], made.as_uri(), **asked)

    return get_file


def _tables(original):
    def read_csv(path, *args, **kwargs):
        if str(path).startswith("http"):
            path = _sets().fetched(str(path))
        return original(path, *args, **kwargs)

    return read_csv


def _texts(original):
    def text_dataset_from_directory(directory, *args, **kwargs):
        _sets().lay_texts(directory)
        return original(directory, *args, **kwargs)

    return text_dataset_from_directory


def _records(original):
    def records(names, *args, **kwargs):
        if "ChestXRay2017" in str(names):
            return _sets().x_rays(str(names))
        return original(names, *args, **kwargs)

    return records


def _stops(original):
    def make_train_function(model, force=False):
        original(model, force)
        step = model.train_function
        if getattr(step, "is_counted", False):
            return
        calls = count(1)

        def counted(given):
            if next(calls) == 2:
                os._exit(0)
            return step(given)

        counted.is_counted = True
        model.train_function = counted

    return make_train_function


_CHANGES = {
    "keras.src.datasets.mnist": _images(60_000, (28, 28), (), 10),
    "keras.src.datasets.fashion_mnist": _images(60_000, (28, 28), (), 10),
    "keras.src.datasets.cifar10": _images(50_000, (32, 32, 3), (1,), 10),
    "keras.src.datasets.cifar100": _images(50_000, (32, 32, 3), (1,), 100),
    "keras.src.datasets.imdb": _puts("load_data", _word_lists),
    "keras.src.utils.file_utils": _puts("get_file", _fetched),
    "keras.src.utils.model_visualization": _puts("plot_model", lambda _: lambda *_, **__: None),
    "keras.src.utils.text_dataset_utils": _puts("text_dataset_from_directory", _texts),
    "pandas": _puts("read_csv", _tables),
    "tensorflow": lambda module: _puts("TFRecordDataset", _records)(module.data),
}
if "PUBLIC_SCRIPTS_STOP" in os.environ:
    stops = _puts("make_train_function", _stops)
    _CHANGES["keras.src.backend.tensorflow.trainer"] = lambda m: stops(m.TensorFlowTrainer)
sys.meta_path.insert(0, _Changed)
