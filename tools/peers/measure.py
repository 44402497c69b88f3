"""Runs one peer and prints what it cost, as one line of JSON: measure.py SECONDS COMMAND...

"out": the last line that it printed, parsed; "begun": CLOCK_MONOTONIC before it was started;
"seconds"; "cpu": of its whole tree; "memory": the tree's peak in bytes; "processes": the most at
once; or "error". One process is counted by what the kernel noted as its peak; of several, what
each one has is sampled, and pages that they share are shared among them (PSS). A peer that takes
more than SECONDS is ended with all its processes.

Memory is touched and given back before the peer starts. A virtual machine that reports its free
pages to the host gets them back one by one, at 0.5 to 2 s for each GB that a process touches first:
without this the host would be measured, and whoever ran after a pause would pay.
"""

import ctypes
import json
import mmap
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

PR_SET_CHILD_SUBREAPER = 36
PERIOD = 0.03  # seconds between two samples
TOUCHED = 2 << 30  # bytes: more than any peer takes
MADV_POPULATE_WRITE = 23  # linux/mman.h


def tree(pid):
    """The process and all its descendants."""
    found = [pid]
    for one in found:
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{task}/children", encoding="ascii") as f:
                    found += map(int, f.read().split())
        except OSError:
            pass  # it has ended
    return found


def value(path, key):
    """KEY: N kB of a file in /proc, in bytes; 0: the process has ended."""
    try:
        with open(path, encoding="ascii") as f:
            return next((int(line.split()[1]) * 1024 for line in f if line.startswith(key)), 0)
    except OSError:
        return 0


def memory(pids):
    if len(pids) == 1:
        return value(f"/proc/{pids[0]}/status", "VmHWM:")
    return sum(value(f"/proc/{pid}/smaps_rollup", "Pss:") for pid in pids)


def reap():
    """Waits for all that is left of the tree: without its parent it belongs to this process."""
    end = time.monotonic() + 10
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            if time.monotonic() > end:
                for left in tree(os.getpid())[1:]:
                    os.kill(left, signal.SIGKILL)
            time.sleep(0.01)


def touch_memory():
    available = value("/proc/meminfo", "MemAvailable:")
    with mmap.mmap(-1, min(TOUCHED, available // 2), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        pages.madvise(mmap.MADV_HUGEPAGE)
        try:
            pages.madvise(MADV_POPULATE_WRITE)
        except OSError:  # before Linux 5.14
            for at in range(0, len(pages), mmap.PAGESIZE):
                pages[at] = 1


def main():
    limit, command = float(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    touch_memory()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        begun, peak, most, late = time.monotonic(), 0, 1, False
        peer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
        while peer.poll() is None:
            pids = tree(peer.pid)
            peak, most = max(peak, memory(pids)), max(most, len(pids))
            if time.monotonic() - begun > limit:
                late = True
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(PERIOD)
        seconds = time.monotonic() - begun
        reap()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = {
            "begun": begun,
            "seconds": seconds,
            "cpu": used.ru_utime + used.ru_stime,
            "memory": peak,
            "processes": most,
        }
        out.seek(0)
        errors.seek(0)
        lines, told = (
            out.read().decode(errors="replace").splitlines(),
            errors.read().decode(errors="replace").strip(),
        )
    try:
        result["out"] = json.loads(lines[-1])
    except (IndexError, ValueError):
        result["out"] = {"error": told[-500:] or f"exit status {peer.returncode}"}
    if late:
        result["out"] = {"error": f"not done in {limit:.0f} s"}
    if "error" in result["out"]:
        result["error"] = result["out"]["error"]
    print(json.dumps(result))


main()
