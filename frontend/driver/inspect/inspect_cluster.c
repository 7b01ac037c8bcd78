/* pdcc inspect CLUSTER: the machines of a cluster file or host list, expanded. */
#include <string.h>
#include "ir/base/human.h"
#include "frontend/settings/cluster.h"
#include "inspect.h"

static const char *or_none(const char *s) { return s && *s ? s : "-"; }

static void print_devices(Arena *a, const Cluster *c)
{
	printf("%-12s %-10s %-16s %-5s %5s %12s %9s %8s\n", "device", "host", "address", "kind", "cores", "memory",
		"GFLOP/s", "GB/s");
	for (int i = 0; i < c->ndevice; i++) {
		const Device *d = &c->device[i];
		const Host *h = &c->host[d->host];

		printf("%-12s %-10s %-16s %-5s %5s %12s %9s %8s\n", d->name, h->name, h->address,
			d->cuda ? "cuda" : "cpu", d->cores ? arena_printf(a, "%d", d->cores) : "-",
			d->memory ? str_bytes(a, d->memory) : "-",
			d->flops > 0 ? arena_printf(a, "%.0f", d->flops / 1e9) : "-",
			d->mem_bandwidth > 0 ? number_text(a, d->mem_bandwidth / 1e9, 4) : "-");
	}
}

/* Lines of the file, in the order in which they are tried; then what holds where none of them does. */
static void print_links(Arena *a, const Cluster *c)
{
	printf("\n%-36s %-12s %12s  %12s\n", "link", "kind", "GB/s", "latency us");
	for (int i = 0; i < c->nlink + 2; i++) {
		const Link l = cluster_link_of(c, i);
		const char *what = i == c->nlink            ? "within a host, built in"
		                   : i == c->nlink + 1      ? "between hosts, built in"
		                   : l.scope == LINK_WITHIN ? "within a host"
		                   : l.scope == LINK_DEFAULT
		                           ? "all others"
		                           : arena_printf(a, "%s - %s", c->host[l.host_a].name, c->host[l.host_b].name);

		printf("%-36s %-12s %12s  %12s\n", what, or_none(l.kind), number_text(a, l.bandwidth / 1e9, 4),
			number_text(a, 1e6 * l.latency, 4));
	}
}

bool inspects_cluster(const char *path)
{
	const size_t n = strlen(path);

	return (n > 5 && !strcmp(path + n - 5, ".yaml")) || (n > 4 && !strcmp(path + n - 4, ".yml")) ||
	       strncmp(path, "local:", 6) == 0 || !strcmp(path, "local");
}

int inspect_cluster(Compile *c)
{
	Cluster k;

	if (!cluster_read(c->a, c->model, &k, c->d))
		return EXIT_INPUT;
	printf("%s: %d device%s on %d host%s%s; a wait may last %g s\n\n", k.name ? k.name : c->model, k.ndevice,
		k.ndevice == 1 ? "" : "s", k.nhost, k.nhost == 1 ? "" : "s", k.local ? ", all on this machine" : "",
		k.timeout);
	print_devices(c->a, &k);
	print_links(c->a, &k);
	return 0;
}
