/* Bytes as calls of the library with any arguments: each is refused with nothing changed, or done.
 * What is added is recorded. On the stub (tests/stub), which computes nothing and makes some thousand of
 * these a second, it is run too, and the first byte says on which of its devices: a run there checks
 * ranges. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vkattn/vkattn_model.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

#define TENSORS 8

struct input {
    const unsigned char *data;
    size_t size;
};

static unsigned next(struct input *in)
{
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++;
}

/* Mostly small, sometimes huge. */
static uint32_t number(struct input *in)
{
    unsigned n = next(in);
    return n < 240 ? n % 9 : n < 250 ? 1u << n % 32 : UINT32_MAX - n % 3;
}

/* Those at the ends of the range, and those that are no numbers. */
static float real(struct input *in)
{
    static const float some[] = {0,        -0.0f,     1,       -1,       0.125f, 1e-45f, -1e-45f,
                                 INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 1e-6f,  NAN};
    return some[next(in) % (sizeof some / sizeof *some)];
}

#define DEVICES 4

static struct vka_device *devices[DEVICES], *device;
static size_t n_device;
static bool on_stub;

static void close_devices(void)
{
    for (size_t i = 0; i < n_device; i++)
        vka_device_destroy(&devices[i]);
}

static bool open_devices(void)
{
    if (n_device > 0)
        return true;
    struct vka_device_properties properties[DEVICES];
    size_t n = DEVICES;
    if (vka_device_list(NULL, properties, &n) != VKA_OK)
        n = 0;
    on_stub = n > 0 && strncmp(properties[0].name, "stub ", 5) == 0;
    for (size_t i = 0; i < n && i < (on_stub ? DEVICES : 1); i++) {
        const char index[] = {(char)('0' + i), '\0'};
        /* Allocations that a fuzzer's own limit on memory would stop are refused by the device. */
        if (vka_device_create(VKA_INFO(vka_device_info, .device = on_stub ? index : NULL,
                                       .skip_self_test = on_stub, .max_allocation = 256u << 20),
                              &devices[n_device]) != VKA_OK)
            break;
        n_device++;
    }
    if (n_device == 0 && getenv("VKATTN_STUB"))
        abort(); /* its devices were asked for */
    if (n_device == 0)
        fprintf(stderr, "SKIPPED: no Vulkan device, so no plans are built\n");
    else
        atexit(close_devices); /* before the driver ends, which looks for what is left */
    return n_device > 0;
}

/* A failure leaves nothing in its out-parameter, and a sentence. */
static void check(enum vka_status status, const void *made)
{
    if ((unsigned)status >= VKA_STATUS_COUNT || status == VKA_INTERNAL)
        abort();
    if (status != VKA_OK && (made || !vka_device_error(device)[0]))
        abort();
}

static void make_tensor(struct input *in, struct vka_tensor **slot)
{
    uint32_t shape[VKA_MAX_RANK];
    for (int i = 0; i < VKA_MAX_RANK; i++)
        shape[i] = number(in);
    const enum vka_dtype dtype = (enum vka_dtype)(next(in) % 6);
    const uint32_t rank = next(in) % 6;
    vka_tensor_destroy(slot);
    check(vka_tensor_create(device, dtype, rank, shape, slot), *slot);
}

static void make_view(struct input *in, struct vka_tensor *from, struct vka_tensor **slot)
{
    uint32_t shape[VKA_MAX_RANK];
    uint64_t strides[VKA_MAX_RANK];
    struct vka_tensor *view = NULL;
    unsigned kind = next(in) % 4;
    for (int i = 0; i < VKA_MAX_RANK; i++) {
        shape[i] = number(in);
        strides[i] = number(in);
    }
    if (!from)
        return;
    uint32_t a = number(in), b = number(in), c = number(in);
    check(kind == 0   ? vka_tensor_permute(from, shape, &view)
          : kind == 1 ? vka_tensor_slice(from, a, b, c, &view)
          : kind == 2 ? vka_tensor_reshape(from, a, shape, &view)
                      : vka_tensor_strided(from, c, a, shape, strides, &view),
          view);
    vka_tensor_destroy(slot);
    *slot = view;
}

static struct vka_tensor *pick(struct input *in, struct vka_tensor *const *tensors)
{
    unsigned n = next(in) % (TENSORS + 2);
    return n < TENSORS ? tensors[n] : NULL;
}

/* What has no meaning is not taken for anything else. */
static enum vka_status judge(enum vka_status status, bool has_meaning)
{
    if (status == VKA_OK && !has_meaning)
        abort();
    return status;
}

static enum vka_status add_norm(struct input *in, struct vka_plan *plan,
                                struct vka_tensor *const *t)
{
    const struct vka_norm_op op = {.struct_size = sizeof op,
                                   .kind = (enum vka_norm)(next(in) % 3),
                                   .axes = number(in),
                                   .given = next(in) % 8,
                                   .epsilon = real(in),
                                   .input = pick(in, t),
                                   .weight = pick(in, t),
                                   .output = pick(in, t)};
    return judge(vka_plan_add_norm(plan, &op),
                 op.epsilon >= 0 && isfinite(op.epsilon) && !(op.given & ~VKA_GIVEN_EPSILON));
}

