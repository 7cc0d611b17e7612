/* Layer descriptions: fills in defaults, and checks what no device could run. */
#ifndef VKA_CORE_LAYER_INFO_H
#define VKA_CORE_LAYER_INFO_H

#include "core/status.h"

/* Replaces 0 by the default in fields that have one. */
void layer_info_fill(struct vka_layer_info *info);

/* Call it after layer_info_fill. The sentence of a failure begins with caller. */
enum vka_status layer_info_check(struct log *log, const char *caller,
                                 const struct vka_layer_info *info);

/* Whether weights or biases are given in tensors. */
bool layer_info_in_tensors(const struct vka_layer_info *info);

/* Whether there is an output projection. */
bool layer_info_has_output(const struct vka_layer_info *info);

/* The type of the weights on the device. */
enum vka_dtype layer_weight_dtype(const struct vka_layer_info *info);

#endif
