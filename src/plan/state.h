/* struct vka_plan: passes in order, the storage they use, and the recorded commands. Types alone, which
 * the files that work on its members share. */
#ifndef VKA_PLAN_STATE_H
#define VKA_PLAN_STATE_H

#include "gpu/device.h"
#include "gpu/tensor.h"
#include "plan/budget.h"

/* A CPU driver maps memory for each pass, and crashes when it cannot map more. */
#define MOST_PASSES 16384u

/* One buffer of a pass: a range of bytes of a storage. */
struct binding {
    struct storage *storage; /* referenced by the pass */
    uint64_t offset, size;
    bool write;
};

/* One dispatch. */
struct pass {
    const char *name, *reason;
    char detail[128];
    char problem[PROFILE_PROBLEM]; /* name in tuning profiles; "": there was no choice */
    struct pipeline_key key;
    struct binding bindings[MAX_BUFFERS]; /* [buffers of the kernel] */
    unsigned char push[PUSH_SIZE];
    uint32_t push_size;
    uint32_t n_address; /* buffers whose addresses the push constants begin with */
    uint32_t groups[3];
    struct work work;    /* of the whole dispatch */
    VkDescriptorSet set; /* made when the plan is finished, like views */
    VkBufferView views[MAX_TEXEL_BUFFERS];
};

/* Storage that the plan owns. Operations share it: none of it is in use between two of them. */
struct scratch {
    struct storage *storage;
    uint32_t used; /* level at which the operation being added took it; 0: free */
    bool constant; /* never shared */
};

/* Contents that passes read and nothing writes, see plan_constant. */
struct constants {
    struct storage *storage; /* without memory until the plan is finished; NULL: there are none */
    unsigned char *bytes;    /* [used] until then */
    uint64_t used;
    size_t room;
    uint64_t grids[VKA_DTYPE_COUNT]; /* where that of a type was put last, see plan_grid */
};

/* An object that an operation attaches to a plan, first member of its own structure: called before
 * each submit and after each wait, released with the plan. */
struct attached {
    void (*begin_run)(struct attached *self); /* NULL: nothing to do */
    /* last: no later ticket was submitted. */
    enum vka_status (*end_run)(struct attached *self, uint64_t ticket, bool last);
    void (*release)(struct attached *self); /* frees it */
    bool notes_tickets;                     /* its passes read device->running */
};

struct vka_plan {
    struct retired retired; /* first: a plan destroyed in flight waits here */
    struct vka_device *device;
    struct caps caps;          /* the device's, as last read, with `without` */
    struct kernel_set without; /* not chosen; for self-tests */
    struct kernel_set refused; /* by the driver, to the operation being added */
    enum vka_path path;
    uint64_t workspace_limit;
    uint32_t whole_n_head, whole_n_kv_head, whole_n_q; /* see vka_plan_info */
    double budget;                                     /* nanoseconds of a submit; infinite: none */
    double predicted; /* nanoseconds of all passes, by the rates known when they were added */
    bool timestamps, finished;
    bool is_recorded;     /* before it is finished, too: the driver may compile for long */
    uint64_t warm_ticket; /* of the submit that has it compile; 0: none */
    double warm_since;    /* milliseconds of os_now_ms */
    uint64_t compile_timeout;

    struct pass *passes;
    size_t n_pass, pass_room;
    struct scratch *scratches;
    size_t n_scratch, scratch_room;
    uint32_t scratch_level;
    struct constants constants;

    struct attached **attached;
    size_t n_attached, attached_room;
    bool count_nonfinite;
    bool waited; /* the last run has been waited for */

    VkCommandPool pool;
    VkCommandBuffer *commands; /* [n_submit] */
    size_t *first;             /* [n_submit + 1], first pass of each submit, then n_pass */
    size_t n_submit;
    VkDescriptorPool descriptors;
    VkQueryPool queries;
    double *gpu_ms; /* [n_pass], of the last run that was waited for */
    uint64_t first_ticket, last_ticket, timed_ticket;
    uint64_t lost_ticket; /* runs up to this one were lost with the device */
    bool stale;           /* reads a stale storage */
    struct recorded recorded;
};

/* Bytes that the offset of a binding is a multiple of. */
#define LEAST_ALIGNMENT 16u /* vec4 loads */
static inline uint64_t plan_binding_alignment(const struct vka_plan *plan)
{
    uint32_t alignment = plan->caps.buffer_alignment;
    return alignment > LEAST_ALIGNMENT ? alignment : LEAST_ALIGNMENT;
}

#endif
