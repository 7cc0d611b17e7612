/* Modules of pipelines with their specialization constants built in, as portability devices get them. */
#ifndef TESTS_PIPELINE_FOLD_H
#define TESTS_PIPELINE_FOLD_H

#include "pipeline_list.h"

/* Writes FOLDER/KERNEL-INDEX.spv of each pipeline of the list whose module and constants differ from
 * those before. Returns how many; -1 where one is refused, keeps a constant or cannot be written, which
 * stdout tells. */
long pipeline_fold(const struct pipeline_list *list, const char *folder);

#endif
