# cmake -DIDS=a;b -DDIR=folder -DOUT=file.c -P embed.cmake: each DIR/<id>.spv as a uint32_t array, a table
# of all of them and their hash.
set(text "/* Made from shaders/ by cmake/embed.cmake. */\n#include \"gpu/kernels_spv.h\"\n\n")
set(hashes)
foreach(id IN LISTS IDS)
  file(SHA256 ${DIR}/${id}.spv hash)
  string(APPEND hashes "${hash}")
  file(READ ${DIR}/${id}.spv hex HEX)
  string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1u," words "${hex}")
  string(REGEX REPLACE "((0x[0-9a-f]+u,)(0x[0-9a-f]+u,)(0x[0-9a-f]+u,)(0x[0-9a-f]+u,)(0x[0-9a-f]+u,)(0x[0-9a-f]+u,)(0x[0-9a-f]+u,)(0x[0-9a-f]+u,))" "\\1\n" words "${words}")
  string(APPEND text "static const uint32_t ${id}_words[] = {\n${words}\n};\n")
  string(APPEND text "const struct kernel_spv kernel_spv_${id} = {${id}_words, sizeof ${id}_words};\n\n")
endforeach()
string(APPEND text "const struct kernel_spv *const kernel_spv_table[KERNEL_COUNT] = {\n"
  "#define KERNEL(id, file, defines, buffers, needs, family, known) &kernel_spv_##id,\n"
  "#include \"kernels.def\"\n#undef KERNEL\n};\n\n")
string(SHA256 hash "${hashes}")
string(APPEND text "const char kernels_hash[] = \"${hash}\";\n")
file(WRITE ${OUT} "${text}")
