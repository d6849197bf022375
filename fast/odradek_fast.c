/* Odradek's compiled kernel: records to columns, columns to records, and a check of records.
 *
 *     decode(body, batches, wanted)                          record bytes to column buffers
 *     encode(batches, timestamps, key, value, headers)       column buffers to record bytes
 *     murmur2(offsets, data)                                 Kafka's hash of each key
 *     check(body, start, count, base, earliest, latest, ...) a leader's check of records
 *     read_one_batch(frame)                                  a whole produce request: one_batch.c
 *
 * The first three compute what odradek/client/arrow_numpy.py computes, the last one what
 * odradek/record/check.py computes, from the same arguments, and property tests compare them. It does
 * not handle batch headers, checksums, codecs or Arrow: it takes buffers and returns bytes objects.
 * It uses the stable ABI of Python 3.11, so one build works with every later Python. The GIL is
 * released while records are decoded and copied.
 *
 * Decoded bytes may come from any client: every length is checked against the bytes left before it
 * is used, and malformed bytes raise a ValueError with the number of the batch.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"

enum { KEY = 1, VALUE = 2, HEADERS = 4, TIMESTAMP = 8, OFFSET = 16 };

#define BODY_BYTES_MAX INT32_MAX

/* ------------------------------------------------------------------------------- reading */

/* Read the zigzag varint at p. Returns its end; NULL beyond the end of the bytes, or if it is
 * longer than its type allows. */
static inline const uint8_t *
read_varint(const uint8_t *p, const uint8_t *end, int shift_max, int64_t *value)
{
    uint64_t raw = 0;
    for (int shift = 0; shift <= shift_max; shift += 7) {
        if (p >= end)
            return NULL;
        uint8_t byte = *p++;
        raw |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return p;
        }
    }
    return NULL;
}

#define INT_SHIFT_MAX 28
#define LONG_SHIFT_MAX 63

/* Read a length of at least `least`, with at least that many bytes after it. */
static inline const uint8_t *
read_length(const uint8_t *p, const uint8_t *end, int64_t least, int64_t *length)
{
    p = read_varint(p, end, INT_SHIFT_MAX, length);
    if (p == NULL || *length < least || *length > end - p)
        return NULL;
    return p;
}

/* The positions of a record's fields in the body. A length of -1 is null. */
typedef struct {
    int32_t key, key_length, value, value_length, headers, headers_count;
} Span;

typedef struct {
    int64_t start, end, count, base_offset, base_timestamp, append_time;
} Batch;

#define NO_APPEND_TIME INT64_MIN

typedef struct {
    int64_t key_bytes, value_bytes, headers, header_key_bytes, header_value_bytes;
    int64_t null_keys, null_values, null_header_values, records_without_headers;
} Totals;

static const uint8_t *
walk_headers(const uint8_t *p, const uint8_t *end, int64_t count, Totals *totals)
{
    int64_t length;
    for (int64_t i = 0; i < count; i++) {
        p = read_length(p, end, 0, &length);
        if (p == NULL)
            return NULL;
        p += length;
        totals->header_key_bytes += length;
        p = read_length(p, end, -1, &length);
        if (p == NULL)
            return NULL;
        if (length < 0)
            totals->null_header_values++;
        else {
            p += length;
            totals->header_value_bytes += length;
        }
    }
    totals->headers += count;
    return p;
}

