/* pdcc doctor: this machine. What a container or a batch system may hold back is found by runs that end in strange ways: the
 * memory that ranks of one host share, and the memory that may be locked for a network card or a GPU. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "doctor.h"
#include "runtime/pd.h"
#include "ir/base/human.h"

static const char shm[] = "/dev/shm";
enum { MIB = 1 << 20, SHM_LEAST = 32 * MIB, LOCKED_LEAST = 64 * MIB }; /* a few MiB per rank; what a card registers */

/* Open MPI passes messages between ranks of one host by files there. */
static void shared_memory(const Compile *c)
{
	struct statvfs s;
	const bool can = access(shm, W_OK | X_OK) == 0 && statvfs(shm, &s) == 0;

	if (!can) {
		printf("%-14s none: %s: %s\n", "shared memory", shm, strerror(errno));
		diag_warn(c->d, NOLOC, "shared-memory",
			"nothing can be written to %s (%s): ranks of one host pass messages by files there, and are slow or end at "
			"once without; mount a tmpfs (docker run --shm-size=1g, or --ipc=host)",
			shm, strerror(errno));
		return;
	}
	const int64_t left = (int64_t)s.f_bavail * (int64_t)s.f_frsize;
	printf("%-14s %s free in %s\n", "shared memory", str_bytes(c->a, left), shm);
	if (left < SHM_LEAST)
		diag_warn(c->d, NOLOC, "shared-memory",
			"%s has %s free; ranks of one host want a few MiB each there, and end with a bus error where it is "
			"full; make it larger (docker run --shm-size=1g; mount -o remount,size=1g %s)",
			shm, str_bytes(c->a, left), shm);
}

/* gpu: there is an NVIDIA driver. */
static void locked_memory(const Compile *c, bool gpu)
{
	struct rlimit r;
	const bool card = access("/sys/class/infiniband", F_OK) == 0;

	if (getrlimit(RLIMIT_MEMLOCK, &r))
		return;
	const bool open = r.rlim_cur == RLIM_INFINITY;
	printf("%-14s %s (ulimit -l)\n", "locked memory",
		open ? "no limit"
		     : str_bytes(c->a, (int64_t)(r.rlim_cur >> 1 > INT64_MAX >> 1 ? INT64_MAX : r.rlim_cur)));
	if ((card || gpu) && !open && r.rlim_cur < LOCKED_LEAST)
		diag_warn(c->d, NOLOC, "locked-memory",
			"%s of memory may be locked, and %s registers more; ulimit -l unlimited (limits.conf: memlock; docker run "
			"--ulimit memlock=-1; Slurm: PropagateResourceLimitsExcept=MEMLOCK)",
			str_bytes(c->a, (int64_t)r.rlim_cur), card ? "an InfiniBand card" : "NCCL");
}

void doctor_machine(const Compile *c, bool gpu)
{
	const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	const int cores = pd_cores("");

	printf("%-14s %s, %d core%s, %s of memory\n", "this machine", pd_device_name(), cores, cores == 1 ? "" : "s",
		str_bytes(c->a, (int64_t)pages * page));
	shared_memory(c);
	locked_memory(c, gpu);
}
