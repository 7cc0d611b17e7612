/* Links and calls both libraries; needs no Vulkan device. */
#include <stdio.h>
#include <vkattn/vkattn.h>
#ifndef WITHOUT_IO
#include <vkattn/vkattn_io.h>
#endif

int main(void)
{
    int failed = vka_kernel_count() == 0 || vka_dtype_size(VKA_BF16) != 2;
#ifndef WITHOUT_IO
    failed |= vka_io_dtype_size(VKA_IO_F64) != 8;
#endif
    printf("vkattn %d.%d, %zu kernels\n", VKA_VERSION_MAJOR, VKA_VERSION_MINOR, vka_kernel_count());
    return failed;
}