/* Decode one batch; 0 if it is not exactly `count` well-formed records. */
static int
walk_batch(const uint8_t *body, const Batch *batch, int wanted, Span *spans, int64_t *offsets,
           int64_t *timestamps, Totals *totals)
{
    const uint8_t *p = body + batch->start, *end = body + batch->end;
    int spans_wanted = wanted & (KEY | VALUE | HEADERS);
    for (int64_t i = 0; i < batch->count; i++) {
        int64_t length, timestamp_delta, offset_delta, key, value, count;
        p = read_length(p, end, 0, &length);
        if (p == NULL || length < RECORD_BYTES_MIN - 1)
            return 0;
        const uint8_t *record_end = p + length;
        p = read_varint(p + 1, record_end, LONG_SHIFT_MAX, &timestamp_delta);
        if (p == NULL)
            return 0;
        p = read_varint(p, record_end, INT_SHIFT_MAX, &offset_delta);
        if (p == NULL)
            return 0;
        if (offsets)
            offsets[i] = (int64_t)((uint64_t)batch->base_offset + (uint64_t)offset_delta);
        if (timestamps)
            timestamps[i] = batch->append_time != NO_APPEND_TIME
                ? batch->append_time
                : (int64_t)((uint64_t)batch->base_timestamp + (uint64_t)timestamp_delta);
        p = read_length(p, record_end, -1, &key);
        if (p == NULL)
            return 0;
        const uint8_t *key_at = p;
        if (key > 0)
            p += key;
        p = read_length(p, record_end, -1, &value);
        if (p == NULL)
            return 0;
        const uint8_t *value_at = p;
        if (value > 0)
            p += value;
        p = read_varint(p, record_end, INT_SHIFT_MAX, &count);
        if (p == NULL || count < 0)
            return 0;
        if (spans_wanted) {
            spans[i] = (Span){
                (int32_t)(key_at - body), (int32_t)key, (int32_t)(value_at - body),
                (int32_t)value, (int32_t)(p - body), (int32_t)count,
            };
            if (key < 0)
                totals->null_keys++;
            else
                totals->key_bytes += key;
            if (value < 0)
                totals->null_values++;
            else
                totals->value_bytes += value;
        }
        if (count) {
            p = walk_headers(p, record_end, count, totals);
            if (p == NULL)
                return 0;
        }
        else
            totals->records_without_headers++;
        if (p != record_end)
            return 0;
    }
    return p == end;
}

static PyObject *
new_bytes(int64_t size)
{
    return PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
}

/* One binary column: (offsets, data, validity bitmap or None, number of nulls). */
typedef struct {
    PyObject *offsets, *data, *validity;
    int64_t nulls;
} Column;

static int
column_alloc(Column *column, int64_t count, int64_t bytes, int64_t nulls)
{
    column->nulls = nulls;
    column->offsets = new_bytes((count + 1) * 4);
    column->data = new_bytes(bytes);
    column->validity = nulls ? new_bytes((count + 7) / 8) : Py_NewRef(Py_None);
    if (!column->offsets || !column->data || !column->validity)
        return 0;
    if (nulls)
        memset(PyBytes_AsString(column->validity), 0xFF, (size_t)((count + 7) / 8));
    return 1;
}

static void
column_clear(Column *column)
{
    Py_CLEAR(column->offsets);
    Py_CLEAR(column->data);
    Py_CLEAR(column->validity);
}

static PyObject *
column_tuple(Column *column)
{
    return Py_BuildValue("(OOOL)", column->offsets, column->data, column->validity,
                         (long long)column->nulls);
}

/* The memory of a column, written without the GIL. */
typedef struct {
    int32_t *offsets;
    uint8_t *data, *validity;
    int32_t end;
} Writer;

static Writer
writer(Column *column, int nulls)
{
    return (Writer){
        (int32_t *)PyBytes_AsString(column->offsets),
        (uint8_t *)PyBytes_AsString(column->data),
        nulls ? (uint8_t *)PyBytes_AsString(column->validity) : NULL,
        0,
    };
}

static inline void
put(Writer *to, int64_t index, const uint8_t *from, int64_t length)
{
    to->offsets[index] = to->end;
    if (length < 0)
        to->validity[index >> 3] &= (uint8_t)~(1u << (index & 7));
    else {
        memcpy(to->data + to->end, from, (size_t)length);
        to->end += (int32_t)length;
    }
}

static void
copy_headers(const uint8_t *body, const uint8_t *end, const Span *spans, int64_t count,
             int32_t *lists, uint8_t *validity, Writer *keys, Writer *values)
{
    int64_t header = 0, length;
    for (int64_t i = 0; i < count; i++) {
        lists[i] = (int32_t)header;
        const uint8_t *p = body + spans[i].headers;
        if (!spans[i].headers_count && validity)
            validity[i >> 3] &= (uint8_t)~(1u << (i & 7));
        for (int32_t h = 0; h < spans[i].headers_count; h++, header++) {
            p = read_varint(p, end, INT_SHIFT_MAX, &length);
            put(keys, header, p, length);
            p += length;
            p = read_varint(p, end, INT_SHIFT_MAX, &length);
            put(values, header, p, length);
            p += length > 0 ? length : 0;
        }
    }
    lists[count] = (int32_t)header;
    keys->offsets[header] = keys->end;
    values->offsets[header] = values->end;
}

