/* vkattn: the command line. SPDX-License-Identifier: MIT */
#include "commands.h"
#include "common/options.h"

#include "core/os.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: vkattn COMMAND [OPTION]...\n"
    "\n"
    "  devices [--json] [--self-test]\n"
    "      every Vulkan device, what it can do and which kernels it can run\n"
    "  run LAYER.safetensors --query X.npy --output Y.npy [--key K.npy] [--value V.npy]\n"
    "      [--mask M.npy] [--kv-lengths L.npy] [--heads N] [--kv-heads N] [--causal]\n"
    "      [--window L,R] [--layout bsd|sbd] [--dtype f32|f16|bf16] [--scores S.npy]\n"
    "      [--weights q8_0|q4_0] (quantised on the host)\n"
    "      [--path auto|unfused|fused] [--html PAGE.html [--tokens FILE]]\n"
    "      [--count-nonfinite] (NaN and Inf in the results, to stderr)\n"
    "      the whole layer on one input; options override what LAYER's metadata says;\n"
    "      PAGE shows what each head attends to, labelled by FILE: a line a token, an empty\n"
    "      line between the inputs of a batch, and with --key between queries and keys\n"
    "  check PATH... [--path auto|unfused|fused] [--json]\n"
    "      runs case files, or all *.safetensors under a folder, and compares\n"
    "  bench layer --batch B --seq S [--kv-seq S] --model-dim D --heads H [--kv-heads N]\n"
    "      [--causal] [BENCH]...\n"
    "  bench attention --batch B --heads H [--kv-heads N] --seq S [--kv-seq S] --head-dim D\n"
    "      [--value-dim D] [--causal] [BENCH]...\n"
    "  bench matmul --m M --n N --k K [BENCH]...\n"
    "  bench decode --batch B --heads H [--kv-heads N] --kv-seq S --head-dim D [BENCH]...\n"
    "      times the recorded operation\n"
    "      BENCH: --dtype f32|f16|bf16, --path auto|unfused|fused, --repeat N, --json,\n"
    "      --passes (a line a pass), --explain (why each kernel), --warm (with the pipelines\n"
    "      that earlier commands left; else the first result waits for the compiler)\n"
    "  bench sweep [--lengths FROM,TO] [--batch B] [--heads H] [--kv-heads N] [--head-dim D]\n"
    "      [--causal] [--dtype T] [--repeat N] [--csv FILE] [--svg FILE]\n"
    "      attention (fused and unfused) and decoding at doubling lengths, 512 to 16384 if not\n"
    "      given; fits how time grows, writes the results and a plot\n"
    "  tune [--output FILE] [--dtype f32|f16|bf16] [--quick]\n"
    "      checks the kernels, measures which are the fastest on this device, and writes a tuning\n"
    "      profile to FILE, or to the user's cache folder for all commands; --quick: only small\n"
    "      problems, to see that it works\n"
    "  version, help\n"
    "\n"
    "Every command that uses a device takes:\n"
    "  --device N|NAME           index as 'devices' prints it, or part of the name in any\n"
    "                            case; else the most capable, named on stderr\n"
    "  --validate                enable the Khronos validation layer; a message is a failure\n"
    "  --limits RANGE,ALLOCATION bytes of a binding and of an allocation, 0: the driver's\n"
    "  --timeout SECONDS         for one wait for the device, 120 if not given (tune: 600)\n"
    "  --submit-budget MS        time of one submit on the device, 200 if not given, 0: any\n"
    "  --no-cache                neither read nor write the pipeline cache file\n"
    "  --no-self-test            use kernels without testing them; else each solves a small known\n"
    "                            problem before its first use on a device\n"
    "  --tuning-profile FILE|none\n"
    "                            measured kernel choices, or none for the rules alone; if not\n"
    "                            given, those that 'vkattn tune' left in the cache folder\n"
    "\n"
    "exit: 0 success, 1 a comparison failed, 2 bad usage or input, 3 no usable device,\n"
    "4 out of memory, 5 device lost or timed out\n";

static int show_version(void)
{
    printf("vkattn %d.%d.%d\n", VKA_VERSION_MAJOR, VKA_VERSION_MINOR, VKA_VERSION_PATCH);
    return TOOL_OK;
}

static int dispatch(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {
        {"devices", cmd_devices}, {"run", cmd_run},   {"check", cmd_check},
        {"bench", cmd_bench},     {"tune", cmd_tune},
    };
    if (argc < 2) {
        tool_error("expected a command; 'vkattn help' lists them");
        return TOOL_USAGE;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    }
    if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        fputs(usage, stdout);
        return TOOL_OK;
    }
    if (!strcmp(argv[1], "version") || !strcmp(argv[1], "--version"))
        return show_version();
    tool_error("unknown command '%s'; 'vkattn help' lists them", argv[1]);
    return TOOL_USAGE;
}

int main(int argc, char **argv)
{
    os_program_begin(&argc, &argv);
    int code = dispatch(argc, argv);
    /* A full disk or a closed pipe must not look like success. */
    if (fflush(stdout) || ferror(stdout)) {
        tool_error("cannot write to standard output");
        return code ? code : TOOL_FAILED;
    }
    return code;
}
