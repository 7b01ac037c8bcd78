/* What pdcc plan --explain and --json say of a plan (planreport.c). */
#ifndef PDCC_FRONTEND_PLANREPORT_H
#define PDCC_FRONTEND_PLANREPORT_H

#include <stdio.h>
#include "../passes/simulate.h"
#include "compile.h"

/* pdcc plan: the summary; --explain, --json; --save-plan. Exit status. */
int plan_main(Compile *c);

void plan_report(const Compile *c, const Sim *s, FILE *f);
void plan_json(const Compile *c, const Sim *s, FILE *f);

/* "gpu01[0-3] gpu02[0]": the devices of a stage by their names in the cluster file. */
const char *devices_text(const Compile *c, const Stage *s, size_t most);

/* ---- simulate.c ---- */
const char *cluster_name(const Compile *c);
const char *link_name(const Compile *c, const Link *l);
void print_loads(const Compile *c, const Sim *s, FILE *f);

#endif
