/* Whether an array that was read is the one that was written. SPDX-License-Identifier: MIT */
#ifndef TESTS_IO_EQUAL_H
#define TESTS_IO_EQUAL_H

static inline void check_equal(const struct vka_io_array *got, const struct vka_io_array *want)
{
    assert_int_equal(got->dtype, want->dtype);
    assert_int_equal(got->rank, want->rank);
    assert_memory_equal(got->shape, want->shape, sizeof got->shape);
    assert_int_equal(got->size, want->size);
    assert_memory_equal(got->data, want->data, got->size);
}

#endif
