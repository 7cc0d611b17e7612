#include "classifier.h"

#include "network.h"

#include <stdlib.h>

struct classifier {
    struct network network;
    struct vka_plan *plan;
};

enum vka_status classifier_create(struct vka_device *device, const struct model *model,
                                  uint32_t batch, bool keep_attention,
                                  struct classifier **classifier)
{
    struct classifier *c = calloc(1, sizeof *c);
    enum vka_status status;

    *classifier = NULL;
    if (!c)
        return VKA_OUT_OF_HOST_MEMORY;
    TRY(vka_plan_create(device, NULL, &c->plan));
    TRY(network_create(device, model, batch, &c->network));
    if (keep_attention)
        TRY(network_keep_weights(&c->network));
    TRY(network_add_forward(&c->network, c->plan));
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
    network_destroy(&(*classifier)->network);
    free(*classifier);
    *classifier = NULL;
}

/* Copies what of a tensor belongs to the first n images, from or to the host. */
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

enum vka_status classifier_run(struct classifier *c, const float *input, uint32_t n,
                               uint64_t timeout, float *logits, float *attention)
{
    const struct network *net = &c->network;
    enum vka_status status;

    /* After the n-th image is what the last run left; its results are not read. */
    TRY(copy_first(net->input, n, input, NULL));
    TRY(vka_plan_run(c->plan, timeout));
    TRY(copy_first(net->values.logits, n, NULL, logits));
    if (attention && net->weights)
        TRY(copy_first(net->weights, n, NULL, attention));
fail:
    return status;
}

size_t classifier_passes(const struct classifier *c)
{
    return vka_plan_pass_count(c->plan);
}
