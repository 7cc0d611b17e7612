"""Puts faults into a copy of the tree, one by one, and sees whether tests find them.

    run.sh [--all-tests] [NAME...]   the mutants of that name, or all; exits 1 if one survived
    run.sh --list                    names, faults, and the tests that are expected to find them
    run.sh --check                   only whether each patch applies: the ctest `mutants`

The copy and its builds are in build-mutants/, and are kept. Each test is first seen to pass without the
fault. A test that hangs for much longer than it then took has found it; so has the compiler, as
warnings are errors. --all-tests goes on after the first test that failed.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

try:
    import tomllib
except ImportError:
    print("SKIPPED: python3 is older than 3.11 and has no tomllib")
    sys.exit(77)

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "build-mutants"
TREE = WORK / "tree"
JOBS = os.environ.get("JOBS") or str(os.cpu_count() or 1)

# What a name in `by` runs: the stage of .ci/run that has it, the preset, what to build, and the command;
# {} is the argument. `kernel` is the part of the tests kernels_1 to kernels_4 that is of one kernel.
# `stub` and `host` run in the plain build what a landing runs under sanitizers, which see more.
CHECK = ("GALLIVM_PERF=nopt LP_NATIVE_VECTOR_WIDTH=128 tests/devices/newest_driver.sh --or-own"
         " build/check_kernels --seed 1 {} --kernel ")
CTEST = "ctest --preset %s --no-tests=error --output-on-failure -R '^{}$'"
TOOL = "vkattn_tool"
COMMANDS = {
    "unit": ("tests", "default", "test_unit", CTEST % "default"),
    "gpu": ("tests", "default", "test_gpu", CTEST % "default"),
    "order": ("tests", "default", f"{TOOL} check_kernels as_gpu_layer modules_layer", CTEST % "default"),
    "compile": ("gpus", "default", "vkattn_spv", CTEST % "default"),
    "kernel": ("tests", "default", "check_kernels", CHECK.format("--sample") + "{}"),
    "stub": ("sanitizers", "default", "vkattn_stub", CTEST % "default"),
    "host": ("sanitizers", "default", "test_gpu", CTEST % "default"),
    "asan": ("sanitizers", "asan", "keep_loaded", CTEST % "asan"),
    "python": ("python", "default", f"vkattn vkattn_oracle {TOOL} vkattn-mnist",
               "VKATTN_TOOL=$PWD/build/vkattn VKATTN_MNIST=$PWD/build/vkattn-mnist"
               " GALLIVM_PERF=nopt tests/python/run.sh $PWD/build/libvkattn.so -k {}"),
    "validation": ("validation", "default", f"{TOOL} test_gpu check_kernels validation_canary",
                   ".ci/validation"),
    # A part of that stage: its first leg's checks of one case.
    "validate": ("validation", "default", TOOL,
                 "VK_LAYER_ENABLES=VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"
                 " build/vkattn check --validate --no-cache tests/cases/seeds/{}.safetensors >check.out 2>&1"
                 " && ! grep -E '^(validation:|Validation [A-Z])' check.out"),
    "windows": ("windows", "default", "", "tools/dev/test_windows.sh"),
    "arm64": ("arm64", "default", "", "tools/dev/test_arm64.sh"),
    "every-case": ("whole", "default", "check_kernels", CHECK.format("") + "{}"),
    "full": ("whole", "default", "test_gpu", CTEST % "full"),
}
UNITS = {"npy", "gguf", "gguf_values", "safetensors", "case", "case_malformed"}


def program_of(test: str) -> str:
    """The program of a test that is not of its command's usual one."""
    test = test.removesuffix("_stub")
    if test in UNITS:
        return "test_unit"
    if test == "functions":
        return "check_functions"
    if test in ("interop", "interop_errors", "stub_problems", "stub_mistakes") or "faults" in test:
        return f"test_{test}"
    return f"test_{test}" if test in ("recovery", "refusals", "portability") else "test_gpu"


class Test:
    """A name of COMMANDS, and its argument."""

    def __init__(self, by: str) -> None:
        name, _, argument = by.partition(" ")
        self.by = by
        self.stage, self.preset, targets, command = COMMANDS[name]
        self.command = command.replace("{}", argument)
        self.targets = targets.split()
        if name in ("asan", "stub", "host", "gpu"):
            self.targets.append(program_of(argument))

    def shown(self) -> str:
        return f"{self.by} (stage {self.stage})"


def read_mutants() -> list[dict]:
    with open(HERE / "mutants.toml", "rb") as file:
        return tomllib.load(file)["mutant"]


def wrong_with(mutant: dict) -> str | None:
    path = ROOT / mutant["file"]
    if not path.is_file():
        return f"there is no {mutant['file']}"
    found = path.read_text(encoding="utf-8").count(mutant["old"])
    if found != 1:
        return f"its old text is {found} times in {mutant['file']}, not once"
    if mutant["old"] == mutant["new"]:
        return "its new text is the old one"
    if not mutant["by"] or any(by.split()[0] not in COMMANDS for by in mutant["by"]):
        return f"of {mutant['by']}, expected tests of {', '.join(COMMANDS)}"
    return None


def check(mutants: list[dict]) -> int:
    names = [mutant["name"] for mutant in mutants]
    wrong = [f"{name}: it is there twice" for name in set(names) if names.count(name) > 1]
    wrong += [f"{m['name']}: {why}" for m in mutants if (why := wrong_with(m))]
    for line in wrong:
        print(f"FAIL {line}")
    print(f"{len(mutants)} mutants, {len(wrong)} do not apply")
    return 1 if wrong or not mutants else 0


