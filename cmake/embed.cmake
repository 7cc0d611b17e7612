# cmake -DIDS=a;b -DDIR=folder -DOUT=file.c -P embed.cmake: a file in which the assembler takes in each
# DIR/<id>.spv as it is, as an array of two million numbers takes CMake and a compiler many seconds; a table
# of all of them and their hash.
set(text [=[
/* Made from shaders/ by cmake/embed.cmake. */
#include "gpu/kernels_spv.h"

#ifdef _WIN32
#define MODULE(id, path) WORDS(id, path, "kernel_words_" #id, ".section .rdata,\"dr\"\n")
#elif defined __APPLE__
#define MODULE(id, path)                                                       \
    WORDS(id, path, "_kernel_words_" #id,                                      \
          ".section __TEXT,__const\n.private_extern _kernel_words_" #id "\n")
#else
#define MODULE(id, path)                                                       \
    WORDS(id, path, "kernel_words_" #id,                                       \
          ".section .rodata\n.hidden kernel_words_" #id "\n")
#endif
#define WORDS(id, path, symbol, section)                                       \
    __asm__(section ".balign 4\n.globl " symbol "\n"                           \
            symbol ":\n.incbin \"" path "\"\n.text\n");                       \
    extern const uint32_t kernel_words_##id[];

]=])
set(hashes)
set(variables)
# The modules come before the variables: where GCC keeps that order, as at -O0, it does not know that an asm
# statement left its section, and a variable behind one would lie among the code.
foreach(id IN LISTS IDS)
  file(SHA256 ${DIR}/${id}.spv hash)
  file(SIZE ${DIR}/${id}.spv size)
  string(APPEND hashes "${hash}")
  string(APPEND text "MODULE(${id}, \"${DIR}/${id}.spv\")\n")
  string(APPEND variables "const struct kernel_spv kernel_spv_${id} = {kernel_words_${id}, ${size}};\n")
endforeach()
string(APPEND text "\n${variables}" [=[

const struct kernel_spv *const kernel_spv_table[KERNEL_COUNT] = {
#define KERNEL(id, file, defines, buffers, needs, family, known) &kernel_spv_##id,
#include "kernels.def"
};

]=])
string(SHA256 hash "${hashes}")
string(APPEND text "const char kernels_hash[] = \"${hash}\";\n")
file(WRITE ${OUT} "${text}")
