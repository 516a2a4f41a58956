"""A switch in user space that delays frames, for networks where the kernel has no `netem`.

    packet_switch.py DELAY_NS PORT...     PORT is an interface; run it in the network that has them

Every frame leaves so long after it came, in order. It says a line on standard output when it is
ready, and ends with its standard input.

Left out: large frames, which a host leaves to its network card to cut up, cross as one, so that
all of their segments arrive with the last one. What the switch itself takes comes on top, some
ten microseconds for each frame.
"""

import contextlib
import ctypes
import os
import select
import socket
import struct
import sys
import time
from collections import deque

# Source: linux/if_packet.h, linux/if_ether.h.
_SOL_PACKET, _VNET_HEADER, _IGNORE_OUTGOING = 263, 15, 23
_ALL_PROTOCOLS = 3
# Source: linux/virtio_net.h: flags, kind of segmentation, bytes of headers, of a segment, checksum.
_OFFLOAD = struct.Struct("=BBHHHH")
_LONGEST_FRAME_BYTES = 1 << 17
_SOCKET_BUFFER_BYTES = 1 << 24
# As many frames of one port are taken before others have their turn.
_FRAMES_AT_ONCE = 16
_PR_SET_TIMERSLACK = 29


def _port(interface):
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    for option in (_VNET_HEADER, _IGNORE_OUTGOING):
        opened.setsockopt(_SOL_PACKET, option, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER_BYTES)
    opened.bind((interface, _ALL_PROTOCOLS))
    return opened


def _received(port):
    """Yield frames that have come in by a port."""
    with contextlib.suppress(OSError):  # There are no more, or the cable was pulled out.
        for _ in range(_FRAMES_AT_ONCE):
            yield port.recv(_LONGEST_FRAME_BYTES)


def _be_prompt():
    """Let sleeps end when they should, and run before programs that compute, as hardware does."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def main():
    """Switch until standard input ends."""
    _be_prompt()
    delay_ns, ports = int(sys.argv[1]), [_port(name) for name in sys.argv[2:]]
    port_of, waiting = {}, deque()
    print("ready", flush=True)
    while True:
        while waiting and waiting[0][0] <= time.monotonic_ns():
            _, frame, others = waiting.popleft()
            for other in others:
                with contextlib.suppress(OSError):  # Its queue is full, or the cable pulled out.
                    other.send(frame)
        timeout_s = max(0, waiting[0][0] - time.monotonic_ns()) / 1e9 if waiting else None
        for ready in select.select([*ports, sys.stdin], [], [], timeout_s)[0]:
            if ready is sys.stdin:
                return
            for frame in _received(ready):
                start = _OFFLOAD.size
                port_of[frame[start + 6 : start + 12]] = ready
                known = port_of.get(frame[start : start + 6])
                others = [port for port in ([known] if known else ports) if port is not ready]
                waiting.append((time.monotonic_ns() + delay_ns, frame, others))


if __name__ == "__main__":
    main()
