#include "mpi/slice.h"

struct vka_mpi_range split_even(uint32_t n, uint32_t count, uint32_t index)
{
    uint32_t first = (uint32_t)((uint64_t)n * index / count);
    uint32_t end = (uint32_t)((uint64_t)n * (index + 1) / count);
    return (struct vka_mpi_range){first, end - first};
}

/* Slice `index` of `count` slices of whole groups of query heads. With more slices than key heads,
 * slices that have the same key head divide its group. */
static struct head_ranges split_groups(struct head_ranges all, uint32_t count, uint32_t index)
{
    uint32_t n_key = all.key.count;
    if (n_key == 0 || all.query.count == 0)
        return (struct head_ranges){{all.query.first, 0}, {all.key.first, 0}};
    uint32_t group = all.query.count / n_key;
    struct vka_mpi_range key, query;
    if (count <= n_key) {
        key = split_even(n_key, count, index);
        query = (struct vka_mpi_range){key.first * group, key.count * group};
    } else {
        uint32_t head = (uint32_t)((uint64_t)index * n_key / count);
        uint32_t first = (uint32_t)(((uint64_t)head * count + n_key - 1) / n_key);
        uint32_t end = (uint32_t)((((uint64_t)head + 1) * count + n_key - 1) / n_key);
        key = (struct vka_mpi_range){head, 1};
        query = split_even(group, end - first, index - first);
        query.first += head * group;
    }
    key.first += all.key.first;
    query.first += all.query.first;
    if (query.count == 0)
        key.count = 0;
    return (struct head_ranges){query, key};
}

struct head_ranges split_heads(uint32_t n_head, uint32_t n_kv_head, int size, int rank,
                               uint32_t rounds, uint32_t round)
{
    struct head_ranges all = {{0, n_head}, {0, n_kv_head}};
    return split_groups(split_groups(all, (uint32_t)size, (uint32_t)rank), rounds, round);
}

uint32_t split_rounds(uint32_t wanted, uint32_t length, int size)
{
    if (size == 1)
        return 1;
    return wanted ? wanted : length / (uint32_t)size >= 2 ? 2 : 1;
}

/* Whether there is such a rank; others have nothing. */
static bool is_rank(int size, int rank)
{
    return rank >= 0 && rank < size;
}

void vka_mpi_heads(uint32_t n_head, uint32_t n_kv_head, int size, int rank,
                   struct vka_mpi_range *query, struct vka_mpi_range *key)
{
    struct head_ranges heads = {{0, 0}, {0, 0}};
    if (is_rank(size, rank))
        heads = split_heads(n_head, n_kv_head, size, rank, 1, 0);
    *query = heads.query;
    *key = heads.key;
}

struct vka_mpi_range vka_mpi_batch(uint32_t batch, int size, int rank)
{
    if (!is_rank(size, rank))
        return (struct vka_mpi_range){0, 0};
    return split_even(batch, (uint32_t)size, (uint32_t)rank);
}

void vka_mpi_positions(uint32_t n, int size, int rank, struct vka_mpi_range range[2])
{
    range[0] = (struct vka_mpi_range){0, 0};
    range[1] = (struct vka_mpi_range){n, 0};
    for (int i = 0; i <= rank && is_rank(size, rank); i++) {
        uint32_t rows = split_even(n, (uint32_t)size, (uint32_t)i).count;
        range[0].first += range[0].count;
        range[0].count = (rows + 1) / 2;
        range[1].count = rows / 2;
        range[1].first -= range[1].count;
    }
}

void views_destroy(struct views *views)
{
    for (size_t i = 0; i < views->n; i++)
        vka_tensor_destroy(&views->made[i]);
    views->n = 0;
}

enum vka_status slice_check(struct log *log, const char *caller, const char *name,
                            const struct vka_tensor *tensor, uint32_t axis, uint32_t whole)
{
    uint32_t size = vka_tensor_shape(tensor, axis);
    ENSURE_ARG(!tensor || size == whole, "%s: axis %u of %s is %u, not %u", caller, axis, name,
               size, whole);
    return VKA_OK;
}

enum vka_status slice_check_options(struct log *log, const char *caller,
                                    const struct vka_attention_options *options, uint32_t batch,
                                    uint32_t n_head)
{
    const struct {
        const char *name;
        const struct vka_tensor *tensor;
        uint32_t behind, whole; /* behind: the number of axes after the checked one */
        bool exact;
    } rows[] = {{"mask", options->mask, 3, batch, false},
                {"mask", options->mask, 2, n_head, false},
                {"kv_length", options->kv_length, 0, batch, false},
                {"query_offset", options->query_offset, 0, batch, false},
                {"scores", options->scores, 3, batch, true},
                {"scores", options->scores, 2, n_head, true},
                {"log_sum_exp", options->log_sum_exp, 2, batch, true},
                {"log_sum_exp", options->log_sum_exp, 1, n_head, true},
                {"sink", options->sink, 0, n_head, true},
                {"alibi", options->alibi, 0, n_head, true}};
    for (size_t i = 0; i < COUNTOF(rows); i++) {
        uint32_t rank = vka_tensor_rank(rows[i].tensor);
        if (rank <= rows[i].behind)
            continue;
        ENSURE_ARG(rows[i].behind || rank == 1, "%s: %s has %u axes, not one", caller, rows[i].name,
                   rank);
        uint32_t axis = rank - 1 - rows[i].behind;
        if (rows[i].exact || vka_tensor_shape(rows[i].tensor, axis) != 1)
            ENSURE(slice_check(log, caller, rows[i].name, rows[i].tensor, axis, rows[i].whole));
    }
    ENSURE_ARG(!options->query_offset || vka_tensor_dtype(options->query_offset) == VKA_I32,
               "%s: query_offset is %s, not i32", caller,
               vka_dtype_name(vka_tensor_dtype(options->query_offset)));
    return VKA_OK;
}

