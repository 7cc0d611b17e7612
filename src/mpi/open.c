/* Opens a layer from a safetensors file. The file is mapped; a rank reads only what it uploads. */
#include "mpi/agree.h"

#include <vkattn/vkattn_io.h>

#include <stdio.h>
#include <string.h>

static const char caller[] = "vka_mpi_layer_open";

enum { QUERY = 0, KEY, VALUE, OUTPUT, PROJECTION_COUNT };

static const char *const names[PROJECTION_COUNT] = {"q_proj", "k_proj", "v_proj", "o_proj"};

struct projection {
    const struct vka_io_array *weight, *bias;
};

static bool element_type(enum vka_io_dtype from, enum vka_dtype *dtype)
{
    *dtype = from == VKA_IO_F32 ? VKA_F32 : from == VKA_IO_F16 ? VKA_F16 : VKA_BF16;
    return from == VKA_IO_F32 || from == VKA_IO_F16 || from == VKA_IO_BF16;
}

static enum vka_status find(struct log *log, const char *path, const struct vka_safetensors *file,
                            int which, struct projection *p)
{
    enum vka_status status = VKA_OK;
    char name[32];
    snprintf(name, sizeof name, "%s.weight", names[which]);
    p->weight = vka_safetensors_find(file, name);
    snprintf(name, sizeof name, "%s.bias", names[which]);
    p->bias = vka_safetensors_find(file, name);
    if (!p->weight && which == OUTPUT)
        return VKA_OK;
    CHECK_ARG(p->weight && p->weight->rank == 2 && p->weight->shape[0] && p->weight->shape[1] &&
                  p->weight->shape[0] <= INT32_MAX && p->weight->shape[1] <= INT32_MAX,
              "%.200s: %s.weight is missing or does not have two axes", path, names[which]);
    CHECK_ARG(!p->bias || (p->bias->rank == 1 && p->bias->shape[0] == p->weight->shape[0] &&
                           p->bias->dtype == p->weight->dtype),
              "%.200s: %s.bias does not fit %s.weight", path, names[which], names[which]);
fail:
    return status ? VKA_IO : VKA_OK;
}

/* Takes the sizes from the shapes; a file whose shapes do not fit each other is not a layer. */
static enum vka_status fill(struct log *log, const char *path, const struct projection *p,
                            struct vka_layer_info *info)
{
    enum vka_status status = VKA_OK;
    uint32_t n_head = info->n_head, n_kv = info->n_kv_head ? info->n_kv_head : n_head;
    struct vka_linear_weights *to[] = {&info->query, &info->key, &info->value, &info->output};
    uint64_t rows[PROJECTION_COUNT] = {0};
    CHECK_ARG(element_type(p[QUERY].weight->dtype, &info->dtype),
              "%.200s: q_proj.weight is %.40s, not F32, F16 or BF16", path, p[QUERY].weight->type);
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        *to[i] = (struct vka_linear_weights){NULL, NULL};
        if (!p[i].weight)
            continue;
        CHECK_ARG(p[i].weight->dtype == p[QUERY].weight->dtype,
                  "%.200s: %s.weight does not have the type of q_proj.weight", path, names[i]);
        rows[i] = p[i].weight->shape[0];
        to[i]->weight = p[i].weight->data;
        to[i]->bias = p[i].bias ? p[i].bias->data : NULL;
    }
    CHECK_ARG(
        n_head && n_kv && rows[QUERY] % n_head == 0 && rows[VALUE] % n_kv == 0,
        "%.200s: the rows of q_proj and v_proj are not multiples of %u heads and %u key heads",
        path, n_head, n_kv);
    info->head_dim = (uint32_t)(rows[QUERY] / n_head);
    info->value_dim = (uint32_t)(rows[VALUE] / n_kv);
    info->query_dim = (uint32_t)p[QUERY].weight->shape[1];
    info->key_dim = (uint32_t)p[KEY].weight->shape[1];
    info->value_input_dim = (uint32_t)p[VALUE].weight->shape[1];
    uint64_t context = (uint64_t)n_head * info->value_dim;
    info->output_dim = (uint32_t)(rows[OUTPUT] ? rows[OUTPUT] : context);
    CHECK_ARG(rows[KEY] == (uint64_t)n_kv * info->head_dim &&
                  (!rows[OUTPUT] || p[OUTPUT].weight->shape[1] == context),
              "%.200s: k_proj or o_proj does not fit %u heads and %u key heads, head_dim %u and "
              "value_dim %u",
              path, n_head, n_kv, info->head_dim, info->value_dim);
