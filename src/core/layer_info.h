/* The description of a layer: its defaults, and what must hold of it on any device. */
#ifndef VKA_CORE_LAYER_INFO_H
#define VKA_CORE_LAYER_INFO_H

#include "core/status.h"

/* Fills in what is 0 and has a default. */
void layer_info_fill(struct vka_layer_info *info);

/* After layer_info_fill; caller is named in the sentence. */
enum vka_status layer_info_check(struct log *log, const char *caller,
                                 const struct vka_layer_info *info);

#endif
