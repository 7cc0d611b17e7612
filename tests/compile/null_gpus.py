"""GPUs that are not there: compile_kernels on Mesa's null devices, and the table of what came out.

SPDX-License-Identifier: MIT"""
import collections
import concurrent.futures
import glob
import os
import platform
import re
import signal
import subprocess
import tempfile

import assembly


def amd(name, **options):
    return "radeon", "libamdgpu_noop_drm_shim.so", dict({"AMDGPU_GPU_ID": name}, **options)


def nvidia(chipset):
    return "nouveau", "libnouveau_noop_drm_shim.so", {
        "NOUVEAU_CHIPSET": chipset, "NVK_I_WANT_A_BROKEN_VULKAN_DRIVER": "1"}


def intel(pci_id, geometry):
    """Generation, slices, subslices of each, EUs of each, 1 where it has memory of its own."""
    return "intel", "libintel_null.so", {
        "INTEL_STUB_GPU_DEVICE_ID": pci_id, "INTEL_NULL_GEOMETRY": geometry}


def qualcomm(chip):
    return "freedreno", "libfreedreno_noop_drm_shim.so", {"FD_GPU_ID": chip}


def apple():
    return "asahi", "libasahi_noop_drm_shim.so", {}


def broadcom(version):
    return "broadcom", "libv3d_noop_drm_shim.so", {"V3D_GPU_ID": version}


def mali(product):
    return "panfrost", "libpanfrost_noop_drm_shim.so libpanvk_null.so", {
        "PAN_GPU_ID": product, "PAN_I_WANT_A_BROKEN_VULKAN_DRIVER": "1"}


# Name -> the driver, the libraries that stand for the kernel's driver, and what it is told.
GPUS = {
    "vega20": amd("vega20"), "navi21": amd("navi21"), "navi31": amd("navi31"),
    "gfx1201": amd("gfx1201"),
    # With VK_NV_cooperative_matrix2, which RADV has but does not offer unless it is told to.
    "navi31_matrix2": amd("navi31", radv_cooperative_matrix2_nv="true"),
    "gfx1201_matrix2": amd("gfx1201", radv_cooperative_matrix2_nv="true"),
    "turing": nvidia("162"), "ampere": nvidia("176"), "ada": nvidia("194"),
    "hopper": nvidia("180"), "blackwell": nvidia("1b2"),
    "tgl": intel("0x9a49", "12,1,6,16,0"), "a770": intel("0x56a0", "12,8,4,16,1"),
    "mtl": intel("0x7d55", "12,2,4,16,0"), "lnl": intel("0x64a0", "20,2,4,8,0"),
    "bmg": intel("0xe20b", "20,5,4,8,1"), "ptl": intel("0xb080", "30,3,4,8,0"),
    "adreno660": qualcomm("660"), "adreno740": qualcomm("740"), "m1": apple(),
    "pi4": broadcom("42"), "pi5": broadcom("71"),
    "g310": mali("ac74"), "g610": mali("a867"),
}
# Debian builds their drivers for arm64 alone: they are compiled for when they are asked for, with a
# program and a tree of arm64, by qemu.
ARM64 = {"pi4", "pi5", "g310", "g610"}
# Without pointer authentication: each function of sid signs its return address, which takes qemu
# longer than all else that it does.
QEMU = ["qemu-aarch64", "-cpu", "cortex-a72"]
# Drivers whose null device there is none of, or does not start.
NO_DEVICE = ["PowerVR"]
NO_ASSEMBLY = {"m1", *ARM64}  # of these there are statistics alone

# Columns of statistics, in the words of RADV, NVK, ANV, Turnip, Honeykrisp and V3DV. Registers: of a
# lane; on Intel those alive at once. Local memory: bytes of a subgroup (AMD, Intel), a lane (NVK) or
# a pipeline (V3DV). Waves: what registers, and on AMD shared memory, leave room for on a SIMD (AMD),
# an SM (NVK), a QPU (V3DV) or a core.
STATISTICS = {
    "instructions": ["Instructions", "Instruction count", "Instruction Count"],
    "registers": ["VGPRs", "Number of GPRs", "Max live registers", "Registers used", "GPRs"],
    "spills": ["Spilled VGPRs", "Spills to memory", "Spills", "STP Count", "TMU Spills"],
    "fills": ["Fills from memory", "Fills", "LDP Count", "TMU Fills"],
    "local_bytes": ["Scratch size", "SLM size", "Scratch Memory Size", "Scratch",
                    "Spill Size"],
    "shared_bytes": ["LDS size", "Workgroup Memory Size", "NIR shared_size"],
    "waves": ["Subgroups per SIMD", "Max warps/SM", "Max Waves Per Core", "Thread Count", "Threads"],
}
# loop: instructions of the hot loop, then the classes in it; step: of the loop around it with all
# that is in it; all_: of the whole kernel.
STEP = {"step": "instructions", "step_matrix": "matrix", "step_fma": "fma", "step_alu": "alu"}
WHOLE = {"all_" + name: name for name in ("global_store", "atomic", "shared_load", "shared_store")}
COLUMNS = (["kernel", "dtype", "spec", "subgroup"] + list(STATISTICS) + list(WHOLE) + ["loop"] +
           assembly.CLASSES + list(STEP) + ["sources", "problems"])

