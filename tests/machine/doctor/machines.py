"""Facts of machines, written by hand."""

from dataclasses import replace

from placement_advisor.machine.machine_facts import CopyTime, Facts, KeptFigures, Package, Unmet
from placement_advisor.machine.nvidia import Connection, Gpu, GpuPair, Gpus
from placement_advisor.machine.this_machine import Cores, OtherWork

HOUR_NS = 3_600 * 10**9

KEPT = KeptFigures(
    testbed="workers",
    devices=("worker:0", "worker:1"),
    age_ns=3 * 24 * HOUR_NS,
    holds=True,
    small_copy=CopyTime(size_bytes=1_024, copy_ns=240_000),
    large_copy=CopyTime(size_bytes=4_194_304, copy_ns=3_100_000),
    step_overhead_ns=350_000,
    quantum_ns=4_000_000,
)

# Two cores, no GPU, everything in order.
LAPTOP = Facts(
    advisor_version="0.1.0",
    python_version="3.11.7",
    wanted_python=">=3.11,<3.14",
    packages=(
        Package(name="tensorflow", version="2.21.0", wanted="<2.22,>=2.21", unmet=()),
        Package(name="keras", version="3.15.1", wanted="<4,>=3.12", unmet=()),
        Package(name="xprof", version="2.24.2", wanted=None, unmet=()),
    ),
    has_profile_plugin=True,
    has_cuda_libraries=False,
    visible_gpus=0,
    gpus=Gpus(),
    has_sys_admin=False,
    cores=Cores(machine=2, allowed=2, physical=2, quota=None),
    load=OtherWork(cores=0.2),
    available_memory_bytes=20_000_000_000,
    has_private_network=True,
    calibrations=(KEPT,),
)


def pair(first, second, code, connection):
    return GpuPair(first=first, second=second, code=code, connection=connection)


# Four cards on two sockets, in a container in which everything is wrong that can be.
SERVER = replace(
    LAPTOP,
    python_version="3.14.0",
    packages=(
        Package(name="tensorflow", version=None, wanted="<2.22,>=2.21", unmet=()),
        Package(name="tensorboard", version=None, wanted="<2.22,>=2.21", unmet=()),
        Package(
            name="protobuf",
            version="8.1.0",
            wanted=">=6.31",
            unmet=(Unmet(by="tensorflow", wanted="<8.0.0,>=6.31.1"),),
        ),
    ),
    has_profile_plugin=False,
    visible_gpus=2,
    gpus=Gpus(
        devices=tuple(
            Gpu(index=i, name="Tesla V100-SXM2-16GB", memory_bytes=17_179_869_184) for i in range(4)
        ),
        driver="535.104.05",
        pairs=(
            pair(0, 1, "NV12", Connection.NVLINK),
            pair(0, 2, "SYS", Connection.SOCKETS),
            pair(0, 3, "SYS", Connection.SOCKETS),
            pair(1, 2, "PHB", Connection.PCIE),
            pair(1, 3, "C2C", None),
            pair(2, 3, "NV12", Connection.NVLINK),
        ),
        admins_profile=True,
    ),
    cores=Cores(machine=64, allowed=16, physical=8, quota=1),
    load=OtherWork(cores=7.5, busiest="make (process 4711, 98% of a core)"),
    available_memory_bytes=300_000_000,
    has_private_network=False,
    calibrations=(replace(KEPT, holds=False), replace(KEPT, holds=False, age_ns=9 * 24 * HOUR_NS)),
)
