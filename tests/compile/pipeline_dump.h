/* What a driver says of the pipelines it made, as files for tests/compile/figures.py. */
#ifndef TESTS_PIPELINE_DUMP_H
#define TESTS_PIPELINE_DUMP_H

#include "pipeline_list.h"

/* Writes FOLDER/device.txt: the names of device and driver, a line each, then "refused KERNEL: it
 * REASON" and "unsupported PROBLEM: SENTENCE". */
enum vka_status pipeline_dump_device(struct vka_device *device, const struct pipeline_list *list,
                                     const char *folder);

/* Writes FOLDER/INDEX.txt of a pipeline: lines "kernel NAME", "dtype NAME", "spec NUMBER...",
 * "sources HASH" of its module and constants, "problem NAME" each. `compiled`: it was made with
 * internal representations captured; then for each program in it "program SUBGROUP NAME",
 * "statistic NAME = VALUE" each, and "assembly NAME", the text, "end". */
enum vka_status pipeline_dump(struct vka_device *device, const struct listed_pipeline *row,
                              bool compiled, const char *folder, size_t index);

#endif