static PyObject *
decode_headers(const Py_buffer *body, const Span *spans, int64_t count, const Totals *totals)
{
    Column keys = {0}, values = {0};
    int64_t nulls = totals->records_without_headers;
    PyObject *result = NULL;
    PyObject *lists = new_bytes((count + 1) * 4);
    PyObject *validity = nulls ? new_bytes((count + 7) / 8) : Py_NewRef(Py_None);
    if (lists && validity &&
        column_alloc(&keys, totals->headers, totals->header_key_bytes, 0) &&
        column_alloc(&values, totals->headers, totals->header_value_bytes,
                     totals->null_header_values)) {
        int32_t *list_offsets = (int32_t *)PyBytes_AsString(lists);
        uint8_t *bits = nulls ? (uint8_t *)PyBytes_AsString(validity) : NULL;
        Writer key_writer = writer(&keys, 0), value_writer = writer(&values, values.nulls != 0);
        if (bits)
            memset(bits, 0xFF, (size_t)((count + 7) / 8));
        Py_BEGIN_ALLOW_THREADS
        copy_headers(body->buf, (const uint8_t *)body->buf + body->len, spans, count,
                     list_offsets, bits, &key_writer, &value_writer);
        Py_END_ALLOW_THREADS
        PyObject *key_tuple = column_tuple(&keys), *value_tuple = column_tuple(&values);
        if (key_tuple && value_tuple)
            result = Py_BuildValue("(OOLOO)", lists, validity, (long long)nulls, key_tuple,
                                   value_tuple);
        Py_XDECREF(key_tuple);
        Py_XDECREF(value_tuple);
    }
    column_clear(&keys);
    column_clear(&values);
    Py_XDECREF(lists);
    Py_XDECREF(validity);
    return result;
}

static PyObject *
decode_binary(const Py_buffer *body, const Span *spans, int64_t count, int wanted,
              const Totals *totals)
{
    Column column = {0};
    int is_key = wanted == KEY;
    int64_t bytes = is_key ? totals->key_bytes : totals->value_bytes;
    int64_t nulls = is_key ? totals->null_keys : totals->null_values;
    PyObject *result = NULL;
    if (column_alloc(&column, count, bytes, nulls)) {
        Writer to = writer(&column, nulls != 0);
        const uint8_t *from = body->buf;
        Py_BEGIN_ALLOW_THREADS
        if (is_key)
            for (int64_t i = 0; i < count; i++)
                put(&to, i, from + spans[i].key, spans[i].key_length);
        else
            for (int64_t i = 0; i < count; i++)
                put(&to, i, from + spans[i].value, spans[i].value_length);
        to.offsets[count] = to.end;
        Py_END_ALLOW_THREADS
        result = column_tuple(&column);
    }
    column_clear(&column);
    return result;
}

/* The number of records by the batches' headers; -1 with an exception if it is impossible. */
static int64_t
check_batches(const Batch *batches, int64_t batch_count, int64_t body_bytes)
{
    int64_t count = 0;
    for (int64_t b = 0; b < batch_count; b++) {
        const Batch *batch = &batches[b];
        if (batch->start < 0 || batch->end < batch->start || batch->end > body_bytes ||
            batch->count < 0 || batch->count > (batch->end - batch->start) / RECORD_BYTES_MIN) {
            PyErr_Format(PyExc_ValueError, "batch %lld: %lld records in %lld bytes",
                         (long long)b, (long long)batch->count,
                         (long long)(batch->end - batch->start));
            return -1;
        }
        count += batch->count;
    }
    if (count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "batch 0: too many records for one array");
        return -1;
    }
    return count;
}

static PyObject *
decode_columns(const Py_buffer *body, const Batch *batches, int64_t batch_count, int wanted)
{
    int64_t count = check_batches(batches, batch_count, body->len);
    if (count < 0)
        return NULL;
    PyObject *offsets = wanted & OFFSET ? new_bytes(count * 8) : Py_NewRef(Py_None);
    PyObject *timestamps = wanted & TIMESTAMP ? new_bytes(count * 8) : Py_NewRef(Py_None);
    PyObject *key = NULL, *value = NULL, *headers = NULL, *result = NULL;
    Span *spans = NULL;
    if (wanted & (KEY | VALUE | HEADERS)) {
        spans = malloc((size_t)(count ? count : 1) * sizeof(Span));
        if (spans == NULL)
            PyErr_NoMemory();
    }
    if (!offsets || !timestamps || PyErr_Occurred())
        goto done;

    int64_t *offset_at = wanted & OFFSET ? (int64_t *)PyBytes_AsString(offsets) : NULL;
    int64_t *timestamp_at = wanted & TIMESTAMP ? (int64_t *)PyBytes_AsString(timestamps) : NULL;
    Totals totals = {0};
    int64_t damaged = -1, done = 0;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t b = 0; b < batch_count; b++) {
        if (!walk_batch(body->buf, &batches[b], wanted, spans ? spans + done : NULL,
                        offset_at ? offset_at + done : NULL,
                        timestamp_at ? timestamp_at + done : NULL, &totals)) {
            damaged = b;
            break;
        }
        done += batches[b].count;
    }
    Py_END_ALLOW_THREADS
    if (damaged >= 0) {
        PyErr_Format(PyExc_ValueError, "batch %lld: its records are malformed", (long long)damaged);
        goto done;
    }
    key = wanted & KEY ? decode_binary(body, spans, count, KEY, &totals) : Py_NewRef(Py_None);
    if (key)
        value = wanted & VALUE ? decode_binary(body, spans, count, VALUE, &totals)
                               : Py_NewRef(Py_None);
    if (value)
        headers = wanted & HEADERS ? decode_headers(body, spans, count, &totals)
                                   : Py_NewRef(Py_None);
    if (headers)
        result = Py_BuildValue("(LOOOOO)", (long long)count, offsets, timestamps, key, value,
                               headers);
