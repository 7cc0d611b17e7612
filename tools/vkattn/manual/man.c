/* The manual page, in mdoc. SPDX-License-Identifier: MIT */
#include "man.h"
#include "table.h"

#include <stdio.h>
#include <string.h>

/* Sentences, each on a line of its own, with what mdoc would read as its own escaped. */
static void print_sentences(const char *text)
{
    for (const char *c = text; *c; c++) {
        bool begins = c == text || c[-1] == '\n' || (c[-1] == ' ' && c > text + 1 && c[-2] == '.');
        if (begins && (*c == '.' || *c == '\''))
            printf("\\&");
        if (*c == '.' && c[1] == ' ') {
            printf(".\n");
            c++;
        } else if (*c == '-') {
            printf("\\-");
        } else if (*c == '\\') {
            printf("\\e");
        } else {
            putchar(*c);
        }
    }
    putchar('\n');
}

static void print_item(const struct manual_option *o)
{
    printf(".It Fl -%s", o->name);
    if (o->value)
        printf(strchr(o->value, '|') && o->completed == MANUAL_OTHER ? " Cm " : " Ar ");
    for (const char *c = o->value; c && *c; c++) {
        if (*c == '|')
            printf(" | ");
        else
            putchar(*c);
    }
    putchar('\n');
    print_sentences(o->text);
}

static void print_items(const struct manual_option *options)
{
    if (!options || !options->name)
        return;
    printf(".Bl -tag -width Ds\n");
    for (; options->name; options++)
        print_item(options);
    printf(".El\n");
}

/* Words, in brackets where they may be left out, and with dots behind where there may be several. */
static void print_arguments(const char *words)
{
    while (*words) {
        size_t length = strcspn(words, " ");
        bool left_out = *words == '[';
        const char *name = words + left_out;
        size_t rest = length - (left_out ? 2 : 0);
        bool several = rest > 3 && !strncmp(name + rest - 3, "...", 3);

        printf("%s %.*s%s\n", left_out ? ".Op Ar" : ".Ar", (int)(several ? rest - 3 : rest), name,
               several ? " ..." : "");
        words += length;
        words += strspn(words, " ");
    }
}

static void print_synopsis(void)
{
    for (const struct manual_command *c = manual_commands; c->name; c++) {
        printf(".Nm\n.Cm %s\n", c->name);
        if (!strcmp(c->name, "help"))
            printf(".Op Ar command | Cm man | bash | zsh | fish\n");
        else
            print_arguments(c->arguments);
        for (const struct manual_option *o = c->options; o->name; o++)
            if (o->needed)
                printf(".Fl -%s Ar %s\n", o->name, o->value);
        if (c->options->name)
            printf(".Op Ar option ...\n");
    }
}

void manual_man(void)
{
    printf(".\\\" Made by 'vkattn help man' of tools/vkattn/manual/table.c.\n"
           ".Dd November 27, 2026\n.Dt VKATTN 1\n.Os\n.Sh NAME\n.Nm vkattn\n"
           ".Nd multi-head attention on Vulkan devices\n.Sh SYNOPSIS\n");
    print_synopsis();
    printf(".Sh DESCRIPTION\n.Nm\nruns language models, and runs, checks and times attention "
           "layers, on any Vulkan device.\n"
           ".Bl -tag -width Ds\n");
    const struct manual_option *more = NULL;
    for (const struct manual_command *c = manual_commands; c->name; c++) {
        printf(".It Cm %s\n%c%s.\n", c->name, c->summary[0] - 'a' + 'A', c->summary + 1);
        if (*c->text)
            print_sentences(c->text);
        print_items(c->options);
        more = c->more ? c->more : more;
    }
    printf(".El\n.Pp\nAll that\n.Cm bench\ntimes, except\n.Cm sweep ,\ntakes:\n");
    print_items(more);
    printf(".Pp\nEvery command that uses a device takes, before or behind its name:\n");
    print_items(manual_device_options);
    printf(".Sh FILES\nCompiled pipelines, self-test findings and tuning profiles are in\n"
           ".Pa $XDG_CACHE_HOME/vkattn ,\nor in\n.Pa ~/.cache/vkattn\n"
           "if that variable is not set.\n.Sh EXIT STATUS\n.Bl -tag -width Ds -compact\n"
           ".It 0\nsuccess\n.It 1\na comparison failed\n.It 2\nbad usage or input, or output that "
           "cannot be written\n"
           ".It 3\nno usable device\n.It 4\nout of memory\n"
           ".It 5\nthe device was lost or took too long\n.El\n.Sh EXAMPLES\n"
           ".Dl vkattn run layer.safetensors --query x.npy --heads 8 --causal --output y.npy\n"
           ".Dl vkattn bench attention --batch 1 --heads 8 --seq 512 --head-dim 64 --explain\n"
           ".Sh SEE ALSO\n.Xr vkattn-mnist 1 ,\n.Xr vulkaninfo 1\n");
}
