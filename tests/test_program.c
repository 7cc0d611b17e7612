/* Runs one of the tests that a program holds: test_FOLDER NAME [ARGUMENT]... CMake writes tests.inc,
 * which has a line TEST(NAME) for each. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define TEST(name)                                  \
    int test_program_##name(int argc, char **argv); \
    extern const char *const test_program_##name##_in;
#include "tests.inc"
#undef TEST

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *const *in; /* the file that reads its arguments; NULL: it has none */
} tests[] = {
#define TEST(name) {#name, test_program_##name, &test_program_##name##_in},
#include "tests.inc"
#undef TEST
};

/* Without arguments of its own a test takes none: "--help" must not run it. */
static int run(const char *program, size_t i, int argc, char **argv)
{
    const char *in = *tests[i].in;
    const bool help = argc > 1 && strcmp(argv[1], "--help") == 0;
    if (help && in)
        printf("usage: %s %s [ARGUMENT]...\n%s reads the arguments.\n", program, argv[0], in);
    else if (help)
        printf("usage: %s %s\n", program, argv[0]);
    else if (argc > 1 && !in)
        fprintf(stderr, "%s: expected no arguments, got '%s'\n", argv[0], argv[1]);
    else
        return tests[i].run(argc, argv);
    return help ? 0 : 2;
}

int main(int argc, char **argv)
{
    const size_t n_test = sizeof tests / sizeof tests[0];
    for (size_t i = 0; argc > 1 && i < n_test; i++)
        if (strcmp(argv[1], tests[i].name) == 0)
            return run(argv[0], i, argc - 1, argv + 1);
    fprintf(stderr, "usage: %s TEST [ARGUMENT]...\n\nTests:\n", argv[0]);
    for (size_t i = 0; i < n_test; i++)
        fprintf(stderr, "  %s\n", tests[i].name);
    return 2;
}
