#include "classifier.h"

#include <math.h>
#include <stdlib.h>

/* Jumps to fail with the status of a call that failed. */
#define TRY(call)             \
    do {                      \
        status = (call);      \
        if (status != VKA_OK) \
            goto fail;        \
    } while (0)

/* The tensors and views of the plan. B images, T patches, C channels (pixels of a patch), H heads,
 * U = C or T: the units that the heads attend over. */
enum slot {
    INPUT,   /* [B][T][C] */
    HIDDEN,  /* [B][T][C], the attention layer's output */
    FLAT,    /* [B][T * C], HIDDEN as the classifier reads it */
    LOGITS,  /* [B][n_class] */
    WEIGHTS, /* [B][H][U][U], only if they are kept */
    CLASS_WEIGHT,
    CLASS_BIAS,
    /* Only for heads that attend over channels. */
    PROJECTED,               /* 3 x [B][T][H * C]: query, key, value */
    BY_HEAD = PROJECTED + 3, /* 3 x [B][H][C][T], views of those */
    CONTEXT = BY_HEAD + 3,   /* [B][C][H][T] */
    CONTEXT_BY_HEAD,         /* [B][H][C][T], a view of it */
    CONTEXT_ROWS,            /* [B][T][H * C], the same elements in the same order */
    PART_WEIGHT,             /* 4 x, query to output */
    PART_BIAS = PART_WEIGHT + 4,
    SLOT_COUNT = PART_BIAS + 4
};

struct classifier {
    struct vka_device *device;
    struct vka_layer *layer; /* NULL if the heads attend over channels */
    struct vka_plan *plan;
    struct vka_tensor *slot[SLOT_COUNT];
};

static enum vka_status make_tensor(struct classifier *c, int slot, uint32_t rank,
                                   const uint32_t *shape)
{
    return vka_tensor_create(c->device, VKA_F32, rank, shape, &c->slot[slot]);
}

/* Makes tensors of the weight and bias of a part. */
static enum vka_status upload_part(struct classifier *c, const struct model *m,
                                   enum model_part part, int weight, int bias)
{
    uint32_t shape[2];
    enum vka_status status;

    model_part_shape(m, part, &shape[0], &shape[1]);
    TRY(make_tensor(c, weight, 2, shape));
    TRY(make_tensor(c, bias, 1, shape));
    TRY(vka_tensor_write(c->slot[weight], m->weight[part], vka_tensor_size(c->slot[weight])));
    TRY(vka_tensor_write(c->slot[bias], m->bias[part], vka_tensor_size(c->slot[bias])));
fail:
    return status;
}

static enum vka_status make_common(struct classifier *c, const struct model *m, uint32_t batch,
                                   bool keep_attention)
{
    const uint32_t units = model_units(m);
    const uint32_t tokens[] = {batch, m->n_patch, m->width};
    const uint32_t flat[] = {batch, m->n_patch * m->width};
    const uint32_t logits[] = {batch, m->n_class};
    const uint32_t weights[] = {batch, m->n_head, units, units};
    enum vka_status status;

    TRY(make_tensor(c, INPUT, 3, tokens));
    TRY(make_tensor(c, HIDDEN, 3, tokens));
    TRY(vka_tensor_reshape(c->slot[HIDDEN], 2, flat, &c->slot[FLAT]));
    TRY(make_tensor(c, LOGITS, 2, logits));
    if (keep_attention)
        TRY(make_tensor(c, WEIGHTS, 4, weights));
    TRY(upload_part(c, m, MODEL_CLASSIFIER, CLASS_WEIGHT, CLASS_BIAS));
fail:
    return status;
}

static enum vka_status add_linear(struct classifier *c, int input, int weight, int bias, int output,
                                  bool relu_input)
{
    return vka_plan_add_linear(c->plan,
                               VKA_INFO(vka_linear_op, .input = c->slot[input],
                                        .weight = c->slot[weight], .bias = c->slot[bias],
                                        .output = c->slot[output], .relu_input = relu_input));
}

static struct vka_attention_options attention_options(const struct classifier *c, float scale)
{
    return (struct vka_attention_options){
        .scale = scale,
        .scores_kind = c->slot[WEIGHTS] ? VKA_SCORES_SOFTMAX : VKA_SCORES_NONE,
        .scores = c->slot[WEIGHTS],
    };
}

static struct vka_linear_weights part_weights(const struct model *m, enum model_part part)
{
    return (struct vka_linear_weights){m->weight[part], m->bias[part]};
}

/* Heads that attend over the patches: a layer of the library. */
static enum vka_status add_patch_attention(struct classifier *c, const struct model *m)
{
    enum vka_status status;

    TRY(vka_layer_create(
        c->device,
        VKA_INFO(vka_layer_info, .n_head = m->n_head, .head_dim = m->width, .query_dim = m->width,
                 .output_dim = m->width, .interleaved = m->interleaved,
                 .query = part_weights(m, MODEL_QUERY), .key = part_weights(m, MODEL_KEY),
                 .value = part_weights(m, MODEL_VALUE), .output = part_weights(m, MODEL_OUTPUT)),
        &c->layer));
    TRY(vka_plan_add_layer(c->plan, VKA_INFO(vka_layer_op, .layer = c->layer,
                                             .query = c->slot[INPUT], .output = c->slot[HIDDEN],
                                             .attention = attention_options(c, 0.0f))));
fail:
    return status;
}

/* Makes a projection [B][T][H * C] and its view [B][H][C][T], in which the channels are the
 * sequence and the patches the features. */