done:
    free(spans);
    Py_XDECREF(offsets);
    Py_XDECREF(timestamps);
    Py_XDECREF(key);
    Py_XDECREF(value);
    Py_XDECREF(headers);
    return result;
}

PyDoc_STRVAR(decode_doc,
"decode(body, batches, wanted)\n--\n\n"
"The columns of decompressed records. `batches`: six int64 for each batch: start, end, count,\n"
"base offset, base timestamp, append time (least int64: none). Returns (count, offsets,\n"
"timestamps, key, value, headers); columns that are not wanted are None.\n\n"
"Raises ValueError: a batch is not exactly its count of well-formed records.");

static PyObject *
decode(PyObject *module, PyObject *args)
{
    Py_buffer body, batches;
    int wanted;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*i:decode", &body, &batches, &wanted))
        return NULL;
    PyObject *result = NULL;
    if (body.len > BODY_BYTES_MAX)
        PyErr_Format(PyExc_ValueError, "batch 0: body of %zd bytes", body.len);
    else if (batches.len % (Py_ssize_t)sizeof(Batch) || (uintptr_t)batches.buf % 8)
        PyErr_SetString(PyExc_TypeError, "batches: six aligned int64 for each");
    else
        result = decode_columns(&body, batches.buf, batches.len / (Py_ssize_t)sizeof(Batch),
                                wanted);
    PyBuffer_Release(&body);
    PyBuffer_Release(&batches);
    return result;
}

/* ------------------------------------------------------------------------------- writing */

static inline int
varint_bytes(int64_t value)
{
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    int bytes = 1;
    while (raw > 0x7F) {
        raw >>= 7;
        bytes++;
    }
    return bytes;
}

static inline uint8_t *
write_varint(uint8_t *p, int64_t value)
{
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    while (raw > 0x7F) {
        *p++ = (uint8_t)(raw & 0x7F) | 0x80;
        raw >>= 7;
    }
    *p++ = (uint8_t)raw;
    return p;
}

/* A binary column as an argument: int32 offsets, data, and a byte for each value or NULL. */
typedef struct {
    Py_buffer offsets, data, valid;
    int has_column, has_nulls;
} Input;

static int
input_parse(Input *input, PyObject *tuple, int64_t count, const char *name)
{
    memset(input, 0, sizeof(*input));
    if (tuple == Py_None)
        return 1;
    PyObject *offsets, *data, *valid;
    if (!PyArg_ParseTuple(tuple, "OOO", &offsets, &data, &valid))
        return 0;
    if (PyObject_GetBuffer(offsets, &input->offsets, PyBUF_SIMPLE) < 0)
        return 0;
    if (PyObject_GetBuffer(data, &input->data, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&input->offsets);
        return 0;
    }
    input->has_column = 1;
    if (valid != Py_None) {
        if (PyObject_GetBuffer(valid, &input->valid, PyBUF_SIMPLE) < 0)
            return 0;
        input->has_nulls = 1;
    }
    const int32_t *at = input->offsets.buf;
    int is_right = input->offsets.len >= (count + 1) * 4 && at[0] >= 0 &&
                   (!input->has_nulls || input->valid.len >= count);
    for (int64_t i = 0; is_right && i < count; i++)
        is_right = at[i] <= at[i + 1];
    if (!is_right || at[count] > input->data.len) {
        PyErr_Format(PyExc_ValueError, "%s: offsets that do not fit its data", name);
        return 0;
    }
    return 1;
}

