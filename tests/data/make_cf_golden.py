#!/usr/bin/env python3
"""Writes time_golden.txt (by cftime) and cf_golden.txt (by xarray), beside this script: known values for test_time and test_cf.

    python3 -m venv v && v/bin/pip install cftime==1.6.4 xarray==2024.11.0 numpy==2.1.3 && v/bin/python tests/data/make_cf_golden.py

time_golden.txt: calendar, value (an integer, or a float in hexadecimal), year month day hour minute second microsecond, units.
cf_golden.txt: dtype, the stored element in hexadecimal (most significant digit first), the decoded float64 or nan, attributes.
"""
import json
import os
import random

import cftime
import numpy
import xarray

HERE = os.path.dirname(os.path.abspath(__file__))
CALENDARS = ["standard", "gregorian", "proleptic_gregorian", "noleap", "365_day", "all_leap", "366_day", "360_day", "julian"]
SINCE = ["1900-01-01", "1900-1-1 0:0:0.0", "1970-01-01T00:00:00Z", "1970-01-01 00:00:00 +01:00", "0001-01-01 00:00", "1582-10-04",
    "1850-02-28 12:30:15.25", "2000-02-28 06:00:00", "1582-10-15 00:00:00"]
UNITS = {"days": 1, "hours": 24, "minutes": 1440, "seconds": 86400, "milliseconds": 86400000, "microseconds": 86400000000,
    "day": 1, "hr": 24, "secs": 86400, "h": 24}


def times():
    draw = random.Random(1)
    for calendar in CALENDARS:
        for n in range(30):
            since, (unit, per_day) = draw.choice(SINCE), draw.choice(list(UNITS.items()))
            units = f"{unit} since {since}"
            days = draw.choice([1, 30, 400, 10000, 150000])
            value = draw.randrange(0, days * per_day + 1)
            if not since.startswith("0001"):
                value *= draw.choice([1, -1])
            shown = str(value)
            if n % 3 == 0:
                value += 0.0 if per_day > 86400000 else draw.randrange(8) / 8  # whole microseconds: no ties
                shown = float(value).hex()
            at = cftime.num2date(value, units, calendar=calendar, only_use_cftime_datetimes=True)
            yield f"{calendar} {shown} {at.year} {at.month} {at.day} {at.hour} {at.minute} {at.second} {at.microsecond} {units}"


def decoded():
    draw = random.Random(2)
    for dtype in ["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"]:
        for n in range(12):
            scale, offset = draw.choice([0.1, 0.01, 1 / 3, 2.5e-4]), draw.choice([273.15, -0.3, 1e5 / 3])
            attributes = {"scale_factor": scale, "add_offset": offset}
            missing = draw.randrange(100)
            attributes["_FillValue" if n % 2 else "missing_value"] = missing
            stored = missing if n % 4 == 3 else draw.randrange(-100 if dtype[0] != "u" else 0, 127)
            plain = numpy.array([stored], dtype)
            kind = {"scale_factor": numpy.float64, "add_offset": numpy.float64}
            typed = {k: kind.get(k, plain.dtype.type)(v) for k, v in attributes.items()}
            x = xarray.conventions.decode_cf_variable("x", xarray.Variable(["n"], plain, typed)).values
            assert x.dtype == numpy.float64, (dtype, x.dtype)
            shown = "nan" if numpy.isnan(x[0]) else float(x[0]).hex()
            yield f"{dtype} {plain.tobytes()[::-1].hex()} {shown} {json.dumps(attributes)}"


for name, lines in (("time_golden.txt", times()), ("cf_golden.txt", decoded())):
    with open(os.path.join(HERE, name), "w", encoding="ascii") as f:
        f.writelines(line + "\n" for line in lines)
