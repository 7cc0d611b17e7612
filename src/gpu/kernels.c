#include "gpu/kernels.h"

const struct kernel_info kernel_table[KERNEL_COUNT] = {
#define KERNEL(id, file, defines, buffers, needs, family, known) \
    {#id, buffers, needs, FAMILY_##family, KNOWN_##known},
#include "kernels.def"
};
