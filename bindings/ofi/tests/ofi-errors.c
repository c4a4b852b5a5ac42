/* What the provider answers to calls that are wrong, or that it does not offer. */
#include "ofi-unit.h"

#include <string.h>

static int info_for(struct fi_info *hints)
{
	struct fi_info *info = NULL;
	int answer = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info);

	if (!answer)
		fi_freeinfo(info);
	return answer;
}

static void questions(void)
{
	struct fi_info *hints = kumi_hints();

	ANSWERS(info_for(hints), 0);
	hints->caps = FI_MSG | FI_HMEM;
	ANSWERS(info_for(hints), -FI_ENODATA);
	hints->caps = FI_MSG;
	hints->ep_attr->type = FI_EP_MSG;
	ANSWERS(info_for(hints), -FI_ENODATA);
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->name = strdup("another");
	ANSWERS(info_for(hints), -FI_ENODATA);
	fi_freeinfo(hints);
}

static void vectors(struct world *world)
{
	struct fi_av_attr named = {.type = FI_AV_MAP, .name = "shared"};
	struct fi_av_attr indexed = {.type = FI_AV_MAP, .rx_ctx_bits = 2};
	char name[16], text[8];
	size_t size = sizeof name;
	struct fid_av *av;
	fi_addr_t places[2], nobody = 12345;
	int errors[2] = {9, 9};

	ANSWERS(fi_av_open(world->domain, &named, &av, NULL), -FI_ENOSYS);
	ANSWERS(fi_av_open(world->domain, &indexed, &av, NULL), -FI_EINVAL);
	ANSWERS(world->domain->ops->av_open(world->domain, NULL, &av, NULL), -FI_EINVAL);
	ANSWERS(fi_av_insert(world->av, NULL, 1, places, 0, NULL), -FI_EINVAL);
	ANSWERS(fi_av_insert(world->av, name, 1, NULL, 0, NULL), -FI_EINVAL);
	ANSWERS(fi_av_insert(world->av, name, 1, places, FI_INJECT, NULL), -FI_EBADFLAGS);
	ANSWERS(fi_av_insertsvc(world->av, "localhost", "1", places, 0, NULL), -FI_ENOSYS);
	ANSWERS(fi_av_lookup(world->av, nobody, name, &size), -FI_EINVAL);
	ANSWERS(fi_av_remove(world->av, &nobody, 1, 0), -FI_ENOENT);

	ANSWERS(fi_av_lookup(world->av, world->self, name, &size), 0);
	NEED(size == 16);
	ANSWERS(fi_av_insert(world->av, name, 1, places, FI_SYNC_ERR, errors), 1);
	NEED(places[0] == world->self && errors[0] == 0);
	ANSWERS(fi_av_remove(world->av, places, 1, 0), 0);
	name[4] = 127; /* a rank that is not there */
	ANSWERS(fi_av_insert(world->av, name, 1, places, FI_SYNC_ERR, errors), 0);
	NEED(places[0] == FI_ADDR_NOTAVAIL && errors[0] == FI_EINVAL);
	size = sizeof text;
	NEED(fi_av_straddr(world->av, name, text, &size) == text);
	NEED(!strcmp(text, "kumi://") && size > sizeof text);
}

