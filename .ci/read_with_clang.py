#!/usr/bin/env python3
"""Has clang read every C file of a build, with its warnings as errors: read_with_clang.py
COMPILE_COMMANDS.JSON. Nothing is compiled to code, nothing linked. SPDX-License-Identifier: MIT"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys


def clang_command(entry):
    """The compiler's command of a file, for clang, without what it writes."""
    words = shlex.split(entry["command"])
    while os.path.basename(words[0]) in ("ccache", "distcc"):
        words = words[1:]
    kept, skip = ["clang", "-fsyntax-only", "-Qunused-arguments"], False
    for word in words[1:]:
        if skip or word in ("-MD", "-c"):
            skip = False
        elif word in ("-o", "-MT", "-MF"):
            skip = True
        else:
            kept.append(word)
    return kept


def read(entry):
    done = subprocess.run(clang_command(entry), cwd=entry["directory"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def main():
    with open(sys.argv[1]) as file:
        entries = [e for e in json.load(file) if e["file"].endswith(".c")]
    unique = {}  # the same file with the same definitions is read once
    for entry in entries:
        unique.setdefault((entry["file"], " ".join(w for w in entry["command"].split()
                                                   if w.startswith("-D"))), entry)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for code, text in pool.map(read, unique.values()):
            if code or text:
                failed += 1
                sys.stdout.write(text)
    print("clang read %d files, %d with complaints" % (len(unique), failed))
    return 1 if failed or not unique else 0


sys.exit(main())
