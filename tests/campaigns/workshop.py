"""Tests run on mutants: on a copy of package and tests, one process for each mutant.

The processes are forked from one that has imported what the tests import, but nothing of the
package: a mutant costs what its tests take, and half a second. A mutant is *killed* when a test
fails, cannot be collected, or takes four times the processor's time of the whole. Tests in the file
that is named for the module come first. What numba compiled is kept for unchanged modules, and done
anew in a folder of its own where the mutant is of a module with compiled functions.
"""

import importlib
import os
import pickle
import resource
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from mutation import PACKAGE, ROOT

_COPIED = (PACKAGE, "tests")
# Of the root: what is never of use there, or not to be written to by a changed program.
_LEFT_OUT = frozenset({".git", ".venv", ".hypothesis", ".pytest_cache", *_COPIED})
_PATIENCE = 4
_LEAST_CPU_S = 30
_MOST_CPU_S = 600
_MEMORY_BYTES = 8 * 2**30
_FAILED, _INTERRUPTED, _MISUSED = 1, 2, 4
# What pytest takes for a mistake of its caller's is one of the mutant's here.
_NOT_IMPORTED = "ImportError while loading conftest"


class Workshop:
    """A copy of package and tests, in which one module at a time is changed.

    ``tests`` are the arguments for pytest; they have to pass on the copy as it is.

    Raises:
        RuntimeError: they do not.
    """

    def __init__(self, folder, tests):
        self._folder, self._tests = folder, tuple(tests)
        ignore = shutil.ignore_patterns(".hypothesis", ".pytest_cache")
        for each in ROOT.iterdir():
            if each.name in _COPIED:
                # With times, by which what was compiled is known to be still true.
                shutil.copytree(each, folder / each.name, ignore=ignore)
            elif each.is_file():
                shutil.copy2(each, folder)
            elif each.name not in _LEFT_OUT:
                (folder / each.name).symlink_to(each)
        whole = self._run(_MOST_CPU_S, self._folder, keeps_bytecode=True)
        if whole["code"]:
            raise RuntimeError(f"the tests do not pass as they are:\n{self._printed()}")
        self._limit_s = round(max(_LEAST_CPU_S, _PATIENCE * whole["cpu_s"]))
        for name in whole["imported"]:
            importlib.import_module(name)

    def outcome(self, mutant):
        """Run the tests on a mutant; return what noticed it, None if all passed, and the time.

        Raises:
            RuntimeError: pytest had nothing to run, or did not understand what it was to run.
        """
        path = self._folder / PACKAGE / mutant.module
        compiled = path.parent / "__pycache__"
        for bytecode in compiled.glob(f"{path.stem}.*.pyc"):
            bytecode.unlink()
        kept = path.rename(path.with_suffix(".kept"))
        path.write_text(mutant.changed, encoding="utf-8")
        try:
            with tempfile.TemporaryDirectory() as own:
                has_numba = "@compiled(" in mutant.source
                ran = self._run(self._limit_s, Path(own), first=path.stem, compiles_anew=has_numba)
        finally:
            kept.replace(path)
        is_imported = ran["code"] != _MISUSED or _NOT_IMPORTED not in self._printed()
        if is_imported and ran["code"] not in (0, _FAILED, _INTERRUPTED):
            code = ran["code"]
            raise RuntimeError(f"{mutant.name}: pytest ended with {code}:\n{self._printed()}")
        killed_by = (ran["failed"] or "it cannot be imported") if ran["code"] else None
        return {"killed_by": killed_by, "cpu_s": ran["cpu_s"]}

    def _run(self, limit_s, own, *, first="", keeps_bytecode=False, compiles_anew=False):
        """Run the tests in a forked process, and return what is known of them then."""
        answer = own / "answer.pickle"
        child = os.fork()
        if not child:
            try:
                self._be_child(limit_s, own, answer, first, keeps_bytecode, compiles_anew)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        _, status, usage = os.wait4(child, 0)
        ran = {"code": _FAILED, "failed": "it does not end", "imported": ()}
        if answer.exists():
            ran = pickle.loads(answer.read_bytes())
            answer.unlink()
        elif not os.WIFSIGNALED(status):
            raise RuntimeError(f"the tests ended without an answer:\n{self._printed()}")
        ran["cpu_s"] = usage.ru_utime + usage.ru_stime
        return ran

    def _be_child(self, limit_s, own, answer, first, keeps_bytecode, compiles_anew):
        os.setpgid(0, 0)
        output = os.open(self._folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(self._folder)
        os.environ["PYTHONPATH"] = str(self._folder)
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(own / "hypothesis")
        sys.dont_write_bytecode = not keeps_bytecode
        if compiles_anew:
            import numba

            numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"] = str(own / "numba")

        def is_ours(place):
            return any(Path(place).is_relative_to(ROOT / name) for name in _COPIED)

        elsewhere = [place for place in sys.path if Path(place) != ROOT and not is_ours(place)]
        sys.path[:] = [str(self._folder), *elsewhere]
        # Tests' helpers as well: they hold on to what they have imported of the package.
        for name, module in list(sys.modules.items()):
            if name == "__main__":  # The campaign itself; whatever runs has one.
                continue
            if name.split(".")[0] == PACKAGE or is_ours(getattr(module, "__file__", None) or ""):
                del sys.modules[name]
        before = set(sys.modules)
        import pytest

        watch = _Watch(first)
        words = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-o", "timeout=0"]
        words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        code = pytest.main([*words, *self._tests], plugins=[watch])
        package = sys.modules[PACKAGE]
        assert Path(package.__file__ or "").is_relative_to(self._folder)
        imported = [n for n in sys.modules if n not in before and self._is_foreign(n)]
        found = {"code": int(code), "failed": watch.failed, "imported": imported}
        answer.write_bytes(pickle.dumps(found))
        os._exit(0)

    def _is_foreign(self, module):
        """Return whether a module that was imported is neither of the package nor of the tests."""
        spec = getattr(sys.modules[module], "__spec__", None)
        if spec is None or spec.name != module or not isinstance(spec.origin, str):
            return False
        return not Path(spec.origin).is_relative_to(self._folder) and module != PACKAGE

    def _printed(self):
        return (self._folder / "output.txt").read_text(errors="replace")[-3_000:]


class _Watch:
    """A plugin of pytest that remembers what failed first, and wants no smaller example of it.

    Tests in files with ``first`` in their name run first.
    """

    def __init__(self, first):
        self._first = first
        self.failed = ""

    def pytest_collection(self):
        """Keep Hypothesis from shrinking, which takes longer than all tests."""
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("unshrunk", settings.default, phases=phases)
        settings.load_profile("unshrunk")

    def pytest_collection_modifyitems(self, items):
        items.sort(key=lambda item: self._first not in item.path.stem)

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.failed:
            self.failed = report.nodeid
