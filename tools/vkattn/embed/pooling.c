/* Reads modules.json, and the config.json in the folder of its Pooling. */
#include "pooling.h"
#include "common/json_file.h"

#include <stdio.h>
#include <string.h>

enum { MEAN = 1, FIRST = 2 };

static const struct {
    const char *key;
    int kind;
} modes[] = {{"mean", MEAN},
             {"cls", FIRST},
             {"pooling_mode_mean_tokens", MEAN},
             {"pooling_mode_cls_token", FIRST}};

static int kind_of(const char *mode)
{
    for (size_t i = 0; mode && i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i].key, mode) == 0)
            return modes[i].kind;
    return 0;
}

/* By one key pooling_mode, or by a key of each mode that is true or false. */
static enum vka_status read_kind(const struct source *s, const json_t *config, int *kind)
{
    const char *key;
    json_t *value;
    *kind = 0;
    json_object_foreach((json_t *)config, key, value)
    {
        const bool named = strcmp(key, "pooling_mode") == 0;
        if (strncmp(key, "pooling_mode", 12) != 0 || json_is_false(value))
            continue;
        const int found = named ? kind_of(json_string_value(value)) : kind_of(key);
        if (!found || *kind || (!named && !json_is_true(value)))
            return source_refuse(s, key, "is not the mean or the first row alone");
        *kind = found;
    }
    return *kind ? VKA_OK : source_refuse(s, "pooling_mode", "is missing");
}

/* The name behind the last point of a module's type. */
static const char *name_of(const json_t *module)
{
    const char *type = json_string_value(json_object_get(module, "type"));
    const char *point = type ? strrchr(type, '.') : NULL;
    return point && strncmp(type, "sentence_transformers.", 22) == 0 ? point + 1 : "";
}

static enum vka_status read_modules(struct source *s, const char *folder, const json_t *modules)
{
    static const char *const kinds[] = {"Transformer", "Pooling", "Normalize"};
    size_t i, next = 0;
    bool pools = false;
    json_t *module;
    json_array_foreach((json_t *)modules, i, module)
    {
        const char *name = name_of(module);
        const char *path = json_string_value(json_object_get(module, "path"));
        while (next < 3 && strcmp(kinds[next], name) != 0)
            next++;
        if (next++ == 3 || !path || strchr(path, '/') || strcmp(path, "..") == 0 ||
            (i == 0 && (*path || strcmp(name, kinds[0]) != 0)))
            return source_refuse(s, "modules.json", "a module that is not supported here");
        if (strcmp(name, "Pooling") == 0) {
            char file[4096];
            json_t *config = NULL;
            int kind;
            snprintf(file, sizeof file, "%.2000s/%.1000s/config.json", folder, path);
            enum vka_status status = source_read_json(s, file, &config);
            if (status == VKA_OK)
                status = read_kind(s, config, &kind);
            json_decref(config);
            if (status != VKA_OK)
                return status;
            s->first_row = kind == FIRST;
            pools = true;
        }
    }
    return pools ? VKA_OK : source_refuse(s, "modules.json", "has no Pooling");
}

enum vka_status pooling_read(struct source *s, const char *folder)
{
    char file[4096];
    json_t *modules;
    snprintf(file, sizeof file, "%.3000s/modules.json", folder);
    enum vka_status status = json_file_read_if_there(file, &modules, s->why);
    if (status != VKA_OK || !modules)
        return status;
    status = json_is_array(modules) ? read_modules(s, folder, modules)
                                    : source_refuse(s, "modules.json", "is not a list of modules");
    json_decref(modules);
    return status;
}