static void queues(struct world *world)
{
	struct fi_cq_attr wrong_format = {.format = 9};
	struct fi_cq_attr wrong_flags = {.flags = FI_MORE};
	struct fi_cq_attr mutex = {.wait_obj = FI_WAIT_MUTEX_COND};
	struct fi_cntr_attr wrong_events = {.events = 5};
	struct fid_cq *cq;
	struct fid_cntr *cntr;
	struct fi_cq_tagged_entry entry;
	char text[128];

	ANSWERS(fi_cq_open(world->domain, &wrong_format, &cq, NULL), -FI_EINVAL);
	ANSWERS(fi_cq_open(world->domain, &wrong_flags, &cq, NULL), -FI_EBADFLAGS);
	ANSWERS(fi_cq_open(world->domain, &mutex, &cq, NULL), -FI_ENOSYS);
	ANSWERS(fi_cntr_open(world->domain, &wrong_events, &cntr, NULL), -FI_ENOSYS);
	ANSWERS(fi_cq_read(world->cq, NULL, 1), -FI_EINVAL);
	ANSWERS(fi_cq_read(world->cq, &entry, 0), -FI_EAGAIN);
	ANSWERS(fi_cq_readerr(world->cq, NULL, 0), -FI_EINVAL);
	ANSWERS(fi_control(&world->cq->fid, FI_ENABLE, NULL), -FI_ENOSYS);
	ANSWERS(fi_control(&world->cq->fid, FI_GETWAIT, NULL), -FI_EINVAL);
	ANSWERS(fi_cntr_wait(world->sent, ~0ULL, 1), -FI_ETIMEDOUT);
	NEED(strstr(fi_cq_strerror(world->cq, FI_ETRUNC, NULL, text, sizeof text), "longer than its receive"));
	NEED(strstr(text, "larger buffer"));
	/* An object of another class. */
	ANSWERS(world->cq->ops->read((struct fid_cq *)world->av, &entry, 1), -FI_EINVAL);
}

static void regions(struct world *world)
{
	static char shared[16];
	struct iovec iov = {shared, sizeof shared};
	struct fi_mr_attr device = {.mr_iov = &iov, .iov_count = 1, .access = FI_REMOTE_READ, .iface = FI_HMEM_CUDA};
	struct fid_mr *mr, *again;

	ANSWERS(fi_mr_regattr(world->domain, &device, 0, &mr), -FI_ENOSYS);
	ANSWERS(fi_mr_reg(world->domain, iov.iov_base, 16, FI_MULTICAST, 0, 1, 0, &mr, NULL), -FI_EINVAL);
	ANSWERS(fi_mr_reg(world->domain, iov.iov_base, 16, FI_REMOTE_READ, 0, 1, FI_MORE, &mr, NULL), -FI_EBADFLAGS);
	ANSWERS(fi_mr_reg(world->domain, iov.iov_base, 16, FI_REMOTE_READ, 0, 1, 0, &mr, NULL), 0);
	ANSWERS(fi_mr_reg(world->domain, iov.iov_base, 16, FI_REMOTE_READ, 0, 1, 0, &again, NULL), -FI_ENOKEY);
	ANSWERS(fi_mr_bind(mr, &world->ep->fid, 0), -FI_EINVAL);
	ANSWERS(fi_mr_bind(mr, &world->sent->fid, FI_REMOTE_READ), -FI_EBADFLAGS);
	ANSWERS(fi_close(&mr->fid), 0);
}

