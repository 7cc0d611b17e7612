/* attention_backward_coop: gradients of 16-bit attention on matrix units. A lane has eight scores of a
 * step, and COLUMNS subgroups share the rows of a matrix: see the shader. */
#include "kernel/attention_backward_coop.h"
#include "core/arith.h"
#include "gpu/pipeline.h"
#include "params/params.h"
/* Their order: train.h needs what comes before it. */
#include "params/model.h"

#include "params/train.h"

#define SHARED_AIM 32768u /* bytes, so that a processor has room for several workgroups */
#define VECTOR 8u         /* elements that a lane loads, and scores of a lane in a step */
#define APART_AIM 49152u  /* what NVIDIA gives */
#define EVERY_VEC (BACKWARD_Q_VEC | BACKWARD_K_VEC | BACKWARD_V_VEC | BACKWARD_DY_VEC)
#define OWN_MOST 64u
#define DEPTH_MOST 64u /* features of both sides in shared memory */

/* Registers of a lane for matrices below which results take a quarter of them, and operands come in the
 * shallowest steps: with more, DG2's compiler spills. */
#define REGISTERS_MANY 96u

static uint32_t round_up(uint32_t n, uint32_t multiple)
{
    return divide_up(n, multiple) * multiple;
}

/* Subgroups that share the rows of a matrix. */
static uint32_t columns_of(const struct backward_choice *c, const struct backward_tile *t)
{
    return t->subgroups * c->size.m / backward_own(t);
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t weight_vectors(const struct backward_tile *t)
{
    return backward_own(t) * (backward_others(t) / VECTOR + 1);
}

/* Vectors of scores, or of results, which are no more: see OWN_TILES of the shader. */
static uint32_t tile_vectors(const struct backward_choice *c, const struct backward_tile *t)
{
    const uint32_t lanes = t->lanes_x * t->lanes_y / t->subgroups;
    const bool own_tiles = c->batch > 1 || lanes > 8;
    return backward_own(t) * (backward_others(t) / 4 + (own_tiles ? 0 : 1));
}

/* Vectors of the shared array in the form that stages DEPTH features of both sides at a time. */
static uint32_t vectors_by_depth(const struct backward_choice *c, const struct backward_tile *t)
{
    const uint32_t own = backward_own(t), others = backward_others(t);
    const uint32_t operands = (own + others) * (t->depth4 / 2 + 1);
    const uint32_t turned = 4 * larger(t->a4, t->b4) * (others / VECTOR + 1);
    return larger(operands, turned) + larger(tile_vectors(c, t), 2 * weight_vectors(t));
}

/* Those of the forms that stage all features of the others of a step. */
static uint32_t vectors_direct(const struct backward_choice *c, const struct backward_tile *t,
                               uint32_t stage, uint32_t form)
{
    const uint32_t others = backward_others(t);
    const uint32_t rows = others * ((c->head4 + c->value4) / 2 + 2);
    const uint32_t turned = 4 * (t->a4 + t->b4) * (others / VECTOR + 1);
    const uint32_t tile = tile_vectors(c, t), weights = stage * weight_vectors(t);
    if (stage == BACKWARD_SUMS)
        return larger(rows, tile);
    return form == BACKWARD_APART ? larger(rows, weights) + tile + turned
                                  : larger(rows, turned) + larger(tile, weights);
}
_Static_assert(BACKWARD_SUMS == 0 && BACKWARD_QUERIES == 1 && BACKWARD_KEYS == 2,
               "weights of a stage");

/* Bytes beside `vectors`. */
static uint64_t shared_of(const struct backward_tile *t, uint32_t stage, uint32_t vectors)
{
    const uint64_t own = backward_own(t), others = backward_others(t);
    return 16ull * vectors + 16 * own /* tops, factors */ +
           (stage == BACKWARD_SUMS ? 8 * own * t->lanes_x : 8) +
           24 * (stage == BACKWARD_KEYS ? others : own) + 64;
}

uint64_t backward_coop_shared(const struct backward_choice *c, uint32_t stage)
{
    const struct backward_tile *t = &c->tiles[stage];
    const uint32_t by_depth = vectors_by_depth(c, t);
    return shared_of(t, stage,
                     t->form == BACKWARD_BY_DEPTH
                         ? by_depth
                         : larger(by_depth, vectors_direct(c, t, stage, t->form)));
}

/* Sets lanes and subgroups of a tile; false where the shader cannot take it. */
static bool set_lanes(const struct caps *caps, const struct backward_choice *c, uint32_t own,
                      uint32_t others, struct backward_tile *t)
{
    const struct matrix_size *size = &c->size;
    const uint32_t threads = own * others / VECTOR;
    *t = (struct backward_tile){
        .lanes_x = others / VECTOR, .lanes_y = own, .lane_others = VECTOR, .rows = 1};
    t->subgroups = threads / caps->least_subgroup;
    if (threads % caps->least_subgroup || threads > caps->properties.max_workgroup ||
        own % size->m || others % size->k || t->subgroups * size->m % own)
        return false;
    const uint32_t columns = columns_of(c, t);
    return columns > 0 && others % (size->n * columns) == 0;
}

/* Sets the features of a workgroup's results where their matrices stay in registers. */
static bool set_results(const struct caps *caps, const struct backward_problem *problem,
                        uint32_t stage, uint32_t n_feature_tile, const struct backward_choice *c,
                        struct backward_tile *t)
{
    const uint32_t multiple = c->size.n * columns_of(c, t);
    uint32_t a = stage == BACKWARD_SUMS ? 0 : problem->head_dim;
    uint32_t b = stage == BACKWARD_KEYS ? problem->value_dim : 0;
    a = round_up(divide_up(a, n_feature_tile), multiple);
    b = round_up(divide_up(b, n_feature_tile), multiple);
    t->a4 = a / 4;
    t->b4 = b / 4;
    t->n_feature_tile = n_feature_tile;
    return (a + b) / multiple * (c->size.m * c->size.n / caps->least_subgroup) <=
           caps->matrix_registers / (caps->matrix_registers < REGISTERS_MANY ? 4 : 2);
}

/* Sets the most features of both sides that fit `shared` bytes. */
static bool set_depth(const struct caps *caps, uint32_t stage, uint32_t shared,
                      struct backward_choice *c)
{
    struct backward_tile *t = &c->tiles[stage];
    const uint32_t wide = c->head4 > c->value4 ? c->head4 : c->value4;
    const uint32_t most = caps->matrix_registers < REGISTERS_MANY ? c->size.k : DEPTH_MOST;
    for (uint32_t depth = most; depth >= c->size.k && depth >= VECTOR; depth /= 2) {
        t->depth4 = depth / 4;
        if ((t->depth4 < 2 * wide || depth == c->size.k) &&
            backward_coop_shared(c, stage) <= shared)
            return depth % c->size.k == 0;
    }
    return false;
}

/* Sets the largest tile of `own` rows or fewer. A step of 32 others has as many loads of one side as
 * of the other where the tile has 64 rows, and is the least of most matrices. */
static bool set_tile(const struct caps *caps, const struct backward_problem *problem,
                     uint32_t stage, uint32_t n_feature_tile, struct backward_choice *c)
{
    static const uint32_t others[] = {32, 64, 16};
    const uint32_t most = caps->properties.max_shared_memory;
    struct backward_tile *t = &c->tiles[stage];
    for (uint32_t own = OWN_MOST; own >= c->size.m; own /= 2)
        for (size_t i = 0; i < COUNTOF(others); i++)
            if (set_lanes(caps, c, own, others[i], t) &&
                set_results(caps, problem, stage, n_feature_tile, c, t) &&
                set_depth(caps, stage, most < SHARED_AIM ? most : SHARED_AIM, c))
                return true;
    return false;
}

/* Sets the form of a step. Those that stage all features of others have heads of whole matrices. Registers
 * bound what runs at once on NVIDIA's GPUs, shared memory on others; Intel's compiler spills. */
static void set_form(const struct caps *caps, const struct backward_problem *problem,
                     uint32_t stage, struct backward_choice *c)
{
    const uint32_t vendor = caps->properties.vendor_id, most = caps->properties.max_shared_memory;
    struct backward_tile *t = &c->tiles[stage];
    const uint32_t form = vendor == VENDOR_NVIDIA ? BACKWARD_APART : BACKWARD_DIRECT;
    const uint32_t aim = form == BACKWARD_APART ? APART_AIM : SHARED_AIM;
    const bool whole = problem->head_dim == 4 * c->head4 && problem->value_dim == 4 * c->value4;
    const bool fits =
        shared_of(t, stage, vectors_direct(c, t, stage, form)) <= (most < aim ? most : aim);
    t->form = whole && fits && vendor != VENDOR_INTEL ? form : BACKWARD_BY_DEPTH;
}

static bool fit(const struct caps *caps, const struct backward_problem *problem, uint32_t stage,
                struct backward_choice *c)
{
    const uint32_t wide =
        problem->head_dim > problem->value_dim ? problem->head_dim : problem->value_dim;
    for (uint32_t n_feature_tile = 1;
         n_feature_tile == 1 || n_feature_tile <= divide_up(wide, c->size.n); n_feature_tile++)
        if (set_tile(caps, problem, stage, n_feature_tile, c))
            return true;
    return false;
}

bool backward_coop_choose(const struct caps *caps, const struct backward_problem *problem,
                          struct backward_choice *choice)
{
    const bool f16 = problem->type == VKA_F16;
    struct backward_choice c = {
        .kernel = f16 ? KERNEL_attention_backward_coop_f16 : KERNEL_attention_backward_coop_bf16,
        .usable = true,
        .size = f16 ? caps->matrix_f16 : caps->matrix_bf16,
        .batch = caps->properties.vendor_id == VENDOR_INTEL ? 1 : 2,
        .reason = "16-bit operands: the device's matrix units, without a buffer of scores",
    };
    if (problem->type == VKA_F32 || kernel_missing(c.kernel, caps) || c.size.n % VECTOR != 0 ||
        c.size.k % VECTOR != 0)
        return false;
    c.head4 = round_up(problem->head_dim, c.size.k) / 4;
    c.value4 = round_up(problem->value_dim, c.size.k) / 4;
    for (uint32_t stage = 0; stage < BACKWARD_STAGES; stage++)
        if (!fit(caps, problem, stage, &c))
            return false;
    for (uint32_t stage = 0; stage < BACKWARD_STAGES; stage++)
        set_form(caps, problem, stage, &c);
    *choice = c;
    return true;
}

void backward_coop_key(const struct backward_choice *c, uint32_t stage,
                       const struct backward_operands *o, struct pipeline_key *key)
{
    const struct backward_tile *t = &c->tiles[stage];
    key->n_spec = BACKWARD_COOP_SPECS;
    key->spec[BACKWARD_COOP_STAGE] = stage;
    key->spec[BACKWARD_COOP_THREADS] = t->lanes_x * t->lanes_y;
    key->spec[BACKWARD_COOP_SUBGROUPS] = t->subgroups;
    key->spec[BACKWARD_COOP_M] = c->size.m;
    key->spec[BACKWARD_COOP_N] = c->size.n;
    key->spec[BACKWARD_COOP_K] = c->size.k;
    key->spec[BACKWARD_COOP_OWN] = backward_own(t);
    key->spec[BACKWARD_COOP_OTHERS] = backward_others(t);
    key->spec[BACKWARD_COOP_HEAD] = 4 * c->head4;
    key->spec[BACKWARD_COOP_VALUE] = 4 * c->value4;
    key->spec[BACKWARD_COOP_DEPTH] = 4 * t->depth4;
    key->spec[BACKWARD_COOP_A] = 4 * t->a4;
    key->spec[BACKWARD_COOP_B] = 4 * t->b4;
    key->spec[BACKWARD_COOP_VECS] = o->vecs;
    key->spec[BACKWARD_COOP_GENERAL] = o->general;
    key->spec[BACKWARD_COOP_BATCH] = c->batch;
    const uint32_t n_own = stage == BACKWARD_KEYS ? o->n_kv : o->n_q;
    key->spec[BACKWARD_COOP_FORM] =
        o->vecs == EVERY_VEC && n_own >= backward_own(t) ? t->form : BACKWARD_BY_DEPTH;
}

/* Loops over vectors that `threads` lanes copy, each of four pairs where they cannot be loaded whole. */
static double copies(double vectors, double threads)
{
    return 5 * (vectors / threads + 1);
}

double backward_coop_loops(const struct backward_choice *c, uint32_t stage)
{
    const struct backward_tile *t = &c->tiles[stage];
    const double own = backward_own(t), others = backward_others(t);
    const double threads = own * t->lanes_x, depth8 = t->depth4 / 2.0;
    const double depths = divide_up(c->head4, t->depth4) + divide_up(c->value4, t->depth4);
    const double product = 1 + copies(own * depth8, threads) + copies(others * depth8, threads);
    const double results = 4.0 * (t->a4 + t->b4);
    double step = depths * product + 4 * (1 + 2 * 12.0 /* of philox */) + 2 * own / threads + 1;
    step += 2 * copies(others * results / VECTOR, threads);
    step += stage == BACKWARD_KEYS ? others / threads + 2 : 0;
    /* Each result looks at all others of a span where some of them are NaN or Inf. */
    const double each = own * results / threads;
    const double ends = each * (2 + BACKWARD_SPAN) + t->lanes_x * own / threads;
    return BACKWARD_SPAN / others * (step + 2) + ends + 32;
}
