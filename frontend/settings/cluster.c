/* cluster.yaml: what machines there are, what links join them, and what each host may do (roles: train, serve). Rules of starting
 * programs are in cluster_run.c. */
#include "cluster.h"
#include <stdlib.h>
#include <string.h>
#include "cluster_run.h"
#include "hosts.h"

/* A device type as the file or the built-in table describes it. */
typedef struct DeviceType {
	const char *name;
	bool cuda;
	int cores;
	int64_t memory;
	double flops, mem_bandwidth, half;
	bool used;
	const YNode *at;
} DeviceType;

static const DeviceType builtin[] = {
	{ "cpu", false, 0, 0, 0, 0, 0, false, NULL },
	{ "gpu", true, 0, 0, 0, 0, 0, false, NULL },
	{ "h200", true, 0, 141000000000, 67e12, 4.8e12, 989e12, false, NULL },
	{ "h100", true, 0, 80000000000, 67e12, 3.35e12, 989e12, false, NULL },
	{ "a100", true, 0, 80000000000, 19.5e12, 2.0e12, 312e12, false, NULL },
	{ "v100", true, 0, 16000000000, 15.7e12, 0.9e12, 125e12, false, NULL },
};

typedef struct Read {
	Yaml *y;
	Cluster *c;
	DeviceType *type;
	int ntype, captype;
	int capdev, caphost, caplink;
	const YNode *links, *placement; /* read last: they name hosts */
	/* the host being read */
	const char **names;
	int nnames;
	const char **addresses;
	int naddresses;
	int64_t reserve, memory;
	int cores, first_device, added;
	bool worker, server;
	double price, power, idle_power;
	const char *rack;
	/* the device entry being read */
	const DeviceType *kind;
	const char **ids;
	int nids;
	bool disabled;
} Read;

#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

/* ---- device types ---- */

static void t_backend(Yaml *y, const YNode *v, void *to)
{
	((DeviceType *)to)->cuda = yaml_setting(y, v, "backend", SET_OF_Backend) == BACKEND_CUDA;
}
static void t_cores(Yaml *y, const YNode *v, void *to)
{
	((DeviceType *)to)->cores = (int)yaml_int(y, v, "cores", 1, 4096);
}
static void t_memory(Yaml *y, const YNode *v, void *to) { ((DeviceType *)to)->memory = yaml_bytes(y, v, "memory"); }
static void t_fp32(Yaml *y, const YNode *v, void *to) { ((DeviceType *)to)->flops = yaml_flops(y, v, "fp32"); }
static void t_half(Yaml *y, const YNode *v, void *to) { ((DeviceType *)to)->half = yaml_flops(y, v, "bf16"); }
static void t_band(Yaml *y, const YNode *v, void *to)
{
	((DeviceType *)to)->mem_bandwidth = yaml_rate(y, v, "mem_bandwidth");
}

static const YKey type_keys[] = {
	{ "backend", t_backend },
	{ "arch", yaml_ignore },
	{ "cores", t_cores },
	{ "memory", t_memory },
	{ "fp32", t_fp32 },
	{ "bf16", t_half },
	{ "mem_bandwidth", t_band },
};

static void device_types(Yaml *y, const YNode *v, void *to)
{
	Read *r = to;
	const char **name;
	const YNode **value;
	int n = yaml_pairs(y, v, "device_types", &name, &value);

	for (int i = 0; i < n; i++) {
		DeviceType t = { .name = name[i] };

		t.at = value[i];
		yaml_map(y, value[i], arena_printf(y->a, "device_types.%s", name[i]), type_keys, COUNT(type_keys), &t);
		PUSH(y->a, r->type, r->ntype, r->captype) = t;
	}
}

