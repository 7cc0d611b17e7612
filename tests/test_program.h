/* Tests share programs: `build/test_gpu layer` runs the test `layer`, and what follows its name are its
 * arguments. A test begins with one of these in place of main. */
#ifndef TESTS_TEST_PROGRAM_H
#define TESTS_TEST_PROGRAM_H

/* A test that takes no arguments: TEST_PROGRAM(layer) { return 0; } */
#define TEST_PROGRAM(name)                          \
    int test_program_##name(int argc, char **argv); \
    static int test_program_##name##_run(void);     \
    int test_program_##name(int argc, char **argv)  \
    {                                               \
        (void)argc;                                 \
        (void)argv;                                 \
        return test_program_##name##_run();         \
    }                                               \
    static int test_program_##name##_run(void)

/* One that does, in argc and argv; argv[0] is its name. */
#define TEST_PROGRAM_ARGUMENTS(name)                \
    int test_program_##name(int argc, char **argv); \
    int test_program_##name(int argc, char **argv)

#endif
