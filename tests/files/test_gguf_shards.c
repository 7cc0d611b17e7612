/* GGUF, a model in several files: opened from any of them as one, or refused by a sentence that names
 * the shard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vkattn/vkattn_io.h>

#include "gguf_cases.h"
#include "test_program.h"
#include "unit/folder.h"

#define COUNTOF(array) (sizeof(array) / sizeof((array)[0]))
#define MOST 3
#define MISSING "-" /* no words: there is no such file */

/* The keys of shard `no` of `count` with `tensors` in all; types as llama-gguf-split writes them. */
#define SPLIT(no, count, tensors) \
    KEY("split.no", 2)            \
    "h" #no " " KEY("split.count", 2) "h" #count " " KEY("split.tensors.count", 5) "w" #tensors " "
#define MODEL KEY("general.architecture", 8) "=llama "
#define FIRST(count, tensors) \
    HEAD(2, 4) MODEL SPLIT(0, count, tensors) TENSOR("a", 8, 0, 0) TENSOR("b", 8, 0, 32) "p32 z64"
#define SECOND(count, tensors) HEAD(1, 3) SPLIT(1, count, tensors) TENSOR("c", 4, 24, 0) "p32 z4"
#define THIRD(count, tensors) \
    HEAD(2, 3) SPLIT(2, count, tensors) TENSOR("e", 8, 24, 32) TENSOR("d", 32, 24, 0) "p32 z40"

static const char *name_of(unsigned i, unsigned count)
{
    char name[64];

    snprintf(name, sizeof name, "model-%05u-of-%05u.gguf", i + 1, count);
    return in_folder(name);
}

static void put_file(const char *path, const char *words)
{
    static unsigned char room[GGUF_ROOM];
    char error[VKA_IO_ERROR_SIZE];
    const size_t size = gguf_build(words, room);

    if (vka_file_write(path, room, size, error))
        fail_msg("%s", error);
}

/* The sentence names the file of shard `at`. */
static void refuse(const char *path, const char *named, const char *told)
{
    char error[VKA_IO_ERROR_SIZE];
    struct vka_gguf *file = (struct vka_gguf *)error;

    if (vka_gguf_open(path, error, &file) != VKA_IO)
        fail_msg("%s was not refused", path);
    assert_null(file);
    if (strncmp(error, named, strlen(named)) != 0 || !strstr(error, told) || strchr(error, '\n'))
        fail_msg("wanted %s: ... %s, got %s", named, told, error);
    assert_int_equal(vka_gguf_open(path, NULL, &file), VKA_IO);
}

/* What all is read: the name of each tensor, and of what shard its data is. */
static void check_model(const struct vka_gguf *file, const char *names)
{
    assert_int_equal(vka_gguf_count(file), strlen(names));
    for (size_t i = 0; names[i]; i++) {
        const char name[] = {names[i], 0};
        const struct vka_gguf_tensor *tensor = vka_gguf_at(file, i);

        assert_string_equal(tensor->name, name);
        assert_ptr_equal(vka_gguf_find(file, name), tensor);
        assert_true(tensor->offset % 32 == 0);
    }
    assert_null(vka_gguf_at(file, strlen(names)));
    assert_null(vka_gguf_find(file, "x"));
}

static void test_whole(void **state)
{
    static const char *const shards[] = {FIRST(3, 5), SECOND(3, 5), THIRD(3, 5)};
    char error[VKA_IO_ERROR_SIZE];

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        put_file(name_of(i, 3), shards[i]);
    for (unsigned i = 0; i < 3; i++) {
        struct vka_gguf *file;
        int64_t no = -1;

        if (vka_gguf_open(name_of(i, 3), error, &file))
            fail_msg("%s", error);
        check_model(file, "abced");
        /* z counts from 0 in the data of each shard. */
        assert_int_equal(*(const unsigned char *)vka_gguf_find(file, "b")->data, 32);
        assert_int_equal(*(const unsigned char *)vka_gguf_find(file, "c")->data, 0);
        assert_int_equal(*(const unsigned char *)vka_gguf_find(file, "e")->data, 32);
        assert_int_equal(((const unsigned char *)vka_gguf_find(file, "d")->data)[31], 31);
        assert_int_equal(vka_gguf_metadata_count(file), 4);
        assert_non_null(vka_gguf_metadata(file, "general.architecture"));
        assert_true(vka_gguf_integer(vka_gguf_metadata(file, "split.no"), 0, &no) && no == 0);
        vka_gguf_close(&file);
        assert_null(file);
    }
    for (unsigned i = 0; i < 3; i++)
        remove(name_of(i, 3));
}