static const DeviceType *find_type(Read *r, Yaml *y, const YNode *at, const char *name)
{
	const char *known[64];
	int n = 0;

	for (int i = 0; i < r->ntype; i++) {
		if (strcmp(r->type[i].name, name) == 0) {
			r->type[i].used = true;
			return &r->type[i];
		}
		if (n < 64)
			known[n++] = r->type[i].name;
	}
	for (int i = 0; i < COUNT(builtin); i++) {
		if (strcmp(builtin[i].name, name) == 0)
			return &builtin[i];
		if (n < 64)
			known[n++] = builtin[i].name;
	}
	const char *near = diag_nearest(name, known, n);
	yaml_error(y, at, "no device type is called '%s'%s%s%s", name, near ? "; did you mean '" : "", near ? near : "",
		near ? "'?" : "");
	return &builtin[0];
}

/* ---- devices of a host ---- */

static void d_type(Yaml *y, const YNode *v, void *to)
{
	Read *r = to;
	const char *s = yaml_text(y, v, "type");

	if (s)
		r->kind = find_type(r, y, v, s);
}

static void d_ids(Yaml *y, const YNode *v, void *to)
{
	Read *r = to;
	int n, cap = 0;
	const YNode **item = yaml_items(y, v, "ids", &n);

	r->ids = NULL;
	r->nids = 0;
	for (int i = 0; i < n; i++) {
		const char **one, *s = yaml_text(y, item[i], "a device id");
		int k = s ? expand_brackets(
				    y->a, strchr(s, '-') && !strchr(s, '[') ? arena_printf(y->a, "[%s]", s) : s, &one)
		          : 0;

		if (s && !k)
			yaml_error(y, item[i], "'%s' is not a device id; write 0, or 0-3", s);
		for (int j = 0; j < k; j++) {
			char *end;
			long id = strtol(one[j], &end, 10);

			if (end == one[j] || *end || id < 0 || id > 4095)
				yaml_error(y, item[i], "'%s' is not a device id; write 0, or 0-3", one[j]);
			else
				PUSH(y->a, r->ids, r->nids, cap) = one[j];
		}
	}
}

/* Ids 0 to n - 1. */
static void take_first(Read *r, Arena *a, int n)
{
	int cap = 0;

	r->nids = 0;
	r->ids = NULL;
	for (int i = 0; i < n; i++)
		PUSH(a, r->ids, r->nids, cap) = arena_printf(a, "%d", i);
}

static void d_count(Yaml *y, const YNode *v, void *to) { take_first(to, y->a, (int)yaml_int(y, v, "count", 1, 4096)); }
static void d_reserve(Yaml *y, const YNode *v, void *to) { ((Read *)to)->reserve = yaml_bytes(y, v, "reserve"); }
static void d_disabled(Yaml *y, const YNode *v, void *to) { ((Read *)to)->disabled = yaml_bool(y, v, "disabled"); }

static const YKey device_keys[] = {
	{ "type", d_type },
	{ "ids", d_ids },
	{ "count", d_count },
	{ "reserve", d_reserve },
	{ "disabled", d_disabled },
};

static void add_devices(Read *r, const YNode *at)
{
	Cluster *c = r->c;
	Yaml *y = r->y;

	for (int i = 0; i < r->nids && !r->disabled; i++) {
		Device dev = { .host = c->nhost,
			.index = atoi(r->ids[i]),
			.cuda = r->kind->cuda,
			.cores = r->kind->cores,
			.memory = r->kind->memory,
			.flops = r->kind->flops,
			.half_flops = r->kind->half,
			.mem_bandwidth = r->kind->mem_bandwidth };

		for (int k = r->first_device; k < c->ndevice; k++)
			if (c->device[k].index == dev.index && c->device[k].cuda == dev.cuda)
				yaml_error(y, at, "device %d is there twice", dev.index);
		if (r->reserve && dev.memory) {
			dev.memory -= r->reserve;
			if (dev.memory <= 0)
				yaml_error(y, at, "reserve takes all memory of device %d", dev.index);
		}
		PUSH(y->a, c->device, c->ndevice, r->capdev) = dev;
		r->added++;
	}
}

