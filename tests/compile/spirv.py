"""SPIR-V modules as lists of instructions, for programs that change them. SPDX-License-Identifier: MIT"""
import array

MAGIC = 0x07230203
HEADER_WORDS, BOUND_AT = 5, 3
VERSION_1_4 = 0x00010400  # from here on entry points list their variables of all storage classes
# Opcodes.
ENTRY_POINT, EXECUTION_MODE, EXECUTION_MODE_ID = 15, 16, 331
TYPE_BOOL, TYPE_INT, TYPE_VECTOR, TYPE_POINTER = 20, 21, 23, 32
CONSTANT, FUNCTION, VARIABLE, LOAD, STORE, LABEL = 43, 54, 59, 61, 62, 248
ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN = 65, 66
LINE, NO_LINE = 8, 317
DECORATE, COMPOSITE_CONSTRUCT, COMPOSITE_EXTRACT = 71, 80, 81
ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO = 128, 130, 132, 134, 137
SELECT, EQUAL, CONTROL_BARRIER = 169, 170, 224
# Other enumerants.
GL_COMPUTE, LOCAL_SIZE, LOCAL_SIZE_ID, BUILTIN = 5, 17, 38, 11
INPUT, PRIVATE = 1, 6
NUM_WORKGROUPS, WORKGROUP_SIZE, WORKGROUP_ID, LOCAL_ID, GLOBAL_ID, LOCAL_INDEX = range(24, 30)
SUBGROUP_ID = 40


class Unsupported(Exception):
    """What this program cannot rewrite, or what is no module."""


def fnv1a(words):
    """The 64-bit FNV-1a hash, of whole words in place of bytes."""
    value = 0xCBF29CE484222325
    for word in words:
        value = (value ^ word) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def read(path):
    """The words of a file of this machine's byte order, which is little-endian."""
    with open(path, "rb") as file:
        words = array.array("I", file.read())
    if len(words) < HEADER_WORDS or words[0] != MAGIC:
        raise Unsupported("no SPIR-V module")
    return words


class Module:
    """Instructions, each a list: its opcode, then its operands' words."""

    def __init__(self, words):
        self.header = list(words[:HEADER_WORDS])
        self.code = []
        at = HEADER_WORDS
        while at < len(words):
            count = words[at] >> 16
            if count == 0 or at + count > len(words):
                raise Unsupported("an instruction goes beyond the module")
            self.code.append([words[at] & 0xFFFF, *words[at + 1 : at + count]])
            at += count
        entries = self.all_of(ENTRY_POINT)
        if len(entries) != 1 or entries[0][1] != GL_COMPUTE:
            raise Unsupported("not one compute shader")
        self.entry = entries[0]

    def words(self):
        """The module as the file holds it."""
        out = array.array("I", self.header)
        for one in self.code:
            out.append(len(one) << 16 | one[0])
            out.extend(one[1:])
        return out

    def all_of(self, *opcodes):
        """The instructions of some opcodes, which may be changed in place."""
        return [one for one in self.code if one[0] in opcodes]

    def new_id(self):
        """An id that nothing has."""
        self.header[BOUND_AT] += 1
        return self.header[BOUND_AT] - 1

    def insert(self, opcode, new):
        """Puts instructions before the first one of an opcode."""
        at = next(i for i, one in enumerate(self.code) if one[0] == opcode)
        self.code[at:at] = new

    def declare(self, opcode, *operands):
        """The id of a type or constant: the one that is there, else a new one."""
        typed = opcode == CONSTANT  # its result follows its type
        for one in self.all_of(opcode):
            if one[1 : 1 + typed] + one[2 + typed :] == list(operands):
                return one[1 + typed]
        new = self.new_id()
        self.insert(FUNCTION, [[opcode, *operands[:typed], new, *operands[typed:]]])
        return new
