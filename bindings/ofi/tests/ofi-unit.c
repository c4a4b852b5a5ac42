/* The provider as a program of libfabric sees it: one rank that talks to itself. Usage: ofi-unit [outside | spin] */
#include "ofi-unit.h"

#include <poll.h>
#include <stdint.h>
#include <string.h>

enum { CONTEXT_A = 0x1000, CONTEXT_B = 0x2000, CONTEXT_C = 0x3000 };

static void *word(uintptr_t value)
{
	return (void *)value;
}

struct fi_info *kumi_hints(void)
{
	struct fi_info *hints = fi_allocinfo();

	NEED(hints);
	hints->fabric_attr->prov_name = strdup("kumi");
	hints->ep_attr->type = FI_EP_RDM;
	return hints;
}

static struct fid_cq *open_cq(struct fid_domain *domain, enum fi_cq_format format, enum fi_wait_obj wait)
{
	struct fi_cq_attr attr = {.format = format, .wait_obj = wait};
	struct fid_cq *cq;

	ANSWERS(fi_cq_open(domain, &attr, &cq, NULL), 0);
	return cq;
}

static struct fid_cntr *open_cntr(struct fid_domain *domain)
{
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
	struct fid_cntr *cntr;

	ANSWERS(fi_cntr_open(domain, &attr, &cntr, NULL), 0);
	return cntr;
}

static void open_world(struct world *world)
{
	struct fi_info *hints = kumi_hints();
	struct fi_av_attr av = {.type = FI_AV_MAP};
	char name[64];
	size_t size = sizeof name;

	ANSWERS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &world->info), 0);
	fi_freeinfo(hints);
	NEED(!strcmp(world->info->fabric_attr->prov_name, "kumi"));
	NEED(world->info->addr_format == FI_SOCKADDR_IN && world->info->src_addr);
	ANSWERS(fi_fabric(world->info->fabric_attr, &world->fabric, NULL), 0);
	ANSWERS(fi_domain(world->fabric, world->info, &world->domain, NULL), 0);
	ANSWERS(fi_av_open(world->domain, &av, &world->av, NULL), 0);
	world->cq = open_cq(world->domain, FI_CQ_FORMAT_TAGGED, FI_WAIT_FD);
	world->sent = open_cntr(world->domain);
	ANSWERS(fi_endpoint(world->domain, world->info, &world->ep, NULL), 0);
	ANSWERS(fi_enable(world->ep), -FI_ENOAV);
	ANSWERS(fi_ep_bind(world->ep, &world->av->fid, 0), 0);
	ANSWERS(fi_enable(world->ep), -FI_ENOCQ);
	ANSWERS(fi_ep_bind(world->ep, &world->cq->fid, FI_TRANSMIT | FI_RECV), 0);
	ANSWERS(fi_ep_bind(world->ep, &world->sent->fid, FI_SEND | FI_WRITE), 0);
	ANSWERS(fi_getname(&world->ep->fid, name, &size), -FI_EOPBADSTATE);
	ANSWERS(fi_enable(world->ep), 0);
	size = 4;
	ANSWERS(fi_getname(&world->ep->fid, name, &size), -FI_ETOOSMALL);
	NEED(size == 16);
	ANSWERS(fi_getname(&world->ep->fid, name, &size), 0);
	ANSWERS(fi_av_insert(world->av, name, 1, &world->self, 0, NULL), 1);
}

static void close_world(struct world *world)
{
	ANSWERS(fi_close(&world->domain->fid), -FI_EBUSY);
	ANSWERS(fi_close(&world->cq->fid), -FI_EBUSY);
	ANSWERS(fi_close(&world->ep->fid), 0);
	ANSWERS(fi_close(&world->sent->fid), 0);
	ANSWERS(fi_close(&world->cq->fid), 0);
	ANSWERS(fi_close(&world->av->fid), 0);
	ANSWERS(fi_close(&world->fabric->fid), -FI_EBUSY);
	ANSWERS(fi_close(&world->domain->fid), 0);
	ANSWERS(fi_close(&world->fabric->fid), 0);
	fi_freeinfo(world->info);
}

/* The next completion. */
static struct fi_cq_tagged_entry next(struct world *world)
{
	struct fi_cq_tagged_entry entry;

	memset(&entry, 0xff, sizeof entry);
	ANSWERS(fi_cq_sread(world->cq, &entry, 1, NULL, 10000), 1);
	return entry;
}

