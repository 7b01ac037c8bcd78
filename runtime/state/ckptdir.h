/* ckptdir.h: folders of checkpoints: names, manifests, what is complete. Uses nothing else of the runtime; pdcc reads
 * checkpoints with it too.
 *
 *     DIR/step-0000000120/part-0-of-4.safetensors     tensors whose owner is rank 0 of 4, by name
 *     DIR/step-0000000120/part-0-of-4.json            its manifest: size, hash, what it belongs to, on_disk
 *
 * A part's manifest appears under its name once the part is written; a checkpoint counts when all parts have theirs.
 * What was written may still be in memory only, and be cut short by a loss of power, which its size and hash show. A
 * manifest that says on_disk belongs to a part that the disk has (ck_settle). */
#ifndef CKPTDIR_H
#define CKPTDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ck_manifest {
	int64_t step;    /* steps done */
	int rank, world; /* part rank of world */
	bool on_disk;
	int64_t bytes; /* of the part's file */
	uint64_t hash; /* ck_hash of all of them */
	uint64_t seed;
	int64_t samples_per_step, samples; /* position in the data: step * samples_per_step; samples: --samples */
	int shuffle;
	double loss_ema;    /* the average that --stop looks at */
	double loss_scale;  /* of 16-bit gradients; 0: none */
	int64_t scale_good; /* steps without overflow since it changed */
	int64_t skipped;    /* steps that had no update, for their gradients overflowed */
	int64_t rate_end;   /* the step at which the schedule of the learning rate ends; 0: none does */
	int64_t packing;    /* which sums stay packed, as compress_guard.c has it */
	char model[128], model_hash[72], plan[64], plan_hash[72], optimizer[32];
} ck_manifest;

enum { CK_PATH = 4096 };

void ck_folder(char to[CK_PATH], const char *dir, int64_t step);
/* end: ".safetensors", ".json" */
void ck_part(char to[CK_PATH], const char *dir, int64_t step, int rank, int world, const char *end);

/* The text of a manifest, not on_disk; its length. At most CK_TEXT bytes. */
enum { CK_TEXT = 1280 };
size_t ck_print(char to[CK_TEXT], const ck_manifest *m);
/* false: *why says what is wrong, in static memory. */
bool ck_read(ck_manifest *m, const char *path, const char **why);

/* Hash of a file's bytes, in pieces: all but the last of a length divisible by 32. */
typedef struct ck_hash {
	uint64_t lane[4], length;
} ck_hash;
void ck_hash_begin(ck_hash *h);
void ck_hash_add(ck_hash *h, const void *data, size_t n);
uint64_t ck_hash_end(const ck_hash *h);

/* Steps of which dir has a folder, newest first, in memory the caller frees; *n of them. NULL with *n < 0: dir cannot
 * be read (errno says why). */
int64_t *ck_steps(const char *dir, int *n);

typedef enum ck_state { CK_PARTIAL, CK_DAMAGED, CK_COMPLETE } ck_state;
/* What there is of a step; *m: the manifest of part 0 (of the world that is complete). With `read`, hashes of all
 * parts are compared, else their sizes alone. CK_DAMAGED: why names the part and both values. */
ck_state ck_look(const char *dir, int64_t step, bool read, ck_manifest *m, char *why, size_t room);
/* Has the disk take a part that has its name, its manifest and its folders; the manifest says so then. false: errno
 * says why. */
bool ck_settle(const char *dir, int64_t step, int rank, int world);
/* All parts are there, and if `disk` all say that they are on the disk. */
bool ck_counts(const char *dir, int64_t step, int world, bool disk);
/* Removes what lies in the folder of a step under the names above, and the folder when it is empty then. */
void ck_remove(const char *dir, int64_t step);

#endif
