/* YAML documents walked by tables of keys: unknown and repeated keys, wrong types, missing units are errors with line,
 * column and suggestion. */
#ifndef PDCC_FRONTEND_YAML_H
#define PDCC_FRONTEND_YAML_H

#include <yaml.h>
#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/ir.h"

typedef struct Yaml {
	Arena *a;
	Diag *d;
	const char *file;
	yaml_document_t doc;
	bool ok; /* false once anything was wrong */
} Yaml;

typedef yaml_node_t YNode;

/* Reads one document; false after a diagnostic (missing file, syntax, several documents, tags). Close when true. */
bool yaml_open(Yaml *y, Arena *a, const char *path, Diag *d);
void yaml_close(Yaml *y);

typedef struct YKey {
	const char *name;
	void (*read)(Yaml *y, const YNode *v, void *to);
} YKey;

/* Calls the reader of each key of mapping n; `what` names the mapping in messages. */
void yaml_map(Yaml *y, const YNode *n, const char *what, const YKey *keys, int nkeys, void *to);
/* E0104: none of the keys; what was meant, or those that are known (yaml_advice.c). */
void yaml_unknown_key(Yaml *y, const YNode *k, const char *what, const YKey *keys, int nkeys);
/* "; write {kind: adam}" for a word where mapping `what` belongs; "": nothing to advise. */
const char *yaml_as_mapping(Yaml *y, const char *what, const char *word);
/* The items of a sequence; a single scalar counts as one item. NULL with *n = 0 after a diagnostic. */
const YNode **yaml_items(Yaml *y, const YNode *n, const char *what, int *count);
/* Pairs of a mapping with free keys (names of inputs, parameters). */
int yaml_pairs(Yaml *y, const YNode *n, const char *what, const char ***key, const YNode ***value);

/* The value of a key; NULL: n is NULL, no mapping, or has no such key. */
const YNode *yaml_get(Yaml *y, const YNode *n, const char *key);

/* The reader of a key that is known and does nothing: says so. */
void yaml_ignore(Yaml *y, const YNode *v, void *to);

Loc yaml_loc(const Yaml *y, const YNode *at); /* line and column; the first ones where at is NULL */
bool yaml_error(Yaml *y, const YNode *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *yaml_text(Yaml *y, const YNode *n, const char *what); /* NULL after a diagnostic */
bool yaml_is(const YNode *n, const char *word);
int64_t yaml_int(Yaml *y, const YNode *n, const char *what, int64_t lo, int64_t hi);
double yaml_real(Yaml *y, const YNode *n, const char *what, double lo, double hi);
bool yaml_bool(Yaml *y, const YNode *n, const char *what);
/* One of the words; its index. */
int yaml_choice(Yaml *y, const YNode *n, const char *what, const char *const *words, int nwords);
int yaml_setting(Yaml *y, const YNode *n, const char *what, SettingSet set); /* its enumerator */

/* Quantities with mandatory units. */
double yaml_rate(Yaml *y, const YNode *n, const char *what);    /* "25 Gb/s", "450 GB/s" -> bytes/s */
double yaml_flops(Yaml *y, const YNode *n, const char *what);   /* "67 TFLOP/s" */
int64_t yaml_bytes(Yaml *y, const YNode *n, const char *what);  /* "15 GiB", "141 GB" */
double yaml_seconds(Yaml *y, const YNode *n, const char *what); /* "20 us", "60 s" */
double yaml_watts(Yaml *y, const YNode *n, const char *what);   /* "700 W", "6.5 kW" */

/* "3", "[0-3]", "gpu[01-02]" -> words; at most 4096. */
int expand_brackets(Arena *a, const char *s, const char ***out);
bool parse_bytes(const char *s, int64_t *out);
bool parse_seconds(const char *s, double *out); /* "3d", "12 h" */

#endif
