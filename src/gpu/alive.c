/* Whether a device can still be used. */
#include "core/os.h"
#include "gpu/device.h"

bool device_is_forked(const struct vka_device *device)
{
    return os_process() != device->process;
}

enum vka_status device_check(struct vka_device *device)
{
    if (device_is_forked(device))
        return log_error(&device->log, VKA_INVALID,
                         "the device was made before this process was forked: the child can only "
                         "destroy it");
    if (device->lost)
        return log_error(&device->log, VKA_DEVICE_LOST, "the device is lost");
    return VKA_OK;
}
