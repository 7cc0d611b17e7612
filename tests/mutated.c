#include "mutated.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

void check_cuts(const unsigned char *bytes, size_t size, read_mutant *read)
{
    for (size_t cut = 0; cut < size; cut++) {
        unsigned char *copy = malloc(cut + 1);
        assert_non_null(copy);
        memcpy(copy + 1, bytes, cut);
        if (read(copy + 1, cut))
            fail_msg("%zu bytes of %zu are accepted", cut, size);
        free(copy);
    }
    assert_true(read(bytes, size));
}

void check_mutants(unsigned char *bytes, size_t size, const struct mutants *m, read_mutant *read)
{
    const unsigned char *values = m->values;
    const size_t n = values ? m->n : 256, end = m->end ? m->end : size;
    size_t accepted = 0, refused = 0;
    for (size_t at = m->first; at < end; at++) {
        const unsigned char was = bytes[at];
        for (size_t i = 0; i < n; i++) {
            bytes[at] = values ? values[i] : (unsigned char)i;
            if (bytes[at] == was)
                continue;
            if (read(bytes, size))
                accepted++;
            else
                refused++;
        }
        bytes[at] = was;
    }
    if (accepted < m->least_accepted || refused < m->least_refused)
        fail_msg("%zu mutants are accepted and %zu refused, not %zu and %zu", accepted, refused,
                 m->least_accepted, m->least_refused);
}
