/* The machines as plain data; filled by the front end, read by every pass. */
#ifndef PDCC_IR_CLUSTER_H
#define PDCC_IR_CLUSTER_H

#include <string.h>
#include "ir.h"

typedef struct Device {
	const char *name;     /* "host[2]" */
	int host;             /* index into Cluster.host */
	int index;            /* device index on its host */
	int members;          /* it is a tensor group of so many (cluster_group.c); 0: one device */
	bool cuda;            /* else a CPU process */
	int cores;            /* threads a CPU device may use; 0: not said */
	int64_t memory;       /* bytes available to pdcc (reserve taken off); 0: not said */
	double flops;         /* f32 FLOP/s; 0: default of the cost model */
	double half_flops;    /* of products in 16-bit floats; 0: not said */
	double mem_bandwidth; /* bytes/s; 0: default */
} Device;

typedef struct Host {
	const char *name, *address, *rack;
	int cores;
	int64_t memory;
	bool worker, server;
	double price;             /* of an hour, in the file's own unit; 0: not said */
	double power, idle_power; /* watts, with all devices computing and with none; 0: not said */
} Host;

typedef enum LinkScope { LINK_WITHIN, LINK_BETWEEN, LINK_DEFAULT } LinkScope;
typedef struct Link {
	LinkScope scope;
	int host_a, host_b; /* LINK_BETWEEN */
	const char *kind;
	double bandwidth; /* bytes/s */
	double latency;   /* seconds */
} Link;

/* What a sum takes beside the links (passes/cost/sumcost.h), of programs of one back end. */
typedef struct SumCost {
	bool said;
	double message, start; /* seconds of each message, of each sum */
	double add;            /* bytes/s that are added */
} SumCost;

/* Parameters whose names match (a glob) are at a server of this host, where servers hold them; or in this stage of the plan. The
 * other is -1; both are where the host is gone. */
typedef struct Pin {
	const char *pattern;
	int host, stage, line, col;
} Pin;

typedef struct EnvVar {
	const char *name, *value;
} EnvVar;

typedef struct Cluster {
	const char *file, *name;
	bool local;   /* every device is on this machine */
	bool untyped; /* hosts without kinds of devices: they are what --target says */
	Device *device;
	int ndevice; /* first those that train (cluster_workers), then those of hosts that are only servers */
	Host *host;
	int nhost;
	Link *link;
	int nlink;             /* first match wins */
	SumCost sums[2];       /* of CPUs, of GPUs */
	double timeout;        /* seconds a wait may take; 60 */
	const char *interface; /* NULL: any */
	int port[2];           /* first and last; 0: any */
	Launch launch;
	const char *ssh_user, *ssh_key;
	int ssh_port; /* NULL, 0: ssh's own settings */
	EnvVar *env;
	int nenv;     /* for the programs */
	int tolerate; /* 1: plans for one host less too */
	const char **without;
	int nwithout; /* hosts (local: devices) that there is such a plan for, in DIR/without-NAME */
	Pin *pin;
	int npin; /* the first that matches counts */
	unsigned
		policies; /* how stages are given devices: 1 fresh first, 2 append first, 4 scatter first; 0: as is fastest */
} Cluster;

/* The link between two devices; a built-in default when the file names none. */
Link cluster_link(const Cluster *c, int a, int b);
/* Do these devices share a host? False where there is no cluster, or one of them is not in it. */
bool cluster_same_host(const Cluster *c, int a, int b);
/* How many devices may train: those of hosts with the role worker. */
int cluster_workers(const Cluster *c);
/* Which entry of Cluster.link that is; nlink and nlink + 1 stand for the built-in ones, within a host and between two. */
int cluster_link_line(const Cluster *c, int a, int b);
Link cluster_link_of(const Cluster *c, int line);

#endif
