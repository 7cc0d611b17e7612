/* Which bytes passes have read and written since the last barrier, so that the next pass is known
 * to need one. Pure functions, tested without a GPU. */
#ifndef VKA_PLAN_HAZARD_H
#define VKA_PLAN_HAZARD_H

#include "plan/state.h"

/* An interval of bytes of a buffer. */
struct interval {
    VkBuffer buffer;
    uint64_t first, end;
};

/* Disjoint intervals in order of buffers, then of bytes; two that touch are one. */
struct intervals {
    struct interval *list;
    size_t n, room;
};

/* {0} at first. A plan may have thousands of passes between two barriers, most of which read the
 * same and write one interval after the other: the sets stay short. */
struct hazards {
    struct intervals read, written;
    bool unknown; /* memory ran out: any pass meets one */
};

/* Whether a pass with these n bindings reads what was written, or writes what was used. */
bool hazards_meet(const struct hazards *h, const struct binding *bindings, uint32_t n);

/* Notes the bindings of a pass. */
void hazards_add(struct hazards *h, const struct binding *bindings, uint32_t n);

/* Forgets all, as a barrier does; frees the memory. */
void hazards_clear(struct hazards *h);
void hazards_free(struct hazards *h);

#endif
