#!/usr/bin/env python3
"""Writes data/order_golden.txt from the normative model: make_order_golden.py [MODEL, default ../shared/model/order.py] >
order_golden.txt

A line "hash" holds units unit_rows seed epoch global_batch lanes window n_irregular (unit rows)* batches fnv, fnv the
FNV-1a 64 of the dump's numbers (position unit within lane window), each as 8 bytes little-endian. "dump" holds the batches
and then, after ":", all of unit within lane window. "some" holds the batches and, after ":", a count and that many
(position unit within lane window).
"""
import importlib.util
import random
import struct
import sys

spec = importlib.util.spec_from_file_location("order", sys.argv[1] if len(sys.argv) > 1 else "../shared/model/order.py")
order = importlib.util.module_from_spec(spec)
spec.loader.exec_module(order)
R = random.Random(20)


def fnv(numbers):
    h = 0xCBF29CE484222325
    for b in b"".join(struct.pack("<Q", n) for n in numbers):
        h = (h ^ b) * 0x100000001B3 & order.M64
    return h


def geometry(most, few=False):
    M, U = R.choice([R.randint(1, 70), R.randint(1, most)]), R.choice([1, 1, 2, 3, 8, 30, 100])
    M = max(1, min(M, 6 * most // U))
    irr = {u: R.choice([0, U, R.randint(0, U)]) for u in range(M) if R.random() < R.choice([0, .02] if few else [0, .02, .4])}
    L = R.choice([1, 1, 2, 3, 4, 6, 8])
    G, W = L * R.randint(1, 9), R.choice([1, R.randint(1, 9), R.randint(1, 99), R.randint(1, 10000)])
    return M, U, irr, R.choice([R.randint(0, 9), R.getrandbits(64)]), R.choice([R.randint(0, 9), R.getrandbits(64)]), G, L, W


def line(kind, o, irr, *rest):
    words = [o.M, o.U, o.seed, o.epoch, o.G, o.L, o.W, len(irr), *(x for item in irr.items() for x in item), o.batches, *rest]
    print(kind, *words)


for i in range(300):
    g = geometry(400 if i % 10 else 4000, few=True)
    o = order.Order(*g)
    line("hash", o, g[2], fnv(n for p in range(o.batches * o.G) for n in (p, *o.at(p))))
for i in range(12):
    while True:
        g = geometry(90)
        o = order.Order(*g)
        if 0 < o.batches * o.G < 300:
            break
    line("dump", o, g[2], ":", *(n for p in range(o.batches * o.G) for n in o.at(p)))
for i in range(40):  # too large to walk
    M, U, L = R.choice([10**9, 2**40, 2**40 - 1, 2**32 + 1, 2**61]), R.choice([1, 1, 7, 365]), R.choice([1, 8, 64])
    U = min(U, 2**61 // M)
    irr = {u: R.randint(0, U) for u in sorted({R.randrange(M) for _ in range(R.choice([0, 1, 40]))} | {M - 1})}
    seed, epoch, batch = R.getrandbits(64), R.getrandbits(64), L * R.randint(1, 9)
    o = order.Order(M, U, irr, seed, epoch, batch, L, R.choice([1, 20, 5000, 2**50, 2**64 - 1]))
    some = [R.randrange(o.batches * o.G) for _ in range(20)] + [0, o.batches * o.G - 1]
    line("some", o, irr, ":", len(some), *(n for p in some for n in (p, *o.at(p))))
