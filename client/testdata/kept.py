"""Makes N calls of one client, and one more after the service closed its connection: kept.py URL N.
It prints the milliseconds of a call.
"""

import sys
import time

import coatcheck

url, n = sys.argv[1], int(sys.argv[2])
client = coatcheck.Client(url, timeout=60)
client.incr("orders")
began = time.perf_counter()
for _ in range(n):
    client.incr("orders")
print(f"{(time.perf_counter() - began) * 1000 / n:.3f}")
coatcheck.Client(url, timeout=60).incr("close")
client.incr("orders")
