"""The commit that figures are compared with where the tables are by another driver.

SPDX-License-Identifier: MIT"""
import os
import subprocess
import tempfile

import null_gpus

# What pipelines depend on.
SOURCES = ["CMakeLists.txt", "cmake", "include", "shaders", "src", "tests/compile",
           ":(exclude)tests/compile/figures"]


class Base:
    """Built and measured when it is first asked for."""

    def __init__(self, arguments, tables):
        self.arguments, self.tables = arguments, tables
        self.root = os.path.dirname(os.path.dirname(os.path.dirname(tables)))
        self.name = self.why = self.measured = None
        self.folder = tempfile.TemporaryDirectory(prefix="figures-base-")

    def git(self, *words):
        done = subprocess.run(["git", "-C", self.root] + list(words), stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    def commit(self):
        name = os.environ.get("FIGURES_BASE")
        if name:
            return self.git("rev-parse", "--verify", "--quiet", name + "^{commit}")
        return self.git("log", "-n", "1", "--format=%H", "--", self.tables)

    def measure(self):
        """Sets measured, or why there is nothing."""
        self.name = self.commit()
        if not self.name:
            self.why = "no commit to compare with is known"
            return
        if self.git("diff", "--quiet", self.name, "--", *SOURCES) is not None:
            self.why = "no source has changed since commit %.12s" % self.name
            return
        source, build = self.folder.name + "/source", self.folder.name + "/build"
        os.mkdir(source)
        steps = ["git -C '%s' archive %s | tar -x -C '%s'" % (self.root, self.name, source),
                 "cmake -S '%s' -B '%s' -DVKATTN_BUILD_MPI=OFF -DGLSLANG='%s' -DSPIRV_OPT='%s'" % (
                     source, build, self.arguments.glslang, self.arguments.spirv_opt),
                 "cmake --build '%s' --parallel %d --target compile_kernels" % (
                     build, self.arguments.jobs)]
        for step in steps:
            done = subprocess.run(step, shell=True, stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            if done.returncode != 0:
                self.why = "commit %.12s cannot be built: %s" % (self.name, done.stdout[-500:])
                return
        self.measured = null_gpus.measure_all(self.arguments, build + "/compile_kernels")

    def rows(self, gpu):
        """Rows, and where they come from; None and why not."""
        if not self.measured and not self.why:
            self.measure()
        if self.why:
            return None, self.why
        figures = self.measured[gpu]
        if figures.error:
            return None, "commit %.12s: %s" % (self.name, figures.error)
        return figures.rows, "commit %.12s" % self.name
