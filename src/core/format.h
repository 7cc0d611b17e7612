/* FORMAT_PRINTF(text, first): a function takes a format and its values as printf of C11 does. To
 * MinGW's compiler `printf` means Microsoft's, which knows no %zu. */
#ifndef VKA_CORE_FORMAT_H
#define VKA_CORE_FORMAT_H

#ifdef __MINGW32__
#define FORMAT_PRINTF(text, first) __attribute__((format(gnu_printf, text, first)))
#else
#define FORMAT_PRINTF(text, first) __attribute__((format(printf, text, first)))
#endif

#endif
