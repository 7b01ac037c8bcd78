/* ONNX in and out. Import turns a ModelProto into a Module in canonical form: every type known, every opset variant
 * in one meaning, constants folded, initializers as params. Export writes trained weights back for ONNX tools. */
#ifndef PDCC_FRONTEND_ONNX_H
#define PDCC_FRONTEND_ONNX_H

#include "ir/training.h"
#include "ir/op.h"

/* What a model's training_info says; pdcc derives gradient and update itself. */
typedef struct TrainingTold {
	bool present;
	Optimizer opt;
	const char *loss; /* output of the module */
	const char **trained;
	int ntrained; /* parameters */
} TrainingTold;

typedef struct ImportOpt {
	const Binding *bind;
	int nbind; /* --dim; axis -1: a symbolic name */
	const Binding *batch_axis;
	int nbatch_axis;       /* input name -> axis */
	int64_t micro;         /* size of a microbatch; 0: as bound, else as in the file */
	int64_t default_micro; /* for a symbolic batch that nothing binds; 0: that is an error */
	int init_random;       /* != 0: initial weights are drawn from this seed, data need not exist */
	bool frozen_bn;        /* BatchNormalization with training_mode 0 is accepted as it stands */
	const char *const *parameters;
	int nparameters; /* globs: initializers that are parameters whatever they look like */
	const char *const *trainable;
	int ntrainable; /* globs of what is trained, of what is not: no guess is worth a word there */
	const char *const *freeze;
	int nfreeze;
	const Binding *padding;
	int npadding;       /* globs of tables whose row of padding is told: none is guessed */
	bool strict;        /* a guess that nothing supports is an error */
	bool keep_eval;     /* forward use (backend cases): no refusal of inference exports */
	bool f64;           /* every float is f64 */
	TrainingTold *told; /* filled; NULL: training_info is not read */
} ImportOpt;

/* NULL after diagnostics (E02xx the file, E03xx its operators and shapes). */
Module *onnx_import(Arena *a, const char *path, const ImportOpt *o, Diag *d);

/* The bytes of a model file; "-" is standard input, which is read once. NULL: errno says why. */
const void *onnx_bytes(const char *path, size_t *n);
/* Files beside the model that hold initializers, each once; how many. */
int onnx_external_files(Arena *a, const char *path, const char ***files, Diag *d);

/* The model `model` again, as `out`, with the values of m's weights and buffers as external data in the safetensors
 * file `data` beside it (which a run writes: all weights and buffers of m, laid out by st_layout). */
bool onnx_write_trained(const char *model, const Module *m, const char *data, const char *out, Diag *d);

/* What is known of the ONNX operators that are read: rows of onnx_ops.def. NULL behind the last. */
typedef struct CanonFact {
	const char *name;
	int since, until;
	const char *becomes;
} CanonFact;
const CanonFact *canon_fact(int i);
enum { OPSET_LEAST = 6, OPSET_MOST = 27 };

/* A safetensors file with the initial values of these params; random and filled ones are written out. */
bool weights_write(const char *path, Value *const *param, int n, Diag *d);

#endif
