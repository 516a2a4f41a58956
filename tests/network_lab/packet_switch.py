"""A switch in user space, for networks with delays where the kernel has no `netem`.

    packet_switch.py PORT...     PORT is an interface; run it in the network that has them

A frame takes its size over the rate on the cable that it comes in by and on the one that it leaves
by, both at once, then the delay of the port that it leaves by. A frame that finds more than
``queue_bytes`` waiting for either cable is dropped. Nothing overtakes on its way to a port. Sizes
are those of Ethernet frames, as the kernel's `tbf` counts them.

On standard input come lines of JSON, each an object with ``port`` and the new values of any of
``rate_bit_per_s`` (null: unlimited), ``delay_ns`` and ``queue_bytes``; each is answered by a line
on standard output. The switch ends with its input.

Left out: large frames, which a host leaves to its network card to cut up, cross as one, so that
all of their segments arrive with the last one. What the switch itself takes comes on top, some
ten microseconds for each frame.
"""

import contextlib
import ctypes
import json
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass, field

# Source: linux/if_packet.h, linux/if_ether.h.
_SOL_PACKET, _VNET_HEADER, _QDISC_BYPASS, _IGNORE_OUTGOING = 263, 15, 20, 23
_ALL_PROTOCOLS = 3
# Source: linux/virtio_net.h: flags, kind of segmentation, bytes of headers, of a segment, checksum.
_OFFLOAD = struct.Struct("=BBHHHH")
_LONGEST_FRAME_BYTES = 1 << 17
_SOCKET_BUFFER_BYTES = 1 << 24
# As many frames of one port are taken before others have their turn.
_FRAMES_AT_ONCE = 16
_PR_SET_TIMERSLACK = 29


@dataclass(slots=True, eq=False)
class Port:
    """A cable, both ways: what is behind it, and until when it is in use."""

    interface: str
    socket: socket.socket
    rate_bit_per_s: float | None = None
    delay_ns: int = 0
    queue_bytes: int = 0
    in_free_ns: int = 0
    out_free_ns: int = 0
    waiting: deque[tuple[int, bytes]] = field(default_factory=deque)

    def takes_ns(self, size_bytes):
        """Return how long a frame of that size occupies the cable."""
        if self.rate_bit_per_s is None:
            return 0
        return round(size_bytes * 8e9 / self.rate_bit_per_s)

    def is_full(self, free_ns, now_ns):
        """Return whether a direction that is in use until a moment has too much waiting for it."""
        return free_ns - now_ns > self.takes_ns(self.queue_bytes)


class Switch:
    """Ports, and which of them leads to which address."""

    def __init__(self, interfaces):
        """Open the ports."""
        self.ports = {name: Port(name, _packet_socket(name)) for name in interfaces}
        self._port_of = {}

    def receive(self, port):
        """Take frames that have come in by a port and put them into the queues of others."""
        for _ in range(_FRAMES_AT_ONCE):
            try:
                frame = port.socket.recv(_LONGEST_FRAME_BYTES)
            except OSError:  # There are no more, or the cable was pulled out.
                return
            start = _OFFLOAD.size
            target, source = frame[start : start + 6], frame[start + 6 : start + 12]
            self._port_of[source] = port
            known = self._port_of.get(target)
            self._pass_on(frame, port, [known] if known else list(self.ports.values()))

    def _pass_on(self, frame, port, others):
        now_ns, size_bytes = time.monotonic_ns(), wire_bytes(frame)
        if port.is_full(port.in_free_ns, now_ns):
            return
        begun_ns = max(now_ns, port.in_free_ns)
        port.in_free_ns = begun_ns + port.takes_ns(size_bytes)
        for other in others:
            if other is port or other.is_full(other.out_free_ns, now_ns):
                continue
            passed_ns = max(begun_ns, other.out_free_ns) + other.takes_ns(size_bytes)
            other.out_free_ns = max(passed_ns, port.in_free_ns)
            due_ns = other.out_free_ns + other.delay_ns
            if other.waiting:
                due_ns = max(due_ns, other.waiting[-1][0])
            other.waiting.append((due_ns, frame))

    def send_due(self):
        """Send what is due; return how long until the next frame is, None if none waits."""
        next_ns = None
        for port in self.ports.values():
            while port.waiting and port.waiting[0][0] <= time.monotonic_ns():
                with contextlib.suppress(OSError):  # The cable was pulled out.
                    port.socket.send(port.waiting.popleft()[1])
            if port.waiting and (next_ns is None or port.waiting[0][0] < next_ns):
                next_ns = port.waiting[0][0]
        return None if next_ns is None else max(0, next_ns - time.monotonic_ns())

    def set(self, port, **values):
        """Change a port; what is on its way stays so, and nothing waits for the cables."""
        changed = self.ports[port]
        for name, value in values.items():
            setattr(changed, name, value)
        changed.in_free_ns = changed.out_free_ns = 0


def wire_bytes(frame):
    """Return the bytes of a frame on the wire, where each segment has headers of its own."""
    _, segmentation, header_bytes, segment_bytes, _, _ = _OFFLOAD.unpack_from(frame)
    size_bytes = len(frame) - _OFFLOAD.size
    if not segmentation or not segment_bytes:
        return size_bytes
    more_segments = max(0, size_bytes - header_bytes - 1) // segment_bytes
    return size_bytes + more_segments * header_bytes


def _packet_socket(interface):
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    for option in (_VNET_HEADER, _QDISC_BYPASS, _IGNORE_OUTGOING):
        opened.setsockopt(_SOL_PACKET, option, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER_BYTES)
    opened.bind((interface, _ALL_PROTOCOLS))
    return opened


def _be_prompt():
    """Let sleeps end when they should, and run before programs that compute, as hardware does."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def main():
    """Switch until standard input ends."""
    _be_prompt()
    switch = Switch(sys.argv[1:])
    by_socket = {port.socket: port for port in switch.ports.values()}
    unread = b""
    while True:
        wait_ns = switch.send_due()
        timeout_s = None if wait_ns is None else wait_ns / 1e9
        for ready in select.select([*by_socket, sys.stdin], [], [], timeout_s)[0]:
            if ready is not sys.stdin:
                switch.receive(by_socket[ready])
                continue
            read = os.read(sys.stdin.fileno(), 1 << 16)
            if not read:
                return
            *lines, unread = (unread + read).split(b"\n")
            for line in lines:
                switch.set(**json.loads(line))
                print("set", flush=True)


if __name__ == "__main__":
    main()
