/* Prints the examples as JSON, for tests in other languages: of each operation its noun and the fields
 * that hold something, with what they hold. What C alone has, such as the size of a struct, is left out.
 * SPDX-License-Identifier: MIT */
#include "example.h"

#include <stdio.h>
#include <string.h>

static const char *kind_of(const struct field *f)
{
    switch (f->fault) {
    case LAYER:
        return "layer";
    case ENUM:
        return "enum";
    case FINITE:
    case POSITIVE:
    case RATE:
        return "real";
    case WINDOW:
    case EVEN:
    case SHORT:
    case ANY:
        return "whole";
    case SIZE:
    case LINK:
    case GIVEN:
    case COUNT:
        return NULL;
    case OPERAND:
    case OUTPUT:
    case FREE:
    case BROADCAST:
    case OPTIONAL:
    case GRADIENT:
    case KEPT:
    case FLOATS:
    case MASK:
    case INDICES:
    case DRAWN:
    case INTEGERS:
        return field_dtype(f) == VKA_I32 ? "i32" : "f32";
    default:
        return NULL;
    }
}

/* The shape, the values before a run, of which there may be none, and those after it. */
static void print_tensor(const struct field *f)
{
    uint32_t n = 1;
    printf(", \"shape\": [");
    for (uint32_t i = 0; i < f->rank; n *= f->shape[i++])
        printf("%s%u", i ? ", " : "", (unsigned)f->shape[i]);
    printf("], \"values\": [");
    for (uint32_t i = 0; i < n && (f->values || f->seed); i++)
        printf("%s%.9g", i ? ", " : "", f->values ? f->values[i] : example_value(f->seed, i));
    printf("], \"answer\": [");
    for (uint32_t i = 0; i < n && f->answer; i++)
        printf("%s%.9g", i ? ", " : "", f->answer[i]);
    printf("]");
}

int main(void)
{
    printf("[");
    for (size_t i = 0; i < N_EXAMPLE; i++) {
        const char *separator = "";
        printf("%s{\"noun\": \"%s\", \"fields\": [", i ? ",\n" : "",
               examples[i].name + strlen("vka_plan_add_"));
        for (size_t j = 0; j < examples[i].n_field; j++) {
            const struct field *f = &examples[i].fields[j];
            if (!kind_of(f))
                continue;
            printf("%s\n {\"name\": \"%s\", \"kind\": \"%s\"", separator, f->name, kind_of(f));
            if (f->fault < TENSOR_FAULTS)
                print_tensor(f);
            else
                printf(", \"number\": %.17g", f->number);
            printf("}");
            separator = ",";
        }
        printf("]}");
    }
    printf("]\n");
    return ferror(stdout) ? 1 : 0;
}
