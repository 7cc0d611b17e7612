/* Which pipelines the library would make on a device, over problems that use every kernel. */
#ifndef TESTS_PIPELINE_LIST_H
#define TESTS_PIPELINE_LIST_H

#include <plan/plan.h>

#define MAX_PIPELINES 512

struct listed_pipeline {
    struct pipeline_key key;
    enum vka_dtype dtype; /* of all operands of the problem */
    bool forced;          /* tune never takes this kernel here: its rivals were switched off */
    char detail[sizeof((struct pass *)0)->detail]; /* of the first pass that uses it */
};

struct pipeline_list {
    size_t n;
    struct listed_pipeline rows[MAX_PIPELINES];
};

/* Lists the pipelines of problems in each type, then those of the kernels that no problem
 * took. False where a plan cannot be built or a usable kernel is in none; says so on stderr. */
bool pipeline_list_fill(struct vka_device *device, struct pipeline_list *list);

#endif
