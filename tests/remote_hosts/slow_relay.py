"""A slow line: ``slow_relay.py BYTES_PER_S COMMAND…`` passes on what a command reads and writes."""

import os
import subprocess
import sys
import threading
import time

_PASSES_PER_S = 20


def pass_on(source, target, chunk_bytes):
    while chunk := os.read(source, chunk_bytes):
        os.write(target, chunk)
        time.sleep(1 / _PASSES_PER_S)
    os.close(target)


def main():
    chunk_bytes = int(sys.argv[1]) // _PASSES_PER_S
    process = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    there = (0, process.stdin.fileno(), chunk_bytes)
    threading.Thread(target=pass_on, args=there, daemon=True).start()
    pass_on(process.stdout.fileno(), 1, chunk_bytes)


if __name__ == "__main__":
    main()
