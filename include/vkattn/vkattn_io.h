/* vkattn_io: strict readers and writers of safetensors, npy and GGUF files.
 * SPDX-License-Identifier: MIT
 *
 * Statuses. VKA_INVALID: an argument is wrong, or is NULL where that is not allowed. VKA_IO: a file
 * cannot be read or written, or breaks a rule of its format; files are not trusted, and every size
 * is checked against the file before anything is allocated. VKA_OUT_OF_HOST_MEMORY: any function
 * that allocates may return it. A function that fails writes one sentence to error, an array of
 * VKA_IO_ERROR_SIZE characters or NULL. The sentence names the file and, if there is one, the
 * tensor; it is a single line even if names in the file hold newlines. No function needs Vulkan.
 * All of them: any thread. Programs link them by libvkattn_io.a; libvkattn.so has them too, for those
 * that load it at run time, as the Python package does.
 *
 * Reading. Open files are mapped into memory: if another program shortens an open file, reading its
 * data crashes the process (SIGBUS).
 *
 * Writing. A file is written under another name beside its path and then renamed, so that path is
 * whole or untouched, and programs that have the old file open keep it. The new file has the
 * permissions of the old one. It replaces only a regular file, or the symbolic link to one.
 *
 * Windows. Paths are UTF-8. A file that is open for reading here cannot be replaced: writing it gives
 * VKA_IO, and the old file stays.
 */
#ifndef VKATTN_IO_H
#define VKATTN_IO_H

#include <vkattn/vkattn.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VKA_IO_ERROR_SIZE 512
#define VKA_IO_MAX_RANK 8

/* Element types of files; a superset of enum vka_dtype. */
enum vka_io_dtype {
    VKA_IO_F32 = 0,
    VKA_IO_F16,
    VKA_IO_BF16,
    VKA_IO_F64,
    VKA_IO_BOOL,
    VKA_IO_U8,
    VKA_IO_I8,
    VKA_IO_U16,
    VKA_IO_I16,
    VKA_IO_U32,
    VKA_IO_I32,
    VKA_IO_U64,
    VKA_IO_I64,
    VKA_IO_F8_E4M3, /* without infinities; safetensors alone has floats of 8 bits */
    VKA_IO_F8_E5M2,
    VKA_IO_F8_E8M0, /* powers of two, scales of others */
    VKA_IO_DTYPE_COUNT
};

/* Bytes of one element; 0 for an unknown type. */
VKA_API size_t vka_io_dtype_size(enum vka_io_dtype dtype);

/* The name in safetensors files: "F32", "BOOL", ...; "?" for an unknown type. */
VKA_API const char *vka_io_dtype_name(enum vka_io_dtype dtype);

/* A dense little-endian array in row-major order. An axis may have length 0; then the array has no
 * bytes. The product of the other axes and the element size is at most PTRDIFF_MAX even then. */
struct vka_io_array {
    const char *name; /* npy: NULL */
    enum vka_io_dtype dtype;
    uint32_t rank; /* 0: a scalar */
    uint64_t shape[VKA_IO_MAX_RANK];
    const void *data; /* may be unaligned: use memcpy */
    size_t size;      /* bytes */
    /* vka_io_dtype_name(dtype), or what the file calls a type that is not known; writers do not read it */
    const char *type;
};

struct vka_io_metadata {
    const char *key, *value;
};

/* ---- safetensors ----------------------------------------------------------------------------- */

struct vka_safetensors; /* an open file; its arrays point into the mapped file */

/* Opens a file; close it by vka_safetensors_close. IO; INVALID; OUT_OF_HOST_MEMORY. */
VKA_API enum vka_status vka_safetensors_open(const char *path, char *error,
                                             struct vka_safetensors **file);

/* Opens a file that is in memory. data must outlive the object; path is only used in sentences. */
VKA_API enum vka_status vka_safetensors_parse(const char *path, const void *data, size_t size,
                                              char *error, struct vka_safetensors **file);
VKA_API void vka_safetensors_close(struct vka_safetensors **file);

/* An array whose type this version does not know, such as "F4" or "C64", has dtype VKA_IO_DTYPE_COUNT;
 * its size is that which the file says, and every other rule holds for it. Keys of an array's entry
 * that the format does not have are passed over.
 *
 * The number of arrays, the array at an index, and the array of a name; NULL past the end, or if
 * there is no such name. Arrays are in the order of their data in the file; empty arrays come
 * before the one that begins at the same place, in the order of their names. The pointers are valid
 * until the file is closed. */