/* The next two completions, of a send and a receive: the receive's. */
static struct fi_cq_tagged_entry next_received(struct world *world)
{
	struct fi_cq_tagged_entry one = next(world), two = next(world);

	NEED(!(one.flags & FI_RECV) != !(two.flags & FI_RECV));
	return one.flags & FI_RECV ? one : two;
}

static void nothing_left(struct world *world)
{
	struct fi_cq_tagged_entry entry;

	ANSWERS(fi_cq_read(world->cq, &entry, 1), -FI_EAGAIN);
}

static void tagged(struct world *world)
{
	char out[32] = "over the channel", in[32] = "";
	struct iovec halves[2] = {{in, 5}, {in + 5, 27}};
	struct fi_cq_tagged_entry got;
	uint64_t before = fi_cntr_read(world->sent);

	ANSWERS(fi_trecvv(world->ep, halves, NULL, 2, world->self, 0x70, 0xf, word(CONTEXT_A)), 0);
	ANSWERS(fi_tsenddata(world->ep, out, 17, NULL, 99, world->self, 0x75, word(CONTEXT_B)), 0);
	got = next_received(world);
	NEED(got.op_context == word(CONTEXT_A) && got.len == 17 && got.tag == 0x75 && got.data == 99);
	NEED(got.flags == (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA));
	NEED(!strcmp(in, out));

	ANSWERS(fi_tinject(world->ep, out, 17, world->self, 1), 0);
	ANSWERS(fi_trecv(world->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, 2, 0, word(CONTEXT_C)), 0);
	ANSWERS(fi_tinject(world->ep, NULL, 0, world->self, 2), 0);
	got = next(world);
	NEED(got.op_context == word(CONTEXT_C) && got.len == 0);
	ANSWERS(fi_trecv(world->ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 1, 0, word(CONTEXT_A)), 0);
	NEED(next(world).len == 17);
	ANSWERS(fi_cntr_wait(world->sent, before + 3, 10000), 0);
	nothing_left(world);
}

/* The next completion is this failure. */
static void failure(struct world *world, void *context, int error)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry failed = {0};
	ssize_t got;

	do
		got = fi_cq_read(world->cq, &entry, 1);
	while (got == -FI_EAGAIN);
	ANSWERS(got, -FI_EAVAIL);
	ANSWERS(fi_cq_readerr(world->cq, &failed, 0), 1);
	ANSWERS(failed.err, error);
	NEED(failed.op_context == context);
	ANSWERS(fi_cq_readerr(world->cq, &failed, 0), -FI_EAGAIN);
}

static void searching(struct world *world)
{
	char in[16] = "";
	struct iovec iov = {in, sizeof in};
	struct fi_msg_tagged wanted = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 8, .context = word(CONTEXT_A)};

	ANSWERS(fi_trecvmsg(world->ep, &wanted, FI_PEEK | FI_COMPLETION), 0);
	failure(world, word(CONTEXT_A), FI_ENOMSG);
	for (int i = 0; i < 3; i++)
		ANSWERS(fi_tinject(world->ep, "abc", 3, world->self, 8), 0);
	ANSWERS(fi_trecvmsg(world->ep, &wanted, FI_PEEK | FI_COMPLETION), 0);
	NEED(next(world).len == 3);
	ANSWERS(fi_trecvmsg(world->ep, &wanted, FI_PEEK | FI_CLAIM | FI_COMPLETION), 0);
	NEED(next(world).tag == 8);
	ANSWERS(fi_trecvmsg(world->ep, &wanted, FI_CLAIM | FI_COMPLETION), 0);
	NEED(next(world).len == 3 && !strcmp(in, "abc"));
	ANSWERS(fi_trecvmsg(world->ep, &wanted, FI_PEEK | FI_CLAIM), 0);
	next(world);
	ANSWERS(fi_trecvmsg(world->ep, &wanted, FI_CLAIM | FI_DISCARD), 0);
	next(world);
	ANSWERS(fi_trecvmsg(world->ep, &wanted, FI_PEEK | FI_DISCARD), 0);
	next(world);
	ANSWERS(fi_trecvmsg(world->ep, &wanted, FI_DISCARD), -FI_EBADFLAGS);

	ANSWERS(fi_trecv(world->ep, in, 2, NULL, FI_ADDR_UNSPEC, 8, 0, word(CONTEXT_B)), 0);
	ANSWERS(fi_tinject(world->ep, "abc", 3, world->self, 8), 0);
	failure(world, word(CONTEXT_B), FI_ETRUNC);
	ANSWERS(fi_trecv(world->ep, in, 2, NULL, FI_ADDR_UNSPEC, 8, 0, word(CONTEXT_B)), 0);
	ANSWERS(fi_cancel(&world->ep->fid, word(CONTEXT_C)), -FI_ENOENT);
	ANSWERS(fi_cancel(&world->ep->fid, word(CONTEXT_B)), 0);
	failure(world, word(CONTEXT_B), FI_ECANCELED);
	nothing_left(world);
}

