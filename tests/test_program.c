/* Runs one of the tests that a program holds: test_FOLDER NAME [ARGUMENT]... CMake writes tests.inc,
 * which has a line TEST(NAME) for each. */
#include <stdio.h>
#include <string.h>

#define TEST(name) int test_program_##name(int argc, char **argv);
#include "tests.inc"
#undef TEST

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} tests[] = {
#define TEST(name) {#name, test_program_##name},
#include "tests.inc"
#undef TEST
};

int main(int argc, char **argv)
{
    const size_t n_test = sizeof tests / sizeof tests[0];
    for (size_t i = 0; argc > 1 && i < n_test; i++)
        if (strcmp(argv[1], tests[i].name) == 0)
            return tests[i].run(argc - 1, argv + 1);
    fprintf(stderr, "usage: %s TEST [ARGUMENT]...\n\nTests:\n", argv[0]);
    for (size_t i = 0; i < n_test; i++)
        fprintf(stderr, "  %s\n", tests[i].name);
    return 2;
}