static void one_entry(Read *r, Yaml *y, const YNode *v, const char *type)
{
	r->kind = find_type(r, y, v, type);
	r->ids = NULL;
	r->nids = 0;
	r->reserve = 0;
	r->disabled = false;
	if (v->type == YAML_MAPPING_NODE) {
		yaml_map(y, v, "devices", device_keys, COUNT(device_keys), r);
		if (!r->nids)
			take_first(r, y->a, 1);
	} else {
		d_ids(y, v, r);
	}
	add_devices(r, v);
}

static void h_devices(Yaml *y, const YNode *v, void *to)
{
	Read *r = to;
	int n;

	if (v->type == YAML_SEQUENCE_NODE && v->data.sequence.items.start < v->data.sequence.items.top &&
		yaml_document_get_node(&y->doc, *v->data.sequence.items.start)->type == YAML_MAPPING_NODE) {
		const YNode **item = yaml_items(y, v, "devices", &n);

		for (int i = 0; i < n; i++)
			one_entry(r, y, item[i], "cpu");
	} else if (v->type == YAML_SCALAR_NODE) {
		r->kind = find_type(r, y, v, "cpu");
		r->reserve = 0;
		r->disabled = false;
		take_first(r, y->a, (int)yaml_int(y, v, "the number of devices", 1, 4096));
		add_devices(r, v);
	} else {
		one_entry(r, y, v, "cpu");
	}
}

/* A number is which GPU, as CUDA counts them; people mean how many. */
static void h_gpus(Yaml *y, const YNode *v, void *to)
{
	const char *s = v->type == YAML_SCALAR_NODE ? (const char *)v->data.scalar.value : "";
	const int n = atoi(s);

	if (n > 0 && !s[strspn(s, "0123456789")])
		diag_note(y->d, TEXTLOC(y->file, (int)v->start_mark.line + 1, (int)v->start_mark.column + 1),
			"gpus: %d is one GPU, number %d; the first %d are gpus: %s", n, n, n,
			n == 1 ? "0" : arena_printf(y->a, "0-%d", n - 1));
	one_entry(to, y, v, "gpu");
}

static void h_cpus(Yaml *y, const YNode *v, void *to) { h_devices(y, v, to); }

/* ---- hosts ---- */

static void h_host(Yaml *y, const YNode *v, void *to)
{
	Read *r = to;
	const char *s = yaml_text(y, v, "host");

	r->nnames = s ? expand_brackets(y->a, s, &r->names) : 0;
	if (s && (!r->nnames || !*s))
		yaml_error(y, v, "'%s' is not a host or a range of hosts", s);
}

static void h_address(Yaml *y, const YNode *v, void *to)
{
	Read *r = to;
	const char *s = yaml_text(y, v, "address");

	r->naddresses = s ? expand_brackets(y->a, s, &r->addresses) : 0;
}
static void h_cores(Yaml *y, const YNode *v, void *to) { ((Read *)to)->cores = (int)yaml_int(y, v, "cores", 1, 65536); }
static void h_memory(Yaml *y, const YNode *v, void *to) { ((Read *)to)->memory = yaml_bytes(y, v, "memory"); }
static void h_rack(Yaml *y, const YNode *v, void *to) { ((Read *)to)->rack = yaml_text(y, v, "rack"); }

static void h_price(Yaml *y, const YNode *v, void *to) { ((Read *)to)->price = yaml_real(y, v, "price", 0, 1e9); }
static void h_power(Yaml *y, const YNode *v, void *to) { ((Read *)to)->power = yaml_watts(y, v, "power"); }
static void h_idle(Yaml *y, const YNode *v, void *to) { ((Read *)to)->idle_power = yaml_watts(y, v, "idle_power"); }