/* One buffer takes messages until too little of it is left. */
static void several(struct world *world)
{
	char in[64];
	struct iovec iov = {in, sizeof in};
	struct fi_msg wanted = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = word(CONTEXT_A)};
	struct fi_cq_tagged_entry got;
	size_t least = 24, size = sizeof least;

	ANSWERS(fi_setopt(&world->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), 0);
	least = 0;
	ANSWERS(fi_getopt(&world->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &size), 0);
	NEED(least == 24);
	ANSWERS(fi_recvmsg(world->ep, &wanted, FI_MULTI_RECV), 0);
	ANSWERS(fi_inject(world->ep, "0123456789abcdef", 16, world->self), 0);
	got = next(world);
	NEED(got.op_context == word(CONTEXT_A) && got.len == 16 && !(got.flags & FI_MULTI_RECV));
	NEED(!memcmp(got.buf, "0123456789abcdef", 16));
	ANSWERS(fi_injectdata(world->ep, "fedcba9876543210fedcba98", 24, 5, world->self), 0);
	got = next(world);
	NEED(got.len == 24 && got.data == 5);
	if (!(got.flags & FI_MULTI_RECV)) {
		ANSWERS(fi_inject(world->ep, "x", 1, world->self), 0);
		got = next(world);
	}
	NEED(got.flags & FI_MULTI_RECV);
	nothing_left(world);
}

static void memory(struct world *world)
{
	static uint64_t there[1024], here[1024];
	struct fid_cntr *written = open_cntr(world->domain);
	struct fid_mr *mr;
	uint64_t one = 1, old = 0, seven = 7;
	size_t count = 0;

	ANSWERS(fi_mr_reg(world->domain, there, sizeof there, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 42, 0, &mr, NULL), 0);
	NEED(fi_mr_key(mr) == 42);
	ANSWERS(fi_mr_bind(mr, &written->fid, FI_REMOTE_WRITE), 0);
	for (int i = 0; i < 1024; i++)
		here[i] = (uint64_t)i;
	ANSWERS(fi_write(world->ep, here, sizeof here, NULL, world->self, 0, 42, word(CONTEXT_A)), 0);
	NEED(next(world).flags == (FI_RMA | FI_WRITE));
	NEED(!memcmp(there, here, sizeof here));
	ANSWERS(fi_cntr_wait(written, 1, 10000), 0);
	ANSWERS(fi_read(world->ep, here, 16, NULL, world->self, 8 * 100, 42, word(CONTEXT_B)), 0);
	NEED(next(world).op_context == word(CONTEXT_B));
	NEED(here[0] == 100 && here[1] == 101 && here[2] == 2);
	ANSWERS(fi_inject_writedata(world->ep, here, 8, 77, world->self, 0, 42), 0);
	NEED(next(world).data == 77 && there[0] == 100);

	ANSWERS(fi_fetch_atomicvalid(world->ep, FI_UINT64, FI_SUM, &count), 0);
	NEED(count > 0);
	ANSWERS(fi_fetch_atomic(world->ep, &one, 1, NULL, &old, NULL, world->self, 0, 42, FI_UINT64, FI_SUM, word(CONTEXT_C)), 0);
	NEED(next(world).op_context == word(CONTEXT_C) && old == 100 && there[0] == 101);
	old = 101;
	ANSWERS(fi_compare_atomic(world->ep, &seven, 1, NULL, &old, NULL, here, NULL, world->self, 0, 42, FI_UINT64, FI_CSWAP, NULL), 0);
	next(world);
	NEED(here[0] == 101 && there[0] == 7);
	ANSWERS(fi_fetch_atomic(world->ep, NULL, 1, NULL, here, NULL, world->self, 0, 42, FI_UINT64, FI_ATOMIC_READ, NULL), 0);
	next(world);
	NEED(here[0] == 7);

	ANSWERS(fi_close(&mr->fid), 0);
	ANSWERS(fi_close(&written->fid), 0);
	ANSWERS(fi_read(world->ep, here, 8, NULL, world->self, 0, 42, word(CONTEXT_A)), 0);
	failure(world, word(CONTEXT_A), FI_EACCES);
	nothing_left(world);
}

