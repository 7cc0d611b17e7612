/* Links and calls both libraries; needs no Vulkan device. */
#include <stdio.h>
#include <vkattn/vkattn.h>
#ifndef WITHOUT_IO
#include <vkattn/vkattn_io.h>
#endif

#ifdef OWN_VOLK
int own_volk(void);
#endif

/* Without a device the list is a status, not a crash. */
static int list_devices(void)
{
    size_t count = 0;
    enum vka_status status = vka_device_list(NULL, NULL, &count);
    return status == VKA_OK || status == VKA_NO_DEVICE ? 0 : 1;
}

int main(void)
{
    int failed = vka_kernel_count() == 0 || vka_dtype_size(VKA_BF16) != 2 || list_devices();
#ifndef WITHOUT_IO
    failed |= vka_io_dtype_size(VKA_IO_F64) != 8;
#endif
#ifdef OWN_VOLK
    failed |= own_volk();
#endif
    printf("vkattn %d.%d, %zu kernels\n", VKA_VERSION_MAJOR, VKA_VERSION_MINOR, vka_kernel_count());
    return failed;
}