static void transfers(struct world *world)
{
	static char large[8192];
	struct iovec five[5] = {{large, 1}, {large, 1}, {large, 1}, {large, 1}, {large, 1}};
	struct fi_msg_tagged message = {.msg_iov = five, .iov_count = 1, .addr = world->self};
	struct fi_rma_iov there = {0, 8, 42};
	struct fi_msg_rma rma = {.msg_iov = five, .iov_count = 1, .addr = world->self, .rma_iov = &there, .rma_iov_count = 1};
	size_t inject = world->info->tx_attr->inject_size;

	NEED(inject < sizeof large);
	ANSWERS(fi_tinject(world->ep, large, inject + 1, world->self, 0), -FI_EMSGSIZE);
	ANSWERS(fi_tsend(world->ep, NULL, 1, NULL, world->self, 0, NULL), -FI_EINVAL);
	ANSWERS(fi_tsend(world->ep, large, (1ULL << 40) + 1, NULL, world->self, 0, NULL), -FI_EMSGSIZE);
	ANSWERS(fi_tsend(world->ep, large, 1, NULL, 999, 0, NULL), -FI_EINVAL);
	ANSWERS(fi_tsend(world->ep, large, 1, NULL, FI_ADDR_UNSPEC, 0, NULL), -FI_EINVAL);
	ANSWERS(fi_tsendv(world->ep, five, NULL, 5, world->self, 0, NULL), -FI_EINVAL);
	ANSWERS(fi_trecvv(world->ep, five, NULL, 5, world->self, 0, 0, NULL), -FI_EINVAL);
	ANSWERS(fi_trecv(world->ep, large, 1, NULL, 999, 0, 0, NULL), -FI_EINVAL);
	ANSWERS(fi_tsendmsg(world->ep, &message, FI_COMMIT_COMPLETE), -FI_EBADFLAGS);
	ANSWERS(fi_tsendmsg(world->ep, &message, FI_FENCE), -FI_EBADFLAGS);
	ANSWERS(fi_tsendmsg(world->ep, NULL, 0), -FI_EINVAL);
	ANSWERS(fi_trecvmsg(world->ep, &message, FI_MULTI_RECV), -FI_EBADFLAGS);
	ANSWERS(fi_writemsg(world->ep, &rma, 0), -FI_EINVAL); /* 1 byte here, 8 there */
	ANSWERS(fi_readmsg(world->ep, &rma, FI_INJECT), -FI_EBADFLAGS);
	ANSWERS(fi_atomic(world->ep, large, 1, NULL, world->self, 0, 42, 99, FI_SUM, NULL), -FI_EOPNOTSUPP);
	ANSWERS(world->ep->tagged->send((struct fid_ep *)world->cq, large, 1, NULL, world->self, 0, NULL), -FI_EINVAL);
}

static void endpoints(struct world *world)
{
	struct fi_info *info = fi_dupinfo(world->info);
	struct fid_ep *ep;
	struct fid_pep *pep;
	struct fid_stx *stx;
	char name[16] = "";
	size_t value = 1, size = sizeof value;

	ANSWERS(fi_setname(&world->ep->fid, name, sizeof name), -FI_ENOSYS);
	ANSWERS(fi_connect(world->ep, name, NULL, 0), -FI_ENOSYS);
	ANSWERS(fi_passive_ep(world->fabric, info, &pep, NULL), -FI_ENOSYS);
	ANSWERS(fi_scalable_ep(world->domain, info, &ep, NULL), -FI_ENOSYS);
	ANSWERS(fi_stx_context(world->domain, NULL, &stx, NULL), -FI_ENOSYS);
	ANSWERS(fi_srx_context(world->domain, NULL, &ep, NULL), -FI_ENOSYS);
	ANSWERS(fi_setopt(&world->ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &value, size), -FI_ENOPROTOOPT);
	ANSWERS(fi_setopt(&world->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, 3), -FI_EINVAL);
	ANSWERS(fi_getopt(&world->ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &value, &size), 0);
	NEED(value == 0);
	ANSWERS(fi_enable(world->ep), -FI_EOPBADSTATE);
	NEED(world->ep->ops->tx_size_left(world->ep) > 0 && world->ep->ops->rx_size_left(world->ep) > 0);
	/* An endpoint has the calls that were asked for. */
	info->caps = FI_MSG | FI_SEND | FI_RECV;
	ANSWERS(fi_endpoint(world->domain, info, &ep, NULL), 0);
	ANSWERS(fi_tinject(ep, NULL, 0, world->self, 0), -FI_ENOSYS);
	ANSWERS(fi_inject(ep, NULL, 0, world->self), -FI_EOPBADSTATE);
	ANSWERS(fi_barrier(ep, 0, NULL), -FI_ENOSYS);
	ANSWERS(fi_close(&ep->fid), 0);
	info->tx_attr->op_flags = FI_COMMIT_COMPLETE;
	ANSWERS(fi_endpoint(world->domain, info, &ep, NULL), -FI_EINVAL);
	ANSWERS(world->domain->ops->endpoint(world->domain, NULL, &ep, NULL), -FI_EINVAL);
	fi_freeinfo(info);
}

void errors(struct world *world)
{
	questions();
	vectors(world);
	queues(world);
	regions(world);
	transfers(world);
	endpoints(world);
}
