/* Lowered limits of a device, in one place for all tests: what they ask for is cut or packed then,
 * and keeps its bits. */
#ifndef TESTS_LIMITS_H
#define TESTS_LIMITS_H

#include <gpu/device.h>

/* Whether VKATTN_TEST_LIMITS is RANGE,ALLOCATION,SHARED: bytes of a binding, of an allocation, and
 * of shared memory. Ends the program where it is anything else. The library reads no
 * environment. */
bool limits_given(void);

/* The info with these limits, and no mapped memory; as it is where none are given. */
struct vka_device_info limits_info(struct vka_device_info info);

/* The least that a device can be created with. */
#define LEAST_RANGE 65536
#define LEAST_ALLOCATION (1u << 20)

/* Lowers a device's limits while plans are made: as if it had been created so. Shared memory stays,
 * as other tiles may add in another order. Returns what limits_restore takes. */
struct vka_device_properties limits_lower(struct vka_device *device, uint64_t range,
                                          uint64_t allocation);
void limits_restore(struct vka_device *device, const struct vka_device_properties *usual);

/* Leaves a device the products of matrix units alone. The rules take those on GPUs, where matrices
 * are large. */
void limits_to_matrices(struct vka_device *device);

#endif
