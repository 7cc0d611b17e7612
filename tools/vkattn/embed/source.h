/* The files of a BERT: a folder with config.json and model.safetensors, or a GGUF file of the
 * architecture "bert": metadata and tensors. SPDX-License-Identifier: MIT */
#ifndef EMBED_SOURCE_H
#define EMBED_SOURCE_H

#include <jansson.h>
#include <vkattn/vkattn_io.h>

#define SOURCE_NAME 96 /* bytes of a tensor's name */

struct source {
    struct vka_device *device;
    char *why;             /* VKA_IO_ERROR_SIZE: what is wrong with the files */
    struct vka_gguf *gguf; /* one of both */
    const char *kind;      /* of gguf: "bert", "nomic-bert" or "t5encoder" */
    struct vka_safetensors *safetensors;
    json_t *config;             /* of the folder */
    bool first_row;             /* what its modules say of the embedding, see struct bert */
    const char *prefix;         /* of all tensors of the folder: "bert." below a head of training */
    char (*taken)[SOURCE_NAME]; /* names that were uploaded */
    size_t n_taken, room;
};

/* Accepts what source_open left. */
void source_close(struct source *source);

/* Reads a file that has to hold an object, which the caller releases in any case. */
enum vka_status source_read_json(const struct source *source, const char *file, json_t **object);

/* Writes "name: what" to *why. */
enum vka_status source_refuse(const struct source *source, const char *name, const char *what);

/* A size of the metadata, 1 to 2^24. gguf: the key behind "kind."; fallback 0: there has to be
 * one. */
enum vka_status source_size(const struct source *source, const char *json, const char *gguf,
                            uint32_t fallback, uint32_t *size);

/* A float of a GGUF file; *x stays where there is none, which is refused where it is needed. */
enum vka_status source_real(const struct source *source, const char *gguf, bool needed, double *x);

/* Uploads a tensor, [rows][width], or with rows 0 a vector of width, in the type of the file, which
 * has to have that shape. */
enum vka_status source_load(struct source *source, const char *json, const char *gguf,
                            uint32_t rows, uint32_t width, struct vka_tensor **tensor);

/* Refuses a tensor of the file that nothing has loaded, unless it is known to be without effect
 * here: the pooler and the heads of training. */
enum vka_status source_finish(const struct source *source);

#endif
