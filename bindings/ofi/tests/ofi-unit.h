/* What the tests of the provider have in common. */
#ifndef OFI_UNIT_H
#define OFI_UNIT_H

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <stdio.h>
#include <stdlib.h>

#define NEED(condition)                                                       \
	do {                                                                  \
		if (!(condition)) {                                           \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,    \
			        #condition);                                  \
			exit(1);                                              \
		}                                                             \
	} while (0)

/* The call answers this error, or 0. */
#define ANSWERS(call, wanted)                                                 \
	do {                                                                  \
		long answer_ = (long)(call);                                  \
		if (answer_ != (long)(wanted)) {                              \
			fprintf(stderr, "%s:%d: %s: %ld, not %ld\n", __FILE__, \
			        __LINE__, #call, answer_, (long)(wanted));    \
			exit(1);                                              \
		}                                                             \
	} while (0)

/* All that a program opens, of one rank that talks to itself. */
struct world {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_cntr *sent;
	struct fid_ep *ep;
	fi_addr_t self;
};

/* Hints for the provider and nothing else. */
struct fi_info *kumi_hints(void);
void errors(struct world *world);

#endif
