/* Where a model may be cut, and the orders of its nodes. */
#ifndef PDCC_PASSES_PLAN_CUTS_H
#define PDCC_PASSES_PLAN_CUTS_H

#include "passes/common/pass.h"

/* A place where partition may cut the forward graph: in front of `node`. before: share of a microbatch's time,
 * forward and backward, that lies in front of it; bytes: what crosses forwards, gradients come back in the same
 * size. */
typedef struct Cut {
	const Node *node;
	double before;
	int64_t bytes;
} Cut;
int list_cuts(Module *m, PassCx *cx, Cut **cut); /* in program order; m has Node.time */

/* Orders of the main nodes in which plans are cut (order.c), and how plan files call them. */
typedef enum Order { ORDER_FILE, ORDER_DEPTH, ORDER_DEPTH_LAST, ORDER_LEVEL, ORDER_LATE, ORDER_LEAN, ORDERS } Order;
extern const char *const order_name[ORDERS];

#endif
