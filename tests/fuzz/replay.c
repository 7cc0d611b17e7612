/* Runs a fuzz target on files, for builds without libFuzzer: fuzz_replay TARGET FILE... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TARGETS(T) T(safetensors) T(npy) T(gguf) T(case) T(plan)
#define DECLARE(name) int fuzz_##name(const unsigned char *data, size_t size);
TARGETS(DECLARE)

static const struct {
    const char *name;
    int (*run)(const unsigned char *data, size_t size);
} targets[] = {
#define ROW(name) {#name, fuzz_##name},
    TARGETS(ROW)};

static void run(int (*target)(const unsigned char *data, size_t size), const char *path)
{
    static unsigned char bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    unsigned char *exact = malloc(size ? size : 1); /* a sanitizer sees one byte too many */
    if (!exact)
        exit(1);
    memcpy(exact, bytes, size);
    target(exact, size);
    free(exact);
}

int main(int argc, char **argv)
{
    for (size_t t = 0; argc > 2 && t < sizeof targets / sizeof targets[0]; t++) {
        if (strcmp(argv[1], targets[t].name) != 0)
            continue;
        for (int i = 2; i < argc; i++)
            run(targets[t].run, argv[i]);
        printf("%d files\n", argc - 2);
        return 0;
    }
    fprintf(stderr, "usage: %s TARGET FILE...\n", argv[0]);
    return 2;
}
