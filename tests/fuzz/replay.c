/* Runs a fuzz target on files, for builds without libFuzzer. */
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int main(int argc, char **argv)
{
    static unsigned char bytes[1 << 20];
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (!file) {
            perror(argv[i]);
            return 1;
        }
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        unsigned char *exact = malloc(size ? size : 1); /* a sanitizer sees one byte too many */
        if (!exact)
            return 1;
        for (size_t j = 0; j < size; j++)
            exact[j] = bytes[j];
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    printf("%d files\n", argc - 1);
    return argc > 1 ? 0 : 1;
}
