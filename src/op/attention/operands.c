/* Describes the operands of an attention to the kernels. */
#include "op/attention/attention.h"

/* Whether rows of 16-bit elements begin and end at whole chunks of 16 bytes. */
static bool rows_of_chunks(const struct vka_tensor *t)
{
    const struct shape *s = &t->shape;
    bool whole = s->offset % 8 == 0 && s->size[3] % 8 == 0;
    for (int i = 0; i < 3; i++)
        whole &= s->size[i] == 1 || s->stride[i] % 8 == 0;
    return whole;
}

struct attention_operands attention_operands_of(const struct attention *a)
{
    const struct vka_attention_options *o = a->options;
    return (struct attention_operands){
        .q_type = a->q.dtype,
        .k_type = a->k.dtype,
        .v_type = a->v.dtype,
        .o_type = a->output.dtype,
        .head_dim = a->head_dim,
        .value_dim = a->value_dim,
        .k_vec = attention_rows_of_vec4(&a->k),
        .v_vec = attention_rows_of_vec4(&a->v),
        .k_chunks = rows_of_chunks(&a->k),
        .v_chunks = rows_of_chunks(&a->v),
        .bias = o->mask || o->softcap != 0 || o->alibi,
        .dropout = o->dropout != 0,
        .reads_masked = o->masked_row == VKA_MASKED_UNIFORM && attention_hides(a),
        .ragged = a->n_sequence > 0,
        .paged = a->paged != NULL,
    };
}
