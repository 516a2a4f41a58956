"""What the packet switch takes frames for."""

import struct

from network_lab.packet_switch import Port, wire_bytes


def test_each_segment_of_a_large_frame_has_headers_of_its_own():
    headers, data = bytes(66), bytes(3_000)
    large = struct.pack("=BBHHHH", 1, 1, 66, 1_448, 34, 16) + headers + data
    small = struct.pack("=BBHHHH", 0, 0, 0, 0, 0, 0) + headers + data[:1_448]
    # 1448 + 1448 + 104 bytes.
    assert wire_bytes(large) == 3_000 + 3 * 66
    assert wire_bytes(small) == 1_448 + 66


def test_a_frame_takes_its_bits_over_the_rate():
    port = Port("h0", None, rate_bit_per_s=1e8, queue_bytes=3_000)
    assert port.takes_ns(1_250) == 100_000
    assert not port.is_full(free_ns=1_000_000, now_ns=760_000)
    assert port.is_full(free_ns=1_000_001, now_ns=760_000)
