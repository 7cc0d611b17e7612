"""Loops of compiled kernels and what stands in them, from the assembly that Mesa's drivers print.

SPDX-License-Identifier: MIT"""
import collections
import re

# Classes of instructions. fma counts operations of a lane (two in a packed or dual instruction),
# the others count instructions. alu is other vector arithmetic with moves and conversions; atomic is one
# on memory that is not shared; other is scalar arithmetic, constants, branches, shared atomics and waits.
CLASSES = ["matrix", "fma", "alu", "shared_load", "shared_store", "global_load", "global_store",
           "local", "barrier", "atomic", "other"]

# A loop: its blocks, how many loops hold it (itself counted), and the classes of its own blocks,
# without those of the loops in it.
Loop = collections.namedtuple("Loop", "blocks depth instructions counts")


def access(place, is_store):
    return place + ("_store" if is_store else "_load")


# ---- Blocks: a list of (instructions, indices of the blocks that can follow) ---------------------

def follow(blocks, labels, is_jump, is_end):
    """Successors: the labels that jumps name, and the next block where one can fall through."""
    out = []
    for i, block in enumerate(blocks):
        names = [name for line in block if is_jump(line) for name in re.findall(r"\b\w+\b", line)]
        to = {labels[name] for name in names if name in labels}
        if i + 1 < len(blocks) and not (block and is_end(block[-1])):
            to.add(i + 1)
        out.append((block, to))
    return out


def blocks_amd(lines):
    blocks, labels = [[]], {}
    for line in lines:
        label = re.fullmatch(r"(BB\d+):", line.strip())
        if label:
            blocks.append([])
            labels[label[1]] = len(blocks) - 1
        elif line.strip():
            blocks[-1].append(line.split(";")[0].strip())
    return follow(blocks, labels, lambda line: "branch" in line,
                  lambda line: re.match(r"s_(branch|endpgm|setpc)", line))


def blocks_nvk(lines):
    blocks, index = [], {}
    for line in lines:
        begin, end = re.match(r"block\S* (\d+)\b", line), re.match(r"\} -> \[(.*)\]", line)
        if begin:
            index[int(begin[1])] = len(blocks)
            blocks.append(([], set()))
        elif end:
            blocks[-1][1].update(int(n) for n in re.findall(r"\d+", end[1]))
        elif blocks and line.strip() and not line.startswith("}"):
            blocks[-1][0].append(line.split("//")[0].strip())
    return [(block, {index[n] for n in to}) for block, to in blocks]


def blocks_intel(lines):
    """Jumps forward are left out: a loop is what lies before its `while`, back to the label."""
    blocks, labels = [[]], {}
    for line in lines:
        label = re.match(r"\s*(L\d+):", line)
        if label:
            blocks.append([])
            labels[label[1]] = len(blocks) - 1
        elif line.strip() and not re.match(r"\s*(START|END)\b", line):
            blocks[-1].append(line.strip())
            if re.search(r"\bwhile\b", line):
                blocks.append([])
    return follow(blocks, labels, lambda line: re.search(r"\bwhile\b", line), lambda line: False)


def blocks_ir3(lines):
    blocks, labels = [[]], {}
    for line in lines:
        label = re.match(r"\s*(l\d+):", line)
        if label:
            blocks.append([])
            labels[label[1]] = len(blocks) - 1
        elif re.match(r"\s*(\(\w+\)|[a-z])", line):
            blocks[-1].append(line.strip())
            if re.search(r"#l\d+", line):
                blocks.append([])
    return follow(blocks, labels, lambda line: re.search(r"#l\d+", line),
                  lambda line: re.search(r"\b(jump|end)\b", line))


# ---- Classes: of each instruction a dict, class -> count -----------------------------------------

def classify_amd(line):
    op = line.split()[0]
    if re.match(r"v_(s?wmmac?|mfma)_", op):
        return {"matrix": 1}
    if op.startswith("v_"):
        fma = 0
        for half in [op] + re.findall(r":: (\S+)", line):
            if re.match(r"v_(dual_)?(pk_)?(fma|dot\d|mac_f|mad_f|mad_mix|madak|madmk)", half):
                fma += 2 if re.match(r"v_(pk_|dot2)", half) else 1
        return {"fma": fma} if fma else {"alu": 1}
    if re.match(r"ds_(load|read|store|write)", op):
        return {access("shared", re.match(r"ds_(store|write)", op)): 1}
    if op.startswith("scratch_"):
        return {"local": 1}
    if re.match(r"(buffer|global|flat)_(load|store)", op):
        return {access("global", "_store" in op): 1}
    if re.match(r"(buffer|global|flat)_atomic", op):
        return {"atomic": 1}
    return {"barrier" if re.match(r"s_barrier(_signal)?$", op) else "other": 1}


def classify_nvk(line):
    op = re.sub(r"^@\S+\s+", "", line.split(" = ")[-1].strip()).split()[0]
    if re.match(r"[a-z]mma\b", op):
        return {"matrix": 1}
    if re.match(r"[fhd]fma", op):
        return {"fma": 2 if op.startswith("hfma2") else 1}
    if re.match(r"(ld|st)\.local", op):
        return {"local": 1}
    if re.match(r"(ld|st)\.shared|ldsm", op):
        return {access("shared", op.startswith("st")): 1}
    if re.match(r"(ld|st)\.global", op):
        return {access("global", op.startswith("st")): 1}
    if re.match(r"bar\.", op):
        return {"barrier": 1}
    if re.match(r"(atom|red)\.", op) and ".shared" not in op:
        return {"atomic": 1}
    if re.match(r"(nop|depbar|membar|warpsync|bra|bssy|bsync|bclear|break|brx|exit|atom|red|ldc"
                r"|r2ur|s2ur|s2r|cs2r|ccctl)\b", op):
        return {"other": 1}
    return {"alu": 1}


