/* The pass of softmax_backward. */
#include "op/attention/budget.h"
#include "op/matmul/matmul.h"
#include "op/train/softmax.h"
#include "op/common/copy.h"

#include <stdio.h>

struct job {
    const struct attention_backward *b;
    const struct attention_rows *r;
    const struct attention_slopes *s;
    uint32_t stage; /* SLOPES_ */
};

/* A CPU driver runs the lanes of a subgroup together, and pays for the setup of each subgroup. */
#define CPU_LANES 8u
#define GPU_LANES 64u

static uint32_t lanes_of(const struct vka_plan *plan)
{
    return plan->caps.properties.type == VKA_DEVICE_CPU ? CPU_LANES : GPU_LANES;
}

static struct work work_of(const struct job *job, const uint32_t size[CUT_AXES])
{
    const double key = attention_score_work(job->b->a.options) + WORK_SCORE;
    return (struct work){
        .ops = key * size[0] * size[1] * size[2] * size[3],
        .longest = key * SLOPES_KEYS,
        .loops = SLOPES_KEYS / CPU_LANES + 32,
    };
}

static void make_pass(const struct vka_plan *plan, const void *given, const struct slice *slice,
                      struct pass *pass)
{
    const struct job *job = given;
    const struct attention *a = &job->b->a;
    const struct vka_attention_options *options = a->options;
    const uint32_t group = job->b->group, *first = slice->first, *size = slice->size;
    const struct head_slice s = {
        .batch = job->r->batch + first[0],
        .n_batch = size[0],
        .head = (job->r->head + first[1]) * group,
        .n_head = size[1] * group,
        .query = job->r->query + first[2],
        .n_query = size[2],
    };
    struct slice rows_slice = *slice, row_slice = *slice;
    rows_slice.first[3] = row_slice.first[3] = 0;
    rows_slice.size[3] = a->n_kv;
    row_slice.size[3] = SLOPES_ROW_PITCH(a->n_kv);
    const struct vka_tensor scores = tensor_slice(&job->s->scores, &rows_slice);
    const struct vka_tensor slopes = tensor_slice(&job->s->slopes, &rows_slice);
    const struct vka_tensor rows = tensor_slice(&job->s->rows, &row_slice);
    struct softmax_backward_params p = {
        .batch_first = s.batch,
        .head_first = s.head + job->r->member,
        .head_step = group,
        .n_head = size[1],
        .q_first = s.query,
        .n_row = job->r->n_query,
        .key_first = first[3],
        ATTENTION_DRAW(options),
    };
    const bool sums = job->stage == SLOPES_SUM;
    pass->name = sums ? "softmax sums" : "softmax backward";
    pass->reason = "score by score";
    pass->key = (struct pipeline_key){.kernel = KERNEL_softmax_backward, .n_spec = SLOPES_SPECS};
    pass->key.spec[SLOPES_STAGE] = job->stage;
    pass->key.spec[SLOPES_LANES] = lanes_of(plan);
    pass->key.spec[SLOPES_GENERAL] =
        options->mask || options->softcap != 0 || options->alibi || options->dropout != 0;
    for (uint32_t slot = 1; slot < 6; slot++)
        plan_bind(plan, pass, slot, &rows, false, NULL); /* where nothing else is */
    plan_bind(plan, pass, 0, &scores, !sums, &p.scores_offset);
    attention_bind_mask(plan, a, &s, pass, 1, &p.mask, &p.sink_offset, &p.alibi_offset);
    plan_bind(plan, pass, 6, &slopes, !sums, &p.slopes_offset);
    plan_bind(plan, pass, 7, &rows, sums || options->sink, &p.rows_offset);
    pass_set_push(pass, &p, sizeof p);
    pass->groups[0] = size[2];
    pass->groups[1] = saturate((uint64_t)size[0] * size[1]);
    pass->groups[2] = divide_up(size[3], SLOPES_KEYS);
    pass->work = work_of(job, size);
    snprintf(pass->detail, sizeof pass->detail, "%ux%u rows of %u, keys %u to %u", pass->groups[1],
             size[2], a->n_kv, first[3], first[3] + size[3] - 1);
}

enum vka_status attention_add_slopes(struct vka_plan *plan, const struct attention_backward *b,
                                     const struct attention_rows *r,
                                     const struct attention_slopes *s, uint32_t stage)
{
    const struct job job = {b, r, s, stage};
    const struct cut cut = {
        .job = &job,
        .multiple = {1, 1, 1, SLOPES_KEYS},
        .least = {1, 1, 1, SLOPES_KEYS},
        .kernel = KERNEL_softmax_backward,
        .whole = work_of(&job, s->scores.shape.size),
        .probe = plan_probe_moves,
        .make = make_pass,
    };
    return plan_cut(plan, &cut, s->scores.shape.size);
}
