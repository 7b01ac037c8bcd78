/* products.c, products_between.c, sums.c, norms.c, packed.c and f8.c, among themselves. */
#ifndef PDCC_PASSES_PRODUCTS_H
#define PDCC_PASSES_PRODUCTS_H

#include "passes/common/plan.h"

typedef struct Products {
	Module *m;
	PassCx *cx;
} Products;

bool prod_view(const Node *n);
Value *prod_seen(Value *v); /* v, or the view that is all that reads it */
Node *prod_user(Value *v);  /* the only node that reads v or its view */
int64_t prod_width(const Value *v);
bool prod_plain(const Node *n); /* a Product of one matrix, or rows of all in one, without end, sum and wide */
bool prod_precedes(const Node *a, const Node *b);     /* or is it; of one graph */
bool prod_read_behind(const Value *v, const Node *n); /* whoever reads v in n's graph comes behind n */
Builder prod_at(Products *p, Node *n);
Node *prod_make(Products *p, const ProductForm *f, Node *before, const Node *old);
void prod_named(Value *v, const char *name);               /* v is called so, where nothing else is */
void prod_becomes(Products *p, Value *v, Value *y);        /* v is y, seen in v's shape, from now on */
Value *prod_cast(Products *p, Node *n, Value *v, DType t); /* v in this type, for n */

void prod_instead_of(
	Products *p, Node *n, Node *made); /* the results of made, which may have one more, are those of n */

/* products_between.c, of nodes that are SoftmaxCrossEntropyLoss, LayerNormalization or RMSNormalization, Dropout, DropoutGrad,
 * LayerNormGrad or RMSNormGrad. */
void prod_score_loss(Products *p, Node *n);
void prod_norm_in_half(Products *p, Node *n);
void prod_dropout_ends(Products *p, Node *n);
void prod_dropout_in_half(Products *p, Node *n);
void prod_norm_gradient(Products *p, Node *n);

/* sums.c, of nodes that are DropoutGrad, Cast, LayerNormalization or RMSNormalization. */
void prod_norm_past(Products *p, Node *n);
void prod_norm_rounded(Products *p, Node *n);
void prod_norm_sum(Products *p, Node *n);

/* norms.c, of nodes that are BatchNorm, ReluGrad. */
void prod_batchnorm_relu(Products *p, Node *n);
void prod_batchnorm_relu_gradient(Products *p, Node *n);

void prod_packed(Products *p, Node *n); /* packed.c, of a Split */

/* f8.c: whether a Product will read 8 bits; has all of a stage's do so. */
bool prod_f8(const Node *n);
void prod_in_8_bits(Products *p, Stage *s);

#endif
