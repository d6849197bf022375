/* The usual produce request, read and checked in one pass.
 *
 *     read_one_batch(frame)                what odradek/record/one_batch.py describes, or None
 *
 * Every byte may come from any client. A cursor has the end of the bytes; each read checks it, and a
 * read beyond it, or anything that is not usual, ends with None and without an exception: the general
 * path reads the request again.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include "check.h"

#define FIRST_VERSION 3
#define FIRST_FLEXIBLE 9
#define LAST_VERSION 12
#define RECORDS_MAX 1000
#define CHECKSUM_BYTES_MAX 4096 /* the checksum of a larger batch is left to the caller */

/* The batch header: where its fields are, and its size. */
#define OVERHEAD_BYTES 12
#define ATTRIBUTES_AT 21
#define HEADER_BYTES 61
#define UNUSUAL_ATTRIBUTES 0x7F /* codec, timestamp type, transactional, control, delete horizon */

/* ------------------------------------------------------------------------------ CRC-32C */

#define POLYNOMIAL 0x82F63B78u

static uint32_t
crc_by_table(uint32_t crc, const uint8_t *p, const uint8_t *end)
{
    static uint32_t table[256];
    if (!table[1]) /* filled under the GIL */
        for (uint32_t i = 0; i < 256; i++) {
            table[i] = i;
            for (int bit = 0; bit < 8; bit++)
                table[i] = table[i] & 1 ? table[i] >> 1 ^ POLYNOMIAL : table[i] >> 1;
        }
    for (; p < end; p++)
        crc = crc >> 8 ^ table[(crc ^ *p) & 0xFF];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#ifdef __clang__ /* for which this is a feature of its own */
#define TARGET "sse4.2,crc32"
#else
#define TARGET "sse4.2"
#endif
__attribute__((target(TARGET))) static uint32_t
crc_by_instruction(uint32_t start, const uint8_t *p, const uint8_t *end)
{
    uint64_t crc = start, word;
    for (; end - p >= 8; p += 8) {
        memcpy(&word, p, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; p < end; p++)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *p);
    return (uint32_t)crc;
}
#define HAS_INSTRUCTION __builtin_cpu_supports("sse4.2")
#else
#define crc_by_instruction crc_by_table
#define HAS_INSTRUCTION 0
#endif

static uint32_t
crc32c(const uint8_t *p, const uint8_t *end)
{
    return ~(HAS_INSTRUCTION ? crc_by_instruction : crc_by_table)(~0u, p, end);
}

/* ----------------------------------------------------------------------------- reading */

typedef struct {
    const uint8_t *p, *end; /* p == NULL: a read went beyond the end */
} Cursor;

/* The next `size` bytes; NULL if there are fewer. */
static const uint8_t *
take(Cursor *from, int64_t size)
{
    const uint8_t *p = from->p;
    if (p == NULL || size < 0 || size > from->end - p) {
        from->p = NULL;
        return NULL;
    }
    from->p = p + size;
    return p;
}

/* The next big-endian integer of `size` bytes, sign extended; 0 beyond the end. */
static int64_t
integer(Cursor *from, int size)
{
    const uint8_t *p = take(from, size);
    if (p == NULL)
        return 0;
    uint64_t raw = p[0] & 0x80 ? ~(uint64_t)0 : 0;
    for (int i = 0; i < size; i++)
        raw = raw << 8 | p[i];
    return (int64_t)raw;
}

static uint8_t
byte(Cursor *from)
{
    const uint8_t *p = take(from, 1);
    return p ? *p : 0xFF;
}

/* A length that is encoded plus one; -1 (null, or too long a varint) is refused by `take`. */
static int64_t
compact_length(Cursor *from, int bytes_max)
{
    uint64_t raw = 0;
    for (int i = 0; i < bytes_max; i++) {
        uint8_t next = byte(from);
        if (from->p == NULL)
            return -1;
        raw |= (uint64_t)(next & 0x7F) << (7 * i);
        if (next < 0x80)
            return raw > INT32_MAX ? -1 : (int64_t)raw - 1;
    }
    return -1;
}

typedef struct {
    int64_t version, correlation, acks, timeout, partition;
    const uint8_t *client, *topic, *batch;
    int64_t client_bytes, topic_bytes, batch_bytes;
    long long fields[13]; /* of the batch's header */
    int has_keys;
} Request;

static int
read_request(Cursor *from, Request *to)
{
    if (integer(from, 2) != 0)
        return 0;
    to->version = integer(from, 2);
    if (to->version < FIRST_VERSION || to->version > LAST_VERSION)
        return 0;
    int flexible = to->version >= FIRST_FLEXIBLE;
    to->correlation = integer(from, 4);
    to->client_bytes = integer(from, 2);
    to->client = take(from, to->client_bytes);
    if (flexible ? byte(from) || byte(from) : integer(from, 2) != -1)
        return 0; /* tags, or a transactional id */
    to->acks = integer(from, 2);
    to->timeout = integer(from, 4);
    if ((flexible ? byte(from) - 1 : integer(from, 4)) != 1)
        return 0;
    to->topic_bytes = flexible ? compact_length(from, 1) : integer(from, 2);
    to->topic = take(from, to->topic_bytes);
    if ((flexible ? byte(from) - 1 : integer(from, 4)) != 1)
        return 0;
    to->partition = integer(from, 4);
    to->batch_bytes = flexible ? compact_length(from, 5) : integer(from, 4);
    to->batch = take(from, to->batch_bytes);
    if (flexible && (byte(from) || byte(from) || byte(from))) /* tags of partition, topic, request */
        return 0;
    return from->p != NULL;
}

static int
read_batch(Request *to)
{
    static const int sizes[13] = {8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4};
    enum { BASE, LENGTH, EPOCH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, FIRST_TIME, MAX_TIME,
           PRODUCER, PRODUCER_EPOCH, SEQUENCE, COUNT };
    const uint8_t *end = to->batch + to->batch_bytes;
    Cursor from = {to->batch, end};
    long long *fields = to->fields;
    if (to->batch_bytes < HEADER_BYTES)
        return 0;
    for (int i = 0; i < 13; i++)
        fields[i] = integer(&from, sizes[i]);
    fields[CRC] &= UINT32_MAX;
    if (fields[BASE] || fields[LENGTH] + OVERHEAD_BYTES != to->batch_bytes || fields[MAGIC] != 2 ||
        fields[ATTRIBUTES] & UNUSUAL_ATTRIBUTES || fields[COUNT] <= 0 ||
        fields[COUNT] > RECORDS_MAX || fields[COUNT] != fields[LAST_DELTA] + 1 ||
        (fields[PRODUCER] >= 0 && (fields[SEQUENCE] < 0 || fields[PRODUCER_EPOCH] < -1)) ||
        (to->batch_bytes <= CHECKSUM_BYTES_MAX &&
         crc32c(to->batch + ATTRIBUTES_AT, end) != fields[CRC]))
        return 0;
    Rules rules = {fields[FIRST_TIME], INT64_MIN, INT64_MAX, 1};
    Verdict verdict;
    check_records(from.p, end, fields[COUNT], &rules, &verdict);
    to->has_keys = !verdict.rejected;
    return verdict.damage == SOUND && !verdict.bytes_left &&
           verdict.max_timestamp == fields[MAX_TIME];
}

/* ------------------------------------------------------------------------------ result */

static PyObject *
result_of(PyObject *frame, const uint8_t *start, const Request *request)
{
    PyObject *client = PyUnicode_DecodeUTF8((const char *)request->client,
                                            (Py_ssize_t)request->client_bytes, NULL);
    PyObject *topic = client ? PyUnicode_DecodeUTF8((const char *)request->topic,
                                                    (Py_ssize_t)request->topic_bytes, NULL)
                             : NULL;
    if (topic == NULL) {
        Py_XDECREF(client);
        if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
            return NULL;
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    Py_ssize_t at = request->batch - start, end = at + (Py_ssize_t)request->batch_bytes;
    const long long *h = request->fields;
    return Py_BuildValue("(LLNLLNLN(LLLLLLLLLLLLL)N)", (long long)request->version,
                         (long long)request->correlation, client, (long long)request->acks,
                         (long long)request->timeout, topic, (long long)request->partition,
                         PySequence_GetSlice(frame, at, end), h[0], h[1], h[2], h[3], h[4], h[5],
                         h[6], h[7], h[8], h[9], h[10], h[11], h[12],
                         PyBool_FromLong(request->has_keys));
}

const char read_one_batch_doc[] =
"read_one_batch(frame)\n--\n\n"
"The parts of a usual produce request, as plain_read_one_batch of odradek.record.one_batch gives\n"
"them, in a tuple; None for any other request.";

PyObject *
read_one_batch(PyObject *module, PyObject *frame)
{
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *start = view.buf;
    Cursor from = {start, start + view.len};
    Request request;
    int is_usual = view.len && read_request(&from, &request) && read_batch(&request);
    PyObject *result = is_usual ? result_of(frame, start, &request) : Py_NewRef(Py_None);
    PyBuffer_Release(&view);
    return result;
}
