"""What the relay costs: messages between two hosts by plain TCP and by two relays under TLS.

    PYTHONPATH=tests python tests/benchmarks/relay.py [--rate-mbit 1000] [--delay-us 100]

Hosts are network namespaces joined by a bridge, or by a switch with a delay. A message is sent and
answered with one byte; the times are medians. Processes are not pinned, and on two cores everything
shares them: sender, both relays and receiver.
"""

import tempfile
from pathlib import Path
from statistics import median

import typer
from network_lab.lab import lab
from remote_hosts.agent import Agent
from tables import table_head, table_row

from placement_advisor.remote_hosts.tls import new_secret

SIZES_BYTES = (1, 4_096, 65_536, 1 << 20, 1 << 24)
PORT = 20_001
NETWORK = 1


def main(rate_mbit: float | None = None, delay_us: float | None = None, repetitions: int = 30):
    rate = rate_mbit and rate_mbit * 1e6
    delay = None if delay_us is None else round(delay_us * 1e3)
    secret = new_secret().decode()
    with (
        lab(hosts=2, rate_bit_per_s=rate, delay_ns=delay) as network,
        tempfile.TemporaryDirectory() as folder,
    ):
        folders = [Path(folder) / host for host in network.hosts]
        relays = [Agent(network, host) for host in network.hosts]
        workers = [Agent(network, host) for host in network.hosts]
        plain = [Agent(network, host) for host in network.hosts]
        ports = []
        for host, relay, own in zip(network.hosts, relays, folders, strict=True):
            own.mkdir()
            ports.append(relay.do("start_relay", str(own), secret, network.address(host)))
        for worker in workers:
            worker.do("private_network.create")
        far = [(PORT, network.address("h1"), ports[1])]
        workers[1].do("serve_bytes", PORT)
        workers[1].do("relay.open_network", str(folders[1]), NETWORK, [PORT], [])
        workers[0].do("relay.open_network", str(folders[0]), NETWORK, [], far)
        plain[1].do("serve_bytes", PORT)
        print(table_head("bytes | plain us | relay us | relay Gbit/s"))
        for size in SIZES_BYTES:
            direct = plain[0].do("times_ns", network.address("h1"), PORT, size, repetitions)
            relayed = workers[0].do("times_ns", "127.0.0.1", PORT, size, repetitions)
            took_ns = median(relayed)
            times = f"{median(direct) / 1e3:.0f}", f"{took_ns / 1e3:.0f}"
            print(table_row(f"{size:,}", *times, f"{size * 8 / took_ns:.2f}"), flush=True)


if __name__ == "__main__":
    typer.run(main)