def classify_intel(line):
    text = re.sub(r"^(\([^)]*\)\s*)+", "", line)
    op = text.split()[0]
    if op.startswith("dpas"):
        return {"matrix": 1}
    if op.startswith("send"):
        message = text.split("//")[-1]
        store = re.search(r"\bstore|write", message)
        if "barrier" in message:
            return {"barrier": 1}
        if "atomic" in message and not re.search(r"\.slm\b|bti\(254\)", op + message):
            return {"atomic": 1}
        if re.search(r"atomic|fence", message) or not re.search(r"load|store|read|write", message):
            return {"other": 1}
        if re.search(r"\bss\[|scratch|bti\(253\)", message):
            return {"local": 1}
        shared = ".slm" in op or ".slm." in message or "bti(254)" in message
        return {access("shared" if shared else "global", store): 1}
    if op == "mad" and re.search(r":(f|hf|bf|df)\b", text):
        return {"fma": 1}
    if re.match(r"(sync|nop|if|else|endif|while|break|cont|halt|jmpi|join|goto|illegal)\b", op):
        return {"other": 1}
    return {"alu": 1}


def classify_ir3(line):
    op = re.sub(r"^(\([^)]*\)\s*)+", "", line).split()[0].rstrip(",")
    if re.match(r"mad\.f", op):
        repeats = re.search(r"\(rpt(\d)\)", line)
        return {"fma": 1 + int(repeats[1] if repeats else 0)}
    if re.match(r"(ldl|stl)(w)?\b", op):
        return {access("shared", op.startswith("st")): 1}
    if re.match(r"(ldp|stp)\b", op):
        return {"local": 1}
    if re.match(r"(ldib|stib|ldg|stg|isam)\b", op):
        return {access("global", op.startswith("st")): 1}
    if re.match(r"bar\b", op):
        return {"barrier": 1}
    if re.match(r"atomic\.[bgs]\.", op):
        return {"atomic": 1}
    if re.match(r"(nop|br\w*|jump|getone|atomic|fence|end|ldc|kill|pred[tfe]|shp[se])\b", op):
        return {"other": 1}
    return {"alu": 1}


# By the name that the driver gives to its assembly.
LANGUAGES = {"Assembly": (blocks_amd, classify_amd), "NAK assembly": (blocks_nvk, classify_nvk),
             "GEN Assembly": (blocks_intel, classify_intel),
             "IR3 Assembly": (blocks_ir3, classify_ir3)}


# ---- Loops ---------------------------------------------------------------------------------------

def dominators(before):
    """The blocks on every way to each block, as the bits of a number."""
    every = (1 << len(before)) - 1
    out = [1] + [every] * (len(before) - 1)
    changed = True
    while changed:
        changed = False
        for i in range(1, len(before)):
            bits = every
            for b in before[i]:
                bits &= out[b]
            bits |= 1 << i
            changed |= bits != out[i]
            out[i] = bits
    return out


def bodies(blocks):
    """Natural loops: header -> the set of blocks."""
    before = [[] for _ in blocks]
    for i, (_, to) in enumerate(blocks):
        for j in to:
            before[j].append(i)
    above, out = dominators(before), {}
    for i, (_, to) in enumerate(blocks):
        for header in (j for j in to if above[i] >> j & 1):
            body, left = out.setdefault(header, {header}), [i]
            while left:
                block = left.pop()
                if block not in body:
                    body.add(block)
                    left += before[block]
    return out


def count_classes(lines, classify):
    counts = collections.Counter()
    for line in lines:
        counts.update(classify(line))
    return counts


def read_kernel(name, lines):
    """The loops of a kernel in the language of that name, and the classes of all its instructions; None
    of a language that is not known."""
    if name not in LANGUAGES:
        return None
    split, classify = LANGUAGES[name]
    blocks = split(lines)
    all_bodies, out = bodies(blocks), []
    for body in all_bodies.values():
        own = set(body).difference(*(inner for inner in all_bodies.values() if inner < body))
        lines_in = [line for i in own for line in blocks[i][0]]
        depth = sum(body <= other for other in all_bodies.values())
        out.append(Loop(body, depth, len(lines_in), count_classes(lines_in, classify)))
    whole = count_classes([line for block, _ in blocks for line in block], classify)
    return sorted(out, key=lambda loop: (min(loop.blocks), loop.depth)), whole


def hot_loop(loops):
    """The loop with the most matrix operations, else FMAs, else loads. How often a loop runs is not
    known: four times as often as the loop around it, it is taken."""
    def weight(loop):
        return [4 ** loop.depth * n for n in (
            loop.counts["matrix"], loop.counts["fma"],
            loop.counts["shared_load"] + loop.counts["global_load"], loop.instructions)]
    return max(loops, key=weight, default=None)


def step_of(loop, loops):
    """The loop around another one with all loops in it, each counted once; the loop itself where
    there is none around: what is done for a tile of keys, for example."""
    outer = min((other for other in loops if other.blocks > loop.blocks),
                key=lambda other: len(other.blocks), default=loop)
    parts = [other for other in loops if other.blocks <= outer.blocks]
    return outer._replace(instructions=sum(part.instructions for part in parts),
                          counts=sum((part.counts for part in parts), collections.Counter()))