static enum vka_status add_gather(struct input *in, struct vka_plan *plan,
                                  struct vka_tensor *const *t)
{
    const struct vka_gather_op op = {.struct_size = sizeof op,
                                     .table = pick(in, t),
                                     .ids = pick(in, t),
                                     .given = next(in) % 8,
                                     .scale = real(in),
                                     .output = pick(in, t)};
    return judge(vka_plan_add_gather(plan, &op),
                 isfinite(op.scale) && !(op.given & ~VKA_GIVEN_SCALE));
}

static enum vka_status add(struct input *in, struct vka_plan *plan, struct vka_tensor *const *t)
{
    unsigned kind = next(in);
    if ((kind & 7) == 6)
        return add_norm(in, plan, t);
    if ((kind & 7) == 4)
        return add_gather(in, plan, t);
    if (kind % 2) {
        unsigned flags = next(in);
        return vka_plan_add_linear(
            plan, VKA_INFO(vka_linear_op, .input = pick(in, t), .weight = pick(in, t),
                           .bias = pick(in, t), .output = pick(in, t), .relu_input = flags & 1,
                           .accumulate = flags >> 1 & 1,
                           .activations = flags >> 2 & 1 ? VKA_I8 : VKA_F32));
    }
    struct vka_attention_op op = {
        .struct_size = sizeof op,
        .q = pick(in, t),
        .k = pick(in, t),
        .v = pick(in, t),
        .output = pick(in, t),
        .options = {.causal = next(in) % 2, .masked_row = (enum vka_masked_row)(next(in) % 4)},
    };
    unsigned more = next(in);
    if (more & 1)
        op.options.mask = pick(in, t);
    if (more & 2)
        op.options.kv_length = pick(in, t);
    if (more & 4)
        op.options.rope.dim = number(in);
    if (more & 8)
        op.past_key = pick(in, t);
    if (more & 16)
        op.past_value = pick(in, t);
    if (more & 32) {
        op.options.scores_kind = (enum vka_scores)(next(in) % 6);
        op.options.scores = pick(in, t);
    }
    if (more & 64) {
        op.options.window = true;
        op.options.window_left = (int32_t)number(in);
        op.options.window_right = (int32_t)number(in) - 1;
    }
    if (more & 128)
        op.options.log_sum_exp = pick(in, t);
    unsigned numbers = next(in);
    op.options.given = numbers >> 4 & 7;
    if (numbers & 1)
        op.options.scale = real(in);
    if (numbers & 2)
        op.options.norm_epsilon = real(in);
    if (numbers & 4)
        op.options.softcap = real(in);
    if (numbers & 8)
        op.options.dropout = real(in);
    const struct vka_attention_options *o = &op.options;
    return judge(vka_plan_add_attention(plan, &op),
                 isfinite(o->scale) && isfinite(o->norm_epsilon) && o->norm_epsilon >= 0 &&
                     isfinite(o->softcap) && o->softcap >= 0 && o->dropout >= 0 && o->dropout < 1 &&
                     o->given < VKA_GIVEN_GRADIENT_SCALE);
}

static void build(struct input *in, struct vka_tensor *const *tensors)
{
    struct vka_plan *plan = NULL;
    check(vka_plan_create(device, VKA_INFO(vka_plan_info, .path = (enum vka_path)(next(in) % 4)),
                          &plan),
          plan);
    for (unsigned n = next(in) % 4; plan && n > 0; n--) {
        size_t before = vka_plan_describe(plan, NULL, 0);
        enum vka_status status = add(in, plan, tensors);
        check(status, NULL);
        if (status != VKA_OK && vka_plan_describe(plan, NULL, 0) != before)
            abort();
    }
    const bool whole = plan && next(in) % 8 == 0;
    const enum vka_status status = whole ? vka_plan_finish(plan) : VKA_INVALID;
    if (whole)
        check(status, NULL);
    if (whole && on_stub && status == VKA_OK)
        check(vka_plan_run(plan, 60 * UINT64_C(1000000000)), NULL);
    vka_plan_destroy(&plan);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct vka_tensor *tensors[TENSORS] = {NULL};
    struct input in = {data, size};
    if (!open_devices())
        return 0;
    device = devices[n_device > 1 ? next(&in) % n_device : 0];
    while (in.size > 0) {
        unsigned at = next(&in) % TENSORS, kind = next(&in) % 4;
        if (kind < 2)
            make_tensor(&in, &tensors[at]);
        else if (kind == 2)
            make_view(&in, tensors[next(&in) % TENSORS], &tensors[at]);
        else
            build(&in, tensors);
    }
    for (int i = 0; i < TENSORS; i++)
        vka_tensor_destroy(&tensors[i]);
    return 0;
}
