#include "judge.h"

#include <core/dtype.h>
#include <plan/plan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAY(...) (snprintf(why, size, __VA_ARGS__), false)

/* A binding may end in the 16 bytes in which the tensor ends. */
static uint64_t rounded(uint64_t bytes)
{
    return (bytes + LEAST_ALIGNMENT - 1) / LEAST_ALIGNMENT * LEAST_ALIGNMENT;
}

static bool judge_binding(const struct vka_plan *plan, const struct pass *pass, uint32_t i,
                          char *why, size_t size)
{
    const struct binding *b = &pass->bindings[i];
    const uint64_t bytes = rounded(b->storage->bytes), at = b->offset;
    if (!b->size || at > bytes || b->size > bytes - at)
        return SAY("%s binds %llu bytes at %llu of a tensor of %llu", pass->name,
                   (unsigned long long)b->size, (unsigned long long)at,
                   (unsigned long long)b->storage->bytes);
    if (at % plan_binding_alignment(plan) || b->size % LEAST_ALIGNMENT)
        return SAY("%s binds %llu bytes at %llu, which are not aligned", pass->name,
                   (unsigned long long)b->size, (unsigned long long)at);
    if (b->size > plan->caps.properties.max_buffer_range)
        return SAY("%s binds %llu bytes, beyond max_buffer_range", pass->name,
                   (unsigned long long)b->size);
    return true;
}

static bool judge_pass(const struct vka_plan *plan, const struct pass *pass, char *why, size_t size)
{
    const uint32_t n = kernel_table[pass->key.kernel].buffers;
    const struct work *w = &pass->work;
    for (int i = 0; i < 3; i++)
        if (pass->groups[i] == 0 || pass->groups[i] > plan->caps.max_groups[i])
            return SAY("%s has %u workgroups on axis %d", pass->name, pass->groups[i], i);
    if (!(w->ops >= 0) || !(w->longest >= 0) || !(w->loops >= 0))
        return SAY("%s: work %g, of a workgroup %g", pass->name, w->ops, w->longest);
    if (pass->push_size > PUSH_SIZE || pass->n_address * sizeof(uint64_t) > PUSH_SIZE)
        return SAY("%s: %u bytes of push constants, %u addresses", pass->name, pass->push_size,
                   pass->n_address);
    for (uint32_t i = 0; i < n; i++)
        if (!judge_binding(plan, pass, i, why, size))
            return false;
    return true;
}

/* ---- Barriers -------------------------------------------------------------------------------- */

#define MOST_COMPARED 300 /* passes that one is compared with */

/* What was recorded since judge_watch: for each dispatch, how many barriers came before it; and how many
 * dispatches came before the last barrier that shows the host what was written. */
static struct {
    PFN_vkCmdDispatch dispatch;
    PFN_vkCmdPipelineBarrier barrier;
    size_t *barriers; /* [room] */
    size_t n_dispatch, n_barrier, n_shown, room;
} watch;

static VKAPI_ATTR void VKAPI_CALL on_dispatch(VkCommandBuffer commands, uint32_t x, uint32_t y,
                                              uint32_t z)
{
    if (watch.n_dispatch == watch.room) {
        watch.room = watch.room ? 2 * watch.room : 1024;
        watch.barriers = realloc(watch.barriers, watch.room * sizeof *watch.barriers);
        if (!watch.barriers)
            abort();
    }
    if (x) /* else it only has the driver compile */
        watch.barriers[watch.n_dispatch++] = watch.n_barrier;
    watch.dispatch(commands, x, y, z);
}