static void
input_release(Input *input)
{
    if (input->has_column) {
        PyBuffer_Release(&input->offsets);
        PyBuffer_Release(&input->data);
    }
    if (input->has_nulls)
        PyBuffer_Release(&input->valid);
}

static inline int64_t
input_length(const Input *input, int64_t index)
{
    if (!input->has_column || (input->has_nulls && !((const uint8_t *)input->valid.buf)[index]))
        return -1;
    const int32_t *offsets = input->offsets.buf;
    return offsets[index + 1] - offsets[index];
}

static inline int64_t
field_bytes(const Input *input, int64_t index)
{
    int64_t length = input_length(input, index);
    return varint_bytes(length) + (length > 0 ? length : 0);
}

static inline uint8_t *
write_field(uint8_t *p, const Input *input, int64_t index)
{
    int64_t length = input_length(input, index);
    p = write_varint(p, length);
    if (length > 0) {
        const int32_t *offsets = input->offsets.buf;
        memcpy(p, (const uint8_t *)input->data.buf + offsets[index], (size_t)length);
        p += length;
    }
    return p;
}

typedef struct {
    int64_t count, batch_count;
    const int64_t *batches, *timestamps;
    const int32_t *lists;
    Input key, value, header_key, header_value;
} Rows;

/* The length of a record's body, without the varint of the length itself. */
static int64_t
body_bytes(const Rows *rows, int64_t row, int64_t first)
{
    int64_t timestamp_delta =
        (int64_t)((uint64_t)rows->timestamps[row] - (uint64_t)rows->timestamps[first]);
    int64_t bytes = 1 + varint_bytes(timestamp_delta) + varint_bytes(row - first) +
                    field_bytes(&rows->key, row) + field_bytes(&rows->value, row);
    int64_t from = rows->lists ? rows->lists[row] : 0, to = rows->lists ? rows->lists[row + 1] : 0;
    bytes += varint_bytes(to - from);
    for (int64_t h = from; h < to; h++)
        bytes += field_bytes(&rows->header_key, h) + field_bytes(&rows->header_value, h);
    return bytes;
}

static uint8_t *
write_record(uint8_t *p, const Rows *rows, int64_t row, int64_t first, int64_t length)
{
    p = write_varint(p, length);
    *p++ = 0;
    p = write_varint(p, (int64_t)((uint64_t)rows->timestamps[row] -
                                  (uint64_t)rows->timestamps[first]));
    p = write_varint(p, row - first);
    p = write_field(p, &rows->key, row);
    p = write_field(p, &rows->value, row);
    int64_t from = rows->lists ? rows->lists[row] : 0, to = rows->lists ? rows->lists[row + 1] : 0;
    p = write_varint(p, to - from);
    for (int64_t h = from; h < to; h++) {
        p = write_field(p, &rows->header_key, h);
        p = write_field(p, &rows->header_value, h);
    }
    return p;
}

static PyObject *
encode_rows(const Rows *rows)
{
    int64_t total = 0;
    PyObject *ends = new_bytes(rows->batch_count * 8), *body = NULL, *result = NULL;
    int32_t *lengths = malloc((size_t)(rows->count ? rows->count : 1) * 4);
    if (ends == NULL || lengths == NULL) {
        if (ends)
            PyErr_NoMemory();
        goto done;
    }
    int64_t *end_at = (int64_t *)PyBytes_AsString(ends);
    int too_long = 0;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t b = 0; b < rows->batch_count; b++) {
        int64_t first = rows->batches[b];
        for (int64_t row = first; row < rows->batches[b + 1]; row++) {
            int64_t length = body_bytes(rows, row, first);
            too_long |= length > INT32_MAX;
            lengths[row] = (int32_t)length;
            total += length + varint_bytes(length);
        }
        end_at[b] = total;
    }
    Py_END_ALLOW_THREADS
    if (too_long) {
        PyErr_SetString(PyExc_ValueError, "a record of more than 2 GiB");
        goto done;
    }
    body = new_bytes(total);
    if (body == NULL)
        goto done;
    uint8_t *p = (uint8_t *)PyBytes_AsString(body);
    Py_BEGIN_ALLOW_THREADS
    for (int64_t b = 0; b < rows->batch_count; b++)
        for (int64_t row = rows->batches[b]; row < rows->batches[b + 1]; row++)
            p = write_record(p, rows, row, rows->batches[b], lengths[row]);
    Py_END_ALLOW_THREADS
    result = Py_BuildValue("(OO)", body, ends);
done:
    free(lengths);
    Py_XDECREF(ends);
    Py_XDECREF(body);
    return result;
}

