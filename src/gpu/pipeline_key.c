#include "gpu/pipeline_key.h"

#include <string.h>

bool pipeline_same_key(const struct pipeline_key *a, const struct pipeline_key *b)
{
    return a->kernel == b->kernel && a->n_spec == b->n_spec &&
           memcmp(a->spec, b->spec, a->n_spec * sizeof *a->spec) == 0;
}
