// The calls of kumi.h and kumi_dsm.h that examples/dsm make, by ArgoDSM. Where pages live is the business of its environment
// variables, not of the programs.
#include <mpi.h>

extern "C" {
#include "argo.h"
#include "synchronization/cohort_lock.h"
#include "nowindows.h"
}

namespace {
constexpr int LOCKS = 64;
cohortlock_t locks[LOCKS];
} // namespace

extern "C" {

int kumi_init(void)
{
	argo_init(0, 0);
	return KUMI_OK;
}

int kumi_finalize(void)
{
	argo_finalize();
	return KUMI_OK;
}

int kumi_rank(void)
{
	return static_cast<int>(argo_node_id());
}

int kumi_size(void)
{
	return static_cast<int>(argo_number_of_nodes());
}

int kumi_barrier(void)
{
	return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS ? KUMI_OK : -1;
}

int kumi_allreduce(const void *send, void *recv, size_t count, kumi_type type, kumi_op op)
{
	MPI_Datatype kind = type == KUMI_F64 ? MPI_DOUBLE : type == KUMI_I32 ? MPI_INT32_T : MPI_UINT64_T;
	MPI_Op how = op == KUMI_MAX ? MPI_MAX : op == KUMI_MIN ? MPI_MIN : MPI_SUM;
	if (send == recv)
		send = MPI_IN_PLACE;
	int code = MPI_Allreduce(send, recv, static_cast<int>(count), kind, how, MPI_COMM_WORLD);
	return code == MPI_SUCCESS ? KUMI_OK : -1;
}

int kumi_dsm_start(void)
{
	for (cohortlock_t &lock : locks)
		lock = argo_cohortlock_create();
	return KUMI_OK;
}

int kumi_dsm_end(void)
{
	return kumi_dsm_barrier();
}

int kumi_dsm_allocate(size_t bytes, kumi_dsm_home, void **address)
{
	*address = collective_alloc((bytes + 4095) / 4096 * 4096);
	return KUMI_OK;
}

int kumi_dsm_lock(uint32_t lock)
{
	argo_cohortlock_lock(locks[lock % LOCKS]);
	return KUMI_OK;
}

int kumi_dsm_unlock(uint32_t lock)
{
	argo_cohortlock_unlock(locks[lock % LOCKS]);
	return KUMI_OK;
}

int kumi_dsm_barrier(void)
{
	argo_barrier(1);
	return KUMI_OK;
}
}