# rows: dicts, column -> text; with "loops", where they were measured; "sources" is a hash of a
# pipeline's module and constants. error: why there are none. refused: "refused KERNEL: it REASON" of
# each kernel that the device cannot run, and "unsupported PROBLEM: SENTENCE" of each problem without a
# plan.
Figures = collections.namedtuple("Figures", "device driver rows error refused", defaults=[[]])


# ---- Files of compile_kernels --figures ----------------------------------------------------------

def read_program(text, has_assembly):
    """Columns of a program: what follows its line "program SUBGROUP NAME"."""
    row = {"subgroup": text.split(None, 1)[0]}
    statistics = dict(re.findall(r"^statistic (.*) = (.*)$", text, re.M))
    for column, names in STATISTICS.items():
        row[column] = next((statistics[n] for n in names if n in statistics), "-")
    found = re.search(r"^assembly (.*)\n((?:.*\n)*?)end$", text, re.M)
    kernel = assembly.read_kernel(found[1], found[2].split("\n")) if found else None
    if kernel is None and has_assembly:
        raise ValueError("no assembly in a known language")
    loops, whole = kernel or ([], None)
    row["loops"] = loops
    row.update({name: str(whole[c]) if kernel else "-" for name, c in WHOLE.items()})
    loop = assembly.hot_loop(row["loops"])
    if not loop:
        row.update(dict.fromkeys(["loop"] + assembly.CLASSES + list(STEP), "-"))
        return row
    step = assembly.step_of(loop, loops)
    row["loop"], row["step"] = str(loop.instructions), str(step.instructions)
    row.update({name: str(loop.counts[name]) for name in assembly.CLASSES})
    row.update({name: str(step.counts[c]) for name, c in STEP.items() if name != "step"})
    return row


def read_pipeline(path, has_assembly=True):
    """One row for each program of a pipeline, or one where it was not compiled."""
    with open(path, errors="replace") as f:
        head, *programs = re.split(r"^program ", f.read(), flags=re.M)
    values = collections.defaultdict(list)
    for line in head.splitlines():
        word, _, rest = line.partition(" ")
        values[word].append(rest)
    common = {"kernel": values["kernel"][0], "dtype": values["dtype"][0],
              "spec": values["spec"][0].replace(" ", ","), "sources": "".join(values["sources"]),
              "problems": "; ".join(values["problem"])}
    return [dict(common, **read_program(text, has_assembly)) for text in programs] or [common]


# ---- A run ---------------------------------------------------------------------------------------

def one_of(*patterns):
    return next((path for pattern in patterns for path in sorted(glob.glob(pattern))), None)


def tree_problem(tree):
    """Why the tree is of no use; None where it is."""
    if not os.path.isdir(tree):
        return "there is no tree %s; tools/dev/sid_tree.sh makes it" % tree
    if not one_of(tree + "/usr/lib64/ld-linux-*", tree + "/usr/lib/ld-linux-*"):
        return "%s is no tree of tools/dev/sid_tree.sh" % tree
    return None


def command(tree, gpu, program):
    """Runs the program by the loader and the libraries of the tree, without root; of an arm64 tree by
    qemu."""
    driver, shim, told = GPUS[gpu]
    libraries = one_of(tree + "/usr/lib/*-linux-gnu*")
    loader = one_of(tree + "/usr/lib64/ld-linux-*", tree + "/usr/lib/ld-linux-*")
    preload = [one_of(libraries + "/" + name, tree + "/" + name) for name in shim.split()]
    if not all(preload):
        raise OSError("%s is not in %s" % (shim, tree))
    environment = {name: value for name, value in os.environ.items()
                   if not re.match(r"(VK_|MESA_|LD_|RADV_|ACO_|NAK_|NVK_|INTEL_|ANV_)", name)}
    environment.update(told, MESA_SHADER_CACHE_DISABLE="1", VK_LOADER_LAYERS_DISABLE="~implicit~",
                       VK_DRIVER_FILES=tree + "/usr/share/vulkan/icd.d/%s_icd.json" % driver)
    arguments = [loader, "--library-path", libraries, "--preload", " ".join(preload), program]
    if gpu in ARM64 and platform.machine() != "aarch64":
        arguments = QEMU + arguments
    return arguments, environment