enum vka_status views_slice(struct views *views, struct vka_tensor *tensor, uint32_t axis,
                            struct vka_mpi_range range, struct vka_tensor **slice)
{
    uint32_t size = vka_tensor_shape(tensor, axis);
    *slice = tensor;
    if (!tensor || size <= 1 || range.count == size)
        return VKA_OK;
    if (views->n == COUNTOF(views->made))
        return VKA_INTERNAL;
    enum vka_status status = vka_tensor_slice(tensor, axis, range.first, range.count, slice);
    if (status == VKA_OK)
        views->made[views->n++] = *slice;
    return status;
}

struct slice slice_along(const struct vka_tensor *tensor, uint32_t axis, struct vka_mpi_range range)
{
    struct slice slice = {0};
    for (uint32_t i = 0; i < vka_tensor_rank(tensor); i++)
        slice.count[i] = vka_tensor_shape(tensor, i);
    slice.first[axis] = range.first;
    slice.count[axis] = range.count;
    return slice;
}

uint64_t slice_count(const struct slice *slice, uint32_t rank)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < rank; i++)
        count *= slice->count[i];
    return count;
}

enum vka_status slice_view(struct vka_tensor *tensor, const struct slice *slice,
                           struct vka_tensor **view)
{
    struct vka_tensor *last = tensor;
    *view = NULL;
    for (uint32_t i = 0; i < vka_tensor_rank(tensor); i++) {
        enum vka_status status = vka_tensor_slice(last, i, slice->first[i], slice->count[i], view);
        if (last != tensor)
            vka_tensor_destroy(&last);
        if (status != VKA_OK)
            return status;
        last = *view;
    }
    return VKA_OK;
}

/* Takes a slice of the mask along the axis `from_last` before the last, if the mask has it. */
static enum vka_status slice_mask(struct views *views, struct vka_tensor **mask, uint32_t from_last,
                                  struct vka_mpi_range range)
{
    uint32_t rank = vka_tensor_rank(*mask);
    if (rank <= from_last)
        return VKA_OK;
    return views_slice(views, *mask, rank - 1 - from_last, range, mask);
}

enum vka_status slice_options(struct views *views, const struct vka_attention_options *whole,
                              const struct problem_slice *slice,
                              struct vka_attention_options *options)
{
    struct vka_mpi_range batch = slice->batch, heads = slice->heads.query;
    *options = *whole;
    ENSURE(slice_mask(views, &options->mask, 3, batch));
    ENSURE(slice_mask(views, &options->mask, 2, heads));
    ENSURE(views_slice(views, options->kv_length, 0, batch, &options->kv_length));
    ENSURE(views_slice(views, options->query_offset, 0, batch, &options->query_offset));
    ENSURE(views_slice(views, options->scores, 0, batch, &options->scores));
    ENSURE(views_slice(views, options->scores, 1, heads, &options->scores));
    ENSURE(views_slice(views, options->log_sum_exp, 0, batch, &options->log_sum_exp));
    ENSURE(views_slice(views, options->log_sum_exp, 1, heads, &options->log_sum_exp));
    ENSURE(views_slice(views, options->sink, 0, heads, &options->sink));
    ENSURE(views_slice(views, options->alibi, 0, heads, &options->alibi));
    if (options->dropout != 0) {
        options->dropout_batch += batch.first;
        options->dropout_head += heads.first;
    }
    return VKA_OK;
}

enum vka_status slice_queries(struct views *views, struct vka_mpi_range queries,
                              struct vka_attention_options *options)
{
    options->dropout_query += queries.first;
    return slice_mask(views, &options->mask, 1, queries);
}

enum vka_status slice_attention(struct views *views, const struct vka_attention_op *whole,
                                const struct problem_slice *slice, struct vka_attention_op *op)
{
    *op = *whole;
    struct vka_tensor **by_key[] = {&op->k,          &op->v,           &op->past_key,
                                    &op->past_value, &op->present_key, &op->present_value};
    ENSURE(views_slice(views, op->q, 0, slice->batch, &op->q));
    ENSURE(views_slice(views, op->q, 1, slice->heads.query, &op->q));
    for (size_t i = 0; i < COUNTOF(by_key); i++) {
        ENSURE(views_slice(views, *by_key[i], 0, slice->batch, by_key[i]));
        ENSURE(views_slice(views, *by_key[i], 1, slice->heads.key, by_key[i]));
    }
    return slice_options(views, &whole->options, slice, &op->options);
}