static int
check_rows(const Rows *rows, Py_ssize_t timestamps_bytes)
{
    int is_right = rows->batch_count >= 0 && (rows->batch_count == 0 || rows->batches[0] == 0);
    for (int64_t b = 0; is_right && b < rows->batch_count; b++)
        is_right = rows->batches[b] <= rows->batches[b + 1];
    if (!is_right || timestamps_bytes < rows->count * 8) {
        PyErr_SetString(PyExc_ValueError, "batches: ascending row numbers from 0, a timestamp each");
        return 0;
    }
    return 1;
}

static int
parse_headers(Rows *rows, PyObject *headers, Py_buffer *lists)
{
    PyObject *list_object, *key, *value;
    if (headers == Py_None)
        return 1;
    if (!PyArg_ParseTuple(headers, "OOO", &list_object, &key, &value) ||
        PyObject_GetBuffer(list_object, lists, PyBUF_SIMPLE) < 0)
        return 0;
    const int32_t *at = lists->buf;
    int is_right = lists->len >= (rows->count + 1) * 4 && at[0] == 0;
    for (int64_t i = 0; is_right && i < rows->count; i++)
        is_right = at[i] <= at[i + 1];
    if (!is_right) {
        PyErr_SetString(PyExc_ValueError, "headers: list offsets that do not ascend from 0");
        return 0;
    }
    rows->lists = at;
    return input_parse(&rows->header_key, key, at[rows->count], "header key") &&
           input_parse(&rows->header_value, value, at[rows->count], "header value");
}

PyDoc_STRVAR(encode_doc,
"encode(batches, timestamps, key, value, headers)\n--\n\n"
"The records of rows. `batches`: int64 row numbers, the first row of each batch and after them\n"
"the count of rows. key, value: None or (int32 offsets, data, a byte for each value that is 0\n"
"where it is null, or None). headers: None or (int32 list offsets, key, value).\n"
"Returns (body, where each batch ends in it, as int64).");

static PyObject *
encode(PyObject *module, PyObject *args)
{
    Py_buffer batches, timestamps, lists = {0};
    PyObject *key, *value, *headers, *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*OOO:encode", &batches, &timestamps, &key, &value, &headers))
        return NULL;
    Rows rows = {0};
    rows.batches = batches.buf;
    rows.batch_count = batches.len / 8 - 1;
    rows.timestamps = timestamps.buf;
    if (rows.batch_count >= 0)
        rows.count = rows.batches[rows.batch_count];
    if (check_rows(&rows, timestamps.len) && input_parse(&rows.key, key, rows.count, "key") &&
        input_parse(&rows.value, value, rows.count, "value") &&
        parse_headers(&rows, headers, &lists))
        result = encode_rows(&rows);
    input_release(&rows.key);
    input_release(&rows.value);
    input_release(&rows.header_key);
    input_release(&rows.header_value);
    if (lists.obj)
        PyBuffer_Release(&lists);
    PyBuffer_Release(&batches);
    PyBuffer_Release(&timestamps);
    return result;
}

/* ------------------------------------------------------------------------------- hashing */

static uint32_t
murmur2_of(const uint8_t *data, int32_t length)
{
    const uint32_t m = 0x5bd1e995;
    uint32_t h = 0x9747b28cu ^ (uint32_t)length;
    for (; length >= 4; length -= 4, data += 4) {
        uint32_t k = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                     (uint32_t)data[3] << 24;
        k *= m;
        k ^= k >> 24;
        k *= m;
        h *= m;
        h ^= k;
    }
    if (length >= 3)
        h ^= (uint32_t)data[2] << 16;
    if (length >= 2)
        h ^= (uint32_t)data[1] << 8;
    if (length >= 1) {
        h ^= data[0];
        h *= m;
    }
    h ^= h >> 13;
    h *= m;
    h ^= h >> 15;
    return h;
}

PyDoc_STRVAR(murmur2_doc,
"murmur2(offsets, data)\n--\n\n"
"Kafka's hash of each value of a binary column, as uint32.");

