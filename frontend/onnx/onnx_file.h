/* Private to the ONNX front end: a model file in memory, its tensors, and the state of an import. */
#ifndef PDCC_FRONTEND_ONNX_FILE_H
#define PDCC_FRONTEND_ONNX_FILE_H

#include "onnx.h"
#include "onnx.pb-c.h"

typedef Onnx__ModelProto OnnxModel;
typedef Onnx__GraphProto OnnxGraph;
typedef Onnx__NodeProto OnnxNode;
typedef Onnx__TensorProto OnnxTensor;
typedef Onnx__AttributeProto OnnxAttr;

/* The message lives in the arena; bytes of tensors of 1 MiB and more are shared by all readings of a file, which is read
 * once. NULL after a diagnostic. */
OnnxModel *onnx_open(Arena *a, const char *path, Diag *d);
/* Why a file could not be read, of errno. */
const char *onnx_why(int error);

/* Its data lie in a file beside the model. */
bool onnx_external(const OnnxTensor *t);
/* And are read there, where a file is mapped: not from an offset that is no multiple of an element's size. */
bool onnx_mapped(const OnnxTensor *t, DType dt);
/* Type and data of a tensor: data points into the message, into a mapped file, or into the arena. With `types_only`
 * data that is missing is no fault and data is NULL. */
bool onnx_tensor(Arena *a, const char *model_path, const OnnxTensor *t, bool types_only, Tensor *out, Loc loc, Diag *d);

/* One import. env maps an ONNX value name to its Value; shapes maps it to its Type at the batch of the export. */
typedef struct Import {
	Arena *a;
	Diag *d;
	const char *path;
	const ImportOpt *o;
	Module *m;
	Builder b;
	int opset;
	Map env;
	Map seq;                         /* sequences of a length that is known: name -> Sequence (canon_seq.c) */
	const struct Contract *contract; /* what the model's metadata say (contract.h); NULL: nothing */
	struct Guesser *guess;           /* what is a parameter where nothing says it (guess.h); NULL: not asked */
	const Map *torch;                /* signature that PyTorch's newer exporter wrote (torch.h); NULL: none */
	const Map *shapes;               /* NULL: this import is at the batch of the export */
	Map measured;                    /* names of constants that were read off shapes (rebind.c) */
	Map summed, counted; /* rebind_sum.c: names of sums over the batch -> the type of what was summed; of means */
	int64_t from, to;    /* batch of the export, batch wanted */
	struct {
		int64_t size, outer;
	} merged[16]; /* dimensions that the batch was merged into (rebind.c) */
	int nmerged;
	bool half;                 /* the model stores half precision */
	bool by_torch;             /* PyTorch's exporter wrote it */
	bool detach_told;          /* a detach() that was optimized away is told once (torch_calls.h) */
	const OnnxGraph *top;      /* the model's graph */
	Map taken;                 /* every ONNX name, once a branch was inlined */
	int unrolling;             /* Loops that are being written out around the node */
	int64_t unrolled;          /* nodes that Loops became so far */
	Map *origin;               /* node -> OnnxOrigin, where functions were expanded */
	const OnnxGraph *stats_of; /* the graph of .. */
	Map stats;                 /* its running means and variances: name -> 3, 4 */
} Import;

/* Where an expanded node comes from: the node of the model's graph, the opset of its body (0: the model's). */
typedef struct OnnxOrigin {
	int index, opset;
} OnnxOrigin;

/* onnx_attr.c: every attribute is of the kind that its name stands for in ONNX (an INT may stand for a FLOAT), else E0305.
 * The reads below rely on it. */
bool onnx_check_attributes(const OnnxNode *n, Loc loc, Diag *d);

/* widen.c: the type that values of type t have here, and a tensor in it. */
DType onnx_dtype(const Import *im, DType t);
Tensor onnx_widen(Import *im, Tensor t);

/* Reads of a node under translation. */
const OnnxAttr *onnx_attr(const OnnxNode *n, const char *name);
int64_t onnx_int(const OnnxNode *n, const char *name, int64_t def);
double onnx_float(const OnnxNode *n, const char *name, double def);
const char *onnx_str(Arena *a, const OnnxNode *n, const char *name, const char *def);
bool onnx_ints(Arena *a, const OnnxNode *n, const char *name, Ints *out); /* false: absent */
Value *onnx_in(Import *im, const OnnxNode *n, size_t i);                  /* NULL: absent */
/* Whether BatchNormalization reads the initializer as running mean (3) or variance (4); 0: it does not. The first that reads it counts. */
int onnx_running_stat(Import *im, const OnnxGraph *g, const char *name);
/* Operand i as constant ints. false: not constant (no diagnostic) or absent (*out empty, true). */
bool onnx_const_ints(Import *im, const OnnxNode *n, size_t i, Ints *out);
void onnx_bind(Import *im, const OnnxNode *n, size_t i, Value *v); /* output i of n is v */
OnnxAttr *onnx_attr_unpack(Arena *a, const void *bytes, size_t n); /* NULL: no attribute */

