/* A program may have a volk of its own beside the one that is linked in with vkattn: the symbols do
 * not meet, and neither loads the other's pointers. */
#define VK_NO_PROTOTYPES
#define VOLK_IMPLEMENTATION
#include <volk.h>

int own_volk(void);

int own_volk(void)
{
    return vkCreateInstance != NULL || volkGetLoadedInstance() != VK_NULL_HANDLE;
}
