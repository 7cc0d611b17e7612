/* Which pipelines the library would make on a device, over problems that use every kernel. */
#ifndef TESTS_PIPELINE_LIST_H
#define TESTS_PIPELINE_LIST_H

#include <plan/plan.h>

#define MAX_PIPELINES 1024

struct listed_pipeline {
    struct pipeline_key key;
    enum vka_dtype dtype; /* of all operands of the problem */
    bool forced;          /* tune never takes this kernel here: its rivals were switched off */
    char detail[sizeof((struct pass *)0)->detail]; /* of the first pass that uses it */
    char problems[512]; /* that use it, of those that matter: a tab before each name */
};

struct pipeline_list {
    size_t n;
    struct listed_pipeline rows[MAX_PIPELINES];
    char unsupported[2048]; /* problems that the device cannot run: lines "NAME: SENTENCE" */
};

/* Lists the pipelines of problems in each type, then those of the kernels that no problem
 * took. False where a plan cannot be built or a usable kernel is in none; says so on stderr. */
bool pipeline_list_fill(struct vka_device *device, struct pipeline_list *list);

/* Adds those of the problems that matter, with their names. False where a plan cannot be built for
 * another reason than VKA_UNSUPPORTED; says so on stderr. */
bool pipeline_list_problems(struct vka_device *device, struct pipeline_list *list);

/* Adds a plan's pipelines, as those of the problem. */
void pipeline_list_add(struct pipeline_list *list, const struct vka_plan *plan,
                       enum vka_dtype dtype, const char *problem);

#endif
