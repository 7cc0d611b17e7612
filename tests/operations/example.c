#include "example.h"

#include "../patience.h"

#include <math.h>
#include <string.h>

#define MOST_VALUES 256
#define TOLERANCE 2e-5

#define TRY(call)                       \
    do {                                \
        enum vka_status tried = (call); \
        if (tried != VKA_OK)            \
            return tried;               \
    } while (0)

bool field_is_needed(const struct field *field)
{
    return field->fault <= BROADCAST || field->fault == INDICES || field->fault == DRAWN;
}

bool field_is_written(const struct field *field)
{
    return field->fault == OUTPUT || field->fault == GRADIENT || field->fault == DRAWN ||
           field->answer;
}

enum vka_dtype field_dtype(const struct field *field)
{
    return field->fault >= INDICES && field->fault < TENSOR_FAULTS ? VKA_I32 : VKA_F32;
}

bool field_takes(const struct field *field, enum vka_dtype dtype)
{
    if (field_dtype(field) == VKA_I32 || field->fault == FLOATS)
        return dtype == field_dtype(field);
    return dtype == VKA_F32 || dtype == VKA_F16 || dtype == VKA_BF16 ||
           (field->fault == MASK && dtype == VKA_BOOL);
}

double example_value(uint32_t seed, uint32_t index)
{
    uint32_t mixed = (index + seed * 40503u) * 2654435761u;
    return (double)(int)(mixed >> 28) / 8 - 1;
}

static size_t count_of(const struct field *f)
{
    size_t n = 1;
    for (uint32_t i = 0; i < f->rank; i++)
        n *= f->shape[i];
    return n;
}

static enum vka_status fill(const struct field *f, struct vka_tensor *tensor)
{
    uint32_t words[MOST_VALUES];
    const size_t n = count_of(f);
    memset(words, 0xff, sizeof words); /* NaN, or -1 */
    for (size_t i = 0; i < n && (f->values || f->seed); i++) {
        const double value = f->values ? f->values[i] : example_value(f->seed, (uint32_t)i);
        if (field_dtype(f) == VKA_I32)
            memcpy(&words[i], &(int32_t){(int32_t)value}, sizeof *words);
        else
            memcpy(&words[i], &(float){(float)value}, sizeof *words);
    }
    return vka_tensor_write(tensor, words, n * sizeof *words);
}

/* 2 heads on 1 key head; head_dim 4, value_dim 3; widths 5, 6 and 7 to 4. */
static enum vka_status create_layer(struct vka_device *device, struct vka_layer **layer)
{
    static const size_t sizes[8] = {8 * 5, 8, 4 * 6, 4, 3 * 7, 3, 4 * 6, 4};
    float values[8][8 * 5];
    for (uint32_t i = 0; i < 8; i++)
        for (uint32_t j = 0; j < sizes[i]; j++)
            values[i][j] = (float)example_value(11 + i, j);
    return vka_layer_create(
        device,
        VKA_INFO(vka_layer_info, .n_head = 2, .n_kv_head = 1, .head_dim = 4, .value_dim = 3,
                 .query_dim = 5, .key_dim = 6, .value_input_dim = 7, .output_dim = 4,
                 .query = {values[0], values[1]}, .key = {values[2], values[3]},
                 .value = {values[4], values[5]}, .output = {values[6], values[7]}),
        layer);
}

void field_set(const struct field *field, char *op, double number)
{
    char *at = op + field->offset;
    const bool is_real = field->fault == FINITE || field->fault == POSITIVE || field->fault == RATE;
    if (is_real && field->size == sizeof(float))
        memcpy(at, &(float){(float)number}, sizeof(float));
    else if (is_real)
        memcpy(at, &number, sizeof number);
    else if (field->size == sizeof(bool))
        memcpy(at, &(bool){number != 0}, sizeof(bool));
    else if (field->size == sizeof(uint32_t))
        memcpy(at, &(uint32_t){(uint32_t)(int64_t)number}, sizeof(uint32_t));
    else
        memcpy(at, &(uint64_t){(uint64_t)number}, sizeof(uint64_t));
}

