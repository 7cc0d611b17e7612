/* Frequencies of rotary embedding as the config.json of a model states them. */
#include "core/status.h"

#include <vkattn/vkattn_model.h>

#include <math.h>
#include <stdio.h>

#define TWO_PI 6.283185307179586476925286766559

static double or_default(double value, double fallback)
{
    return value != 0 ? value : fallback;
}

static bool is_positive(double x)
{
    return isfinite(x) && x > 0;
}

static enum vka_status check_base(struct log *log, const struct vka_rope_info *r)
{
    ENSURE_ARG((unsigned)r->type < VKA_ROPE_TYPE_COUNT, "type %d is unknown", (int)r->type);
    ENSURE_ARG(r->dim >= 2 && r->dim % 2 == 0, "dim is %u, but must be even and at least 2",
               r->dim);
    ENSURE_ARG(r->base == 0 || (isfinite(r->base) && r->base >= 1),
               "base is %g, not a number from 1 on", r->base);
    ENSURE_ARG(r->attention_factor == 0 || is_positive(r->attention_factor),
               "attention_factor is %g, not a positive number", r->attention_factor);
    ENSURE_ARG(r->type == VKA_ROPE_DEFAULT || (isfinite(r->factor) && r->factor >= 1),
               "factor is %g, not a number from 1 on", r->factor);
    return VKA_OK;
}

static enum vka_status check_llama3(struct log *log, const struct vka_rope_info *r)
{
    ENSURE_ARG(r->original_max_position_embeddings, "original_max_position_embeddings is 0");
    ENSURE_ARG(is_positive(r->low_freq_factor), "low_freq_factor is %g, not a positive number",
               r->low_freq_factor);
    ENSURE_ARG(isfinite(r->high_freq_factor) && r->high_freq_factor > r->low_freq_factor,
               "high_freq_factor is %g, not a number above low_freq_factor", r->high_freq_factor);
    return VKA_OK;
}

static enum vka_status check_yarn(struct log *log, const struct vka_rope_info *r)
{
    ENSURE_ARG(r->original_max_position_embeddings, "original_max_position_embeddings is 0");
    ENSURE_ARG(r->base == 0 || r->base > 1, "base is 1, of which YaRN takes the logarithm");
    ENSURE_ARG(isfinite(r->beta_fast) && r->beta_fast >= 0, "beta_fast is %g, not a number from 0",
               r->beta_fast);
    ENSURE_ARG(isfinite(r->beta_slow) && r->beta_slow >= 0, "beta_slow is %g, not a number from 0",
               r->beta_slow);
    ENSURE_ARG(or_default(r->beta_slow, 1) <= or_default(r->beta_fast, 32),
               "beta_slow is %g, more than beta_fast", or_default(r->beta_slow, 1));
    ENSURE_ARG(isfinite(r->mscale) && r->mscale >= 0, "mscale is %g, not a number from 0",
               r->mscale);
    ENSURE_ARG(isfinite(r->mscale_all_dim) && r->mscale_all_dim >= 0,
               "mscale_all_dim is %g, not a number from 0", r->mscale_all_dim);
    return VKA_OK;
}

static enum vka_status check_longrope(struct log *log, const struct vka_rope_info *r)
{
    ENSURE_ARG(r->attention_factor != 0 || r->original_max_position_embeddings > 1,
               "original_max_position_embeddings is %u, but must be at least 2",
               r->original_max_position_embeddings);
    ENSURE_ARG(r->short_factor && r->long_factor, "%s is NULL",
               r->short_factor ? "long_factor" : "short_factor");
    return VKA_OK;
}

static enum vka_status check(struct log *log, const struct vka_rope_info *r)
{
    ENSURE(check_base(log, r));
    switch (r->type) {
    case VKA_ROPE_LLAMA3:
        return check_llama3(log, r);
    case VKA_ROPE_YARN:
        return check_yarn(log, r);
    case VKA_ROPE_LONGROPE:
        return check_longrope(log, r);
    case VKA_ROPE_DEFAULT:
    case VKA_ROPE_LINEAR:
    case VKA_ROPE_TYPE_COUNT:
        break;
    }
    return VKA_OK;
}

