"""What NVIDIA's tools print, from samples written by hand: no GPU was here to record them on."""

import pytest

from placement_advisor.machine import nvidia
from placement_advisor.machine.nvidia import (
    PEER_ACCESS,
    Connection,
    Gpu,
    Gpus,
    common_memory,
    find_gpus,
    find_peer_access,
    parse_gpus,
    parse_params,
    parse_topology,
)

LIST = """\
0, Tesla V100-SXM2-16GB, 535.104.05, 16384
1, Tesla V100-SXM2-16GB, 535.104.05, 16384
"""

# Two pairs with NVLink, one pair for each socket; a network card stands among the columns.
FOUR = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tSYS\tSYS\tPXB\t0-31,64-95\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tSYS\tPXB\t0-31,64-95\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tNV12\tSYS\t32-63,96-127\t1\t\tN/A
GPU3\tSYS\tSYS\tNV12\t X \tSYS\t32-63,96-127\t1\t\tN/A
NIC0\tPXB\tPXB\tSYS\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""

TWO = """\
\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPHB\t0-7\tN/A
GPU1\tPHB\t X \t0-7\tN/A
"""

PARAMS = """\
ResmanDebugLevel: 4294967295
RmProfilingAdminOnly: 1
RegistryDwords: ""
"""


def test_cards_by_hand_with_commas_in_names_and_memory_that_is_not_known():
    gpus, driver = parse_gpus(LIST)
    assert driver == "535.104.05"
    assert gpus == tuple(
        Gpu(index=i, name="Tesla V100-SXM2-16GB", memory_bytes=16 * 1024**3) for i in range(2)
    )

    gpus, driver = parse_gpus("3, Some Card, Special Edition, 550.54, [N/A]\n")
    assert gpus == (Gpu(index=3, name="Some Card, Special Edition", memory_bytes=None),)
    assert driver == "550.54"
    assert parse_gpus("\n") == ((), None)


@pytest.mark.parametrize("answer", ["No devices were found\n", "x, Card, 5, 1\n", "0, Card\n"])
def test_an_answer_that_is_no_list_is_refused(answer):
    with pytest.raises(ValueError, match="it answered"):
        parse_gpus(answer)


def test_pairs_of_four_cards_on_two_sockets_also_of_a_matrix_that_is_cut_off():
    found = {(pair.first, pair.second): pair.connection for pair in parse_topology(FOUR)}
    across = dict.fromkeys([(0, 2), (0, 3), (1, 2), (1, 3)], Connection.SOCKETS)
    assert found == {(0, 1): Connection.NVLINK, **across, (2, 3): Connection.NVLINK}
    cut = parse_topology(FOUR.split("SYS\tSYS\t X")[0])
    assert {(pair.first, pair.second) for pair in cut} == {(0, 1), *across}


def test_one_card_has_no_pairs_and_a_text_without_a_matrix_is_refused():
    assert parse_topology("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n") == ()
    with pytest.raises(ValueError, match="no matrix"):
        parse_topology("Failed to initialize NVML\n")


@pytest.mark.parametrize(
    ("code", "connection"),
    [
        ("NV1", Connection.NVLINK),
        ("NV18", Connection.NVLINK),
        ("PHB", Connection.PCIE),
        ("PIX", Connection.PCIE),
        ("PXB", Connection.PCIE),
        ("NODE", Connection.PCIE),
        ("SYS", Connection.SOCKETS),
        ("C2C", None),
    ],
)
def test_every_code_has_its_meaning_and_an_unknown_one_none(code, connection):
    (pair,) = parse_topology(TWO.replace("PHB", code))
    assert (pair.code, pair.connection) == (code, connection)


def test_who_may_profile_is_a_line_of_the_parameters():
    assert parse_params(PARAMS) is True
    assert parse_params(PARAMS.replace("Only: 1", "Only: 0")) is False
    assert parse_params("ResmanDebugLevel: 1\n") is None


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Writes an nvidia-smi; nothing else is on the path but a shell's own commands."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(nvidia, "_PARAMS", tmp_path / "params")

    def write(script):
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o700)

    return write


def test_without_the_tool_nothing_is_known_and_nothing_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpus() == Gpus()
    assert find_peer_access() is None


def test_the_tool_is_asked_for_cards_and_for_pairs_that_it_may_not_know(tool, tmp_path):
    (tmp_path / "list").write_text(LIST)
    # Cards without a matrix are cards all the same.
    tool(f'case "$1" in topo) exit 3;; *) cat {tmp_path}/list;; esac')
    found = find_gpus()
    assert (len(found.devices), found.pairs, found.admins_profile) == (2, None, None)

    (tmp_path / "topo").write_text(TWO)
    (tmp_path / "params").write_text(PARAMS)
    tool(f'case "$1" in topo) cat {tmp_path}/topo;; *) cat {tmp_path}/list;; esac')
    found = find_gpus()
    assert [gpu.index for gpu in found.devices] == [0, 1]
    assert [pair.connection for pair in found.pairs] == [Connection.PCIE]
    assert (found.admins_profile, found.problem) == (True, None)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (
            'printf "NVIDIA-SMI has failed\\n\\033[1mno driver\\n"; exit 9',
            "NVIDIA-SMI has failed \ufffd[1mno driver",
        ),
        ("exit 9", "it ended with status 9"),
    ],
)
def test_what_the_tool_complains_of_is_the_problem_on_one_line(tool, script, problem):
    tool(script)
    assert find_gpus() == Gpus(problem=problem)


def test_a_tool_that_hangs_is_given_up(tool, monkeypatch):
    monkeypatch.setattr(nvidia, "_LIMIT_S", 0.2)
    tool("exec sleep 5")
    problem = find_gpus().problem
    assert "gave no answer within" in problem


def test_memory_is_that_of_each_card_only_where_all_have_as_much():
    two, _ = parse_gpus("0, A, 550, 16384\n1, B, 550, 16384\n")
    uneven, _ = parse_gpus("0, A, 550, 16384\n1, B, 550, 8192\n")
    assert common_memory(Gpus(devices=two)) == 16384 << 20
    assert common_memory(Gpus(devices=uneven)) is None
    assert common_memory(Gpus()) is None


PEERS = """ \tGPU0\tGPU1\t
 GPU0\tX\tOK\t
 GPU1\tOK\tX\t

Legend:

  X    = Self
  OK   = Status Ok
"""


def test_who_reads_whose_memory_is_asked_of_the_tool(tool, tmp_path):
    (tmp_path / "peers").write_text(PEERS)
    tool(f'[ "$*" = "topo -p2p r" ] && cat {tmp_path}/peers')
    found = find_peer_access()
    assert [(pair.first, pair.second, pair.code) for pair in found] == [(0, 1, PEER_ACCESS)]


@pytest.mark.parametrize("script", ["exit 9", "echo no such option"])
def test_a_tool_that_does_not_say_who_reads_whose_memory(tool, script):
    tool(script)
    assert find_peer_access() is None
