/* A host that is right but for a mistake. SPDX-License-Identifier: MIT */
#ifndef TESTS_STUB_MISTAKEN_HOST_H
#define TESTS_STUB_MISTAKEN_HOST_H

#include <gpu/vk.h>

#include <stdbool.h>
#include <stdint.h>

#define SIZE 65536u /* bytes of a buffer and of what a binding reads of it */
#define PUSH 64u    /* bytes of push constants */

/* What the host does; 0: what is right. */
struct host {
    const char *name, *message; /* words of the sentence; NULL: there is none */
    const char *device;         /* VKATTN_STUB */
    uint64_t buffer, offset, range, memory;
    uint32_t bindings; /* that are set, less than all */
    uint32_t push, push_set, groups;
    uint64_t copy_at, copy_size, fill_at;
    bool texel, few_bindings, copy_within, no_memory, bad_stage, bad_access, no_reset, no_end;
    bool no_groups, feature, twice, falls, never_signaled, map_device;
    bool free_buffer, free_set, free_commands, free_pipeline; /* while the submit is pending */
    bool leak_buffer, leak_memory, leak_pipeline, leak_device,
        wrong; /* wrong: handle of another type */
    bool begin_again, submit_again, destroy_twice, unbound, no_wait;
    /* The code below in place of a kernel's, with such constants; subgroups: the device has control of
     * their size. */
    uint32_t capability, width, shared, stage_flags, required;
    bool subgroups;
};

/* Makes the mistake; exits with 3 where the driver refuses a call. */
void host_play(const struct host *h);

#endif