/* Wavelengths, in positions: long ones are divided by the factor, short ones stay, and those between
 * are blended. */
static double llama3(const struct vka_rope_info *r, double frequency)
{
    double wave = TWO_PI / frequency, length = r->original_max_position_embeddings;
    if (wave < length / r->high_freq_factor)
        return frequency;
    if (wave > length / r->low_freq_factor)
        return frequency / r->factor;
    double smooth =
        (length / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * frequency / r->factor + smooth * frequency;
}

/* The pair, as a real number, that makes `turns` turns over the original length. */
static double pair_of_turns(const struct vka_rope_info *r, double turns)
{
    return r->dim * log(r->original_max_position_embeddings / (turns * TWO_PI)) /
           (2 * log(or_default(r->base, 10000)));
}

/* Pairs of many turns keep their frequency, those of few are divided by the factor, with a ramp
 * between. */
static double yarn(const struct vka_rope_info *r, uint32_t i, double frequency)
{
    double low = pair_of_turns(r, or_default(r->beta_fast, 32));
    double high = pair_of_turns(r, or_default(r->beta_slow, 1));
    low = fmax(r->no_truncate ? low : floor(low), 0);
    high = fmin(r->no_truncate ? high : ceil(high), r->dim - 1.0);
    if (low == high)
        high += 0.001;
    double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    return frequency / r->factor * ramp + frequency * (1 - ramp);
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static double attention_factor_of(const struct vka_rope_info *r)
{
    if (r->attention_factor != 0)
        return r->attention_factor;
    if (r->type == VKA_ROPE_YARN)
        return r->mscale != 0 && r->mscale_all_dim != 0
                   ? yarn_mscale(r->factor, r->mscale) / yarn_mscale(r->factor, r->mscale_all_dim)
                   : yarn_mscale(r->factor, 1);
    if (r->type == VKA_ROPE_LONGROPE)
        return sqrt(1 + log(r->factor) / log(r->original_max_position_embeddings));
    return 1;
}

static double frequency_of(const struct vka_rope_info *r, uint32_t i)
{
    double frequency = pow(or_default(r->base, 10000), -2.0 * i / r->dim);
    switch (r->type) {
    case VKA_ROPE_LINEAR:
        return frequency / r->factor;
    case VKA_ROPE_LLAMA3:
        return llama3(r, frequency);
    case VKA_ROPE_YARN:
        return yarn(r, i, frequency);
    case VKA_ROPE_LONGROPE:
        return frequency / (r->length > r->original_max_position_embeddings ? r->long_factor[i]
                                                                            : r->short_factor[i]);
    case VKA_ROPE_DEFAULT:
    case VKA_ROPE_TYPE_COUNT:
        break;
    }
    return frequency;
}

static enum vka_status make(struct log *log, const struct vka_rope_info *r, double *frequencies,
                            float *attention_factor)
{
    ENSURE_ARG(r, "info is NULL");
    ENSURE_ARG(r->struct_size == sizeof *r, "struct_size is %zu, not %zu", r->struct_size,
               sizeof *r);
    ENSURE_ARG(frequencies, "frequencies is NULL");
    ENSURE_ARG(attention_factor, "attention_factor is NULL");
    ENSURE(check(log, r));
    for (uint32_t i = 0; i < r->dim / 2; i++) {
        double frequency = frequency_of(r, i);
        ENSURE_ARG(frequency >= 0 && frequency <= 1,
                   "frequency %u is %g, but must be from 0 to 1 radians a position", i, frequency);
        frequencies[i] = frequency;
    }
    *attention_factor = (float)attention_factor_of(r);
    return VKA_OK;
}

enum vka_status vka_rope_frequencies(const struct vka_rope_info *info, double *frequencies,
                                     float *attention_factor, char error[VKA_ROPE_ERROR_SIZE])
{
    struct log log = {0};
    enum vka_status status = make(&log, info, frequencies, attention_factor);
    if (status != VKA_OK && error)
        snprintf(error, VKA_ROPE_ERROR_SIZE, "%s: %.480s", __func__, log.error);
    return status;
}
