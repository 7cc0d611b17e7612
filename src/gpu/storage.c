#include "gpu/storage.h"
#include "gpu/command.h"
#include "gpu/memory.h"

#include <stdlib.h>
#include <string.h>

enum vka_status storage_create_empty(struct vka_device *device, struct storage **out)
{
    struct log *log = &device->log;
    struct storage *storage = calloc(1, sizeof *storage);
    ENSURE_ALLOC(storage);
    storage->device = device;
    storage->references = 1;
    *out = storage;
    return VKA_OK;
}

enum vka_status storage_create(struct vka_device *device, enum memory_kind kind, uint64_t bytes,
                               struct storage **out)
{
    enum vka_status status = VKA_OK;
    struct storage *storage = NULL;
    TRY(storage_create_empty(device, &storage));
    storage->bytes = bytes;
    TRY(memory_allocate(device, kind, (bytes + 3) / 4 * 4, &storage->range));
    *out = storage;
    return VKA_OK;

fail:
    storage_unref(&storage);
    return status;
}

struct storage *storage_ref(struct storage *storage)
{
    storage->references++;
    return storage;
}

static void storage_free(struct vka_device *device, struct retired *self)
{
    struct storage *storage = (struct storage *)self;
    memory_free(device, &storage->range);
    free(storage->kept);
    free(storage);
}

void storage_unref(struct storage **slot)
{
    struct storage *storage = *slot;
    *slot = NULL;
    if (!storage || --storage->references > 0)
        return;
    struct storage **link = &storage->device->kept;
    while (storage->listed && *link != storage)
        link = &(*link)->next_kept;
    if (storage->listed)
        *link = storage->next_kept;
    /* A copy that was given up may still read or write there. */
    storage->retired =
        (struct retired){.ticket = storage->device->queue.abandoned, .release = storage_free};
    queue_retire(storage->device, &storage->retired);
}

enum vka_status storage_keep(struct storage *storage, const void *contents)
{
    struct log *log = &storage->device->log;
    if (contents) {
        storage->kept = calloc(1, (storage->bytes + 3) / 4 * 4);
        ENSURE_ALLOC(storage->kept);
        memcpy(storage->kept, contents, storage->bytes);
    }
    storage->listed = true;
    storage->next_kept = storage->device->kept;
    storage->device->kept = storage;
    return VKA_OK;
}

enum vka_status storage_restore(struct storage *storage)
{
    void *mapped = memory_mapped(&storage->range);
    if (!mapped)
        return queue_write(storage->device, &storage->range, 0, storage->kept,
                           (storage->bytes + 3) / 4 * 4);
    memcpy(mapped, storage->kept, storage->bytes);
    return VKA_OK;
}