def without_sources(lines):
    """Lines but "sources HASH", which older programs and tables have."""
    return [line for line in lines if not line.startswith("sources ")]


def how_it_ended(ended):
    if ended.returncode < 0:
        how = signal.Signals(-ended.returncode).name
    else:
        how = "exit status %d" % ended.returncode
    lines = [l for l in ended.stdout.splitlines() if "FAIL" in l or "no plan" in l] or [""]
    return ("compile_kernels: %s. %s" % (how, lines[0])).strip()


def dump(tree, gpu, program, *options):
    """Figures of a GPU; with --list of each row what is known before it is compiled."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            arguments, environment = command(os.path.abspath(tree), gpu, program)
            ended = subprocess.run(arguments + ["--figures", folder, *options], env=environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace")
            if ended.returncode != 0:
                return Figures("-", "-", [], how_it_ended(ended))
            with open(folder + "/device.txt") as f:
                device, driver, *refused = f.read().splitlines()
            rows = [row for path in sorted(glob.glob(folder + "/[0-9]*.txt"))
                    for row in read_pipeline(path, gpu not in NO_ASSEMBLY)]
            return Figures(device, driver, rows, None if rows else "no pipeline",
                           without_sources(refused))
        except (OSError, ValueError, KeyError, IndexError) as error:
            return Figures("-", "-", [], "%s: %s" % (type(error).__name__, error))


def measure(tree, gpu, program, tables=None):
    """Figures of a GPU. A compiler gives the same code for the same module and constants: kernels of
    which a table in the folder `tables` has all, by the same driver, are not compiled again."""
    if not tables:
        return dump(tree, gpu, program)
    table, _ = read_table(table_path(tables, gpu))
    listed = dump(tree, gpu, program, "--list")
    kept = collections.defaultdict(list)
    if (table.device, table.driver) == (listed.device, listed.driver):
        for row in table.rows:
            kept[identity(row)].append(row)
    missing = sorted({row["kernel"] for row in listed.rows if not kept[identity(row)]})
    made = dump(tree, gpu, program, "--kernel", ",".join(missing)) if missing else listed
    if listed.error or made.error:
        return made if made.error else listed
    new = collections.defaultdict(list)
    for row in made.rows if missing else []:
        new[identity(row)].append(row)
    rows = []
    for first in listed.rows:
        found = new[identity(first)] or kept[identity(first)]
        if not found:
            return listed._replace(rows=[], error="was not compiled: " + title(first))
        rows += [dict(row, problems=first["problems"]) for row in found]
    return listed._replace(rows=rows)


def measure_all(arguments, program, tables=None):
    """GPU -> figures, arguments.jobs at a time."""
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = {gpu: pool.submit(measure, arguments.tree, gpu, program, tables)
                for gpu in arguments.gpu}
        return {gpu: job.result() for gpu, job in jobs.items()}


# ---- Tables --------------------------------------------------------------------------------------

def table_path(tables, gpu):
    return os.path.join(tables, gpu + ".tsv")


def write_table(path, figures, compiler):
    with open(path, "w") as f:
        f.write("# device %s\n# driver %s\n# compiler %s\n" %
                (figures.device, figures.driver, compiler))
        f.writelines("# %s\n" % text for text in figures.refused)
        f.write("\t".join(COLUMNS) + "\n")
        for row in figures.rows:
            f.write("\t".join(row.get(c, "-") for c in COLUMNS) + "\n")


def read_table(path):
    """Figures of a table, and the shader compiler that made the modules."""
    if not os.path.exists(path):
        return Figures("-", "-", [], "there is no " + path), "-"
    with open(path) as f:
        lines = f.read().splitlines()
    head = [line[2:] for line in lines if line.startswith("# ")]
    device, driver, compiler = (line.split(" ", 1)[1] for line in head[:3])
    columns = lines[len(head)].split("\t")
    rows = [dict(zip(columns, line.split("\t"))) for line in lines[len(head) + 1:]]
    return Figures(device, driver, rows, None, without_sources(head[3:])), compiler


def identity(row):
    """What a driver compiles; tables of older commits do not say it."""
    return row["kernel"], row["dtype"], row["spec"], row.get("sources")


def key(row):
    return row["kernel"], row["dtype"], row["spec"], row["subgroup"]


def title(row):
    return "%s %s (%s; constants %s)" % (row["kernel"], row["dtype"],
                                         row["problems"].split("; ")[0], row["spec"])
