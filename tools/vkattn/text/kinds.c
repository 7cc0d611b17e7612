#include "kinds.h"

#include <stdio.h>
#include <stdlib.h>

uint32_t text_letter_of_byte(unsigned byte)
{
    static const unsigned char shown[][2] = {{33, 126}, {161, 172}, {174, 255}};
    uint32_t hidden = 0;
    for (unsigned b = 0; b <= byte; b++) {
        bool is_shown = false;
        for (size_t i = 0; i < 3; i++)
            is_shown |= b >= shown[i][0] && b <= shown[i][1];
        if (b == byte)
            return is_shown ? byte : 256 + hidden;
        hidden += !is_shown;
    }
    return 0;
}

void list_push(struct list *list, int32_t id)
{
    if (list->n == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        int32_t *ids = realloc(list->ids, room * sizeof *ids);
        list->failed |= !ids;
        if (!ids)
            return;
        list->ids = ids;
        list->room = room;
    }
    list->ids[list->n++] = id;
}

void list_push_bytes(const struct text *t, const char *bytes, size_t size, struct list *list)
{
    for (size_t i = 0; i < size; i++)
        if (t->bytes[(unsigned char)bytes[i]] >= 0)
            list_push(list, t->bytes[(unsigned char)bytes[i]]);
}

bool text_flag(const struct text *t, const char *key, bool otherwise)
{
    char whole[64];
    int64_t value = otherwise;
    snprintf(whole, sizeof whole, "tokenizer.ggml.%s", key);
    return vka_gguf_integer(vka_gguf_metadata(t->file, whole), 0, &value) ? value != 0 : otherwise;
}

int32_t text_id(const struct text *t, const char *key)
{
    char whole[64];
    int64_t id = -1;
    snprintf(whole, sizeof whole, "tokenizer.ggml.%s", key);
    vka_gguf_integer(vka_gguf_metadata(t->file, whole), 0, &id);
    return id >= 0 && id < t->vocabulary.n ? (int32_t)id : -1;
}
