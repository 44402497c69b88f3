#!/usr/bin/env python3
"""Prints the numbers of log1p and asinh of float32 (insitubatch.h, section ops): the table of 16 intervals and the coefficients
of q. Needs nothing but Python; takes half a minute.

    tools/make_log.py

Table: interval i is [1 + i/16, 1 + (i + 1)/16). c is near 1 / m there, and is chosen among the numbers of 18 bits near the best
one by the greatest error that k log(2) - log(c), rounded to float32, has for any k, in units in the last place of the least result
of the interval; for k of -1 to 3, where roundings of other terms count most, it must be better still. c is 1 in the first interval
and 1/2 in the last two.

Coefficients: log(1 + r) = r + r^2 q(r), |r| <= 1/16, with the least greatest relative error (Remez's exchange)."""
import math
import struct
from decimal import Decimal, getcontext

getcontext().prec = 40
SPAN, DEGREE, BITS, STEPS, BETTER = 1 / 16, 3, 18, 2500, Decimal(0.2)
LN2 = Decimal(2).ln()


def bits(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def single(x):
    return struct.unpack("<f", struct.pack("<f", float(x)))[0]


def ulp(x):
    size = bits(abs(single(x)))
    return Decimal(struct.unpack("<f", struct.pack("<I", size + 1))[0]) - Decimal(abs(single(x)))


def error(c, entry, reach, low, high, limit):
    """The greatest over k; one above `limit` is given up early."""
    worst, log = Decimal(0), Decimal(c).ln()
    for k in range(-24, 127):
        off = abs(Decimal(single(Decimal(entry) - k * Decimal(single(LN2)))) - (log - k * LN2))
        least = min(abs(k * LN2 + Decimal(m).ln()) for m in (low, high))
        worst = max(worst, (off + ulp(reach)) / ulp(least) + (BETTER if -1 <= k <= 3 else 0))
        if worst >= limit:
            break
    return worst


def interval(i):
    """c and log(c)."""
    if i == 0:
        return 1.0, 0.0
    if i >= 14:
        return 0.5, -single(LN2)
    low, high = 1 + i / 16, 1 + (i + 1) / 16
    best = (Decimal(9), 0.0, 0.0)
    for step in range(-STEPS, STEPS + 1):
        c = (round(2 / (low + high) * 2**BITS) + step) / 2**BITS
        reach = max(abs(c * low - 1), abs(c * high - 1))
        if reach > (high - low) / (high + low) * 1.08:
            continue
        for less in (0, Decimal(single(LN2)) - LN2):  # exact for k of 0, or for k of -1
            entry = single(Decimal(c).ln() - less)
            worst = error(c, entry, reach, low, high, best[0])
            if worst < best[0]:
                best = (worst, c, entry)
    return best[1:]


def solve(rows):
    """Gauss and Jordan."""
    n = len(rows)
    for i in range(n):
        at = max(range(i, n), key=lambda j: abs(rows[j][i]))
        rows[i], rows[at] = rows[at], rows[i]
        for j in range(n):
            if j != i:
                by = rows[j][i] / rows[i][i]
                rows[j] = [x - by * y for x, y in zip(rows[j], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def exchange():
    """Coefficients of q, and their greatest |r (q - exact)|."""
    grid = [Decimal(SPAN) * j / 1000 for j in range(-1000, 1001) if j]
    exact = [sum((1 if k % 2 else -1) * r**(k - 2) / k for k in range(2, 40)) for r in grid]
    n = DEGREE + 2
    at = [round((1 - math.cos(math.pi * j / (n - 1))) / 2 * (len(grid) - 1)) for j in range(n)]
    for _ in range(30):
        rows = [[grid[j]**k for k in range(DEGREE + 1)] + [(-1)**i / grid[j], exact[j]] for i, j in enumerate(at)]
        q = solve(rows)[:-1]
        off = [r * (sum(c * r**k for k, c in enumerate(q)) - e) for r, e in zip(grid, exact)]
        peaks = []
        for j, e in enumerate(off):
            if not peaks or (off[peaks[-1]] > 0) != (e > 0):
                peaks.append(j)
            elif abs(e) > abs(off[peaks[-1]]):
                peaks[-1] = j
        while len(peaks) > n:
            peaks.pop(0 if abs(off[peaks[0]]) < abs(off[peaks[-1]]) else -1)
        if len(peaks) < n or peaks == at:
            break
        at = peaks
    return q, max(abs(e) for e in off)


table = [interval(i) for i in range(16)]
coefficients, worst = exchange()
print("insitu__ops_inverse:    ", ", ".join("0x%08x" % (bits(c) + bits(1.0)) for c, log in table))
print("insitu__ops_inverse_log:", ", ".join("0x%08x" % bits(log) for c, log in table))
print("q, lowest first:        ", ", ".join(single(x).hex() for x in coefficients))
print("its greatest error:      2^%.1f of the result" % (worst.ln() / LN2))