/* The descriptor of the queue, poll sets and signals. */
static void waiting(struct world *world)
{
	struct fid *queue = &world->cq->fid;
	struct pollfd poll_for = {.events = POLLIN};
	struct fi_poll_attr attr = {0};
	struct fid_poll *set;
	struct fi_cq_tagged_entry entry;
	void *contexts[2];

	ANSWERS(fi_poll_open(world->domain, &attr, &set), 0);
	ANSWERS(fi_poll_add(set, queue, 0), 0);
	ANSWERS(fi_poll_add(set, queue, 0), -FI_EBUSY);
	ANSWERS(fi_poll(set, contexts, 2), 0);
	ANSWERS(fi_control(queue, FI_GETWAIT, &poll_for.fd), 0);
	ANSWERS(fi_trywait(world->fabric, &queue, 1), 0);
	ANSWERS(poll(&poll_for, 1, 0), 0);
	ANSWERS(fi_tinject(world->ep, NULL, 0, world->self, 3), 0);
	ANSWERS(fi_trecv(world->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, 3, 0, NULL), 0);
	while (fi_trywait(world->fabric, &queue, 1) == 0)
		NEED(poll(&poll_for, 1, 10000) == 1);
	ANSWERS(fi_poll(set, contexts, 2), 1);
	next(world);
	ANSWERS(fi_poll_del(set, queue, 0), 0);
	ANSWERS(fi_close(&set->fid), 0);

	ANSWERS(fi_cq_signal(world->cq), 0);
	ANSWERS(fi_cq_sread(world->cq, &entry, 1, NULL, -1), -FI_EAGAIN);
	ANSWERS(fi_cq_sread(world->cq, &entry, 1, NULL, 1), -FI_EAGAIN);
	ANSWERS(fi_cq_signal(world->cq), 0);
	ANSWERS(fi_trywait(world->fabric, &queue, 1), -FI_EAGAIN);
	ANSWERS(fi_trywait(world->fabric, &queue, 1), 0);
}

/* An endpoint whose queue is told only what is asked, with the sender of each message; and an alias. */
static void selective(struct world *world)
{
	struct fid_cq *cq = open_cq(world->domain, FI_CQ_FORMAT_MSG, FI_WAIT_NONE);
	struct fid_ep *ep, *alias = NULL;
	struct fi_cq_msg_entry entry;
	struct fi_msg_tagged wanted = {.addr = FI_ADDR_UNSPEC, .tag = 1, .context = word(CONTEXT_A)};
	fi_addr_t self, sender;
	uint64_t flags = FI_TRANSMIT;
	char name[16];
	size_t size = sizeof name;
	ssize_t got;

	ANSWERS(fi_endpoint(world->domain, world->info, &ep, NULL), 0);
	ANSWERS(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION), 0);
	ANSWERS(fi_ep_bind(ep, &cq->fid, FI_RECV), -FI_EINVAL);
	ANSWERS(fi_ep_bind(ep, &world->av->fid, 0), 0);
	ANSWERS(fi_enable(ep), 0);
	ANSWERS(fi_ep_bind(ep, &world->sent->fid, FI_RECV), -FI_EOPBADSTATE);
	ANSWERS(fi_getname(&ep->fid, name, &size), 0);
	ANSWERS(fi_av_insert(world->av, name, 1, &self, 0, NULL), 1);
	NEED(self != world->self);

	ANSWERS(fi_tsend(ep, NULL, 0, NULL, self, 1, NULL), 0);
	ANSWERS(fi_trecvmsg(ep, &wanted, FI_COMPLETION), 0);
	do
		got = fi_cq_readfrom(cq, &entry, 1, &sender);
	while (got == -FI_EAGAIN);
	ANSWERS(got, 1);
	NEED(entry.op_context == word(CONTEXT_A) && sender == self);
	ANSWERS(fi_cq_sread(cq, &entry, 1, NULL, 0), -FI_ENOSYS);

	ANSWERS(fi_ep_alias(ep, &alias, FI_TRANSMIT | FI_COMPLETION), 0);
	ANSWERS(fi_control(&alias->fid, FI_GETOPSFLAG, &flags), 0);
	NEED(flags == FI_COMPLETION);
	ANSWERS(fi_close(&ep->fid), -FI_EBUSY);
	ANSWERS(fi_close(&alias->fid), 0);
	ANSWERS(fi_close(&ep->fid), 0);
	ANSWERS(fi_close(&cq->fid), 0);
	ANSWERS(fi_av_remove(world->av, &self, 1, 0), 0);
}

