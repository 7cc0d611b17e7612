/* How long tests wait for a device. CPU drivers compile within a run, for minutes on a machine that
 * has other work; what hangs is ended by ctest. */
#ifndef TESTS_PATIENCE_H
#define TESTS_PATIENCE_H

#define PATIENCE 3600000000000ull /* nanoseconds: an hour */

#endif