static VKAPI_ATTR void VKAPI_CALL on_barrier(VkCommandBuffer commands, VkPipelineStageFlags from,
                                             VkPipelineStageFlags to, VkDependencyFlags flags,
                                             uint32_t n, const VkMemoryBarrier *memory,
                                             uint32_t n_buffer,
                                             const VkBufferMemoryBarrier *buffers, uint32_t n_image,
                                             const VkImageMemoryBarrier *images)
{
    const VkPipelineStageFlags compute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
    for (uint32_t i = 0; i < n && from & to & compute; i++)
        watch.n_barrier += memory[i].srcAccessMask & VK_ACCESS_SHADER_WRITE_BIT &&
                           memory[i].dstAccessMask & VK_ACCESS_SHADER_READ_BIT &&
                           memory[i].dstAccessMask & VK_ACCESS_SHADER_WRITE_BIT;
    for (uint32_t i = 0; i < n && from & compute && to & VK_PIPELINE_STAGE_HOST_BIT; i++)
        if (memory[i].srcAccessMask & VK_ACCESS_SHADER_WRITE_BIT &&
            memory[i].dstAccessMask & VK_ACCESS_HOST_READ_BIT)
            watch.n_shown = watch.n_dispatch;
    watch.barrier(commands, from, to, flags, n, memory, n_buffer, buffers, n_image, images);
}

void judge_watch(struct vka_device *device)
{
    if (device->vk.vkCmdDispatch != on_dispatch) {
        watch.dispatch = device->vk.vkCmdDispatch;
        watch.barrier = device->vk.vkCmdPipelineBarrier;
        device->vk.vkCmdDispatch = on_dispatch;
        device->vk.vkCmdPipelineBarrier = on_barrier;
    }
    free(watch.barriers);
    watch.barriers = NULL;
    watch.n_dispatch = watch.n_barrier = watch.n_shown = watch.room = 0;
}

static bool collide(const struct pass *a, const struct pass *b)
{
    for (uint32_t i = 0; i < kernel_table[a->key.kernel].buffers; i++)
        for (uint32_t j = 0; j < kernel_table[b->key.kernel].buffers; j++) {
            const struct binding *x = &a->bindings[i], *y = &b->bindings[j];
            const uint64_t first = x->storage->range.offset + x->offset;
            const uint64_t other = y->storage->range.offset + y->offset;
            if (x->storage->range.block == y->storage->range.block && (x->write || y->write) &&
                first < other + y->size && other < first + x->size)
                return true;
        }
    return false;
}

bool judge_barriers(const struct vka_plan *plan, char *why, size_t size)
{
    if (watch.n_dispatch < plan->n_pass)
        return SAY("%zu dispatches were recorded of %zu passes", watch.n_dispatch, plan->n_pass);
    if (watch.n_shown < watch.n_dispatch)
        return SAY("no barrier makes what the last passes write visible to the host");
    /* Those before are of plans that measured rates. */
    const size_t *barriers = watch.barriers + watch.n_dispatch - plan->n_pass;
    for (size_t i = 0; i < plan->n_pass; i++)
        for (size_t j = i, n = 0; j-- > 0 && barriers[j] == barriers[i] && n < MOST_COMPARED; n++)
            if (collide(&plan->passes[j], &plan->passes[i]))
                return SAY("no barrier between pass %zu, %s, and pass %zu, %s", j,
                           plan->passes[j].name, i, plan->passes[i].name);
    return true;
}

/* ---- What is in reach ------------------------------------------------------------------------ */

struct interval {
    uint64_t first, end;
};

static int by_first(const void *a, const void *b)
{
    const struct interval *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* The bytes of a storage in reach of passes, of those that write or of all, as intervals that do
 * not touch; their number. The caller frees them. */
static size_t reached(const struct vka_plan *plan, const struct storage *storage, bool write,
                      struct interval **out)
{
    struct interval *list = calloc(plan->n_pass * MAX_BUFFERS, sizeof *list);
    size_t n = 0, kept = 0;
    if (!list)
        abort();
    for (size_t i = 0; i < plan->n_pass; i++)
        for (uint32_t j = 0; j < kernel_table[plan->passes[i].key.kernel].buffers; j++) {
            const struct binding *b = &plan->passes[i].bindings[j];
            if (b->storage == storage && (b->write || !write))
                list[n++] = (struct interval){b->offset, b->offset + b->size};
        }
    qsort(list, n, sizeof *list, by_first);
    for (size_t i = 0; i < n; i++)
        if (kept && list[i].first <= list[kept - 1].end)
            list[kept - 1].end =
                list[i].end > list[kept - 1].end ? list[i].end : list[kept - 1].end;
        else
            list[kept++] = list[i];
    *out = list;
    return kept;
}

static bool within(const struct interval *list, size_t n, uint64_t first, uint64_t end)
{
    size_t low = 0, high = n;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        *(list[middle].first <= first ? &low : &high) = middle;
    }
    return n && list[low].first <= first && end <= list[low].end;
}