static void h_roles(Yaml *y, const YNode *v, void *to)
{
	Read *r = to;
	int n;
	const YNode **item = yaml_items(y, v, "roles", &n);

	r->worker = r->server = false;
	for (int i = 0; i < n; i++)
		*(yaml_setting(y, item[i], "a role", SET_OF_HostRole) == HOST_SERVER ? &r->server : &r->worker) = true;
}

static const YKey host_keys[] = {
	{ "host", h_host },
	{ "address", h_address },
	{ "cores", h_cores },
	{ "memory", h_memory },
	{ "roles", h_roles },
	{ "rack", h_rack },
	{ "price", h_price },
	{ "power", h_power },
	{ "idle_power", h_idle },
	{ "devices", h_devices },
	{ "gpus", h_gpus },
	{ "cpus", h_cpus },
};

static void add_host(Read *r, const YNode *at, int i)
{
	Cluster *c = r->c;

	for (int k = 0; k < c->nhost; k++)
		if (strcmp(c->host[k].name, r->names[i]) == 0)
			yaml_error(r->y, at, "host '%s' is there twice", r->names[i]);
	Host h = { .name = r->names[i],
		.address = i < r->naddresses ? r->addresses[i] : r->names[i],
		.rack = r->rack,
		.price = r->price,
		.power = r->power,
		.idle_power = r->idle_power,
		.cores = r->cores,
		.memory = r->memory,
		.worker = r->worker,
		.server = r->server };
	PUSH(r->y->a, c->host, c->nhost, r->caphost) = h;
}

/* Hosts that are only servers come last: a plan's ranks are the first devices. */
static void servers_last(Arena *a, Cluster *c)
{
	Device *was = NEWN(a, Device, c->ndevice);
	int n = 0;

	memcpy(was, c->device, sizeof *was * (size_t)c->ndevice);
	for (int worker = 1; worker >= 0; worker--)
		for (int i = 0; i < c->ndevice; i++)
			if (c->host[was[i].host].worker == worker)
				c->device[n++] = was[i];
}

static void nodes(Yaml *y, const YNode *v, void *to)
{
	Read *r = to;
	int n;
	const YNode **item = yaml_items(y, v, "nodes", &n);

	for (int i = 0; i < n; i++) {
		int first = r->c->ndevice, base = r->c->nhost;

		r->names = r->addresses = NULL;
		r->nnames = r->naddresses = r->cores = r->added = 0;
		r->memory = 0;
		r->price = r->power = r->idle_power = 0;
		r->rack = NULL;
		r->worker = r->server = true;
		r->first_device = first;
		yaml_map(y, item[i], "nodes", host_keys, COUNT(host_keys), r);
		if (!y->ok)
			continue;
		if (!r->nnames)
			yaml_error(y, item[i], "a node needs 'host'");
		if (r->naddresses && r->naddresses != r->nnames)
			yaml_error(y, item[i], "%d hosts, but %d addresses", r->nnames, r->naddresses);
		if (r->idle_power > r->power)
			yaml_error(y, item[i], "idle_power, %g W, is above power, %g W", r->idle_power, r->power);
		if (!r->added && y->ok)
			yaml_error(y, item[i], "node '%s' has no devices", r->names[0]);
		for (int k = 0; k < r->nnames && y->ok; k++) { /* a range of hosts repeats the devices of the first */
			for (int j = 0; k && j < r->added; j++) {
				Device dev = r->c->device[first + j];

				dev.host = base + k;
				PUSH(y->a, r->c->device, r->c->ndevice, r->capdev) = dev;
			}
			add_host(r, item[i], k);
		}
	}
	if (y->ok)
		servers_last(y->a, r->c);
}

static void keep_links(Yaml *y, const YNode *v, void *to)
{
	(void)y;
	((Read *)to)->links = v;
}

/* ---- network, launch, the rest ---- */

