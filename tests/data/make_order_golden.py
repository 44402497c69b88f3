#!/usr/bin/env python3
"""Writes data/order_golden.txt from the normative model: make_order_golden.py [MODEL, default ../shared/model/order.py] >
order_golden.txt

A line "hash" holds units unit_rows seed epoch global_batch lanes window n_irregular (unit rows)* batches fnv, fnv the
FNV-1a 64 of the dump's numbers (position unit within lane window), each as 8 bytes little-endian. "dump" holds the batches
and then, after ":", all of unit within lane window. "some" holds the batches and, after ":", a count and that many
(position unit within lane window). "c_hash", "c_dump" and "c_some" have classes of units: n_classes (units rows)* instead of
n_irregular (unit rows)*.
"""
import bisect
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


class Dealt:
    """The bijection rank -> unit where ranks are dealt to classes: class 0 takes its slots of all ranks, evenly; the slots that
    it leaves are dealt among the other classes in the same way. Units are numbered class by class."""

    def __init__(self, classes, seed, epoch):
        self.levels, left, base = [], sum(m for m, _ in classes), 0
        for c, (m, rows) in enumerate(classes):
            phi = order.key(seed, epoch, 0x636C617373, c) % left  # "class"
            perm = order.Perm(m, order.key(seed, epoch, c) if c else order.key(seed, epoch))
            self.levels.append((m, left, phi, rows, base, perm))
            left, base = left - m, base + m
        self.n = base

    def slot(self, j):
        """Of rank j: level, number among the class's slots, and the anchors of all ranks before."""
        found, anchors = None, 0
        for c, (m, slots, phi, rows, _, _) in enumerate(self.levels):
            before, after = (j * m + phi) // slots, ((j + 1) * m + phi) // slots
            if after > before and not found:
                found = c, before
            anchors += before * rows
            j -= before
        return found, anchors

    def fwd(self, j):
        c, nth = self.slot(j)[0]
        return self.levels[c][4] + self.levels[c][5].fwd(nth)

    def bwd(self, u):
        c = max(c for c, level in enumerate(self.levels) if level[4] <= u)
        m, slots, phi, _, base, perm = self.levels[c]
        nth = perm.bwd(u - base)
        j = bisect.bisect_right(range(slots), nth, key=lambda j: ((j + 1) * m + phi) // slots)
        for m, slots, phi, _, _, _ in reversed(self.levels[:c]):  # the slot of the level above that is left over as number j
            j = bisect.bisect_right(range(slots), j, key=lambda i: i + 1 - ((i + 1) * m + phi) // slots)
        return j


class Classes(order.Order):
    """The order of units in classes: only where units stand differs from the model's own."""

    def __init__(self, classes, U, seed, epoch, G, L, W):
        self.P = Dealt(classes, seed, epoch)
        self.M, self.U, self.G, self.L, self.W, self.seed, self.epoch = self.P.n, U, G, L, W, seed, epoch
        self.N = sum(m * rows for m, rows in classes)
        self.batches = self.N // G
        self.q = self.batches * (G // L)
        self.first = [self.rank(l * self.q) for l in range(L)] if self.q else []

    def pos(self, j):
        return self.P.slot(j)[1]

    def rank(self, a):
        return bisect.bisect_right(range(self.M), a, key=self.pos) - 1


def geometry(most, few=False):
    M, U = R.choice([R.randint(1, 70), R.randint(1, most)]), R.choice([1, 1, 2, 3, 8, 30, 100])
    M = max(1, min(M, 6 * most // U))
    irr = {u: R.choice([0, U, R.randint(0, U)]) for u in range(M) if R.random() < R.choice([0, .02] if few else [0, .02, .4])}
    L = R.choice([1, 1, 2, 3, 4, 6, 8])
    G, W = L * R.randint(1, 9), R.choice([1, R.randint(1, 9), R.randint(1, 99), R.randint(1, 10000)])
    return M, U, irr, R.choice([R.randint(0, 9), R.getrandbits(64)]), R.choice([R.randint(0, 9), R.getrandbits(64)]), G, L, W


def line(kind, o, pairs, *rest):
    words = [o.M, o.U, o.seed, o.epoch, o.G, o.L, o.W, len(pairs), *(x for pair in pairs for x in pair), o.batches, *rest]
    print(kind, *words)


for i in range(300):
    g = geometry(400 if i % 10 else 4000, few=True)
    o = order.Order(*g)
    line("hash", o, g[2].items(), fnv(n for p in range(o.batches * o.G) for n in (p, *o.at(p))))
for i in range(12):
    while True:
        g = geometry(90)
        o = order.Order(*g)
        if 0 < o.batches * o.G < 300:
            break
    line("dump", o, g[2].items(), ":", *(n for p in range(o.batches * o.G) for n in o.at(p)))
for i in range(40):  # too large to walk
    M, U, L = R.choice([10**9, 2**40, 2**40 - 1, 2**32 + 1, 2**61]), R.choice([1, 1, 7, 365]), R.choice([1, 8, 64])
    U = min(U, 2**61 // M)
    irr = {u: R.randint(0, U) for u in sorted({R.randrange(M) for _ in range(R.choice([0, 1, 40]))} | {M - 1})}
    seed, epoch, batch = R.getrandbits(64), R.getrandbits(64), L * R.randint(1, 9)
    o = order.Order(M, U, irr, seed, epoch, batch, L, R.choice([1, 20, 5000, 2**50, 2**64 - 1]))
    some = [R.randrange(o.batches * o.G) for _ in range(20)] + [0, o.batches * o.G - 1]
    line("some", o, irr.items(), ":", len(some), *(n for p in some for n in (p, *o.at(p))))

# ---- classes ----


def classed(most, rows, units):
    """Classes of up to `units` units each, and an order of them."""
    U = R.choice(rows)
    classes = [(R.randint(1, R.choice(units)), R.choice([U, R.randint(1, U)])) for _ in range(R.randint(1, most))]
    L = R.choice([1, 1, 2, 3, 4, 8])
    G, W = L * R.randint(1, 9), R.choice([1, R.randint(1, 9), R.randint(1, 99)])
    seed, epoch = R.choice([R.randint(0, 9), R.getrandbits(64)]), R.choice([R.randint(0, 9), R.getrandbits(64)])
    return Classes(classes, U, seed, epoch, G, L, W), classes


for i in range(60):
    o, classes = classed(9, [1, 2, 3, 8, 30], [1, 3, 20, 90])
    line("c_hash", o, classes, fnv(n for p in range(o.batches * o.G) for n in (p, *o.at(p))))
for i in range(5):
    while True:
        o, classes = classed(4, [1, 2, 5], [1, 3, 12])
        if 0 < o.batches * o.G < 120:
            break
    line("c_dump", o, classes, ":", *(n for p in range(o.batches * o.G) for n in o.at(p)))
for i in range(10):
    o, classes = classed(5, [1, 7, 365], [1, 30, 10**6, 10**9, 2**49])
    some = [R.randrange(o.batches * o.G) for _ in range(10)] + [0, o.batches * o.G - 1] if o.batches else []
    line("c_some", o, classes, ":", len(some), *(n for p in some for n in (p, *o.at(p))))
