/* Private to the ONNX front end: which float initializers are parameters where the model does not say (no contract, no signature of
 * PyTorch's newer exporter). What can be known decides: who reads an initializer, its values, its name. */
#ifndef PDCC_FRONTEND_GUESS_H
#define PDCC_FRONTEND_GUESS_H

#include "frontend/onnx/onnx_file.h"

typedef struct Guess {
	bool param;
	bool said;  /* it is worth a word: somebody could have expected otherwise */
	bool doubt; /* nothing supports it, and it changes what is trained */
	const char *why;
} Guess;

typedef struct Guesser Guesser;

Guesser *guess_new(Arena *a, const OnnxModel *p, const ImportOpt *o);
/* t: data NULL where they are not there. */
Guess guess_initializer(Guesser *s, const char *name, const Tensor *t);
/* Behind the import: what was guessed, each initializer once. False where --strict makes a doubt an error. */
bool guess_report(Guesser *s, const char *path, Diag *d);
/* Behind the import: lookups of tables that have one row of zeros give it no gradient, and that is said; o->padding overrules it. */
void guess_padding(Module *m, const ImportOpt *o, const char *path, Diag *d);

#endif