static PyObject *
murmur2(PyObject *module, PyObject *args)
{
    PyObject *offsets, *data, *tuple;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO:murmur2", &offsets, &data))
        return NULL;
    Py_ssize_t bytes = PyObject_Size(offsets);
    if (bytes < 0 || (tuple = PyTuple_Pack(3, offsets, data, Py_None)) == NULL)
        return NULL;
    Py_buffer view;
    PyObject *result = NULL;
    Input input = {0};
    if (PyObject_GetBuffer(offsets, &view, PyBUF_SIMPLE) == 0) {
        int64_t count = view.len / 4 - 1;
        PyBuffer_Release(&view);
        if (count < 0)
            PyErr_SetString(PyExc_ValueError, "offsets: must be one more than the values");
        else if (input_parse(&input, tuple, count, "data") && (result = new_bytes(count * 4))) {
            uint32_t *hashes = (uint32_t *)PyBytes_AsString(result);
            const int32_t *at = input.offsets.buf;
            const uint8_t *from = input.data.buf;
            Py_BEGIN_ALLOW_THREADS
            for (int64_t i = 0; i < count; i++)
                hashes[i] = murmur2_of(from + at[i], at[i + 1] - at[i]);
            Py_END_ALLOW_THREADS
        }
    }
    input_release(&input);
    Py_DECREF(tuple);
    return result;
}

/* ------------------------------------------------------------------------------ checking */

/* What is malformed in a record, in the order of the checks; odradek/record/check.py has the same
 * texts. */
static const char *const damaged_part[] = {
    "", "length", "timestamp", "offset delta", "key length", "value length", "headers",
};

/* Below this many bytes the GIL is not released: acquiring it again may cost more. */
#define RELEASE_BYTES_MIN 65536

/* As read_varint, but NULL too if the number has more than `bits`. */
static inline const uint8_t *
read_strict(const uint8_t *p, const uint8_t *end, int bits, int64_t *value)
{
    if (p < end && *p < 0x80) { /* the common case */
        *value = (int64_t)(*p >> 1) ^ -(int64_t)(*p & 1);
        return p + 1;
    }
    if (end - p >= 2 && p[1] < 0x80) {
        uint64_t two = (uint64_t)(p[0] & 0x7F) | (uint64_t)p[1] << 7;
        *value = (int64_t)(two >> 1) ^ -(int64_t)(two & 1);
        return p + 2;
    }
    uint64_t raw = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        if (p >= end)
            return NULL;
        uint8_t byte = *p++;
        if (bits - shift < 7 && (byte & 0x7F) >> (bits - shift))
            return NULL;
        raw |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return p;
        }
    }
    return NULL;
}

/* Skip a length of at least `least` and as many bytes; NULL if there are fewer. */
static inline const uint8_t *
skip_bytes(const uint8_t *p, const uint8_t *end, int64_t least, int64_t *length)
{
    p = read_strict(p, end, 32, length);
    if (p == NULL || *length < least || *length > end - p)
        return NULL;
    return *length > 0 ? p + *length : p;
}

static const uint8_t *
skip_headers(const uint8_t *p, const uint8_t *end)
{
    int64_t count, length;
    p = read_strict(p, end, 32, &count);
    if (p == NULL || count < 0 || count > (end - p) / 2)
        return NULL;
    for (; count && p != NULL; count--) {
        p = skip_bytes(p, end, 0, &length);
        if (p != NULL)
            p = skip_bytes(p, end, -1, &length);
    }
    return p;
}

static inline enum Damage
check_record(const uint8_t *p, const uint8_t *end, int64_t index, const Rules *rules,
             Verdict *verdict)
{
    int64_t delta, timestamp, offset_delta, key, value;
    p = read_strict(p + 1, end, 64, &delta);
    if (p == NULL || __builtin_add_overflow(rules->base_timestamp, delta, &timestamp))
        return BAD_TIMESTAMP;
    p = read_strict(p, end, 32, &offset_delta);
    if (p == NULL || offset_delta != index)
        return BAD_OFFSET;
    p = skip_bytes(p, end, -1, &key);
    if (p == NULL)
        return BAD_KEY;
    p = skip_bytes(p, end, -1, &value);
    if (p == NULL)
        return BAD_VALUE;
    p = skip_headers(p, end);
    if (p != end)
        return BAD_HEADERS;
    int keyless = key < 0 && rules->needs_key;
    if (keyless || ((timestamp < rules->earliest || timestamp > rules->latest) &&
                    timestamp != -1)) {
        if (verdict->rejected < REJECTED_MAX) {
            verdict->index[verdict->rejected] = index;
            verdict->timestamp[verdict->rejected] = timestamp;
            verdict->keyless[verdict->rejected] = (uint8_t)keyless;
        }
        verdict->rejected++;
    }
    if (timestamp > verdict->max_timestamp)
        verdict->max_timestamp = timestamp;
    return SOUND;
}

