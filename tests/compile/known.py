"""figures/known_spills.tsv: pipelines that spill or have local memory today, each with the reason.

A line is a kernel, an element type, specialization constants, the GPUs, and the reason. The list
has to be exact: an entry that spills no more is a failure too, so that it only shrinks.

SPDX-License-Identifier: MIT"""
import os

import null_gpus

COLUMNS = ["kernel", "dtype", "spec", "gpus", "reason"]


def spills(row):
    return any(row[column] not in ("-", "0") for column in ("spills", "fills", "local_bytes"))


def key(row):
    return row["kernel"], row["dtype"], row["spec"]


def read(folder):
    """(GPU, kernel, dtype, spec) -> reason."""
    path, out = os.path.join(folder, "known_spills.tsv"), {}
    if os.path.exists(path):
        with open(path) as f:
            for line in f.read().splitlines()[1:]:
                kernel, dtype, spec, gpus, reason = line.split("\t")
                out.update({(gpu, kernel, dtype, spec): reason for gpu in gpus.split()})
    return out


def write(folder, entries):
    lines = {}
    for gpu in null_gpus.GPUS:
        for entry in (e for e in entries if e[0] == gpu):
            lines.setdefault(entry[1:] + (entries[entry],), []).append(gpu)
    with open(os.path.join(folder, "known_spills.tsv"), "w") as f:
        f.write("\t".join(COLUMNS) + "\n")
        for (kernel, dtype, spec, reason), gpus in sorted(lines.items()):
            f.write("\t".join([kernel, dtype, spec, " ".join(gpus), reason]) + "\n")


def judge(gpu, rows, entries):
    """A sentence for each pipeline that spills and is not listed, and each untrue entry."""
    found, out = set(), []
    for row in filter(spills, rows):
        found.add((gpu,) + key(row))
        if (gpu,) + key(row) not in entries:
            out.append("%s has %s spills, %s fills and %s bytes of local memory" % (
                null_gpus.title(row), row["spills"], row["fills"], row["local_bytes"]))
    for entry in sorted(entries):
        if entry[0] == gpu and entry not in found:
            out.append("known_spills.tsv: %s %s, constants %s: does not spill, or is gone" %
                       entry[1:])
    return out


def renew(gpu, rows, entries, reason):
    """Removes the entries that are not true, and adds what spills if there is a reason."""
    found = {(gpu,) + key(row) for row in rows if spills(row)}
    for entry in [e for e in entries if e[0] == gpu and e not in found]:
        del entries[entry]
    for entry in found if reason else ():
        entries.setdefault(entry, reason)
