/* struct vka_plan: passes in order, the storage they use, and the recorded commands. */
#ifndef VKA_PLAN_PLAN_H
#define VKA_PLAN_PLAN_H

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
    char detail[96];
    char problem[VERDICT_PROBLEM]; /* name in tuning profiles; "": there was no choice */
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
    struct caps caps; /* the device's, as last read, with `without` */
    uint64_t without; /* bit k: kernel k is not chosen; for self-tests */
    uint64_t refused; /* bit k: the driver refused kernel k to the operation being added */
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
    uint64_t last_ticket, timed_ticket;
    uint64_t lost_ticket; /* runs up to this one were lost with the device */
    bool stale;           /* reads a stale storage */
    struct recorded recorded;
};

/* Reads the device's caps again: kernels may have been tested since. */
void plan_read_caps(struct vka_plan *plan);

/* plan_begin and plan_end enclose an operation; plan_end makes its pipelines, and removes all that a
 * failed one added. Where the driver refuses a pipeline it removes all too, takes the kernel away and
 * leaves the mark open: the operation is added again, and chooses another kernel, at most once a
 * kernel.
 *     ENSURE(plan_begin(plan, __func__, &mark));
 *     while (mark.open)
 *         plan_end(plan, &mark, add(plan, op));
 *     return mark.status; */
struct plan_mark {
    size_t n_pass, n_scratch, n_attached;
    uint64_t constants;
    double predicted;
    uint64_t refused, serial; /* kernels taken away before; of the device's last refusal then */
    bool open;
    enum vka_status status;
};
enum vka_status plan_begin(struct vka_plan *plan, const char *caller, struct plan_mark *mark);

/* UNSUPPORTED where the mark stays open. */
enum vka_status plan_end(struct vka_plan *plan, struct plan_mark *mark, enum vka_status status);

/* Makes room for one more element of an array that doubles. */
enum vka_status plan_grow(struct log *log, void **array, size_t count, size_t *room, size_t size);

/* Takes a dense tensor in the plan's storage until the operation ends. The tensor holds no
 * reference. */
enum vka_status plan_scratch(struct vka_plan *plan, enum vka_dtype dtype, const uint32_t size[4],
                             struct vka_tensor *tensor);

/* Gives scratch back before the operation ends: passes added later may write over it. */
void plan_scratch_free(struct vka_plan *plan, const struct vka_tensor *tensor);

/* plan_scratch_leave gives back the scratch taken since plan_scratch_enter. They nest. */
void plan_scratch_enter(struct vka_plan *plan);
void plan_scratch_leave(struct vka_plan *plan);

/* Makes a tensor i32 [1][1][1][count] with these contents, whose offset a binding can begin at. The
 * tensor holds no reference. */
enum vka_status plan_constant(struct vka_plan *plan, uint32_t count, const void *words,
                              struct vka_tensor *tensor);

/* Gives the constants memory and writes them; waits for that. */
enum vka_status plan_upload_constants(struct vka_plan *plan);

/* Makes u32 [bytes / 4] in host-visible memory, kept as long as the plan. */
enum vka_status plan_host_words(struct vka_plan *plan, uint64_t bytes, struct storage **words);

/* Takes ownership of `attached`; releases it on failure. */
enum vka_status plan_attach(struct vka_plan *plan, struct attached *attached);

/* Whether submits write their ticket to device->running. */
bool plan_notes_tickets(const struct vka_plan *plan);

/* Bytes that the offset of a binding is a multiple of. */
#define LEAST_ALIGNMENT 16u /* vec4 loads */
static inline uint64_t plan_binding_alignment(const struct vka_plan *plan)
{
    uint32_t alignment = plan->caps.buffer_alignment;
    return alignment > LEAST_ALIGNMENT ? alignment : LEAST_ALIGNMENT;
}

/* Bytes of a binding of the whole tensor. */
uint64_t plan_range(const struct vka_plan *plan, const struct vka_tensor *tensor);

/* Whether kernels for CPU drivers can read the tensor by address or as texels: false for an
 * application's buffer that lacks the usage. */
bool plan_is_ours(const struct vka_plan *plan, const struct vka_tensor *tensor);

/* Binds a tensor to a slot. Sets *offset, which may be NULL, to its first element within the
 * binding. A slot that the kernel does not read takes any tensor. */
void plan_bind(const struct vka_plan *plan, struct pass *pass, uint32_t slot,
               const struct vka_tensor *tensor, bool write, uint32_t *offset);

/* Sets the push constants, `size` bytes. */
void pass_set_push(struct pass *pass, const void *params, size_t size);

/* UNSUPPORTED where the plan has no room for n more passes. */
enum vka_status plan_check_room(const struct vka_plan *plan, size_t n);

/* Whether grid and bindings fit the device. */
bool plan_pass_has_room(const struct vka_plan *plan, const struct pass *pass);

/* Appends a copy of the pass, after checking grid and ranges against the device. */
enum vka_status plan_add_pass(struct vka_plan *plan, const struct pass *pass);

/* Nanoseconds that a dispatch is predicted to take. */
double plan_time(const struct vka_plan *plan, enum kernel kernel, const struct work *work);

/* Whether a dispatch fits the budget, and its loops the limit of the driver. */
bool plan_fits(const struct vka_plan *plan, enum kernel kernel, const struct work *work);

/* Logs and returns DEVICE_LOST: the plan reads weights that were lost. */
enum vka_status plan_weights_lost(struct log *log);

/* DEVICE_LOST if the device is lost, or weights that the plan reads. */
enum vka_status plan_check_alive(const struct vka_plan *plan);

/* Makes the pipelines of passes `first` and later; those that the driver refuses are in
 * plan->refused. */
enum vka_status plan_make_pipelines(struct vka_plan *plan, size_t first);

/* Makes pipelines and descriptors and records the command buffer. */
enum vka_status plan_record(struct vka_plan *plan);

/* Records a dispatch of a pass of a recorded plan, of these workgroups. */
void pass_record(const struct vka_device *device, VkCommandBuffer commands, const struct pass *pass,
                 const uint32_t groups[3]);

/* Has a CPU driver compile the pipelines of a recorded plan, which it would do in their first run,
 * and waits for it. TIMEOUT (compile_timeout): call it again; caller is of its sentence. */
enum vka_status plan_warm(struct vka_plan *plan, const char *caller);

/* Records all passes of a finished plan and their barriers. */
void plan_record_into(struct vka_plan *plan, VkCommandBuffer commands);

/* vka_plan_submit; info, checked by the caller, may be NULL. */
enum vka_status plan_submit(struct vka_plan *plan, const char *caller,
                            const struct vka_submit_info *info, uint64_t *ticket);

/* Reads the timestamps of the finished run into gpu_ms. */
enum vka_status plan_read_timestamps(struct vka_plan *plan);

#endif
