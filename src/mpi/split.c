#include "mpi/split.h"

struct vka_mpi_range split_even(uint32_t n, uint32_t count, uint32_t index)
{
    uint32_t first = (uint32_t)((uint64_t)n * index / count);
    uint32_t end = (uint32_t)((uint64_t)n * (index + 1) / count);
    return (struct vka_mpi_range){first, end - first};
}

/* Part `index` of `count` parts, of whole groups of query heads. With more parts than key heads,
 * parts that have the same key head divide its group. */
static struct share split_groups(struct share all, uint32_t count, uint32_t index)
{
    uint32_t n_key = all.key.count;
    if (n_key == 0 || all.query.count == 0)
        return (struct share){{all.query.first, 0}, {all.key.first, 0}};
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
    return (struct share){query, key};
}

struct share split_heads(uint32_t n_head, uint32_t n_kv_head, int size, int rank, uint32_t pieces,
                         uint32_t piece)
{
    struct share all = {{0, n_head}, {0, n_kv_head}};
    return split_groups(split_groups(all, (uint32_t)size, (uint32_t)rank), pieces, piece);
}

uint32_t split_pieces(uint32_t wanted, uint32_t units, int size)
{
    if (size == 1)
        return 1;
    return wanted ? wanted : units / (uint32_t)size >= 2 ? 2 : 1;
}

/* Whether there is such a rank; others have nothing. */
static bool is_rank(int size, int rank)
{
    return rank >= 0 && rank < size;
}

void vka_mpi_heads(uint32_t n_head, uint32_t n_kv_head, int size, int rank,
                   struct vka_mpi_range *query, struct vka_mpi_range *key)
{
    struct share share = {{0, 0}, {0, 0}};
    if (is_rank(size, rank))
        share = split_heads(n_head, n_kv_head, size, rank, 1, 0);
    *query = share.query;
    *key = share.key;
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
        uint32_t share = split_even(n, (uint32_t)size, (uint32_t)i).count;
        range[0].first += range[0].count;
        range[0].count = (share + 1) / 2;
        range[1].count = share / 2;
        range[1].first -= range[1].count;
    }
}
