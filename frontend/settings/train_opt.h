/* Private to train.c and train_data.c, train_opt.c, train_sched.c: readers of train.yaml's keys. `to` is a Training. */
#ifndef PDCC_FRONTEND_TRAIN_OPT_H
#define PDCC_FRONTEND_TRAIN_OPT_H

#include "yaml.h"

void train_data(Yaml *y, const YNode *v, void *to);
void train_optimizer(Yaml *y, const YNode *v, void *to);
void train_schedule(Yaml *y, const YNode *v, void *to);
void train_lr_schedule(Yaml *y, const YNode *v, void *to);
void train_globs(Yaml *y, const YNode *v, const char *what, const char ***list, int *count);

#endif
