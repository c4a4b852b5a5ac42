! kumi: message passing and memory-based communication between the ranks of one parallel job, for
! Fortran 2008.
!
! A program says `use kumi` and is linked with -lkumi_fortran -lkumi (`pkg-config --cflags --libs
! kumi-fortran`).  The procedures have the names of kumi.h, the arguments its order and meaning.  kumi.h
! describes each procedure, its errors and its effects on other ranks in full; this comment describes the
! differences.
!
! DATA
!   `data`, `send` and `recv` are scalars or arrays of 1 to 4 dimensions, of
!       integer(c_int8_t), (c_int16_t), (c_int32_t) or (c_int64_t),
!       real(c_float) or (c_double), complex(c_float_complex) or (c_double_complex)
!   (the kinds of iso_c_binding: c_int32_t is the default integer, c_float the default real, c_double is
!   double precision).  Lengths, counts and types are theirs and are not passed.  An array section that
!   is not contiguous is copied by the compiler.  Text (character(len=*)) can be sent, received and
!   broadcast.  Other integer arguments are default integers.
!
! UNITS
!   An `offset` counts elements of the type of `data`, from 0, in default or in c_int64_t integers.
!   status%length is in bytes.
!
! ERRORS
!   Every subroutine ends with an optional argument `stat`, as `allocate` has it.  If present it becomes
!   KUMI_OK or a negative KUMI_ERR_ number.  Without it an error is reported on standard error and ends
!   the program with `error stop`.  kumi_error_detail() gives the particulars, kumi_error_string(stat)
!   the meaning.  Output arguments other than `stat` are not defined after an error.  kumi_rank(),
!   kumi_size() and the other functions of numbers return a negative number instead.
!
! PROCEDURES (arguments in brackets are optional)
!   kumi_init([stat])                       kumi_finalize([stat])
!   kumi_init_threads(level [, stat])       KUMI_THREAD_SINGLE, or KUMI_THREAD_MULTIPLE for calls of several threads
!   kumi_rank()  kumi_size()  kumi_node()   integer
!   kumi_job()                              integer(c_int64_t)
!   kumi_time()                             real(c_double), seconds
!   kumi_cluster_nodes()                    integer; information from the cluster's daemons
!   kumi_node_load(node)  kumi_node_memory(node)  kumi_node_network(node)  kumi_node_age(node)
!                                           real(c_double); negative where nothing is known
!   kumi_rank_runs(rank)                    integer: 1 or 0, or a negative KUMI_ERR_ number
!   kumi_version()  kumi_error_string(error)  kumi_error_detail()   text
!
!   kumi_message_send(to, tag, data [, stat])
!   kumi_message_recv(from, tag, data [, status] [, stat])
!   kumi_message_sendrecv(to, send_tag, send, from, recv_tag, recv [, status] [, stat])
!   kumi_message_probe(from, tag, found [, status] [, stat])     found is a logical
!   kumi_progress([stat])                   kumi_flush(to [, stat])     kumi_fence(to [, stat])
!
!   kumi_window_allocate(extents, window, array [, stat])
!       Collective.  Makes a window with room for an array of these extents (one number for each
!       dimension; they may differ between ranks and be 0) and associates the pointer `array` with it.
!       The array is all zero, and its elements are the window's elements in array element order.  The
!       pointer must not be used after the window is freed.  Others may write to the array at any time:
!       read the data of a put only after its notification or a barrier that followed a flush.
!   kumi_window_create(bytes, window [, stat])
!       Collective.  Only makes the window; `bytes` is of either integer kind.
!   kumi_window_array(window, extents, array [, stat])
!       Associates the pointer `array` with the beginning of this rank's piece.
!       Errors: WINDOW; BOUNDS if the array is larger than the piece.
!   kumi_window_create_with(bytes, rights, window [, stat])
!       The same; the other ranks have only `rights` to this rank's piece: KUMI_RIGHT_ALL, 0, or a sum
!       of KUMI_RIGHT_WRITE, KUMI_RIGHT_READ and KUMI_RIGHT_ATOMIC.
!   kumi_window_register(array, rights, window [, stat])
!       Collective, beside any other of these.  This rank's piece is `array`, an array of 1 to 4 dimensions with
!       the attribute `target` or `pointer`, as it is.  It must stay until kumi_window_free, and be neither
!       deallocated nor reallocated by an assignment before.  An array section with gaps is KUMI_ERR_MEMORY at all
!       ranks.  KUMI_RIGHT_ATOMIC needs an array that begins at a multiple of 8 bytes.
!   kumi_window_free(window [, stat])
!   kumi_window_put(window, to, offset, data [, stat])
!   kumi_window_put_notify(window, to, offset, data, notify [, stat])
!   kumi_window_get(window, from, offset, data [, stat])
!   kumi_window_put_with(window, to, offset, data [, notify] [, completion] [, stat])
!   kumi_window_put_strided(window, to, offset, stride, block, count, data [, notify] [, completion] [, stat])
!   kumi_window_get_strided(window, from, offset, stride, block, count, data [, stat])
!       `data` has block * count elements, else KUMI_ERR_LENGTH.  All four numbers are of one kind.
!   kumi_window_put_list(window, to, offsets, lengths, data [, notify] [, completion] [, stat])
!   kumi_window_get_list(window, from, offsets, lengths, data [, stat])
!       Any number of pieces of the window: lengths(i) elements from offsets(i) on.  `data` has the elements of all
!       of them one after the other, else KUMI_ERR_LENGTH.
!   kumi_window_put_lists(window, to, offsets, lengths, data, data_offsets, data_lengths [, notify] [, completion] &
!                         [, stat])
!   kumi_window_get_lists(window, from, offsets, lengths, data, data_offsets, data_lengths [, stat])
!       Pieces on both sides: those of `data` are data_lengths(i) elements from element data_offsets(i) on, counted
!       from 0 in array element order.  Ends of pieces on the two sides need not coincide.  Pieces that are filled
!       must not overlap.  All four are vectors of one kind.
!   kumi_window_multicast(window, ranks, offset, data [, notify] [, stat])
!       `ranks` is a vector.
!   kumi_window_fetch_add(window, to, offset, operand [, old] [, stat])
!   kumi_window_fetch_and, kumi_window_fetch_or, kumi_window_fetch_xor     likewise
!   kumi_window_swap(window, to, offset, value [, old] [, stat])
!   kumi_window_compare_swap(window, to, offset, expected, value [, old] [, stat])
!       `operand`, `value`, `expected` and `old` are all integer(c_int64_t), or all integer(c_int32_t);
!       `offset` counts such integers.
!   kumi_window_notified(window, notify, count [, stat])
!   kumi_window_wait_notify(window, notify, at_least [, count] [, stat])
!       `count` is integer(c_int64_t), `at_least` of either kind.
!
!   kumi_completion_create(completion [, stat])         kumi_completion_free(completion [, stat])
!   kumi_completion_done(completion, count [, stat])    kumi_completion_wait_all(completion [, stat])
!   kumi_completion_wait(completion, at_least [, count] [, stat])
!       `completion` is a type(kumi_completion), `count` integer(c_int64_t), `at_least` of either kind.
!
!   A FIFO or signal port is not an array: its offset and capacity are bytes, in integers of one kind, and its
!   records may be of any type.
!   kumi_fifo_create(window, offset, capacity, notify, fifo [, stat])
!   kumi_fifo_free(fifo [, stat])                       fifo is a type(kumi_fifo)
!   kumi_fifo_max_record(bytes [, stat])
!   kumi_fifo_append(window, to, offset, data [, stat])
!   kumi_fifo_try_append(window, to, offset, data, done [, stat])          done is a logical
!   kumi_fifo_multicast(window, ranks, offset, data [, stat])
!   kumi_fifo_try_multicast(window, ranks, offset, data, done [, stat])
!       done(i) tells whether the FIFO of ranks(i) had room.
!   kumi_fifo_pop(fifo, data [, length] [, source] [, stat])               length is in bytes
!   kumi_fifo_try_pop(fifo, data, found [, length] [, source] [, stat])    found is a logical
!   kumi_signal_handle(window, offset, capacity, handler [, stat])
!       `handler` is a module procedure with the interface kumi_signal_handler:
!           subroutine handler(source, data)
!             integer(c_int), intent(in) :: source
!             integer(c_int8_t), intent(in) :: data(:)
!       - Handlers of several ports run at the same time.  A handler of more than one port, and every procedure
!         that several handlers call, must be `recursive`: otherwise they may share their large local arrays.
!       - A handler runs on another thread: variables that the program reads meanwhile must be `volatile`.
!       - `transfer` converts the bytes back to their type.
!   kumi_signal_remove(window, offset [, stat])
!   kumi_signal_send(window, to, offset, data [, stat])
!   kumi_signal_try_send(window, to, offset, data, done [, stat])
!   kumi_signal_multicast(window, ranks, offset, data [, stat])
!   kumi_signal_try_multicast(window, ranks, offset, data, done [, stat])
!
!   Requests.  These start an operation and return at once; it ends by itself.  `data` is a scalar or an array with the
!   attribute `target` or `pointer`, without gaps, which must stay until the end was told.  Give it the attribute
!   `asynchronous` too, so that the compiler does not move its uses across the calls.  The end is told for `request`,
!   a type(kumi_request), or, if one of these is given, by `completion` or by `queue` with the integer(c_int64_t) `word`.
!   kumi_window_iput(window, to, offset, data, request [, notify] [, sent] [, completion] [, queue] [, word] [, stat])
!       Ends when the data is in place, or with sent=.true. when it may change.
!   kumi_window_iget(window, from, offset, data, request [, completion] [, queue] [, word] [, stat])
!   kumi_window_iatomic(window, to, offset, operation, operand, request [, value] [, completion] [, queue] [, word] &
!                       [, stat])
!       `operation` is KUMI_FETCH_ADD, KUMI_FETCH_AND, KUMI_FETCH_OR, KUMI_FETCH_XOR, KUMI_SWAP or KUMI_COMPARE_SWAP;
!       the last stores `value` if there was `operand`.  result%value is the old one; kumi_value_i4(result) for 4 bytes.
!   kumi_message_isend(to, tag, data, request [, completion] [, queue] [, word] [, stat])
!   kumi_message_irecv(from, tag, data, request [, completion] [, queue] [, word] [, stat])
!   kumi_request_wait(request [, result] [, stat])       result is a type(kumi_result): error, cancelled, source, tag,
!   kumi_request_test(request, done [, result] [, stat])     length, value, word
!   kumi_request_wait_all(requests [, results] [, stat])           kumi_request_test_all(requests, done [, results] [, stat])
!   kumi_request_wait_any(requests, index [, result] [, stat])     kumi_request_test_any likewise; index 0 if none
!   kumi_request_wait_some(requests, ended, indices [, results] [, stat])    kumi_request_test_some likewise
!       Vectors.  Indices count from 1; those of requests that have ended are indices(1:ended).
!   kumi_request_cancel(request [, cancelled] [, stat])  kumi_request_release(request [, stat])
!   kumi_request_count(count [, stat])                   kumi_request_pending(request)   a logical
!   kumi_queue_create(queue [, stat])                    kumi_queue_free(queue [, stat])
!   kumi_queue_poll(queue, found, result [, stat])       kumi_queue_wait(queue, result [, stat])
!       queue is a type(kumi_queue).  A request that failed is no error of these: see result%error.
!   kumi_message_await(from, tag [, status] [, stat])
!   kumi_message_claim(from, tag, found, claim [, status] [, stat])          claim is a type(kumi_claim)
!   kumi_claim_recv(claim, data [, status] [, stat])     kumi_claim_free(claim [, stat])
!
!   kumi_barrier([stat])
!   kumi_broadcast(root, data [, stat])
!   kumi_reduce(root, data, op [, stat])          `data` of the root becomes the result
!   kumi_reduce(root, send, recv, op [, stat])
!   kumi_allreduce(data, op [, stat])             `data` becomes the result
!   kumi_allreduce(send, recv, op [, stat])
!       `op` is KUMI_SUM, KUMI_PRODUCT, KUMI_MIN, KUMI_MAX, KUMI_BITAND, KUMI_BITOR or KUMI_BITXOR; for
!       complex numbers KUMI_SUM only.
!   kumi_gather(root, send, recv [, stat])
!       `recv` has one dimension more than `send`, the last: one entry for every rank.  Both may be
!       vectors.  Only the root's `recv` matters.
!   kumi_alltoall(send, recv [, stat])            arrays of one block for every rank
!   kumi_alltoallv(send, send_counts, recv, recv_counts [, stat])
!       Vectors, and vectors of counts that add up to their sizes.
!   Arrays whose sizes do not fit together are KUMI_ERR_LENGTH, before anything is sent.
!
!   A group is a type(kumi_group); its members are numbered from 0, and `root` is a member's number.
!   kumi_job_group()                              the group of all ranks
!   kumi_group_split(group, colour, key, new [, stat])          `key` of either kind
!   kumi_group_subset(group, members, new [, stat])             `members` is a vector
!   kumi_group_duplicate(group, new [, stat])     kumi_group_free(group [, stat])
!   kumi_group_exists(group)                      logical: false for a rank that is not in `new`
!   kumi_group_member(group)  kumi_group_members(group)  kumi_group_rank(group, member)        integers
!   kumi_group_find(group, job_rank, member [, stat])           `member` is -1 for a rank that is none
!   kumi_group_barrier(group [, stat])
!   kumi_group_broadcast(group, root, data [, stat])
!   kumi_group_reduce(group, root, data, op [, stat])           `data` becomes the result
!   kumi_group_allreduce, kumi_group_scan, kumi_group_exclusive_scan(group, data, op [, stat])
!   The following are for vectors; `counts` are vectors with an entry for every member.
!   kumi_group_gather(group, root, send, recv [, stat])
!   kumi_group_gatherv(group, root, send, recv, counts [, stat])
!   kumi_group_scatter(group, root, send, recv [, stat])
!   kumi_group_scatterv(group, root, send, counts, recv [, stat])
!   kumi_group_allgather(group, send, recv [, stat])
!   kumi_group_allgatherv(group, send, recv, counts [, stat])
!   kumi_group_alltoall(group, send, recv [, stat])
!   kumi_group_alltoallv(group, send, send_counts, recv, recv_counts [, stat])
!   kumi_group_reduce_scatter(group, send, recv, op [, stat])
!   kumi_group_reduce_scatterv(group, send, recv, counts, op [, stat])
!   Each of these can be a request: the name has an `i` before the verb, and what holds for requests holds for all arrays.
!   kumi_group_ibarrier(group, request [, completion] [, queue] [, word] [, stat])
!   kumi_group_ibroadcast(group, root, data, request [, completion] [, queue] [, word] [, stat])
!   kumi_group_ireduce(group, root, data, op, request [, completion] [, queue] [, word] [, stat])
!   kumi_group_igather(group, root, send, recv, request [, completion] [, queue] [, word] [, stat])   and so on
!       It ends when this member's part is over.  Members start them in the same order as all others of the group; up to
!       128 are under way at a time.  One that is released is given up, and other members may wait for ever.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi
  use kumi_c, only: kumi_status, kumi_rank, kumi_size, kumi_node, kumi_job, kumi_time, &
    kumi_cluster_nodes, kumi_node_load, kumi_node_memory, kumi_node_network, kumi_node_age, kumi_rank_runs
  use kumi_codes
  use kumi_base, only: kumi_op, kumi_window, KUMI_SUM, KUMI_PRODUCT, KUMI_MIN, KUMI_MAX, KUMI_BITAND, KUMI_BITOR, &
    KUMI_BITXOR, &
    kumi_error_string, kumi_error_detail, kumi_version, kumi_init, kumi_init_threads, kumi_finalize, kumi_progress, kumi_flush, &
    kumi_fence, kumi_barrier, kumi_message_probe, kumi_window_create, kumi_window_create_with, &
    kumi_window_notified, kumi_window_wait_notify
  use kumi_onesided, only: kumi_window_free, kumi_completion, kumi_completion_create, kumi_completion_free, kumi_completion_done, &
    kumi_completion_wait, kumi_completion_wait_all, kumi_fifo, kumi_fifo_create, kumi_fifo_free, &
    kumi_fifo_max_record, kumi_signal_handler, kumi_signal_handle, kumi_signal_remove
  use kumi_groups, only: kumi_group, kumi_job_group, kumi_group_exists, kumi_group_split, &
    kumi_group_subset, kumi_group_duplicate, kumi_group_free, kumi_group_member, kumi_group_members, kumi_group_rank, &
    kumi_group_find, kumi_group_barrier
  use kumi_atomics
  use kumi_arrays
  use kumi_c_requests, only: kumi_result
  use kumi_requests, only: kumi_request, kumi_queue, kumi_claim, kumi_window_iatomic, kumi_value_i4, &
    kumi_request_pending, kumi_request_wait, kumi_request_test, kumi_request_wait_all, kumi_request_test_all, &
    kumi_request_wait_any, kumi_request_test_any, kumi_request_wait_some, kumi_request_test_some, &
    kumi_request_cancel, kumi_request_release, kumi_request_count, kumi_queue_create, kumi_queue_free, &
    kumi_queue_poll, kumi_queue_wait, kumi_message_await, kumi_message_claim, kumi_claim_free
  use kumi_started, only: kumi_group_ibarrier
  use kumi_starts
  implicit none
  public
  private :: OP_SUM, OP_PRODUCT, OP_MIN, OP_MAX, OP_BITAND, OP_BITOR, OP_BITXOR, TYPE_U8, TYPE_I8, TYPE_U16, &
    TYPE_I16, TYPE_U32, TYPE_I32, TYPE_U64, TYPE_I64, TYPE_F32, TYPE_F64
end module kumi