VKA_API size_t vka_safetensors_count(const struct vka_safetensors *file);
VKA_API const struct vka_io_array *vka_safetensors_at(const struct vka_safetensors *file,
                                                      size_t index);
VKA_API const struct vka_io_array *vka_safetensors_find(const struct vka_safetensors *file,
                                                        const char *name);

/* The value of a key of __metadata__; NULL if there is no such key. Valid until the file is
 * closed. */
VKA_API const char *vka_safetensors_metadata(const struct vka_safetensors *file, const char *key);

/* The number of keys of __metadata__, and the one at an index in the order of their names; NULL past the
 * end. Valid until the file is closed. */
VKA_API size_t vka_safetensors_metadata_count(const struct vka_safetensors *file);
VKA_API const struct vka_io_metadata *
vka_safetensors_metadata_at(const struct vka_safetensors *file, size_t index);

/* Writes a file with the arrays in this order. Names and metadata must be UTF-8; names must differ
 * from each other and from "__metadata__". */
VKA_API enum vka_status vka_safetensors_write(const char *path, const struct vka_io_array *arrays,
                                              size_t count, const struct vka_io_metadata *metadata,
                                              size_t metadata_count, char *error);

/* ---- GPTQ and AWQ: weights of 4 bits in safetensors files -------------------------------------- */

/* How the arrays of a linear layer are packed. config.json says it in quantization_config: GPTQ has
 * quant_method "gptq", and checkpoint_format "gptq_v2" for GPTQ_V2; AWQ has "awq" and version
 * "gemm". An int32 holds 8 values of 4 bits. */
enum vka_int4_format {
    /* qweight I32 [in / 8][out], values of one column from the lowest bits up; qzeros I32
     * [groups][out / 8], scales F16 [groups][out]. weight[o][i] = scale * (value - zero), with the
     * scale and the zero point of group i / group_size. qzeros holds zero - 1, so that 15 is 16. */
    VKA_INT4_GPTQ = 0,
    VKA_INT4_GPTQ_V2, /* the same, but qzeros holds the zero point itself */
    /* qweight I32 [in][out / 8], qzeros I32 [groups][out / 8], both with columns 0, 2, 4, 6, 1, 3,
     * 5, 7 of eight from the lowest bits up; scales F16 [groups][out]. */
    VKA_INT4_AWQ,
    VKA_INT4_FORMAT_COUNT
};

/* The arrays of one linear layer. */
struct vka_int4 {
    enum vka_int4_format format;
    uint32_t group_size; /* inputs that share a scale; 0: as the shapes say, in / groups */
    const struct vka_io_array *qweight, *qzeros, *scales;
    const struct vka_io_array *g_idx; /* of GPTQ: I32 [in], the group of each input; or NULL */
};

/* Finds PREFIX.qweight, PREFIX.qzeros, PREFIX.scales and, if it is there, PREFIX.g_idx. format and
 * group_size of *weight are left as they are. IO where one is missing; INVALID. */
VKA_API enum vka_status vka_int4_find(const struct vka_safetensors *file, const char *prefix,
                                      char *error, struct vka_int4 *weight);

/* What vka_int4_repack will make: rows, values of a row, bytes. Checks types and shapes, not
 * contents. INVALID: an argument is NULL. IO, with a sentence that names the array: bits other than
 * 4; groups that are not whole multiples of 128 inputs (all inputs may be one group); rows that are
 * not whole blocks; shapes that contradict each other. */
VKA_API enum vka_status vka_int4_size(const struct vka_int4 *weight, char *error, uint32_t *out,
                                      uint32_t *in, size_t *size);

/* Writes blocks[size] of VKA_I4_G128, [out][in], whose values are exactly those of the file; a
 * larger group repeats its scale. Nothing is written unless the whole weight is right. Besides what
 * vka_int4_size returns: IO where g_idx is not i / group_size (the order of activations, desc_act,
 * does not fit groups of neighbours), and where a scale is NaN or infinite; INVALID where size is
 * another one. */
VKA_API enum vka_status vka_int4_repack(const struct vka_int4 *weight, void *blocks, size_t size,
                                        char *error);

/* ---- npy ------------------------------------------------------------------------------------- */

/* An open file of version 1, 2 or 3, little-endian. Its array is in C order; one in Fortran order
 * is copied. Objects, strings, complex numbers and records are not supported (VKA_IO). */
