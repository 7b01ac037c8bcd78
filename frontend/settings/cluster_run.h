/* Parts of cluster.yaml: links, how programs are started, what sums take; each reads the value of its key into the Cluster. */
#ifndef PDCC_FRONTEND_CLUSTER_RUN_H
#define PDCC_FRONTEND_CLUSTER_RUN_H

#include "ir/cluster.h"
#include "ir/ir.h"
#include "yaml.h"

void cluster_launch(Yaml *y, const YNode *v, Cluster *c);
void cluster_ports(Yaml *y, const YNode *v, Cluster *c);
/* Behind the hosts, which links name; room: of c->link. */
void cluster_links(Yaml *y, const YNode *v, Cluster *c, int *room);
void cluster_sums(Yaml *y, const YNode *v, Cluster *c);
void cluster_placement(Yaml *y, const YNode *v, Cluster *c);
void cluster_defaults(Yaml *y, const YNode *v, Cluster *c);

/* Warns of placement.pin whose pattern no parameter of the model has. */
void cluster_pins_idle(const Cluster *c, const Module *m, Diag *d);

#endif