static void n_band(Yaml *y, const YNode *v, void *to)
{
	Read *r = to;
	Link l = {
		.scope = LINK_DEFAULT, .kind = "ethernet", .bandwidth = yaml_rate(y, v, "bandwidth"), .latency = 20e-6
	};

	PUSH(y->a, r->c->link, r->c->nlink, r->caplink) = l;
}
static void n_lat(Yaml *y, const YNode *v, void *to)
{
	Read *r = to;
	double t = yaml_seconds(y, v, "latency");

	if (r->c->nlink)
		r->c->link[r->c->nlink - 1].latency = t;
}
static void n_if(Yaml *y, const YNode *v, void *to) { ((Read *)to)->c->interface = yaml_text(y, v, "interface"); }
static void n_ports(Yaml *y, const YNode *v, void *to) { cluster_ports(y, v, ((Read *)to)->c); }
static void n_timeout(Yaml *y, const YNode *v, void *to) { ((Read *)to)->c->timeout = yaml_seconds(y, v, "timeout"); }

static const YKey network_keys[] = {
	{ "bandwidth", n_band },
	{ "latency", n_lat },
	{ "interface", n_if },
	{ "ports", n_ports },
	{ "timeout", n_timeout },
	{ "transport", yaml_ignore },
	{ "secret", yaml_ignore },
};

static void network(Yaml *y, const YNode *v, void *to)
{
	yaml_map(y, v, "network", network_keys, COUNT(network_keys), to);
}

static void launch(Yaml *y, const YNode *v, void *to) { cluster_launch(y, v, ((Read *)to)->c); }
static void placement(Yaml *y, const YNode *v, void *to)
{
	(void)y;
	((Read *)to)->placement = v;
}
static void defaults(Yaml *y, const YNode *v, void *to) { cluster_defaults(y, v, ((Read *)to)->c); }

static void version(Yaml *y, const YNode *v, void *to)
{
	(void)to;
	yaml_int(y, v, "version", 1, 1);
}
static void name(Yaml *y, const YNode *v, void *to) { ((Read *)to)->c->name = yaml_text(y, v, "name"); }

static void add_local(Read *r, Arena *a, int n)
{
	Cluster *c = r->c;

	for (int i = 0; i < n; i++)
		PUSH(a, c->device, c->ndevice, r->capdev) = ((Device){ .host = 0, .index = i });
	PUSH(a, c->host, c->nhost, r->caphost) =
		((Host){ .name = "localhost", .address = "localhost", .worker = true, .server = true });
	c->local = true;
}

static void devices(Yaml *y, const YNode *v, void *to) { add_local(to, y->a, (int)yaml_int(y, v, "devices", 1, 4096)); }

static void sums(Yaml *y, const YNode *v, void *to) { cluster_sums(y, v, ((Read *)to)->c); }

static const YKey top_keys[] = {
	{ "version", version },
	{ "name", name },
	{ "defaults", defaults },
	{ "device_types", device_types },
	{ "devices", devices },
	{ "nodes", nodes },
	{ "links", keep_links },
	{ "sums", sums },
	{ "network", network },
	{ "launch", launch },
	{ "placement", placement },
};

/* What is said of a type holds for no device then. */
static void unused_types(const Read *r, Yaml *y)
{
	for (int i = 0; i < r->ntype; i++)
		if (!r->type[i].used)
			diag_warn(y->d,
				TEXTLOC(y->file, (int)r->type[i].at->start_mark.line + 1,
					(int)r->type[i].at->start_mark.column + 1),
				"device-types",
				"no device is of type '%s'; name it where devices are: nodes: [{host: localhost, devices: "
				"{type: %s, count: 4}}]",
				r->type[i].name, r->type[i].name);
}

