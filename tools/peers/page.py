"""Writes what tools/peers/bench measured: a table as text for each row, and one HTML page that
needs no other file."""

import html
import os

COLUMNS = [
    "",
    "samples/s",
    "first batch, s",
    "peak MB",
    "CPU s/GB",
    "server CPU s/GB",
    "mixing",
    "settings",
]
TITLES = {"defaults": "defaults", "equal": "mixes as ours", "best": "own best"}
STYLE = """
:root { color-scheme: light dark; --line: #8884; --bad: #c0392b; --bar: #4a86c855; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 74em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; width: 100%; margin: .5em 0 2em;
  font-variant-numeric: tabular-nums; }
th, td { padding: .25em .6em; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: top; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
td.rate { min-width: 9em;
  background: linear-gradient(to right, var(--bar) var(--share), transparent var(--share)); }
tr.ours { font-weight: 600; --bar: #2e9e5b66; }
.void { color: var(--bad); }
td.error { color: var(--bad); text-align: left; }
small, td:last-child { opacity: .8; font-size: 85%; font-weight: 400; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
"""

NOTES = """
<p>Archives: codec and samples in a chunk; s32: shards of 32 chunks of one sample. Pairs: input t and
target t+1; plain: input alone. Samples/s: from opening the archive to the last batch. First batch:
from the start of the process. Peak: of all the peer's processes, shared pages once. CPU: per GB
(10<sup>9</sup> bytes) that was delivered. Mixing: variance of the batches' means in the archive's
order, over that of an ideal shuffle (1); measured on 8,192 samples of small fields. The bytes of
every row that a peer delivers were compared before it was timed. In local rows a bare loop reads and
decodes every chunk once and copies each sample to the batches that show it, by memcpy. A loader has
nothing else to do; it passes the loop only where it copies better. A remote row is void
where a bare loop of libcurl does not reach twice its highest rate.</p>
"""


def machine():
    """The processor, cores that may be used, memory."""
    model, memory = "", 0
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            model = next(
                (line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), ""
            )
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0))
    return f"{model or 'a processor without a name'}, {cores} cores, {memory / 2**30:.0f} GiB"


def settings(cell):
    """The settings of a cell in words."""
    if cell["peer"] == "ours":
        plan = cell["plan"]
        lanes = f"{plan['lanes']} lanes of {plan['window']} units of {plan['unit_rows']}"
        return f"{lanes}; each chunk is read {plan['amplification']:.2f} times"
    given = {k: v for k, v in cell["settings"].items() if v}
    if cell["peer"] == "insitubatch":
        given.setdefault("block_chunks", cell["window"]["units"])
    elif cell["peer"] == "xbatcher":
        given.setdefault("run", cell["window"].get("run"))
    else:
        given.update(window=f"{cell['window']['units']} x {cell['window']['unit']}")
    return ", ".join(f"{k} {v}" for k, v in given.items())


def label(cell):
    return f"{cell['peer']}, {TITLES[cell['mode']]}"


def values(cell):
    return [
        f"{cell['rate']:.0f}",
        f"{cell['first']:.2f}",
        f"{cell['memory'] / 1e6:.0f}",
        f"{cell['cpu_per_gb']:.2f}",
        f"{cell['server_per_gb']:.2f}",
        f"{cell['mixing']:.2f}",
    ]


def text(row):
    """The row as lines of text."""
    lines = [
        f"{row['name']}" + (f"   bare loop {row['bare']:.0f} samples/s" if row.get("bare") else "")
    ]
    if row.get("error"):
        return lines[0] + f"\n  missing: {row['error']}"
    if row["void"]:
        lines.append(f"  VOID: {row['void']}")
    lines.append(f"  {'':30}" + "".join(f"{c:>17}" for c in COLUMNS[1:-1]))
    for cell in row["cells"]:
        if cell.get("rate"):
            lines.append(
                f"  {label(cell):30}"
                + "".join(f"{v:>17}" for v in values(cell))
                + f"   {settings(cell)}"
            )
        if cell["error"]:
            lines.append(f"  {label(cell):30}   {cell['error'].splitlines()[0][:160]}")
    return "\n".join(lines)


def table(row, places):
    place, archive, job = row["name"].split("/")
    yield f"<h2>{html.escape(places[place])}: {archive}, {job}</h2>"
    if row.get("error"):
        yield f"<p class=void>missing: {html.escape(row['error'])}</p>"
        return
    if row["void"]:
        yield f"<p class=void>This row is void: {html.escape(row['void'])}.</p>"
    elif row["bare"]:
        does = "reads, decodes and copies" if place == "local" else "gets the objects by libcurl"
        yield f"<p>A bare loop that {does}: {row['bare']:.0f} samples/s.</p>"
    yield "<div class=scroll><table><tr>" + "".join(f"<th>{c}</th>" for c in COLUMNS) + "</tr>"
    most = max([c["rate"] for c in row["cells"] if c.get("rate")], default=1)
    for cell in row["cells"]:
        mark = " class=ours" if cell["peer"] == "ours" else ""
        if cell.get("rate"):
            first, *rest = values(cell)
            spread = (
                f"{min(cell['rates']):.0f} to {max(cell['rates']):.0f} in {len(cell['rates'])} runs"
            )
            yield (
                f"<tr{mark}><td>{html.escape(label(cell))}</td><td class=rate style='--share:{100 * cell['rate'] / most:.1f}%'"
                f" title='{spread}'>{first}</td>"
                + "".join(f"<td>{v}</td>" for v in rest)
                + f"<td>{html.escape(settings(cell))}</td></tr>"
            )
        if cell["error"]:
            yield (
                f"<tr{mark}><td>{html.escape(label(cell))}</td><td class=error colspan={len(COLUMNS) - 1}>"
                f"{html.escape(cell['error'][:300])}</td></tr>"
            )
    yield "</table></div>"


def write(result, path):
    versions = {}
    for row in result["rows"]:
        for cell in row["cells"]:
            versions.setdefault(cell["peer"], cell.get("versions"))
    listed = "; ".join(
        f"{peer}: " + ", ".join(f"{k} {v}" for k, v in of.items())
        for peer, of in versions.items()
        if of
    )
    rows, columns = result["field"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>insitubatch.h beside its peers</title><style>{STYLE}</style>",
        "<h1>insitubatch.h beside its peers</h1>",
        f"<p>{result['samples']} samples of {rows} x {columns} float32, batches of ",
        f"{result['batch']}, one epoch, shuffled; medians of {result['rounds']} interleaved rounds, ",
        f"every run a process of its own. {html.escape(result['machine'])}. ",
        f"Commit {html.escape(result['commit'])}, {result['date']}.</p>",
    ]
    if result["quick"]:
        parts.append("<p class=void>A quick look: too few samples and rounds for figures.</p>")
    parts.append(NOTES)
    for row in result["rows"]:
        parts += table(row, result["places"])
    parts.append(f"<p><small>{html.escape(listed)}</small></p></html>\n")
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write("\n".join(parts))
    os.replace(path + ".new", path)
