/* What differs between operating systems; each has a file os_<system>.c. */
#ifndef VKA_CORE_OS_H
#define VKA_CORE_OS_H

/* Identifies the process: a forked child has another number. */
long os_process(void);

#endif
