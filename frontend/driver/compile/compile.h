/* What the subcommands share: model and settings to a planned module, a planned module to a build folder. */
#ifndef PDCC_FRONTEND_COMPILE_H
#define PDCC_FRONTEND_COMPILE_H

#include "passes/common/pass.h"
#include "ir/plan.h"
#include "frontend/driver/options/options.h"

enum { EXIT_INPUT = 1, EXIT_USAGE = 2, EXIT_NO_PLAN = 3, EXIT_DIFFERS = 4, EXIT_NO_TOOL = 5, EXIT_OURS = 70 };

typedef struct Compile {
	Arena *a, *scratch;
	Diag *d;
	Options *o;
	const char *model;
	Cluster cluster;
	Plan plan;
	Module *m;
	const char **input;
	int ninput; /* the model's inputs, also those that nothing reads */
	Buf explain;
	const struct Profile *profile;  /* measured times; NULL: none */
	int measured, estimated;        /* nodes whose time comes from the profile, and from the cost model */
	bool command_profile;           /* pdcc profile: --plan says what is measured */
	double memory_scale;            /* what the planner multiplies its estimates of memory with; 0: 1 */
	Corrected corrected[SCHEDULES]; /* PassCx.corrected */
	bool quick;                     /* PassCx.quick */
	const Map *sized;               /* PassCx.sized */
	const Module *rebatched;        /* PassCx.rebatched */
	const Node *coupled;            /* PassCx.coupled */
	Map uneven;                     /* PassCx.uneven */
	bool unseen;                    /* its loss is one of its own, and it can be read at no other batch */
	bool micro_open;                /* nobody says the size of a microbatch */
	const char *pipe_sgd;           /* what --pipe-sgd auto came to, but for "%s": how many sums; NULL: nothing */
	bool global_default;            /* nor the global batch */
	struct MicroChoice *micro;
	int nmicro; /* sizes that were looked at, best first (auto_microbatch.c) */
	struct Mesh *mesh;
	struct UnlikeFound *unlike; /* behind them; NULL: nobody asked */
	const char *mesh_told;      /* what came of each, a line; NULL: nothing was open */
	int nmesh, mesh_taken;      /* tensor degrees and ZeRO that were looked at, in that order (auto_mesh.c) */
	struct Fit *
		look; /* compile_fit: what the best plan needs, and where none fits nothing is said; NULL: it is said */
	struct Changes *changes; /* what every pass changed, for --report; NULL: nobody asks */
	bool eval;               /* inference exports are read too; nothing is trained */
	int64_t samples;         /* of the files to train on; 0: not known here */
	int argc;
	char **argv;         /* of the command, for --report */
	int devices;         /* only the first so many of those that train (--tensor: groups); 0: all */
	int *file_replicas;  /* by stage of a plan file: devices that it lists */
	const char *without; /* the host (on one host: the device) of the cluster that is left out; NULL: none */
} Compile;

/* The cluster, and what is decided from it and the flags alone: threads, and the size of a microbatch where flags say it.
 * compile_read does this first. */
bool compile_machine(Compile *c);
/* The cluster's devices in the tensor groups that flags, or the plan, ask for. */
bool compile_groups(Compile *c);
/* The model and the cluster. What the global batch is where nobody says is decided by compile_plan (global_batch.h). */
bool compile_read(Compile *c);
/* import_model.c: what the importer is told; micro: samples in what is compiled, 0: as the model says. */
struct ImportOpt compile_import_opt(const Compile *c, int64_t micro);
/* The model again, as compile_read read it, with so many samples in what is compiled; NULL after a diagnostic. */
Module *compile_import(Compile *c, int64_t micro);
/* All passes up to --stop-after. dump: where the IR goes; NULL: nowhere. */
bool compile_passes(Compile *c, const char *dump);
void measure_sparsity(Compile *c); /* sparsity.c: Param.touch, from the data set */
/* The same; where a plan was looked for and does not fit into memory, another is looked for (plan_fits.c). False after E0401 too. */
bool compile_fit(Compile *c, const char *dump);
/* The same, after it was decided what replicas share (--replica-split, replica_slices.c). */
bool compile_plan(Compile *c, const char *dump);
/* The build folder: weights and sources, checked where libclang is there. */
bool compile_write(Compile *c, const char *dir);
/* depfile.c: --depfile, or DIR/inputs.d: "DIR/manifest.json: model.onnx cluster.yaml ...". False after E0008. */
bool depfile_write(Compile *c, const char *dir);
/* auto_mesh.c: --tensor auto and --zero auto: sets both. False after a diagnostic. */
bool mesh_choose(Compile *c);

/* Every data file must belong to an input and, on this machine's own devices, be there and fit; those named relative to the
 * current directory are named relative to the build folder `dir` from here on. False after a diagnostic. */
bool compile_data(Compile *c, const char *dir);
typedef struct DataCount {
	const DataInput *x; /* the first file with as many samples */
	int64_t n;
} DataCount;
/* data_fits.c: does x's file fit input v, with as many samples as those before it? */
bool data_fits(Compile *c, const DataInput *x, const Value *v, DataCount *of);
const char *data_said(const Compile *c); /* where the numbers come from */
bool data_known(Compile *c);             /* is it known how to read each file that is named? E0217 */
void data_kinds(Compile *c);             /* what each file is, by its content, else what was said of it or of all */
/* without_hosts.c: takes c->without out of the cluster; what lies behind the first c->devices; which hosts the plan could lose; their
 * plans, after the whole one. */
void compile_left_out(Compile *c);
void compile_first_devices(Compile *c);
void compile_tolerated(Compile *c);
bool compile_tolerant(Compile *c, const char *dir);
bool compile_folder(Compile *c, const char *dir); /* makes it and what it lies in */
int compile_status(const Compile *c);             /* exit status after a failure */
const char *compile_times(const Compile *c);      /* where times come from: "static estimate" */
const char *plan_name(const Compile *c);          /* "2-1": replicas of its stages */
void compile_summary(const Compile *c, const char *dir);

int compile_main(Compile *c);
int verify_main(Compile *c);
int inspect_main(Compile *c);
int simulate_main(Compile *c);
int doctor_main(Compile *c); /* doctor.c: takes no model */
int cases_main(Compile *c);
int export_main(Compile *c);

/* What a plan's step is held against: one device, or as many as share the layers of a stage. */
static inline const char *one_of(const Module *m) { return m->tensor > 1 ? "group" : "device"; }

#endif
