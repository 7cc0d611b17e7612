// The headers in C++: info structs are filled by name.
#include <cstdio>
#include <vkattn/vkattn.h>

int main()
{
    vka_device_info info{};
    info.struct_size = sizeof info;
    info.device = "no device has this name";
    vka_device *device = nullptr;
    const vka_status status = vka_device_create(&info, &device);
    std::printf("%s, %zu kernels\n", vka_status_name(status), vka_kernel_count());
    vka_device_destroy(&device);
    return status == VKA_NO_DEVICE ? 0 : 1;
}
