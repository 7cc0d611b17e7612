/* What systems do each in their own way; one os_ file a system. */
#ifndef VKA_CORE_OS_H
#define VKA_CORE_OS_H

/* A number that a process and its forks do not share. */
long os_process(void);

#endif