#define PLACES 9

/* Where errors by one show: the ends of an axis, and about its middle and its quarters. */
static uint32_t places(uint32_t size, uint32_t at[PLACES])
{
    const uint32_t all[PLACES] = {
        0, 1, size / 4, size / 2 - 1, size / 2, size / 2 + 1, size / 4 * 3, size - 2, size - 1};
    uint32_t n = 0;
    for (int i = 0; i < PLACES; i++)
        if (all[i] < size)
            at[n++] = all[i];
    return n;
}

static bool judge_reach(const struct vka_plan *plan, const struct vka_tensor *tensor, bool write,
                        char *why, size_t size)
{
    const struct vka_tensor t = tensor_rank4(tensor);
    const uint32_t bytes = (uint32_t)vka_dtype_size(t.dtype);
    struct interval *list = NULL;
    const size_t n = reached(plan, t.storage, write, &list);
    const char *what = write ? "writes" : "reads";
    uint32_t at[4][PLACES], count[4];
    bool ok = true;
    if (shape_is_dense(&t.shape)) {
        const uint64_t first = t.shape.offset * bytes;
        ok = within(list, n, first, first + shape_count(&t.shape) * bytes);
        if (!ok)
            snprintf(why, size, "no pass %s some of %u %u %u %u elements, which are dense", what,
                     t.shape.size[0], t.shape.size[1], t.shape.size[2], t.shape.size[3]);
    }
    for (int i = 0; i < 4; i++)
        count[i] = places(t.shape.size[i], at[i]);
    for (uint32_t i = 0; ok && i < count[0] * count[1] * count[2] * count[3]; i++) {
        const uint32_t x[4] = {at[0][i / (count[3] * count[2] * count[1])],
                               at[1][i / (count[3] * count[2]) % count[1]],
                               at[2][i / count[3] % count[2]], at[3][i % count[3]]};
        uint64_t element = t.shape.offset;
        for (int axis = 0; axis < 4; axis++)
            element += x[axis] * t.shape.stride[axis];
        ok = within(list, n, element * bytes, (element + 1) * bytes);
        if (!ok)
            snprintf(why, size, "no pass %s element %u %u %u %u of %u %u %u %u", what, x[0], x[1],
                     x[2], x[3], t.shape.size[0], t.shape.size[1], t.shape.size[2],
                     t.shape.size[3]);
    }
    free(list);
    return ok;
}

bool judge_plan(struct vka_plan *plan, struct vka_tensor *const *outputs, size_t n, char *why,
                size_t size)
{
    for (size_t i = 0; i < plan->n_pass; i++)
        if (!judge_pass(plan, &plan->passes[i], why, size))
            return false;
    for (size_t i = 0; i < n; i++)
        if (outputs[i] && !judge_reach(plan, outputs[i], true, why, size))
            return false;
    return true;
}

bool judge_input(const struct vka_plan *plan, const struct vka_tensor *input, char *why,
                 size_t size)
{
    return judge_reach(plan, input, false, why, size);
}

/* Without moves: slices may be packed where the whole is not, and the other way round. */
static double operations(const struct vka_plan *plan)
{
    double ops = 0;
    for (size_t i = 0; i < plan->n_pass; i++)
        if (kernel_table[plan->passes[i].key.kernel].family != FAMILY_MOVE)
            ops += plan->passes[i].work.ops;
    return ops;
}

bool judge_cut(struct vka_plan *whole, struct vka_plan *cut, bool exact, double least, char *why,
               size_t size)
{
    const double all = operations(whole), sum = operations(cut);
    if (all < least * (1 - 1e-9))
        return SAY("%zu passes do %.9g operations, not the %.9g that there are", whole->n_pass, all,
                   least);
    if (sum >= all * (exact ? 1 - 1e-9 : 0.5))
        return true;
    return SAY("%zu passes do %.9g operations, %zu of the whole %.9g", cut->n_pass, sum,
               whole->n_pass, all);
}
