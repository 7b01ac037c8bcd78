/* train.yaml -> struct Training. Every key is also a flag (options.c), which overrides the file. */
#ifndef PDCC_FRONTEND_TRAIN_H
#define PDCC_FRONTEND_TRAIN_H

#include "ir/cluster.h"
#include "ir/training.h"

void training_defaults(Training *t); /* SGD 0.01, synthetic data */
bool train_read(Arena *a, const char *path, Training *t, Diag *d);

/* Shared with the flags: they give the same words. false after a diagnostic. */
bool training_compress(Arena *a, Training *t, const char *spec, Diag *d);   /* "q8:block=128,ef", "auto:bf16" */
bool training_partitions(Arena *a, Training *t, const char *spec, Diag *d); /* "4", "auto", "emb*=4" */
/* "off", "bf16", "fp16:scale=65536"; errors are told at `at`. */
bool training_amp(Training *t, const char *spec, Loc at, Diag *d);
bool training_optimizer(Arena *a, Training *t, const char *spec, Diag *d);   /* "adam:lr=1e-3,eps=1e-8" */
bool training_lr_schedule(Arena *a, Training *t, const char *spec, Diag *d); /* "cosine:steps=1000,min=1e-5" */
bool training_loss(Arena *a, Training *t, const char *spec, Diag *d);        /* "softmax_ce", "mse", an output */
bool training_bind(Arena *a, Training *t, const char *spec, Diag *d);        /* "batch=32", "x:0=32" */
bool training_data(Arena *a, Training *t, const char *spec, Diag *d);        /* "x=FILE", "x=FILE:tokens" */
bool training_eval(Arena *a, Training *t, const char *spec, Diag *d);        /* the same of the evaluation set */
bool training_last(Training *t, const char *word, Diag *d);
bool training_complete(Training *t, Diag *d); /* files and flags read: do they fit together? E0009, E0520 */
/* A word of --schedule; false: it is none, or lacks what *lacks says (else NULL). */
bool training_schedule(Training *t, const char *v, const char **lacks);
void training_comm(Training *t, CommFlag flag); /* --comm */
void training_glob(Arena *a, const char ***list, int *n, const char *glob);

enum { CKPT_KEEP = 3 }; /* checkpoints that stay when nothing is said */

#endif
