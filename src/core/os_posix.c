#include "core/os.h"

#include <unistd.h>

long os_process(void)
{
    return (long)getpid();
}
