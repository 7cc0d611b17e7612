/* What the layers of a cache hold. */
#ifndef VKA_OP_CACHE_LAYERS_H
#define VKA_OP_CACHE_LAYERS_H

#include "op/cache/state.h"

/* where: what stands before the names of fields, such as "layers[2].". */
enum vka_status cache_check_layer(struct log *log, const char *caller, const char *where,
                                  const struct vka_cache_layer_info *info);

/* The layer is zeros before; cache_free_layer frees what a failure leaves. States are not zeros yet. */
enum vka_status cache_create_layer(struct vka_cache *cache, const struct vka_cache_layer_info *info,
                                   struct cached_layer *layer);
void cache_free_layer(struct cached_layer *layer);

enum vka_status cache_create_tensor(struct vka_cache *cache, enum memory_kind kind,
                                    enum vka_dtype dtype, const uint32_t size[4],
                                    struct vka_tensor *tensor);

/* Writes the scales of heads of all layers. */
enum vka_status cache_write_scales(const struct vka_cache *cache);

/* All bytes of quantised rows, their scales included. */
struct vka_tensor cache_bytes(const struct cached_rows *cached);

/* Where kernels find the scales from key head `head` on; of blocks those of all heads. */
uint32_t cache_scales_from(const struct cached_rows *cached, uint32_t head);

enum vka_status cache_zero_states(const struct vka_cache *cache, uint32_t sequence);
enum vka_status cache_copy_states(const struct vka_cache *cache, uint32_t from, uint32_t to);

#endif