fail:
    return status ? VKA_IO : VKA_OK;
}

/* Refuses a tensor that would be left out of the layer, but for what case files and vkattn's own models
 * have besides. */
static enum vka_status check_all(struct log *log, const char *path,
                                 const struct vka_safetensors *file)
{
    static const char *const others[] = {"query",      "key",  "value",     "past_key",
                                         "past_value", "mask", "kv_length", "query_offset"};
    enum vka_status status = VKA_OK;
    const char *format = vka_safetensors_metadata(file, "format");
    const bool model = format && strncmp(format, "vkattn-", 7) == 0;
    for (size_t i = 0; i < vka_safetensors_count(file); i++) {
        const char *name = vka_safetensors_at(file, i)->name;
        bool known = strncmp(name, "expect.", 7) == 0;
        known |= model && strncmp(name, "classifier.", 11) == 0; /* behind the layer */
        for (size_t j = 0; j < sizeof others / sizeof *others; j++)
            known |= strcmp(name, others[j]) == 0;
        for (int j = 0; j < PROJECTION_COUNT; j++) {
            const size_t n = strlen(names[j]);
            known |= strncmp(name, names[j], n) == 0 &&
                     (strcmp(name + n, ".weight") == 0 || strcmp(name + n, ".bias") == 0);
        }
        CHECK_ARG(known, "%.200s: it is not known what the tensor %.64s would change", path, name);
    }
fail:
    return status ? VKA_IO : VKA_OK;
}

static enum vka_status open_file(struct vka_mpi *mpi, const char *path,
                                 const struct vka_mpi_layer_info *given,
                                 struct vka_mpi_layer *const *layer,
                                 struct vka_mpi_layer_info *info, struct vka_safetensors **file)
{
    struct log *log = &mpi->log;
    char error[VKA_IO_ERROR_SIZE] = "";
    struct projection p[PROJECTION_COUNT];
    ENSURE_ARG(layer, "%s: layer is NULL", caller);
    ENSURE_ARG(path, "%s: path is NULL", caller);
    ENSURE_ARG(given && given->struct_size == sizeof *given,
               "%s: info is NULL or its struct_size is not %zu", caller, sizeof *given);
    *info = *given;
    enum vka_status status = vka_safetensors_open(path, error, file);
    if (status != VKA_OK)
        return log_error(log, status, "%s", error);
    for (int i = 0; i < PROJECTION_COUNT; i++)
        ENSURE(find(log, path, *file, i, &p[i]));
    ENSURE(check_all(log, path, *file));
    return fill(log, path, p, &info->layer);
}

enum vka_status vka_mpi_layer_open(struct vka_mpi *mpi, const char *path,
                                   const struct vka_mpi_layer_info *given,
                                   struct vka_mpi_layer **layer)
{
    if (layer)
        *layer = NULL;
    if (!mpi)
        return VKA_INVALID;
    struct vka_safetensors *file = NULL;
    struct vka_mpi_layer_info info;
    const struct terms none = {0};
    enum vka_status status =
        comm_agree(mpi, caller, open_file(mpi, path, given, layer, &info, &file), &none);
    if (status == VKA_OK)
        status = vka_mpi_layer_create(mpi, &info, layer);
    vka_safetensors_close(&file);
    return status;
}
