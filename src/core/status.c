#include "core/status.h"

#include <assert.h>

const char *vka_status_name(enum vka_status status)
{
    static const char *const names[] = {
        "VKA_OK",
        "VKA_INVALID",
        "VKA_UNSUPPORTED",
        "VKA_NO_DEVICE",
        "VKA_OUT_OF_HOST_MEMORY",
        "VKA_OUT_OF_DEVICE_MEMORY",
        "VKA_TIMEOUT",
        "VKA_DEVICE_LOST",
        "VKA_IO",
        "VKA_INTERNAL",
    };
    static_assert(COUNTOF(names) == VKA_STATUS_COUNT, "a name for each status");
    return (unsigned)status < COUNTOF(names) ? names[status] : "unknown status";
}
