/* Tests share programs: `build/test_gpu layer` runs the test `layer`, and what follows its name are its
 * arguments. A test begins with one of these in place of main. */
#ifndef TESTS_TEST_PROGRAM_H
#define TESTS_TEST_PROGRAM_H

#include <stddef.h>

/* A test that takes no arguments: TEST_PROGRAM(layer) { return 0; } */
#define TEST_PROGRAM(name)                             \
    int test_program_##name(int argc, char **argv);    \
    extern const char *const test_program_##name##_in; \
    const char *const test_program_##name##_in = NULL; \
    static int test_program_##name##_run(void);        \
    int test_program_##name(int argc, char **argv)     \
    {                                                  \
        (void)argc;                                    \
        (void)argv;                                    \
        return test_program_##name##_run();            \
    }                                                  \
    static int test_program_##name##_run(void)

/* One that does, in argc and argv; argv[0] is its name. `_in` is the file that reads them. */
#define TEST_PROGRAM_ARGUMENTS(name)                       \
    int test_program_##name(int argc, char **argv);        \
    extern const char *const test_program_##name##_in;     \
    const char *const test_program_##name##_in = __FILE__; \
    int test_program_##name(int argc, char **argv)

#endif
