"""What a public example script finds in place of the network: data sets of the same shape.

Python imports this first where its folder is on PYTHONPATH. Modules are changed once they are
imported: Keras' data sets are drawn, what is fetched from an address is made here, and nothing is
plotted by Graphviz. What is not made here, such as weights, is an error that names its address.

With PUBLIC_SCRIPTS_STOP in the environment a program ends at the second call of a step of `fit`.
"""

import os
import sys
from importlib.machinery import PathFinder

_STOPS = "PUBLIC_SCRIPTS_STOP" in os.environ


class _Changed:
    """Finds the modules that are changed, each by a function that is given it."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        change = _CHANGES.get(name)
        if change is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


def _keras_images(count, shape, labels, classes):
    """Have a module load images of bytes, for training and for tests."""

    def change(module):
        def load_data(label_mode="fine"):
            import public_sets

            return tuple(
                public_sets.images(each, shape, labels, classes) for each in (count, 10_000)
            )

        module.load_data = load_data

    return change


def _imdb(module):
    def load_data(path="imdb.npz", num_words=88_584, **_):
        import public_sets

        return public_sets.word_lists(num_words), public_sets.word_lists(num_words)

    module.load_data = load_data


def _fetched(module):
    original = module.get_file

    def get_file(fname=None, origin=None, **asked):
        import public_sets

        for check in ("md5_hash", "file_hash"):
            asked.pop(check, None)
        made = public_sets.fetched(str(origin))
        return original(fname or str(origin).rpartition("/")[2], made.as_uri(), **asked)

    module.get_file = get_file


def _tables(module):
    original = module.read_csv

    def read_csv(path, *args, **kwargs):
        import public_sets

        if str(path).startswith("http"):
            path = public_sets.fetched(str(path))
        return original(path, *args, **kwargs)

    module.read_csv = read_csv


def _texts(module):
    original = module.text_dataset_from_directory

    def text_dataset_from_directory(directory, *args, **kwargs):
        import public_sets

        public_sets.lay_texts(directory)
        return original(directory, *args, **kwargs)

    module.text_dataset_from_directory = text_dataset_from_directory


def _records(module):
    original = module.data.TFRecordDataset

    def records(names, *args, **kwargs):
        import public_sets

        if "ChestXRay2017" in str(names):
            return public_sets.x_rays(str(names))
        return original(names, *args, **kwargs)

    module.data.TFRecordDataset = records


def _plots_nothing(module):
    module.plot_model = lambda *_, **__: None


def _stops(module):
    trainer = module.TensorFlowTrainer
    original = trainer.make_train_function

    def make_train_function(model, force=False):
        original(model, force)
        step = model.train_function
        if getattr(step, "is_counted", False):
            return
        calls = 0

        def counted(given):
            nonlocal calls
            calls += 1
            if calls == 2:
                os._exit(0)
            return step(given)

        counted.is_counted = True
        model.train_function = counted

    trainer.make_train_function = make_train_function


_CHANGES = {
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
