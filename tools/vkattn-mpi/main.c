/* vkattn-mpi: times layers over the ranks that mpirun gives it. SPDX-License-Identifier: MIT */
#include "report.h"

#include "common/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: mpirun [-n RANKS] vkattn-mpi bench --batch B --seq S --model-dim D --heads H "
    "[OPTION]...\n"
    "\n"
    "Times a layer (or, by positions, attention) on 1, 2, 4 ... ranks and on all of them: the "
    "same\n"
    "problem (strong scaling), and one that grows with the ranks (weak scaling); fits a cost "
    "model\n"
    "and says what it predicts for more ranks.\n"
    "\n"
    "  --split heads|batch|sequence  what the ranks share; heads if not given\n"
    "  --kv-heads N, --causal, --dtype f32|f16|bf16, --path auto|unfused|fused\n"
    "  --rounds N                    of each rank's share, so that one travels while the next is\n"
    "                                computed\n"
    "  --repeat N                    timed runs, 10 if not given\n"
    "  --latency-us N, --gbps N      of a network to predict for, beside the copies on the host\n"
    "  --device N|NAME               on every rank; else round the host's devices\n"
    "  --timeout SECONDS             of one run, 120 if not given\n"
    "  --json                        a line a measurement, one for the model, one a prediction\n";

static const char *const splits[] = {"heads", "batch", "sequence", NULL};

static bool parse(int argc, char **argv, struct bench_options *o)
{
    const struct option_spec specs[] = {
        {"batch", OPTION_U32, &o->batch, 1, 1048576, NULL},
        {"seq", OPTION_U32, &o->n, 1, 16777216, NULL},
        {"model-dim", OPTION_U32, &o->model_dim, 1, 65536, NULL},
        {"heads", OPTION_U32, &o->n_head, 1, 65536, NULL},
        {"kv-heads", OPTION_U32, &o->n_kv_head, 1, 65536, NULL},
        {"causal", OPTION_FLAG, &o->causal, 0, 0, NULL},
        {"split", OPTION_CHOICE, &o->split, 0, 0, splits},
        {"dtype", OPTION_CHOICE, &o->dtype, 0, 0, option_dtypes},
        {"path", OPTION_CHOICE, &o->path, 0, 0, option_paths},
        {"rounds", OPTION_U32, &o->rounds, 1, 1024, NULL},
        {"repeat", OPTION_U32, &o->repeat, 1, 1000, NULL},
        {"latency-us", OPTION_U32, &o->latency_us, 0, 1000000, NULL},
        {"gbps", OPTION_U32, &o->gbps, 1, 100000, NULL},
        {"device", OPTION_TEXT, &o->device, 0, 0, NULL},
        {"timeout", OPTION_U32, &o->timeout_s, 1, 86400, NULL},
        {"json", OPTION_FLAG, &o->json, 0, 0, NULL},
        {0},
    };
    if (!options_parse_only(argc, argv, specs))
        return false;
    if (!o->batch || !o->n || !o->model_dim || !o->n_head) {
        tool_error("--batch, --seq, --model-dim and --heads: expected all four");
        return false;
    }
    o->n_kv_head = o->n_kv_head ? o->n_kv_head : o->n_head;
    if (o->model_dim % o->n_head || o->n_head % o->n_kv_head) {
        tool_error(
            "--heads: expected a divisor of --model-dim %u and a multiple of --kv-heads %u, got %u",
            o->model_dim, o->n_kv_head, o->n_head);
        return false;
    }
    return true;
}

/* Ranks 1, 2, 4 ... and all; strong scaling, then weak scaling from 2 ranks on. */
static size_t list_points(const struct bench_options *o, unsigned size,
                          struct bench_point points[POINTS_MAX])
{
    size_t n = 0;
    for (int weak = 0; weak < 2; weak++)
        for (unsigned ranks = 1; ranks <= size && n < POINTS_MAX;) {
            if (!weak || ranks > 1)
                bench_sizes(o, ranks, weak, &points[n++]);
            ranks = ranks < size && 2 * ranks > size ? size : 2 * ranks;
        }
    return n;
}

static int bench(const struct bench_options *o)
{
    static struct bench_point points[POINTS_MAX];
    int size, rank;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (o->split == VKA_MPI_SEQUENCE && o->n < (uint32_t)size) { /* a tensor is never empty */
        if (rank == 0)
            tool_error("--seq: expected at least one position for each of %d ranks, got %u", size,
                       o->n);
        return TOOL_USAGE;
    }
    size_t n = list_points(o, (unsigned)size, points);
    for (size_t i = 0; i < n; i++) {
        enum vka_status status = bench_measure(o, &points[i]);
        if (status != VKA_OK)
            return tool_exit_of(status);
    }
    int code = rank == 0 && !bench_report(o, points, n) ? TOOL_MEMORY : TOOL_OK;
    for (size_t i = 0; i < n; i++)
        free(points[i].by_rank);
    return code;
}

static bool show_usage(const char *command, const struct option_spec *specs)
{
    (void)command;
    (void)specs;
    fputs(usage, stdout);
    return true;
}

static int run(int argc, char **argv)
{
    struct bench_options options = {.timeout_s = 120};
    tool_set_program("vkattn-mpi");
    tool_set_help(show_usage);
    if (argc > 1 && (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help"))) {
        fputs(usage, stdout);
        return TOOL_OK;
    }
    if (argc < 2 || strcmp(argv[1], "bench")) {
        tool_error("expected bench or help, got '%s'", argc > 1 ? argv[1] : "");
        return TOOL_USAGE;
    }
    tool_set_command("bench");
    if (!parse(argc - 1, argv + 1, &options))
        return tool_helped() ? TOOL_OK : TOOL_USAGE;
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    int code = bench(&options);
    MPI_Finalize();
    return code;
}

int main(int argc, char **argv)
{
    return tool_end((enum tool_exit)run(argc, argv));
}