def copy_tree() -> None:
    """Copies what git has or does not ignore; files with the same bytes keep their time."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, check=True, capture_output=True).stdout
    names = {name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        source, target = ROOT / name, TREE / name
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
    for path in TREE.rglob("*"):
        name = path.relative_to(TREE)
        kept = name.parts[0] == ".git" or name.parts[0].startswith("build")
        if path.is_file() and not kept and str(name) not in names:
            path.unlink()
    if not (TREE / ".git").exists():  # tools ask git for files and commits
        subprocess.run("git init -q . && git add -A &&"
                       " git -c user.name=mutants -c user.email=mutants@localhost commit -qm tree",
                       shell=True, cwd=TREE, check=True)


def run(command: str, log: Path, limit: float | None = None) -> int:
    """Its exit status, or 124 where it passed the limit, in seconds; all it started is ended then."""
    with open(log, "wb") as out:
        process = subprocess.Popen(["bash", "-c", command], cwd=TREE, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return 124
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def build(tests: list[Test], log: Path) -> bool:
    by_preset: dict[str, set[str]] = {}
    for test in tests:
        by_preset.setdefault(test.preset, set()).update(test.targets)
    for preset, targets in sorted(by_preset.items()):
        folder = "build" if preset == "default" else f"build-{preset}"
        kernels = "" if preset == "default" else "VKATTN_SPIRV_FROM=$PWD/build/shaders "
        if not (TREE / folder / "CMakeCache.txt").exists():
            # As .ci/run has it: warnings are errors, and lines are enough for a debugger.
            flags = '-DVKATTN_WERROR=ON -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O2 -g1 -DNDEBUG"'
            if run(f"{kernels}cmake --preset {preset} {flags if preset == 'default' else ''}", log):
                return False
        if targets and run(f"{kernels}cmake --build --preset {preset} --parallel {JOBS} --target "
                           + " ".join(sorted(targets)), log):
            return False
    return True


def is_skipped(status: int, log: Path) -> bool:
    return status == 77 or b"***Skipped" in log.read_bytes()


class Green:
    """What each test takes without a fault, in seconds; None where it cannot run or fails."""

    def __init__(self) -> None:
        self.seconds: dict[str, float | None] = {}

    def see(self, test: Test) -> float | None:
        if test.by not in self.seconds:
            log = WORK / f"green-{re.sub('[^a-z0-9]+', '-', test.by)}.log"
            seconds = None
            if build([test], log):
                begin = time.monotonic()
                status = run(test.command, log)
                if status == 0 and not is_skipped(status, log):
                    seconds = time.monotonic() - begin
            if seconds is None:
                print(f"        {test.shown()} does not pass without a fault: see {log}", flush=True)
            self.seconds[test.by] = seconds
        return self.seconds[test.by]


def try_test(mutant: dict, test: Test, limit: float, log: Path) -> str | None:
    """What found the mutant, if anything did."""
    path = TREE / mutant["file"]
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(mutant["old"], mutant["new"]), encoding="utf-8")
    try:
        if not build([test], log):
            return "the compiler (stage build)"
        status = run(test.command, log, limit)
    finally:
        path.write_text(whole, encoding="utf-8")
    if status == 124:
        return f"{test.shown()}, which hung"
    return test.shown() if status else None


def try_mutant(mutant: dict, green: Green, go_on: bool) -> list[str] | None:
    """The tests that found it; None where no test could be run."""
    found, n_run = [], 0
    for test in map(Test, mutant["by"]):
        seconds = green.see(test)
        if seconds is None:
            continue
        n_run += 1
        by = try_test(mutant, test, 120 + 4 * seconds, WORK / f"{mutant['name']}.log")
        if by:
            found.append(by)
        if found and not go_on:
            break
    return found if n_run else None


def try_all(mutants: list[dict], go_on: bool) -> int:
    WORK.mkdir(exist_ok=True)
    copy_tree()
    green, survived = Green(), 0
    print(f"{'mutant':24}{'seconds':>8}  caught by", flush=True)
    for mutant in mutants:
        begin = time.monotonic()
        found = try_mutant(mutant, green, go_on)
        survived += not found
        by = "; ".join(found or [("NOT RUN " if found is None else "SURVIVED ")
                                 + ", ".join(mutant["by"])])
        print(f"{mutant['name']:24}{time.monotonic() - begin:8.0f}  {by}", flush=True)
    print(f"{len(mutants) - survived} of {len(mutants)} caught")
    return 1 if survived else 0


def main(arguments: list[str]) -> int:
    mutants = read_mutants()
    if arguments == ["--check"]:
        return check(mutants)
    if arguments == ["--list"]:
        for mutant in mutants:
            print(f"{mutant['name']:24}{mutant['fault']}\n{'':24}{', '.join(mutant['by'])}")
        return 0
    names = [name for name in arguments if name != "--all-tests"]
    unknown = set(names) - {mutant["name"] for mutant in mutants}
    if unknown:
        print(f"run.sh: no mutant {', '.join(sorted(unknown))}; --list names all", file=sys.stderr)
        return 2
    if check(mutants):
        return 1
    of_name = {mutant["name"]: mutant for mutant in mutants}
    chosen = [of_name[name] for name in names] if names else mutants
    return try_all(chosen, "--all-tests" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