/* device_types come first whatever their place in the file. */
static void read_top(Read *r, Yaml *y)
{
	const YNode *root = yaml_document_get_root_node(&y->doc);

	for (const yaml_node_pair_t *p = root->type == YAML_MAPPING_NODE ? root->data.mapping.pairs.start : NULL;
		p && p < root->data.mapping.pairs.top; p++) {
		const YNode *k = yaml_document_get_node(&y->doc, p->key);

		if (k->type == YAML_SCALAR_NODE && strcmp((const char *)k->data.scalar.value, "device_types") == 0)
			device_types(y, yaml_document_get_node(&y->doc, p->value), r);
	}
	int types = r->ntype;
	bool ok = y->ok;
	yaml_map(y, root, "the cluster file", top_keys, COUNT(top_keys), r);
	r->ntype = types;
	if (ok && y->ok)
		unused_types(r, y);
	if (ok && y->ok && r->links)
		cluster_links(y, r->links, r->c, &r->caplink);
	if (ok && y->ok && r->placement)
		cluster_placement(y, r->placement, r->c);
}

static bool is_local(const char *h)
{
	return strcmp(h, "localhost") == 0 || strcmp(h, "127.0.0.1") == 0 || strcmp(h, "::1") == 0;
}

static void name_devices(Arena *a, Cluster *c)
{
	c->local = true;
	for (int i = 0; i < c->nhost; i++)
		c->local &= is_local(c->host[i].address);
	for (int i = 0; i < c->ndevice; i++)
		c->device[i].name =
			c->local && c->nhost == 1
				? arena_printf(a, "d%d", i)
				: arena_printf(a, "%s[%d]", c->host[c->device[i].host].name, c->device[i].index);
}

/* A file that lists links between hosts lists one for every pair: what it leaves out is not there. */
static bool links_connect(const Cluster *c, Diag *d)
{
	bool named = false;

	for (int i = 0; i < c->nlink; i++) {
		if (c->link[i].scope == LINK_DEFAULT)
			return true;
		named |= c->link[i].scope == LINK_BETWEEN;
	}
	for (int x = 0; named && x < c->nhost; x++)
		for (int y = x + 1; y < c->nhost; y++) {
			bool joined = false;
			for (int i = 0; i < c->nlink && !joined; i++) {
				const Link *l = &c->link[i];
				joined = l->scope == LINK_BETWEEN &&
				         ((l->host_a == x && l->host_b == y) || (l->host_a == y && l->host_b == x));
			}
			if (!joined)
				return diag_error(d, FILELOC(c->file), 107,
					"hosts '%s' and '%s' are not connected: no entry of `links` is "
					"between them; add one, or {default: true, ...} for all the rest",
					c->host[x].name, c->host[y].name);
		}
	return true;
}

bool cluster_read(Arena *a, const char *path, Cluster *c, Diag *d)
{
	Yaml y = { .a = a, .d = d, .ok = true };
	Read r = { .y = &y, .c = c };

	*c = (Cluster){ .file = arena_str(a, path), .timeout = 60, .launch = LAUNCH_AUTO };
	if (strcmp(path, "local") == 0 || strncmp(path, "local:", 6) == 0) {
		char *end;
		long n = path[5] ? strtol(path + 6, &end, 10) : 1;

		if (path[5] && (*end || end == path + 6 || n < 1 || n > 4096))
			return diag_error(
				d, NOLOC, 105, "'%s': after local: comes a number of devices, 1 to 4096", path);
		add_local(&r, a, (int)n);
		name_devices(a, c);
		return true;
	}
	const int known = hosts_read(a, path, c, d);
	if (known >= 0) {
		if (known)
			name_devices(a, c);
		c->untyped = true;
		return known;
	}
	if (!yaml_open(&y, a, path, d))
		return false;
	read_top(&r, &y);
	yaml_close(&y);
	if (y.ok && !c->ndevice)
		y.ok = diag_error(d, FILELOC(c->file), 105, "the cluster has no devices; smallest file: 'devices: 4'");
	if (y.ok)
		name_devices(a, c);
	return y.ok && links_connect(c, d);
}
