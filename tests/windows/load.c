/* The first example of docs/start.md in a program that does not link vkattn.dll: it loads the DLL that
 * it is given and finds the functions by their names. */
#include <stdio.h>
#include <string.h>
#include <windows.h>

#include <vkattn/vkattn.h>

#define FUNCTIONS(F)          \
    F(vka_status_name)        \
    F(vka_device_create)      \
    F(vka_device_destroy)     \
    F(vka_tensor_create)      \
    F(vka_tensor_write)       \
    F(vka_tensor_read)        \
    F(vka_tensor_destroy)     \
    F(vka_plan_create)        \
    F(vka_plan_add_attention) \
    F(vka_plan_finish)        \
    F(vka_plan_run)           \
    F(vka_plan_destroy)

static struct {
#define F(name) __typeof__(name) *name;
    FUNCTIONS(F)
#undef F
} dll;

static int load(const char *path)
{
    HMODULE module = LoadLibraryA(path);
    if (!module) {
        fprintf(stderr, "load: %s: error %lu\n", path, GetLastError());
        return 0;
    }
#define F(name)                                                   \
    {                                                             \
        FARPROC symbol = GetProcAddress(module, #name);           \
        if (!symbol) {                                            \
            fprintf(stderr, "load: %s has no %s\n", path, #name); \
            return 0;                                             \
        }                                                         \
        memcpy(&dll.name, &symbol, sizeof symbol);                \
    }
    FUNCTIONS(F)
#undef F
    return 1;
}

int readme_main(void);

#define main readme_main
#define vka_status_name dll.vka_status_name
#define vka_device_create dll.vka_device_create
#define vka_device_destroy dll.vka_device_destroy
#define vka_tensor_create dll.vka_tensor_create
#define vka_tensor_write dll.vka_tensor_write
#define vka_tensor_read dll.vka_tensor_read
#define vka_tensor_destroy dll.vka_tensor_destroy
#define vka_plan_create dll.vka_plan_create
#define vka_plan_add_attention dll.vka_plan_add_attention
#define vka_plan_finish dll.vka_plan_finish
#define vka_plan_run dll.vka_plan_run
#define vka_plan_destroy dll.vka_plan_destroy
#include "first_example.c"
#undef main

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: load VKATTN.DLL\n");
        return 2;
    }
    return load(argv[1]) ? readme_main() : 1;
}