void
check_records(const uint8_t *p, const uint8_t *end, int64_t count, const Rules *rules,
              Verdict *verdict)
{
    verdict->max_timestamp = -1;
    verdict->rejected = 0;
    verdict->damage = SOUND;
    for (int64_t i = 0; i < count; i++) {
        int64_t length;
        const uint8_t *next = read_strict(p, end, 32, &length);
        enum Damage damage = BAD_LENGTH;
        if (next != NULL && length >= RECORD_BYTES_MIN - 1 && length <= end - next)
            damage = check_record(next, next + length, i, rules, verdict);
        if (damage != SOUND) {
            verdict->record = i;
            verdict->damage = damage;
            return;
        }
        p = next + length;
    }
    verdict->bytes_left = end - p;
}

static PyObject *
rejected_list(const Verdict *verdict)
{
    Py_ssize_t count = verdict->rejected < REJECTED_MAX ? (Py_ssize_t)verdict->rejected
                                                        : REJECTED_MAX;
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *entry = verdict->keyless[i]
            ? Py_BuildValue("(LO)", (long long)verdict->index[i], Py_None)
            : Py_BuildValue("(LL)", (long long)verdict->index[i],
                            (long long)verdict->timestamp[i]);
        if (entry == NULL || PyList_SetItem(list, i, entry) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *
verdict_tuple(const Verdict *verdict, int64_t count)
{
    if (verdict->damage != SOUND)
        return PyErr_Format(PyExc_ValueError, "record %lld of %lld: its %s is damaged",
                            (long long)verdict->record, (long long)count,
                            damaged_part[verdict->damage]);
    if (verdict->bytes_left)
        return PyErr_Format(PyExc_ValueError, "%lld bytes after the last of %lld records",
                            (long long)verdict->bytes_left, (long long)count);
    PyObject *rejected = rejected_list(verdict);
    if (rejected == NULL)
        return NULL;
    return Py_BuildValue("(LLN)", (long long)verdict->max_timestamp,
                         (long long)verdict->rejected, rejected);
}

PyDoc_STRVAR(check_doc,
"check(body, start, count, base_timestamp, earliest, latest, needs_key)\n--\n\n"
"Check that `body` has exactly `count` well-formed records from `start` on, with offset deltas\n"
"0, 1, 2, ... Returns (largest timestamp or -1, number of rejected records, [(index,\n"
"timestamp), ...] of the first 1000 rejected). A record is rejected if its timestamp is not -1\n"
"and not within [earliest, latest], or, timestamp None, if it has no key and needs one.\n\n"
"Raises ValueError: anything else; which record it is, and what of it.");

static PyObject *
check(PyObject *module, PyObject *const *args, Py_ssize_t argument_count)
{
    (void)module;
    if (argument_count != 7) {
        PyErr_SetString(PyExc_TypeError, "check: 7 arguments");
        return NULL;
    }
    int64_t start = PyLong_AsLongLong(args[1]), count = PyLong_AsLongLong(args[2]);
    Rules rules = {
        PyLong_AsLongLong(args[3]), PyLong_AsLongLong(args[4]), PyLong_AsLongLong(args[5]),
        PyObject_IsTrue(args[6]),
    };
    Py_buffer body;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &body, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = NULL;
    Verdict verdict;
    if (start < 0 || start > body.len)
        PyErr_SetString(PyExc_ValueError, "start is not within the body");
    else if (count < 0 || count > (body.len - start) / RECORD_BYTES_MIN)
        PyErr_Format(PyExc_ValueError, "%lld records in %lld bytes", (long long)count,
                     (long long)(body.len - start));
    else {
        const uint8_t *from = (const uint8_t *)body.buf + start,
                      *end = (const uint8_t *)body.buf + body.len;
        if (end - from < RELEASE_BYTES_MIN)
            check_records(from, end, count, &rules, &verdict);
        else {
            Py_BEGIN_ALLOW_THREADS
            check_records(from, end, count, &rules, &verdict);
            Py_END_ALLOW_THREADS
        }
        result = verdict_tuple(&verdict, count);
    }
    PyBuffer_Release(&body);
    return result;
}

static PyMethodDef methods[] = {
    {"check", (PyCFunction)(void (*)(void))check, METH_FASTCALL, check_doc},
    {"decode", decode, METH_VARARGS, decode_doc},
    {"encode", encode, METH_VARARGS, encode_doc},
    {"read_one_batch", read_one_batch, METH_O, read_one_batch_doc},
    {"murmur2", murmur2, METH_VARARGS, murmur2_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "odradek_fast",
    "Odradek's compiled kernel.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit_odradek_fast(void)
{
    return PyModuleDef_Init(&definition);
}
