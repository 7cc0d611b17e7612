/* struct vka_plan: passes in order, the storage they use, and what was recorded from them. */
#ifndef VKA_PLAN_PLAN_H
#define VKA_PLAN_PLAN_H

#include "gpu/device.h"
#include "gpu/tensor.h"
#include "gpu/verdict.h"
#include "plan/budget.h"

/* A CPU driver maps memory for each, and crashes when it can map no more. */
#define MOST_PASSES 16384u

/* One buffer of a pass: bytes of a storage. */
struct binding {
    struct storage *storage; /* referenced by the pass */
    uint64_t offset, size;
    bool write;
};

/* One dispatch. */
struct pass {
    const char *name, *reason;
    char detail[96];
    char problem[VERDICT_PROBLEM]; /* what the kernel was chosen for; "": no choice */
    struct pipeline_key key;
    struct binding bindings[MAX_BUFFERS]; /* as many as the kernel has buffers */
    unsigned char push[PUSH_SIZE];
    uint32_t push_size;
    uint32_t n_address; /* the push constants begin with the addresses of so many buffers */
    uint32_t groups[3];
    struct work work;    /* of all of it */
    VkDescriptorSet set; /* of the finished plan, like the views of texel buffers */
    VkBufferView views[MAX_TEXEL_BUFFERS];
};

/* Storage that the plan owns. Between operations nothing is in use, so they share it. */
struct scratch {
    struct storage *storage;
    uint32_t used; /* by the operation being added: the level it was taken at; 0: free */
    bool constant; /* written once when added, never shared */
};

/* What an operation hangs on a plan, first member of a structure of its own: told before each
 * submit and after each wait, and released with the plan. */
struct attached {
    void (*begin_run)(struct attached *self); /* NULL: nothing to do */
    /* last: the ticket is the last that was submitted. */
    enum vka_status (*end_run)(struct attached *self, uint64_t ticket, bool last);
    void (*release)(struct attached *self); /* frees it */
    bool notes_tickets;                     /* its passes read device->running */
};

struct vka_plan {
    struct retired retired; /* first: a plan destroyed in flight waits here */
    struct vka_device *device;
    struct caps caps; /* the device's, when they were last read, and `without` */
    uint64_t without; /* bit k: choices leave kernel k out; of self-tests */
    enum vka_path path;
    uint64_t workspace_limit;
    uint32_t whole_n_head, whole_n_kv_head, whole_n_q; /* as in vka_plan_info */
    double budget;                                     /* nanoseconds a submit; infinite: none */
    double predicted; /* of all passes, by the rates known when they were added */
    bool timestamps, finished;

    struct pass *passes;
    size_t n_pass, pass_room;
    struct scratch *scratches;
    size_t n_scratch, scratch_room;
    uint32_t scratch_level;

    struct attached **attached;
    size_t n_attached, attached_room;
    bool count_nonfinite;
    bool waited; /* for the last run */

    VkCommandPool pool;
    VkCommandBuffer *commands; /* [n_submit] */
    size_t *first;             /* [n_submit + 1], the first pass of each; at the end n_pass */
    size_t n_submit;
    VkDescriptorPool descriptors;
    VkQueryPool queries;
    double *gpu_ms; /* [n_pass], of the last run waited for */
    uint64_t last_ticket, timed_ticket;
    uint64_t lost_ticket; /* up to here, runs were lost with the device */
    bool stale;           /* reads a storage that is */
    struct recorded recorded;
};

/* Reads the device's caps again: kernels may have been tested since. */
void plan_read_caps(struct vka_plan *plan);

/* An operation begins with plan_begin and ends with plan_end; on failure plan_end takes back all
 * that was added and taken since. */
struct plan_mark {
    size_t n_pass, n_scratch, n_attached;
    double predicted;
};
enum vka_status plan_begin(struct vka_plan *plan, const char *caller, struct plan_mark *mark);
enum vka_status plan_end(struct vka_plan *plan, struct plan_mark mark, enum vka_status status);

/* Makes room for one more element of an array that doubles. */
enum vka_status plan_grow(struct log *log, void **array, size_t count, size_t *room, size_t size);

/* A dense tensor in storage of the plan's own, until the operation ends. The tensor holds no
 * reference. */
enum vka_status plan_scratch(struct vka_plan *plan, enum vka_dtype dtype, const uint32_t size[4],
                             struct vka_tensor *tensor);

/* Gives scratch back before the operation ends: passes added later may write over it. */
void plan_scratch_free(struct vka_plan *plan, const struct vka_tensor *tensor);

/* What is taken between the two is given back at the second. They nest. */
void plan_scratch_enter(struct vka_plan *plan);
void plan_scratch_leave(struct vka_plan *plan);

/* The same with contents, kept as long as the plan. */
enum vka_status plan_constant(struct vka_plan *plan, enum vka_dtype dtype, const uint32_t size[4],
                              const void *data, struct vka_tensor *tensor);

/* A tensor of `bytes` in host-visible memory that the plan keeps, u32 [bytes / 4]. */
enum vka_status plan_host_words(struct vka_plan *plan, uint64_t bytes, struct storage **words);

/* Takes ownership of `attached`, which is released on failure too. */
enum vka_status plan_attach(struct vka_plan *plan, struct attached *attached);

/* Whether submits note which ticket runs. */
bool plan_notes_tickets(const struct vka_plan *plan);

/* The bytes that one binding of a tensor takes. */
uint64_t plan_range(const struct vka_plan *plan, const struct vka_tensor *tensor);

/* Whether kernels of CPU drivers can read it by address or as texels: not an application's buffer
 * that was made for less. */
bool plan_is_ours(const struct vka_plan *plan, const struct vka_tensor *tensor);

/* Binds a tensor to a slot; *offset is its first element as the kernel counts. A slot that the
 * kernel does not read can be bound to anything. */
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

/* Whether that is within the budget, and the loops of its invocations within the device's limit. */
bool plan_fits(const struct vka_plan *plan, enum kernel kernel, const struct work *work);

/* DEVICE_LOST: the plan reads weights that are gone. */
enum vka_status plan_weights_lost(struct log *log);

/* DEVICE_LOST where the device is, or weights that the plan reads. */
enum vka_status plan_check_alive(const struct vka_plan *plan);

/* Makes pipelines and descriptors and records the command buffer. */
enum vka_status plan_record(struct vka_plan *plan);

/* Records all passes of a finished plan and their barriers. */
enum vka_status plan_record_into(struct vka_plan *plan, VkCommandBuffer commands);

/* vka_plan_submit; info, checked by the caller, may be NULL. */
enum vka_status plan_submit(struct vka_plan *plan, const char *caller,
                            const struct vka_submit_info *info, uint64_t *ticket);

/* Reads the timestamps of the finished run into gpu_ms. */
enum vka_status plan_read_timestamps(struct vka_plan *plan);

#endif
