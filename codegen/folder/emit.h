/* From a planned module to a folder of C that needs a compiler, MPI and oneDNN, and nothing of pdcc. */
#ifndef PDCC_CODEGEN_EMIT_H
#define PDCC_CODEGEN_EMIT_H

#include "ir/cluster.h"
#include "ir/training.h"
#include "ir/ir.h"

/* Writes the build folder (README.md lists it); the module has been through memplan. Same input, same bytes; no path
 * of this machine gets in. False after a diagnostic (E07xx). */
bool codegen_build(const Module *m, const Cluster *c, const Training *t, const char *dir, Diag *d);

/* Many small graphs that were not split (Module.graph; gradients may be appended) in one program, for tests: DIR gets
 * the sources and a Makefile; the program reads inputs from a file and writes outputs (cases.c says how). A case whose
 * graph has no kernel is left out with a note. */
enum { CASES_SCRATCH = 64 << 20 }; /* bytes: what a node of a case may have as Node.scratch */
bool codegen_cases(Module *const *m, const char *const *name, int n, const Training *t, const char *dir, Diag *d);

/* DIR gets the runtime and pingpong.c, which measures messages between two devices. False after E0703. */
bool codegen_pingpong(const char *dir, Diag *d);

/* libclang reads every .c file of the folder that was written of m: no diagnostics, and the rules of check.c. Without libclang it
 * says that nothing was checked and gives true. */
bool check_emitted(const Module *m, const char *dir, Diag *d);

/* --templates=DIR */
void tmpl_dir(const char *dir);

#endif