struct vka_npy;

/* These work as vka_safetensors_open, vka_safetensors_parse and vka_safetensors_close do. The array
 * is valid until the file is closed. */
VKA_API enum vka_status vka_npy_open(const char *path, char *error, struct vka_npy **file);
VKA_API enum vka_status vka_npy_parse(const char *path, const void *data, size_t size, char *error,
                                      struct vka_npy **file);
VKA_API void vka_npy_close(struct vka_npy **file);
VKA_API const struct vka_io_array *vka_npy_array(const struct vka_npy *file);

/* Writes a file of version 1.0. BF16 and floats of 8 bits have no npy type: INVALID. */
VKA_API enum vka_status vka_npy_write(const char *path, const struct vka_io_array *array,
                                      char *error);

/* ---- GGUF ------------------------------------------------------------------------------------ */

/* QUERY AND KEY WEIGHTS OF LLAMA ARE PERMUTED. Where general.architecture is "llama" (SmolLM and
 * Mistral have it too), the converter of llama.cpp has reordered the rows of attn_q and attn_k,
 * weights and biases, within each head, so that rotary embedding turns neighbours. With those
 * weights set vka_rope.interleaved. The reader gives rows as they are in the file;
 * vka_gguf_rope_row finds the row of the original checkpoint. For other architectures llama.cpp
 * decides by a table: "qwen2", "qwen3", "gemma", "phi3" and "gptneox", for example, have the
 * original rows and half-split pairs.
 *
 * Accepted are little-endian files of versions 2 and 3 that keep these rules:
 * - names of tensors are UTF-8 of 1 to 64 bytes, keys of 1 to 65535, without 0 bytes; none occurs
 *   twice;
 * - a bool is 0 or 1; no array holds arrays; strings of metadata may hold any bytes;
 * - general.alignment, if there, is a u32 and a power of two from 8 up; else the alignment is 32;
 * - a tensor has a type that ggml has too, at most 4 axes, rows of whole blocks, and data at a multiple of
 *   the alignment, within the file, that no other tensor shares; one with an axis of 0 has no data.
 * As in Python's gguf, there may be gaps between tensors, any bytes in gaps and behind the last
 * tensor, and no padding behind that. Big-endian files, version 1, and type q8_1, about whose size
 * ggml and gguf disagree, are refused. */
struct vka_gguf; /* an open file; its tensors and values point into the mapped file */

/* A dense little-endian tensor in row-major order. GGUF lists the fastest axis first; here it is
 * the last one, as everywhere in vkattn: a weight is [out][in]. */
struct vka_gguf_tensor {
    const char *name;
    const char *type; /* ggml's name: "f32", "q4_K", "iq2_xs"; that of vka_dtype_name where vkattn
                         has the type */
    enum vka_dtype dtype; /* VKA_DTYPE_COUNT: not a type of vkattn */
    uint32_t rank;        /* 0: a scalar */
    uint64_t shape[VKA_MAX_RANK];
    const void *data; /* at a multiple of 8 bytes of the file */
    size_t size;      /* bytes */
    uint64_t offset;  /* of the data in its file, bytes */
};

/* Types of metadata, numbered as in the file. */
enum vka_gguf_type {
    VKA_GGUF_U8 = 0,
    VKA_GGUF_I8,
    VKA_GGUF_U16,
    VKA_GGUF_I16,
    VKA_GGUF_U32,
    VKA_GGUF_I32,
    VKA_GGUF_F32,
    VKA_GGUF_BOOL,
    VKA_GGUF_STRING,
    VKA_GGUF_ARRAY,
    VKA_GGUF_U64,
    VKA_GGUF_I64,
    VKA_GGUF_F64,
    VKA_GGUF_TYPE_COUNT
};

/* An item of metadata. Numbers and bools lie one after the other, little-endian. A single string is
 * its bytes, with no 0 at the end; in an array each string is a length, u64, and its bytes. */
struct vka_gguf_value {
    const char *key;
    enum vka_gguf_type type;
    enum vka_gguf_type item; /* of an array: the type of its items; else type */
    uint64_t count;          /* items; 1 where it is no array */
    const void *data;        /* unaligned: use memcpy */
    size_t size;             /* bytes */
};