/* Each is a model in as many shards as it has; `at` is the shard that the sentence names. */
static const struct {
    const char *shards[MOST];
    unsigned at;
    const char *told; /* NULL: read */
} cases[] = {
    /* Types of any integer; a shard without tensors, first or last; keys that are repeated. */
    {{HEAD(0, 3) KEY("split.no", 4) "w0 " KEY("split.count", 11) "d2 " KEY("split.tensors.count",
                                                                           10) "d1 ",
      HEAD(1, 3) SPLIT(1, 2, 1) TENSOR("c", 4, 24, 0) "p32 z4"},
     0,
     NULL},
    {{FIRST(2, 2), HEAD(0, 3) SPLIT(1, 2, 2)}, 0, NULL},
    {{HEAD(0, 3) SPLIT(0, 2, 0), HEAD(0, 3) SPLIT(1, 2, 0)}, 0, NULL},
    {{FIRST(2, 3), HEAD(1, 4) MODEL SPLIT(1, 2, 3) TENSOR("c", 4, 24, 0) "p32 z4"}, 0, NULL},
    {{FIRST(2, 3), HEAD(1, 4) U32(ALIGNMENT, 64) SPLIT(1, 2, 3) TENSOR("c", 4, 24, 0) "p64 z4"},
     0,
     NULL},
    {{FIRST(3, 5), SECOND(3, 5), THIRD(3, 5)}, 0, NULL},
    /* Missing. */
    {{FIRST(3, 5), MISSING, THIRD(3, 5)}, 1, "(shard 2 of 3 of a model)"},
    {{FIRST(3, 5), SECOND(3, 5), MISSING}, 2, "(shard 3 of 3 of a model)"},
    {{MISSING, SECOND(3, 5), THIRD(3, 5)}, 0, "(shard 1 of 3 of a model)"},
    /* Twice, or in another's place. */
    {{FIRST(3, 5), SECOND(3, 5), SECOND(3, 5)},
     2,
     "the file is shard 2 of 3 by its keys, but shard 3 of 3 by its name"},
    {{FIRST(3, 5), FIRST(3, 5), THIRD(3, 5)}, 1, "shard 1 of 3 by its keys, but shard 2 of 3"},
    {{FIRST(2, 3), SECOND(3, 3)}, 1, "shard 2 of 3 by its keys, but shard 2 of 2"},
    /* No shard of any model, or of another one. */
    {{FIRST(2, 3), HEAD(1, 0) TENSOR("c", 4, 24, 0) "p32 z4"},
     1,
     "shard 1 of 1 by its keys, but shard 2 of 2 by its name"},
    {{FIRST(2, 3), SECOND(2, 4)},
     1,
     "a shard of another model: its split.tensors.count is 4, but 3 in shard 1"},
    {{FIRST(2, 3), HEAD(1, 4) KEY("general.architecture", 8) "=bert " SPLIT(1, 2, 3)
                       TENSOR("c", 4, 24, 0) "p32 z4"},
     1,
     "a shard of another model: shard 1 has another value of key 'general.architecture'"},
    {{FIRST(2, 3), HEAD(1, 4) KEY("general.architecture", 9) "w0 d5 'llama " SPLIT(1, 2, 3)
                       TENSOR("c", 4, 24, 0) "p32 z4"},
     1,
     "shard 1 has another value of key 'general.architecture'"},
    {{FIRST(2, 3),
      HEAD(1, 4) U32("llama.block_count", 1) SPLIT(1, 2, 3) TENSOR("c", 4, 24, 0) "p32 z4"},
     1,
     "shard 1 has no key 'llama.block_count'"},
    {{FIRST(2, 3), HEAD(1, 3) SPLIT(1, 2, 3) TENSOR("a", 4, 24, 0) "p32 z4"},
     1,
     "tensor 'a' is in shard 1 too"},
    {{FIRST(3, 5), SECOND(3, 5),
      HEAD(2, 3) SPLIT(2, 3, 5) TENSOR("c", 8, 24, 32) TENSOR("d", 32, 24, 0) "p32 z40"},
     2,
     "tensor 'c' is in shard 2 too"},
    /* Counts. */
    {{FIRST(2, 4), SECOND(2, 4)}, 0, "split.tensors.count is 4, but the 2 shards have 3 tensors"},
    {{FIRST(2, 2), SECOND(2, 2)}, 0, "split.tensors.count is 2, but the 2 shards have 3 tensors"},
    {{FIRST(2, 0xffffffff), SECOND(2, 3)}, 0, "key split.tensors.count is not a whole number"},
    {{FIRST(2, 3), SECOND(2, 0x80000000)}, 1, "key split.tensors.count is not a whole number"},
    {{HEAD(0, 1) KEY("split.count", 2) "h2", HEAD(0, 3) SPLIT(1, 2, 0)}, 0, "no key split.no"},
    {{HEAD(0, 2) KEY("split.count", 2) "h2 " KEY("split.no", 2) "h0", HEAD(0, 3) SPLIT(1, 2, 0)},
     0,
     "no key split.tensors.count"},
    {{HEAD(0, 3) SPLIT(2, 2, 0), HEAD(0, 3) SPLIT(1, 2, 0)},
     0,
     "key split.no is not a whole number from 0 to 1"},
    {{HEAD(0, 1) KEY("split.count", 8) "=2", HEAD(0, 3) SPLIT(1, 2, 0)},
     0,
     "key split.count is not a whole number from 0 to 65535"},
    {{HEAD(0, 1) KEY("split.count", 9) "w2 d1 h2", HEAD(0, 3) SPLIT(1, 2, 0)},
     0,
     "key split.count is not a whole number from 0 to 65535"},
    {{HEAD(0, 1) KEY("split.count", 6) "w0x40000000", HEAD(0, 3) SPLIT(1, 2, 0)},
     0,
     "key split.count is not a whole number from 0 to 65535"},
    {{HEAD(0, 1) KEY("split.count", 4) "w65536", HEAD(0, 3) SPLIT(1, 2, 0)},
     0,
     "key split.count is not a whole number from 0 to 65535"},
    {{HEAD(0, 1) KEY("split.count", 5) "w0xffffffff", HEAD(0, 3) SPLIT(1, 2, 0)},
     0,
     "key split.count is not a whole number from 0 to 65535"},
    /* A shard that breaks a rule of the format. */
    {{FIRST(2, 3), ""},
     1,
     "not a GGUF file: it does not begin with GGUF (shard 2 of 2 of a model)"},
    {{FIRST(2, 3), HEAD(1, 3) SPLIT(1, 2, 3) TENSOR("c", 4, 24, 0) "p32 z3"},
     1,
     "which pass the 3 bytes of data (shard 2 of 2 of a model)"},
};

