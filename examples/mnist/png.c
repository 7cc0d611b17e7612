/* Writes a PNG with one channel. Its zlib stream is not compressed: a digit is below a kilobyte. */
#include "png.h"

#include <assert.h>
#include <string.h>

/* The bytes around the rows: signature, IHDR, IDAT with its zlib header, block header and checksum,
 * IEND. */
#define PNG_FRAME (8 + 25 + 12 + 2 + 5 + 4 + 12)
#define PNG_ROWS ((PNG_MAX_SIDE + 1) * PNG_MAX_SIDE)

static_assert(PNG_ROWS <= 65535, "a stored block holds at most 65,535 bytes");

struct bytes {
    uint8_t data[PNG_FRAME + PNG_ROWS];
    size_t size;
};

static void put(struct bytes *b, const void *data, size_t size)
{
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void put_be32(struct bytes *b, uint32_t x)
{
    const uint8_t four[] = {(uint8_t)(x >> 24), (uint8_t)(x >> 16), (uint8_t)(x >> 8), (uint8_t)x};

    put(b, four, sizeof four);
}

/* The CRC-32 of PNG, over the type and data of a chunk. */
static uint32_t crc32_of(const uint8_t *data, size_t size)
{
    uint32_t crc = 0xffffffffu;

    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static uint32_t adler32_of(const uint8_t *data, size_t size)
{
    uint32_t a = 1, b = 0;

    for (size_t i = 0; i < size; i++) {
        a = (a + data[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

/* Begins a chunk with `size` bytes of data; returns the place of its type. */
static size_t chunk_begin(struct bytes *b, const char *type, uint32_t size)
{
    put_be32(b, size);
    put(b, type, 4);
    return b->size - 4;
}

static void chunk_end(struct bytes *b, size_t type_at)
{
    put_be32(b, crc32_of(b->data + type_at, b->size - type_at));
}

static void put_image_data(struct bytes *b, const uint8_t *pixels, uint32_t rows, uint32_t cols)
{
    const uint32_t size = rows * (cols + 1); /* a filter byte before each row */
    const uint8_t head[] = {
        0x78, 0x01, 1, (uint8_t)size, (uint8_t)(size >> 8), (uint8_t)~size, (uint8_t)(~size >> 8)};
    const size_t chunk = chunk_begin(b, "IDAT", (uint32_t)sizeof head + size + 4);
    size_t first;

    put(b, head, sizeof head);
    first = b->size;
    for (uint32_t r = 0; r < rows; r++) {
        put(b, "", 1);
        put(b, pixels + (size_t)r * cols, cols);
    }
    put_be32(b, adler32_of(b->data + first, size));
    chunk_end(b, chunk);
}

static void write_base64(FILE *out, const uint8_t *data, size_t size)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < size; i += 3) {
        const uint32_t second = i + 1 < size ? data[i + 1] : 0;
        const uint32_t third = i + 2 < size ? data[i + 2] : 0;
        const uint32_t bits = (uint32_t)data[i] << 16 | second << 8 | third;

        putc(digit[bits >> 18], out);
        putc(digit[bits >> 12 & 63], out);
        putc(i + 1 < size ? digit[bits >> 6 & 63] : '=', out);
        putc(i + 2 < size ? digit[bits & 63] : '=', out);
    }
}

void png_write_address(FILE *out, const uint8_t *pixels, uint32_t rows, uint32_t cols)
{
    static const uint8_t signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    static const uint8_t format[] = {8, 0, 0, 0, 0}; /* 8 bits, grey, not interlaced */
    struct bytes b = {.size = 0};
    size_t chunk;

    assert(rows <= PNG_MAX_SIDE && cols <= PNG_MAX_SIDE);
    put(&b, signature, sizeof signature);
    chunk = chunk_begin(&b, "IHDR", 13);
    put_be32(&b, cols);
    put_be32(&b, rows);
    put(&b, format, sizeof format);
    chunk_end(&b, chunk);
    put_image_data(&b, pixels, rows, cols);
    chunk = chunk_begin(&b, "IEND", 0);
    chunk_end(&b, chunk);
    fputs("data:image/png;base64,", out);
    write_base64(out, b.data, b.size);
}