/* These work as vka_safetensors_open, vka_safetensors_parse and vka_safetensors_close do. A model
 * may lie in several files, its shards, NAME-00001-of-00003.gguf and so on, as llama-gguf-split makes them
 * (keys split.no, split.count, split.tensors.count): vka_gguf_open takes the path of any of them
 * and opens all as one, whose metadata is that of the first, and whose tensors are those of the
 * first, then of the second, ... IO, with a sentence that names the shard, where one is missing, is
 * not the one that its name says, has a tensor of another one, or is of another model: another
 * number of shards or tensors, a key that the first has not. vka_gguf_parse reads one file, be it a
 * shard or not. */
VKA_API enum vka_status vka_gguf_open(const char *path, char *error, struct vka_gguf **file);
VKA_API enum vka_status vka_gguf_parse(const char *path, const void *data, size_t size, char *error,
                                       struct vka_gguf **file);
VKA_API void vka_gguf_close(struct vka_gguf **file);

/* The number of tensors, the tensor at an index, in the order of the file, and the tensor of a
 * name; NULL past the end, or if there is no such name. Valid until the file is closed. */
VKA_API size_t vka_gguf_count(const struct vka_gguf *file);
VKA_API const struct vka_gguf_tensor *vka_gguf_at(const struct vka_gguf *file, size_t index);
VKA_API const struct vka_gguf_tensor *vka_gguf_find(const struct vka_gguf *file, const char *name);

/* The number of values of the metadata, the value at an index, and the value of a key; NULL where
 * there is none. */
VKA_API size_t vka_gguf_metadata_count(const struct vka_gguf *file);
VKA_API const struct vka_gguf_value *vka_gguf_metadata_at(const struct vka_gguf *file,
                                                          size_t index);
VKA_API const struct vka_gguf_value *vka_gguf_metadata(const struct vka_gguf *file,
                                                       const char *key);

/* Whether vkattn has the type of a tensor. If not, UNSUPPORTED, with a sentence that names the tensor,
 * its type, and the types that products take; INVALID: tensor is NULL. path: as the sentence begins. */
VKA_API enum vka_status vka_gguf_check_type(const struct vka_gguf_tensor *tensor, const char *path,
                                            char *error);

/* Checks the types of all tensors that have data: the sentence names the first that vkattn has not. */
VKA_API enum vka_status vka_gguf_check_types(const struct vka_gguf *file, const char *path,
                                             char *error);

/* The item at an index, of any integer type or BOOL. False, and *number is unchanged, if value is
 * NULL, of another type, has no such item, or one above INT64_MAX. Some files have counts as u32
 * and others as u64; this reads both. */
VKA_API bool vka_gguf_integer(const struct vka_gguf_value *value, uint64_t index, int64_t *number);

/* Reads the item at an index of F32 or F64; false as vka_gguf_integer says. */
VKA_API bool vka_gguf_real(const struct vka_gguf_value *value, uint64_t index, double *number);

/* Steps through the strings of a value, or through its single one: *text is the next, *size bytes
 * with no 0 at the end, in the mapped file. The caller sets *at to 0 before the first call. False
 * after the last string, and if value is NULL or not of strings. */
VKA_API bool vka_gguf_string(const struct vka_gguf_value *value, size_t *at, const char **text,
                             size_t *size);

/* Where a permuted weight (see above) has a row of the original one, whose rotary embedding is
 * half-split: row h * head_dim + p * head_dim / 2 + i of head h, p 0 or 1, is row
 * h * head_dim + 2 i + p of the file. An odd head_dim or 0 gives `row`. */
VKA_API uint64_t vka_gguf_rope_row(uint64_t row, uint32_t head_dim);

/* Writes a file of version 3 with tensors and metadata in this order. Offsets are not read. A
 * tensor has the type that `type` names, or dtype if type is NULL. Data is aligned to the value of
 * general.alignment, at most 1 MiB, else to 32 bytes; the padding is zeros, behind the last tensor
 * too. INVALID if a reader would refuse the file, and if a size is not what type and shape need. */
VKA_API enum vka_status vka_gguf_write(const char *path, const struct vka_gguf_tensor *tensors,
                                       size_t count, const struct vka_gguf_value *metadata,
                                       size_t metadata_count, char *error);

/* ---- Other files ----------------------------------------------------------------------------- */

/* Writes any bytes, for example a pipeline cache, as a file that is whole or untouched. */
VKA_API enum vka_status vka_file_write(const char *path, const void *data, size_t size,
                                       char *error);

#ifdef __cplusplus
}
#endif
#endif
