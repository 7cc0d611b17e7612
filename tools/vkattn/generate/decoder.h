/* Loads a decoder from its GGUF file. SPDX-License-Identifier: MIT */
#ifndef GENERATE_DECODER_H
#define GENERATE_DECODER_H

#include "weights.h"

/* Opens a file of one of the families and uploads its weights. On failure *why says it, where the
 * device has no sentence; decoder_free accepts what was loaded until then. */
enum vka_status decoder_load(struct vka_device *device, const char *path, struct decoder *decoder,
                             char why[VKA_IO_ERROR_SIZE]);
void decoder_free(struct decoder *decoder);

#endif
