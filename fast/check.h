/* The check of the records of one batch (odradek_fast.c), which one_batch.c uses, too. */
#ifndef ODRADEK_CHECK_H
#define ODRADEK_CHECK_H
#include <stdint.h>

/* A record has at least a byte each for length, attributes, two deltas, two lengths, a count. */
#define RECORD_BYTES_MIN 7
#define REJECTED_MAX 1000

enum Damage { SOUND, BAD_LENGTH, BAD_TIMESTAMP, BAD_OFFSET, BAD_KEY, BAD_VALUE, BAD_HEADERS };

typedef struct {
    int64_t base_timestamp, earliest, latest;
    int needs_key;
} Rules;

typedef struct {
    int64_t max_timestamp, rejected;
    int64_t index[REJECTED_MAX], timestamp[REJECTED_MAX]; /* of the first rejected records */
    uint8_t keyless[REJECTED_MAX];
    int64_t record; /* the malformed one */
    enum Damage damage;
    int64_t bytes_left; /* after the last record */
} Verdict;

__attribute__((visibility("hidden"))) void
check_records(const uint8_t *p, const uint8_t *end, int64_t count, const Rules *rules,
              Verdict *verdict);

__attribute__((visibility("hidden"))) PyObject *
read_one_batch(PyObject *module, PyObject *frame);

extern const char read_one_batch_doc[];
#endif
