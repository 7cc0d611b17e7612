# cmake -DIDS=a;b -DLEFT_OUT=c -DDIR=folder -DOUT=file.c -P embed.cmake: each DIR/<id>.spv as a
# uint32_t array; those left out are empty.
set(text "/* Made from shaders/ by cmake/embed.cmake. */\n#include \"gpu/kernels_spv.h\"\n\n")
foreach(id IN LISTS IDS)
  file(READ ${DIR}/${id}.spv hex HEX)
  string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1u," words "${hex}")
  string(REGEX REPLACE "((0x[0-9a-f]+u,)(0x[0-9a-f]+u,)(0x[0-9a-f]+u,)(0x[0-9a-f]+u,)(0x[0-9a-f]+u,)(0x[0-9a-f]+u,)(0x[0-9a-f]+u,)(0x[0-9a-f]+u,))" "\\1\n" words "${words}")
  string(APPEND text "static const uint32_t ${id}_words[] = {\n${words}\n};\n")
  string(APPEND text "const struct kernel_spv kernel_spv_${id} = {${id}_words, sizeof ${id}_words};\n\n")
endforeach()
foreach(id IN LISTS LEFT_OUT)
  string(APPEND text "const struct kernel_spv kernel_spv_${id} = {NULL, 0};\n")
endforeach()
file(WRITE ${OUT} "${text}")