/* onnx.c: parts of a graph, for the bodies that are inlined. `g` says which initializers are statistics. */
bool onnx_node(Import *im, const OnnxNode *n, size_t i);
bool onnx_input(Import *im, const Onnx__ValueInfoProto *v);
bool onnx_initializer(Import *im, const OnnxGraph *g, const OnnxTensor *t);
int onnx_opset(const Import *im, const OnnxNode *n, int outer);
int onnx_index(const Import *im, const OnnxNode *n, size_t i); /* in the model's graph */
/* unknown.c: false after a diagnostic that names every operator of g that is not supported. */
bool onnx_operators(Import *im, const OnnxGraph *g);
/* inputs.c: sets im->from (batch of the export, 0 symbolic) and im->to (batch wanted, 0 not known). */
void onnx_find_batch(Import *im, const OnnxGraph *g);
bool onnx_check_binding(Import *im, const OnnxGraph *g, const Binding *b);
bool onnx_is_initializer(const OnnxGraph *g, const char *name);
/* inference.c: false after E0208: weights of the export were folded or merged. */
bool onnx_refuse_inference(Import *im, const OnnxGraph *g);
/* function.c: calls of local functions become nodes of the graph; fills *origin. inline.c: If; loop.c: Loop. */
bool inline_functions(Arena *a, OnnxModel *p, const char *path, Map *origin, Diag *d);
bool inline_if(Import *im, const OnnxNode *n);
bool inline_loop(Import *im, const OnnxNode *n);

/* traininginfo.c: the loss joins the graph, o->told gets the rest. p has a training_info. */
bool onnx_training_info(Import *im, const OnnxModel *p);

/* canon.c: one node in canonical form. false after a diagnostic. */
bool canon_node(Import *im, const OnnxNode *n);
bool canon_supported(const char *op, const char *domain);
/* rebind.c: target shape `shape` of a node that was exported at another batch, at the batch wanted. */
bool rebind_reshape(Import *im, const OnnxNode *n, const Type *in_new, Ints *shape);
bool rebind_dims(Import *im, const OnnxNode *n, const Value *x, Ints *shape);
bool rebind_repeats(Import *im, const OnnxNode *n, const Value *x, Ints *repeats);
void rebind_note(Import *im, const OnnxNode *n); /* after n is translated */
/* A constant that holds the export's batch and is alike along that axis, cut to one there so that it broadcasts. */
Value *rebind_constant(Import *im, Value *x, const Ints *shape);
/* Operands of an elementwise node: constants that hold the export's batch where another operand follows it are cut to one
 * there, so that they broadcast, or refused where their rows differ. */
/* rebind_const.c: constant operands of a node of any op, at the batch that is wanted: what they hold per sample is known. */
bool rebind_operands(Import *im, const OnnxNode *n, OpKind op, int nin, Value **in);
/* A constant's rows along `axis`, of which there must be `is`: the same ones per sample, or the samples' numbers. NULL: neither. */
Value *rebind_rows(Import *im, Value *x, int axis, int64_t is);
/* Operand i, which is x, is a constant of the shape that it had at the export's batch. */
bool rebind_stale(const Import *im, const OnnxNode *n, const Value *x, size_t i);
/* A constant *x that is multiplied by weights, operand i, with a row per sample along one of its axes. */
void rebind_state(Import *im, const OnnxNode *n, size_t i, Value **x);
/* E0209 with what can be done about it; false. */
bool rebind_refuse(Import *im, const char *what);
bool rebind_broadcast(Import *im, const OnnxNode *n, int nin, Value **in);
/* rebind_sum.c: what a sum over the batch is divided by; after n is translated: is it such a sum? */
bool rebind_count(Import *im, const OnnxNode *n, Value **in);
void rebind_note_sum(Import *im, const OnnxNode *n);
bool rebind_slice(Import *im, const OnnxNode *n, const Type *in_new, const Ints *starts, Ints *ends, const Ints *axes,
	const Ints *steps);

#endif
