/* Layer profiles as plain data, and the files that hold them. A profile is a DAG of layers, each with its seconds and
 * bytes for one minibatch on one device. */
#ifndef PDCC_PASSES_PLANNER_PROFILE_H
#define PDCC_PASSES_PLANNER_PROFILE_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

typedef struct Layer {
	const char *id, *desc;
	double forward, backward; /* seconds */
	double activation;        /* bytes of the output; several outputs are added up */
	double parameters;        /* bytes of the parameters, no optimizer state */
	int stage;                /* of a file that is partitioned already; -1: not said */
} Layer;

typedef struct Edge {
	int from, to;
} Edge; /* `to` consumes what `from` makes */

typedef struct Profile {
	const char *file;
	Layer *layer;
	int n;
	Edge *edge;
	int nedge; /* in the order of the file */
} Profile;

/* The text form of PipeDream's profiler, which DAPPLE's tables have too. A line is either a layer,
 *     ID -- DESC -- forward_compute_time=MS, backward_compute_time=MS, activation_size=BYTES, parameter_size=BYTES
 * with an optional ` -- stage_id=N` and `[A; B]` for several outputs, or, indented, an edge `SRC -- DST`. Times are
 * milliseconds. Missing, negative and infinite numbers, unknown ends of edges, layers named twice and cycles are
 * errors (E0461..E0463) with their line. */
bool profile_read(Arena *a, const char *path, Profile *p, Diag *d);
bool profile_parse(Arena *a, const char *path, const char *text, Profile *p, Diag *d);

/* What the planners of PipeDream and DAPPLE leave out: sources whose description begins with "Input" (with their time
 * and bytes), then sinks named "__getitem__...". */
void profile_trim(Arena *a, Profile *p);

/* Removes layer `id` and all layers that lead to it only: an auxiliary head. False after E0462: no such layer. */
bool profile_without(Arena *a, Profile *p, const char *id, Diag *d);

/* The layer `id` so many times, one behind another: a deeper model. False after E0462: no such layer. */
bool profile_repeat(Arena *a, const Profile *p, const char *id, int copies, Profile *to, Diag *d);

/* Every branch becomes chains of one layer: behind a layer with several consumers, layers in a row (one producer, one
 * consumer) are one, up to the next join or fork. Times and parameters are added, the output is that of the last. */
void profile_compress(Arena *a, Profile *p);

/* Times, activations and parameters by factors: other devices, other minibatches. */
void profile_scale(Profile *p, double time, double activation, double parameters);

/* What each of `degree` devices that share a layer with parameters has of it: that share of times and parameters, and `sums`
 * AllReduces of its output among them in the forward, as many in the backward (a Transformer's layer has 2; Shoeybi 2019, Megatron-LM).
 * Outputs are whole on each, and so is a layer without parameters; with `sequence` each has its part of the outputs of those that are
 * divided, and an AllReduce is a ReduceScatter and an AllGather (Korthikanti 2022). bandwidth, latency: of the links among them. */
void profile_share(
	Arena *a, const Profile *p, int degree, int sums, bool sequence, double bandwidth, double latency, Profile *to);

/* Layer numbers so that every edge goes upwards, ties by the order of the file; false when there is a cycle. */
bool profile_order(Arena *a, const Profile *p, int *order);

#endif
