#!/usr/bin/env python3
"""Circles of files, and functions that another file's header declares.

    tests/unit/circles.py BUILD [--root FOLDER] [--most-foreign PERCENT] [--list]

A C file and the header of its name are one. It leads to what it includes, and to the files that
define the functions and tables that its object names (by `nm`). A Python module leads to what it
imports, for types too. A circle of either fails, as do more than PERCENT of the functions with a
declaration in src/ that a header of another name declares, interfaces of several systems apart. A
tree without some of its objects proves nothing: fewer than --least-objects fail too.
"""
import argparse
import ast
import collections
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDERS = ('src', 'tools', 'examples')
INTERFACES = ('src/core/os.h',) # of several systems: os_posix*.c and os_windows*.c implement it
INCLUDE_ROOTS = ('src', 'include', 'tools', '.')


def unit(path):
    return os.path.splitext(path)[0]


def c_files(root):
    for folder in FOLDERS:
        for at, _, names in os.walk(os.path.join(root, folder)):
            for name in names:
                if name.endswith(('.c', '.h')):
                    yield os.path.relpath(os.path.join(at, name), root)


def included(path, text, files):
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M):
        for base in (os.path.dirname(path),) + INCLUDE_ROOTS:
            found = os.path.normpath(os.path.join(base, name))
            if found in files:
                yield found
                break


def symbols(build, files):
    """The names that the object of each C file defines, and those it asks for."""
    defined, wanted = {}, {}
    objects = sorted(glob.glob(os.path.join(build, '**', 'CMakeFiles', '*.dir', '**', '*.c.o'),
                               recursive=True))
    for found in objects:
        path = re.sub(r'CMakeFiles/[^/]*\.dir/', '', os.path.relpath(found, build))[:-len('.o')]
        if path not in files or path in defined:
            continue
        lines = subprocess.run(['nm', found], check=True, capture_output=True,
                               text=True).stdout.split('\n')
        rows = [line.split() for line in lines if line]
        defined[path] = {row[2] for row in rows if len(row) == 3 and row[1] in 'TDBRC'}
        wanted[path] = {row[-1] for row in rows if row[-2] == 'U'}
    return defined, wanted


def read(root, path):
    with open(os.path.join(root, path), encoding='utf-8') as f:
        return f.read()


def c_edges(root, build):
    files = set(c_files(root))
    text = {path: read(root, path) for path in files}
    edges = collections.defaultdict(dict)
    for path in files:
        for other in included(path, text[path], files):
            edges[unit(path)].setdefault(unit(other), 'includes ' + other)
    defined, wanted = symbols(build, files)
    owners = collections.defaultdict(list)
    for path, names in defined.items():
        for name in names:
            owners[name].append(path)
    for path, names in wanted.items():
        for name in sorted(names):
            if len(owners[name]) == 1: # programs have a main each, examples their own helpers
                edges[unit(path)].setdefault(unit(owners[name][0]), 'names ' + name)
    return edges, text, defined


def python_edges(root):
    folder = os.path.join(root, 'python')
    modules = {}
    for at, _, names in os.walk(os.path.join(folder, 'vkattn')):
        for name in names:
            if name.endswith('.py'):
                path = os.path.relpath(os.path.join(at, name), folder)
                modules[re.sub(r'\.__init__$', '', unit(path).replace(os.sep, '.'))] = path
    edges = collections.defaultdict(dict)
    for module, path in modules.items():
        package = module.split('.') if path.endswith('__init__.py') else module.split('.')[:-1]
        for node in ast.walk(ast.parse(read(folder, path))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package[:len(package) + 1 - node.level] if node.level else []
                base = '.'.join(base + ([node.module] if node.module else []))
                names = [base + '.' + alias.name if base + '.' + alias.name in modules else base
                         for alias in node.names]
            else:
                continue
            for name in names:
                if name in modules:
                    edges[module].setdefault(name, 'imports, line %d' % node.lineno)
    return edges


def circles(edges):
    """The strongly connected components of more than one node, by Tarjan, without recursion."""
    index, low, on, stack, found = {}, {}, set(), [], []
    for start in sorted(edges):
        if start in index:
            continue
        work = [(start, iter(sorted(edges[start])))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on.add(start)
        while work:
            node, others = work[-1]
            other = next(others, None)
            if other is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    circle = set()
                    while node not in circle:
                        circle.add(stack.pop())
                    on -= circle
                    if len(circle) > 1:
                        found.append(sorted(circle))
            elif other not in index:
                index[other] = low[other] = len(index)
                stack.append(other)
                on.add(other)
                work.append((other, iter(sorted(edges.get(other, ())))))
            elif other in on:
                low[node] = min(low[node], index[other])
    return found


def foreign(text, defined):
    """Functions and tables of src/ that a header declares: in all, and those of another's header."""
    owner = {name: path for path, names in defined.items() if path.startswith('src/')
             for name in names}
    words = {}
    for path in text:
        if path.startswith('src/') and path.endswith('.h'):
            code = re.sub(r'/\*.*?\*/', '', text[path], flags=re.S)
            words[path] = set(re.findall(r'\b\w+(?=[(\[;,])', code))
    total, others = 0, []
    for name, path in sorted(owner.items()):
        headers = [header for header in words if name in words[header]]
        if headers:
            total += 1
            if unit(path) + '.h' not in headers and not set(headers) & set(INTERFACES):
                others.append((name, path, headers[0]))
    return total, others


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('build', help='a built tree')
    parser.add_argument('--root', default=ROOT, help='the sources that it is of')
    parser.add_argument('--least-objects', type=int, default=100)
    parser.add_argument('--most-foreign', type=int, default=100)
    parser.add_argument('--list', action='store_true')
    arguments = parser.parse_args()
    edges, text, defined = c_edges(arguments.root, arguments.build)
    if len(defined) < arguments.least_objects:
        sys.exit('circles: only %d objects are built' % len(defined))
    failed = False
    for kind, graph in (('C', edges), ('Python', python_edges(arguments.root))):
        found = circles(graph)
        for circle in found:
            failed = True
            print('%s: a circle of %d files' % (kind, len(circle)))
            for one in circle:
                for other, why in sorted(graph[one].items()):
                    if other in circle and other != one:
                        print('  %s -> %s: %s' % (one, other, why))
        print('%s: %d files, %d circles' % (kind, len(graph), len(found)))
    total, others = foreign(text, defined)
    percent = 100 * len(others) / max(total, 1)
    print('%d of %d functions (%.0f %%) are declared by the header of another file'
          % (len(others), total, percent))
    if arguments.list or percent > arguments.most_foreign:
        for name, path, header in others:
            print('  %s of %s: %s' % (name, path, header))
    if percent > arguments.most_foreign:
        failed = True
    return failed


sys.exit(main())
