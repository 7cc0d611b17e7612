"""What can be tried of Windows where there is no Python of Windows: the package loads vkattn.dll
there, needs nothing that Python lacks there, and cffi's structs are those of compilers for Windows."""

import ast
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import vkattn
from vkattn import _abi, _abi_parse

PACKAGE = pathlib.Path(vkattn.__file__).resolve().parent
INCLUDE = PACKAGE.parents[1] / "include"

# Modules, and names of modules, that Python's manual gives to Unix alone.
UNIX_MODULES = set("curses crypt fcntl grp nis ossaudiodev posix pty pwd readline resource spwd"
                   " syslog termios tty".split())
UNIX_NAMES = {
    "os": set("chown chroot confstr copy_file_range ctermid eventfd fchdir fchmod fchown fork"
              " forkpty fpathconf fstatvfs getegid geteuid getgid getgroups getloadavg getpgid"
              " getpgrp getpriority getresgid getresuid getsid getuid getxattr initgroups killpg"
              " lchown lockf major makedev memfd_create minor mkfifo mknod nice openpty pathconf"
              " pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn posix_spawnp pread"
              " preadv pwrite pwritev readv register_at_fork sched_getaffinity sched_setaffinity"
              " sched_yield sendfile setegid seteuid setgid setgroups setpgid setpriority setsid"
              " setuid setxattr splice statvfs sync sysconf tcgetpgrp ttyname uname wait wait3 wait4"
              " waitid writev O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_SYNC".split()),
    "signal": set("SIGALRM SIGBUS SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 alarm"
                  " getitimer pause pthread_kill pthread_sigmask setitimer sigpending sigtimedwait"
                  " sigwait sigwaitinfo".split()),
    "time": set("clock_getres clock_gettime clock_gettime_ns clock_settime pthread_getcpuclockid"
                " tzset".split()),
    "mmap": set("MAP_ANON MAP_ANONYMOUS MAP_PRIVATE MAP_SHARED PROT_READ PROT_WRITE".split()),
    "select": {"epoll", "kqueue", "poll"},
    "socket": {"AF_UNIX", "socketpair"},
}


def of_unix(source):
    """What a module takes that is of Unix alone, as "line: name", but for what it tries to import."""
    found, tree = [], ast.parse(source)
    tried = {id(statement) for node in ast.walk(tree) if isinstance(node, ast.Try)
             and any(isinstance(h.type, ast.Name) and h.type.id == "ImportError" for h in node.handlers)
             for statement in node.body}
    for node in ast.walk(tree):
        if id(node) in tried:
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [n.name for n in node.names if n.name.split(".")[0] in UNIX_MODULES]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module.split(".")[0]
            names = [node.module + "." + n.name for n in node.names
                     if module in UNIX_MODULES or n.name in UNIX_NAMES.get(module, ())]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = node.value.id
            names = [module + "." + node.attr] if node.attr in UNIX_NAMES.get(module, ()) else []
        found += [f"{node.lineno}: {name}" for name in names]
    return found


def test_needs_nothing_of_unix():
    source = ("import os, fcntl\nfrom signal import alarm\nos.fork()\nos.getpid()\nimport pwd.x\n"
              "try:\n    import resource\nexcept ImportError:\n    pass\n")
    assert sorted(of_unix(source)) == ["1: fcntl", "2: signal.alarm", "3: os.fork", "5: pwd.x"]
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 30
    assert {str(f): found for f in files
            if (found := of_unix(f.read_text(encoding="utf-8")))} == {}


# sys.platform as on Windows, and nothing of Unix alone. numpy and cffi are this machine's, and so is
# the library, under the name of the other.
AS_WINDOWS = """
import cffi, numpy, sys
sys.platform = "win32"
for module in {modules}:
    sys.modules[module] = None
for module, names in {names}.items():
    module = __import__(module)
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
import vkattn, vkattn.models
assert vkattn._abi.LIBRARY_NAME == "vkattn.dll", vkattn._abi.LIBRARY_NAME
x = numpy.arange(4, dtype=numpy.float32).reshape(1, 1, 4, 1)
print(vkattn.attention(x, x, x, causal=True).astype(float).ravel().round(3).tolist())
"""


def test_takes_the_dll(device, tmp_path):
    copy = tmp_path / "vkattn"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "lib*", "*.dll"))
    for name in _abi_parse.HEADERS:
        shutil.copy(INCLUDE / "vkattn" / name, copy)
    script = AS_WINDOWS.format(modules=sorted(UNIX_MODULES - {"posix"}),
                               names={k: sorted(v) for k, v in UNIX_NAMES.items()})
    environment = dict(os.environ, PYTHONPATH=str(tmp_path))
    library = environment.pop("VKATTN_LIBRARY")

    def run():
        return subprocess.run([sys.executable, "-c", script], env=environment, text=True,
                              capture_output=True)

    missing = run()
    assert missing.returncode and "vkattn.dll: there is no vkattn library" in missing.stderr
    shutil.copy(library, copy / "vkattn.dll")
    done = run()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0.0, 0.731, 1.851, 2.948]\n"


# Compilers of Windows, which have a long of 32 bits, and Microsoft's layout.
COMPILERS = {
    "mingw": ["x86_64-w64-mingw32-gcc"],
    "msvc": ["clang", "--target=x86_64-pc-windows-msvc", "-ffreestanding", "-fms-compatibility"],
}


def layouts():
    """What cffi makes of each struct and enum of the headers, as C."""
    names = {n for n in _abi.ffi.list_types()[1]}
    lines = []
    for name in sorted(names):
        struct = _abi.ffi.typeof("struct " + name)
        if struct.fields is None:
            continue  # opaque
        size = f"sizeof(struct {name}) == {_abi.ffi.sizeof(struct)}"
        lines.append(f'_Static_assert({size}, "{name}");')
        for field, placed in struct.fields:
            assert placed.bitsize == -1, f"{name}.{field} is a bit field"
            where = f"offsetof(struct {name}, {field}) == {placed.offset}"
            size = f"sizeof(((struct {name} *)0)->{field}) == {_abi.ffi.sizeof(placed.type)}"
            lines.append(f'_Static_assert({where} && {size}, "{name}.{field}");')
    assert len(lines) > 200
    return lines


@pytest.mark.parametrize("kind", COMPILERS)
def test_structs(kind, tmp_path):
    command = COMPILERS[kind]
    if not shutil.which(command[0]):
        pytest.skip(f"there is no {command[0]}: the structs of Windows were not compared")
    head = ["#include <stddef.h>"] + [f"#include <vkattn/{name}>" for name in _abi_parse.HEADERS]
    vulkan = pathlib.Path("/usr/include")  # its headers alone, as the C library's are another's
    if not (vulkan / "vulkan").is_dir():
        pytest.skip("there are no headers of Vulkan: the structs of Windows were not compared")
    for name in ("vulkan", "vk_video"):
        (tmp_path / name).symlink_to(vulkan / name)

    def compile_(lines):
        source = tmp_path / "layout.c"
        source.write_text("\n".join(head + lines) + "\n")
        options = ["-std=c11", "-fsyntax-only", f"-I{INCLUDE}", f"-I{tmp_path}"]
        return subprocess.run([*command, *options, source], text=True, capture_output=True)

    done = compile_(layouts())
    assert done.returncode == 0, done.stderr
    wrong = compile_(['_Static_assert(offsetof(struct vka_device_info, struct_size) == 1, "x");'])
    assert wrong.returncode != 0 and "static" in wrong.stderr
