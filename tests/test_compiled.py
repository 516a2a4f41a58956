import pickle
import sys
from pathlib import Path

import numba
import pytest
from program_runs import run_program
from real_runs import needs_mounts

MODULE = """
from placement_advisor.compiled import compiled

@compiled()
def doubled(value):
    return 2 * value
"""
CALL = "import sys; sys.path.insert(0, {folder!r}); import of_ours; print(of_ours.doubled(21))"
SETTINGS = ".numba_config.yaml"


@pytest.fixture
def folder(tmp_path):
    """A folder with a module that has a compiled function, out of the current folder."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "of_ours.py").write_text(MODULE)
    (tmp_path / "checkout").mkdir()
    return tmp_path


def called(folder, mounts=None, **variables):
    """Call the function with the untrusted checkout as current folder; return what is printed."""
    call = [sys.executable, "-c", CALL.format(folder=str(folder / "lib"))]
    if mounts is not None:
        call = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "-", *call]
    done = run_program(*call, cwd=folder / "checkout", env=variables)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


class VariableAccess:
    """Unpickled, it writes a file: code that came as data."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_cache_that_a_file_of_settings_names_is_not_unpickled(folder):
    planted, ran = folder / "checkout" / "planted", folder / "ran"
    called(folder, NUMBA_CACHE_DIR=str(planted))
    indices = list(planted.rglob("*.nbi"))
    assert indices
    for index in indices:
        index.write_bytes(pickle.dumps(numba.__version__) + pickle.dumps(VariableAccess(ran)))
    (folder / "checkout" / SETTINGS).write_text("cache_dir: planted\n")
    assert called(folder) == "42\n"
    assert not ran.exists()


def test_the_trap_works_for_numba_alone(folder):
    module = folder / "lib" / "of_ours.py"
    module.write_text(f"from numba import njit\n{MODULE}".replace("compiled()", "njit(cache=True)"))
    (folder / "checkout" / SETTINGS).write_text("cache_dir: planted\n")
    assert called(folder) == "42\n"
    assert list((folder / "checkout" / "planted").rglob("*.nbi"))


def test_settings_in_the_environment_are_the_users_own(folder):
    chosen = folder / "chosen"
    assert called(folder, NUMBA_CACHE_DIR=str(chosen)) == "42\n"
    assert list(chosen.rglob("*.nbc"))


@needs_mounts
def test_where_nothing_can_be_written_each_process_compiles_anew(folder):
    library = folder / "lib"
    read_only = f"mount --bind -o ro {library} {library}"
    nowhere = {"HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none"}
    assert called(folder, read_only, **nowhere) == "42\n"


@needs_mounts
def test_without_a_home_no_cache_is_taken_from_the_current_folder(folder):
    library = folder / "lib"
    alone = (
        f"mount --bind -o ro {library} {library} && unset HOME XDG_CACHE_HOME && "
        'set -- unshare --user --map-user=12345 "$@"'
    )
    assert called(folder, alone) == "42\n"
    assert list((folder / "checkout").iterdir()) == []


@needs_mounts
def test_a_full_disk_costs_the_cache_and_nothing_else(folder):
    cache = folder / "cache"
    cache.mkdir()
    # Folders can still be made there, and files, but nothing can be written into them.
    full = f"mount -t tmpfs -o size=4k tmpfs {cache} && head -c 4096 /dev/zero > {cache}/filler"
    assert called(folder, full, NUMBA_CACHE_DIR=str(cache)) == "42\n"