/* From each of the shards that are there. A later shard with a fault is not tried by itself: then the
 * sentence is that of an opened file. */
static void test_cases(void **state)
{
    (void)state;
    for (size_t c = 0; c < COUNTOF(cases); c++) {
        const char *const *shards = cases[c].shards;
        char error[VKA_IO_ERROR_SIZE];
        struct vka_gguf *file;
        unsigned count = 0;

        while (count < MOST && shards[count])
            count++;
        for (unsigned i = 0; i < count; i++)
            if (strcmp(shards[i], MISSING) != 0)
                put_file(name_of(i, count), shards[i]);
        for (unsigned i = 0; i < count; i++) {
            if (strcmp(shards[i], MISSING) == 0 || (i > 0 && i == cases[c].at))
                continue;
            if (cases[c].told)
                refuse(name_of(i, count), name_of(cases[c].at, count), cases[c].told);
            else if (vka_gguf_open(name_of(i, count), error, &file))
                fail_msg("case %zu: %s", c, error);
            else
                vka_gguf_close(&file);
        }
        for (unsigned i = 0; i < count; i++)
            remove(name_of(i, count));
    }
}

/* Names by which the others cannot be found. */
static void test_names(void **state)
{
    static const char *const names[] = {"model.gguf",
                                        "model-00002-of-00003.gguf",
                                        "model-00001-of-00004.gguf",
                                        "model-1-of-3.gguf",
                                        "model-00001-of-00003.gguf.shard",
                                        "model-00001-of-00003.GGUF",
                                        "00001-of-00003.gguf",
                                        "x"};
    static const char *const single[] = {HEAD(0, 1) KEY("split.count", 2) "h1",
                                         HEAD(0, 1) KEY("split.count", 2) "h0",
                                         HEAD(0, 1) KEY("split.no", 8) "=x", HEAD(0, 0)};
    char error[VKA_IO_ERROR_SIZE];
    struct vka_gguf *file;

    (void)state;
    for (size_t i = 0; i < COUNTOF(names); i++) {
        put_file(in_folder(names[i]), FIRST(3, 5));
        refuse(in_folder(names[i]), in_folder(names[i]),
               "the file is shard 1 of 3 of a model, but its name does not end in "
               "-00001-of-00003.gguf");
        remove(in_folder(names[i]));
    }
    /* Bare, in the working directory, and with nothing before the numbers. */
    put_file("-00002-of-00002.gguf", SECOND(2, 3));
    refuse("-00002-of-00002.gguf", "-00001-of-00002.gguf", "(shard 1 of 2 of a model)");
    put_file("-00001-of-00002.gguf", FIRST(2, 3));
    assert_int_equal(vka_gguf_open("-00002-of-00002.gguf", error, &file), VKA_OK);
    vka_gguf_close(&file);
    remove("-00001-of-00002.gguf");
    remove("-00002-of-00002.gguf");
    for (size_t i = 0; i < COUNTOF(single); i++) {
        put_file(in_folder("single"), single[i]);
        assert_int_equal(vka_gguf_open(in_folder("single"), error, &file), VKA_OK);
        vka_gguf_close(&file);
        remove(in_folder("single"));
    }
}

TEST_PROGRAM(gguf_shards)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, folder_set_up, folder_tear_down);
}