static void link_op(const struct example *example, char *op)
{
    for (size_t i = 0; i < example->n_field; i++) {
        const struct field *f = &example->fields[i];
        if (f->fault == LINK)
            memcpy(op + f->offset, &(char *){op + (size_t)f->number}, sizeof(char *));
    }
}

void example_copy(const struct instance *instance, char op[EXAMPLE_BYTES])
{
    memcpy(op, instance->op, EXAMPLE_BYTES);
    link_op(instance->example, op);
}

enum vka_status example_create(const struct example *example, struct vka_device *device,
                               enum vka_dtype dtype, struct instance *made)
{
    *made = (struct instance){.example = example};
    link_op(example, made->op);
    for (size_t i = 0; i < example->n_field; i++) {
        const struct field *f = &example->fields[i];
        if (f->fault == LAYER) {
            TRY(create_layer(device, &made->layer));
            memcpy(made->op + f->offset, &made->layer, sizeof made->layer);
        } else if (f->fault >= TENSOR_FAULTS && f->fault != LINK) {
            field_set(f, made->op, f->number);
        } else if (f->rank) {
            const enum vka_dtype type = field_takes(f, dtype) ? dtype : field_dtype(f);
            TRY(vka_tensor_create(device, type, f->rank, f->shape, &made->tensors[i]));
            memcpy(made->op + f->offset, &made->tensors[i], sizeof made->tensors[i]);
        }
    }
    return VKA_OK;
}

void example_destroy(struct instance *instance)
{
    for (size_t i = 0; i < EXAMPLE_FIELDS; i++)
        vka_tensor_destroy(&instance->tensors[i]);
    vka_layer_destroy(&instance->layer);
}

enum vka_status example_fill(const struct instance *instance)
{
    for (size_t i = 0; i < instance->example->n_field; i++)
        if (instance->tensors[i])
            TRY(fill(&instance->example->fields[i], instance->tensors[i]));
    return VKA_OK;
}

static bool is_right(const struct field *f, const uint32_t *words)
{
    for (size_t i = 0; i < count_of(f); i++) {
        float real;
        int32_t integer;
        memcpy(&real, &words[i], sizeof real);
        memcpy(&integer, &words[i], sizeof integer);
        const double got = field_dtype(f) == VKA_I32 ? (double)integer : (double)real;
        if (!(fabs(got - f->answer[i]) <= TOLERANCE * (1 + fabs(f->answer[i]))))
            return false;
    }
    return true;
}

enum vka_status example_compare(const struct instance *instance, const struct field **wrong)
{
    *wrong = NULL;
    for (size_t i = 0; i < instance->example->n_field && !*wrong; i++) {
        const struct field *f = &instance->example->fields[i];
        uint32_t words[MOST_VALUES];
        if (!f->answer)
            continue;
        TRY(vka_tensor_read(instance->tensors[i], words, count_of(f) * sizeof *words));
        if (!is_right(f, words))
            *wrong = f;
    }
    return VKA_OK;
}

static enum vka_status run(struct vka_plan *plan, const struct instance *instance,
                           const struct field **wrong)
{
    TRY(instance->example->add(plan, instance->op));
    TRY(vka_plan_finish(plan));
    TRY(vka_plan_run(plan, PATIENCE));
    return example_compare(instance, wrong);
}

enum vka_status example_run(struct vka_device *device, const struct example *example,
                            const struct vka_plan_info *info, const struct field **wrong,
                            size_t *n_pass)
{
    struct vka_plan *plan = NULL;
    struct instance instance;
    enum vka_status status = example_create(example, device, VKA_F32, &instance);
    if (status == VKA_OK)
        status = example_fill(&instance);
    if (status == VKA_OK)
        status = vka_plan_create(device, info, &plan);
    if (status == VKA_OK)
        status = run(plan, &instance, wrong);
    if (n_pass)
        *n_pass = vka_plan_pass_count(plan);
    vka_plan_destroy(&plan);
    example_destroy(&instance);
    return status;
}