/* Insertions that an event queue is told. */
static void events(struct world *world)
{
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC, .flags = FI_WRITE};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .flags = FI_EVENT};
	struct fi_eq_entry entry;
	struct fi_eq_err_entry failed = {0};
	struct fid_eq *eq;
	struct fid_av *av;
	unsigned char names[2][16];
	fi_addr_t places[2];
	size_t size = 16;
	uint32_t event;

	ANSWERS(fi_eq_open(world->fabric, &eq_attr, &eq, NULL), 0);
	ANSWERS(fi_av_open(world->domain, &av_attr, &av, NULL), 0);
	ANSWERS(fi_getname(&world->ep->fid, names[0], &size), 0);
	memcpy(names[1], names[0], 16);
	names[0][15] ^= 1; /* another job */
	ANSWERS(fi_av_insert(av, names, 2, places, 0, NULL), -FI_ENOEQ);
	ANSWERS(fi_av_bind(av, &eq->fid, 0), 0);
	ANSWERS(fi_av_insert(av, names, 2, places, 0, word(CONTEXT_A)), 0);
	NEED(places[0] == FI_ADDR_NOTAVAIL && places[1] == 1);
	ANSWERS(fi_eq_read(eq, &event, &entry, sizeof entry, 0), -FI_EAVAIL);
	ANSWERS(fi_eq_readerr(eq, &failed, 0), sizeof failed);
	NEED(failed.fid == &av->fid && failed.context == word(CONTEXT_A) && failed.data == 0 && failed.err == FI_EINVAL);
	ANSWERS(fi_eq_sread(eq, &event, &entry, sizeof entry, 10000, 0), sizeof entry);
	NEED(event == FI_AV_COMPLETE && entry.fid == &av->fid && entry.data == 1);

	entry.data = 12;
	ANSWERS(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0), sizeof entry);
	entry.data = 0;
	ANSWERS(fi_eq_read(eq, &event, &entry, sizeof entry, FI_PEEK), sizeof entry);
	ANSWERS(fi_eq_read(eq, &event, &entry, 3, 0), -FI_ETOOSMALL);
	ANSWERS(fi_eq_read(eq, &event, &entry, sizeof entry, 0), sizeof entry);
	NEED(event == FI_NOTIFY && entry.data == 12);
	ANSWERS(fi_eq_read(eq, &event, &entry, sizeof entry, 0), -FI_EAGAIN);
	ANSWERS(fi_close(&eq->fid), -FI_EBUSY);
	ANSWERS(fi_close(&av->fid), 0);
	ANSWERS(fi_close(&eq->fid), 0);
}

/* A process that is no rank of a job sees no provider. */
static int outside(void)
{
	struct fi_info *hints = kumi_hints(), *info;

	ANSWERS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), -FI_ENODATA);
	fi_freeinfo(hints);
	return 0;
}

/* A setting that cannot be understood. */
static int wrong_spin(void)
{
	struct fi_info *hints = kumi_hints(), *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;

	ANSWERS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), 0);
	ANSWERS(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
	ANSWERS(fi_domain(fabric, info, &domain, NULL), -FI_EINVAL);
	ANSWERS(fi_close(&fabric->fid), 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return 0;
}

int main(int argc, char **argv)
{
	struct world world = {0};

	if (argc > 1 && !strcmp(argv[1], "outside"))
		return outside();
	if (argc > 1 && !strcmp(argv[1], "spin"))
		return wrong_spin();
	open_world(&world);
	tagged(&world);
	searching(&world);
	several(&world);
	memory(&world);
	waiting(&world);
	selective(&world);
	events(&world);
	errors(&world);
	nothing_left(&world);
	close_world(&world);
	return 0;
}
