/* Mistakes that the stub has to report. Each is made in a process of its own, by a host that is
 * right but for it; the right one ends in peace. */
#include "mistaken_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT (1u << 27) /* maxStorageBufferRange of the stub's CPU device */
#define FULL VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const struct host hosts[] = {
    {.name = "nothing wrong"},
    {"nothing wrong, on the largest GPU", NULL, "large", .buffer = UINT64_C(8) << 30,
     .range = UINT32_MAX, .groups = 1u << 30},
    {"a range past the buffer", "65536 bytes at 16 of a buffer of 65536", .offset = 16},
    {"a range that wraps", "exceed maxStorageBufferRange", .offset = 256,
     .range = UINT64_MAX - 128},
    {"a range past the limit", "exceed maxStorageBufferRange", .buffer = LIMIT + 256u,
     .range = LIMIT + 16u},
    {"an offset between", "minStorageBufferOffsetAlignment", .offset = 8, .range = 256},
    {"a buffer past its memory", "past its memory", .memory = SIZE - 256u},
    {"a buffer without memory", "without memory", .no_memory = true},
    {"memory past the limit", "maxMemoryAllocationSize", .memory = (UINT64_C(4) << 30) + 1},
    {"memory that the host cannot see", "cannot see", "large", .map_device = true},
    {"a binding not set", "binding 1 is not set", .bindings = 1},
    {"a descriptor of another type", "where the layout has", .texel = true},
    {"a layout that lacks a binding", "its layout of 1 has not", .few_bindings = true},
    {"no set", "no set is bound", .unbound = true},
    {"push constants past the limit", "exceed maxPushConstantsSize", .push = 132},
    {"push constants too long", "68 bytes at 0 of push constants of 64", .push_set = PUSH + 4},
    {"push constants too short", "byte 60 of the push constants is not set", .push_set = PUSH - 4},
    {"too many workgroups", "exceed maxComputeWorkGroupCount", .groups = 65536},
    {"no workgroups", "do nothing", .no_groups = true},
    {"a copy past the end", "256 bytes at 65296 of a buffer of 65536", .copy_at = SIZE - 240},
    {"a copy longer than its target", "of a buffer of", .copy_size = SIZE + 4},
    {"a copy within a buffer that overlaps", "overlaps", .copy_within = true},
    {"a fill past the end", "16 bytes at 65528", .fill_at = SIZE - 8},
    {"a fill between words", "16 bytes at 2", .fill_at = 2},
    {"a barrier without stages", "stages 0", .bad_stage = true},
    {"a barrier for other accesses", "of other stages", .bad_access = true},
    {"a query not reset", "was not reset", .no_reset = true},
    {"commands that did not end", "cannot run", .no_end = true},
    {"commands begun twice", "a command buffer in state", .begin_again = true},
    {"commands submitted twice at once", "pending already", .twice = true},
    {"commands of one submit submitted again", "cannot run", .submit_again = true},
    {"a timeline that falls", "a timeline of 5 is signaled with 5", .falls = true},
    {"a wait that never ends", "nothing signals", .never_signaled = true},
    {"a buffer destroyed too early", "a buffer is used after it was destroyed",
     .free_buffer = true},
    {"a set destroyed too early", "a descriptor set is used after", .free_set = true},
    {"a pipeline destroyed too early", "a pipeline is used after", .free_pipeline = true},
    {"commands freed too early", "of a submit that is pending", .free_commands = true},
    {"a buffer destroyed twice", "a buffer is used after it was destroyed", .destroy_twice = true},
    {"a handle of another type", "a buffer is taken for a shader module", .wrong = true},
    {"a buffer never destroyed", "1 of type buffer never destroyed", .leak_buffer = true},
    {"memory never freed", "1 of type memory never destroyed", .leak_memory = true},
    {"a pipeline never destroyed", "1 of type pipeline never destroyed", .leak_pipeline = true},
    {"a device never destroyed", "a device is never destroyed", .leak_device = true},
    {"a device destroyed at work", "pending", .no_wait = true},
    {"a feature that is not there", "timelineSemaphore is enabled", "least", .feature = true},
    {"the widest workgroup", NULL, .width = 1024},
    {"a workgroup too large", "1032 invocations exceed", .width = 1032},
    {"the most shared memory", NULL, .shared = 2048},
    {"too much shared memory", "32784 bytes of shared memory exceed", .shared = 2049},
    {"a capability that is not enabled", "capability 11 (Int64) on cpu", .capability = 11},
    {"one of subgroups that is not there", "capability 63 (GroupNonUniformArithmetic) on least",
     "least", .capability = 63},
    {"full subgroups", NULL, "wide", .width = 256, .stage_flags = FULL, .subgroups = true},
    {"subgroups that are not full", "full subgroups of 128 in a workgroup that is 64 wide", "wide",
     .width = 64, .stage_flags = FULL, .subgroups = true},
    {"full subgroups of another size", NULL, "wide", .width = 64, .stage_flags = FULL,
     .required = 64, .subgroups = true},
    {"full subgroups without the feature", "full subgroups, which the device cannot demand", "wide",
     .width = 128, .stage_flags = FULL},
    {"a size without the feature", "a size of subgroups, which", "wide", .required = 64},
    {"a size of subgroups that is not there", "subgroups of 32, which the device has not", "wide",
     .required = 32, .subgroups = true},
    {"too many subgroups", "520 invocations exceed maxComputeWorkgroupSubgroups", "varying",
     .width = 520, .required = 8, .subgroups = true},
};

/* Plays a host in another process. Its exit status, or -1 for a signal; what it says in text. */
static int play_apart(const struct host *h, char *text, size_t size)
{
    int ends[2], status = 0;
    size_t n = 0;
    fflush(stdout);
    if (pipe(ends) != 0)
        return -2;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        host_play(h);
        exit(0);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + n, size - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = '\0';
    close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (size_t i = 0; i < COUNT(hosts); i++) {
        static char text[16384];
        if (argc > 1 && strcmp(argv[1], hosts[i].name) != 0)
            continue;
        const int status = play_apart(&hosts[i], text, sizeof text);
        const bool right = hosts[i].message ? status == -1 && strstr(text, "stub: MISTAKE") &&
                                                  strstr(text, hosts[i].message)
                                            : status == 0 && !strstr(text, "stub: MISTAKE");
        if (!right)
            printf("FAIL %s: status %d: %s\n", hosts[i].name, status, text);
        failed += !right;
    }
    printf("%zu hosts, %d not as they should be\n", COUNT(hosts), failed);
    return failed != 0;
}