static enum vka_status make_projection(struct classifier *c, const struct model *m, uint32_t batch,
                                       int part)
{
    const uint32_t shape[] = {batch, m->n_patch, m->n_head * m->width};
    const uint32_t interleaved[] = {batch, m->n_patch, m->width, m->n_head};
    const uint32_t blocked[] = {batch, m->n_patch, m->n_head, m->width};
    const uint32_t *split = m->interleaved ? interleaved : blocked;
    const uint32_t axes[] = {0, m->interleaved ? 3 : 2, m->interleaved ? 2 : 3, 1};
    struct vka_tensor *heads = NULL;
    enum vka_status status;

    TRY(make_tensor(c, PROJECTED + part, 3, shape));
    TRY(vka_tensor_reshape(c->slot[PROJECTED + part], 4, split, &heads));
    TRY(vka_tensor_permute(heads, axes, &c->slot[BY_HEAD + part]));
fail:
    vka_tensor_destroy(&heads);
    return status;
}

/* The context is written as [B][C][H][T]; its elements are read, in that order, as [B][T][H *
 * C]. */
static enum vka_status make_context(struct classifier *c, const struct model *m, uint32_t batch)
{
    const uint32_t shape[] = {batch, m->width, m->n_head, m->n_patch};
    const uint32_t axes[] = {0, 2, 1, 3};
    const uint32_t rows[] = {batch, m->n_patch, m->n_head * m->width};
    enum vka_status status;

    TRY(make_tensor(c, CONTEXT, 4, shape));
    TRY(vka_tensor_permute(c->slot[CONTEXT], axes, &c->slot[CONTEXT_BY_HEAD]));
    TRY(vka_tensor_reshape(c->slot[CONTEXT], 3, rows, &c->slot[CONTEXT_ROWS]));
fail:
    return status;
}

/* Heads that attend over the channels: the same projections, seen through other views. */
static enum vka_status add_channel_attention(struct classifier *c, const struct model *m,
                                             uint32_t batch)
{
    const float scale = 1.0f / sqrtf((float)m->n_patch);
    enum vka_status status;

    for (int part = MODEL_QUERY; part <= MODEL_OUTPUT; part++)
        TRY(upload_part(c, m, (enum model_part)part, PART_WEIGHT + part, PART_BIAS + part));
    for (int part = MODEL_QUERY; part <= MODEL_VALUE; part++) {
        TRY(make_projection(c, m, batch, part));
        TRY(add_linear(c, INPUT, PART_WEIGHT + part, PART_BIAS + part, PROJECTED + part, false));
    }
    TRY(make_context(c, m, batch));
    TRY(vka_plan_add_attention(
        c->plan,
        VKA_INFO(vka_attention_op, .q = c->slot[BY_HEAD + MODEL_QUERY],
                 .k = c->slot[BY_HEAD + MODEL_KEY], .v = c->slot[BY_HEAD + MODEL_VALUE],
                 .output = c->slot[CONTEXT_BY_HEAD], .options = attention_options(c, scale))));
    TRY(add_linear(c, CONTEXT_ROWS, PART_WEIGHT + MODEL_OUTPUT, PART_BIAS + MODEL_OUTPUT, HIDDEN,
                   false));
fail:
    return status;
}

enum vka_status classifier_create(struct vka_device *device, const struct model *model,
                                  uint32_t batch, bool keep_attention,
                                  struct classifier **classifier)
{
    struct classifier *c = calloc(1, sizeof *c);
    enum vka_status status;

    *classifier = NULL;
    if (!c)
        return VKA_OUT_OF_HOST_MEMORY;
    c->device = device;
    TRY(vka_plan_create(device, NULL, &c->plan));
    TRY(make_common(c, model, batch, keep_attention));
    TRY(model->channels ? add_channel_attention(c, model, batch) : add_patch_attention(c, model));
    TRY(add_linear(c, FLAT, CLASS_WEIGHT, CLASS_BIAS, LOGITS, true));
    TRY(vka_plan_finish(c->plan));
    *classifier = c;
    return VKA_OK;

fail:
    classifier_destroy(&c);
    return status;
}

void classifier_destroy(struct classifier **classifier)
{
    if (!classifier || !*classifier)
        return;
    vka_plan_destroy(&(*classifier)->plan);
    vka_layer_destroy(&(*classifier)->layer);
    for (int i = 0; i < SLOT_COUNT; i++)
        vka_tensor_destroy(&(*classifier)->slot[i]);
    free(*classifier);
    *classifier = NULL;
}

/* Copies the part of a tensor that belongs to the first n images, from or to the host. */
static enum vka_status copy_first(struct vka_tensor *tensor, uint32_t n, const void *from, void *to)
{
    struct vka_tensor *view = NULL;
    enum vka_status status;

    TRY(vka_tensor_slice(tensor, 0, 0, n, &view));
    if (from)
        TRY(vka_tensor_write(view, from, vka_tensor_size(view)));
    if (to)
        TRY(vka_tensor_read(view, to, vka_tensor_size(view)));
fail:
    vka_tensor_destroy(&view);
    return status;
}

enum vka_status classifier_run(struct classifier *c, const float *patches, uint32_t n,
                               uint64_t timeout, float *logits, float *attention)
{
    enum vka_status status;

    /* After the n-th image is what the last run left; its results are not read. */
    TRY(copy_first(c->slot[INPUT], n, patches, NULL));
    TRY(vka_plan_run(c->plan, timeout));
    TRY(copy_first(c->slot[LOGITS], n, NULL, logits));
    if (attention && c->slot[WEIGHTS])
        TRY(copy_first(c->slot[WEIGHTS], n, NULL, attention));
fail:
    return status;
}

size_t classifier_passes(const struct classifier *c)
{
    return vka_plan_pass_count(c->plan);
}
