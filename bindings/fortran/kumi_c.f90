! kumi_c: the functions of kumi.h as Fortran calls them, except atomic operations, which are in kumi_atomics.
! Not for programs, which use the module kumi.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi_c
  use, intrinsic :: iso_c_binding, only: c_char, c_double, c_funptr, c_int, c_int64_t, c_ptr, c_size_t
  implicit none
  public

  ! kumi_status of kumi.h: description of a received message.
  type, bind(c) :: kumi_status
    integer(c_int) :: source = -1          ! rank that sent it
    integer(c_int) :: tag = -1             ! tag it was sent with
    integer(c_size_t) :: length = 0        ! its whole length in bytes
  end type kumi_status

  ! kumi_piece and kumi_buffer of kumi.h: a piece of a window, and memory of the caller.  In bytes.
  type, bind(c) :: kumi_piece
    integer(c_size_t) :: offset
    integer(c_size_t) :: length
  end type kumi_piece
  type, bind(c) :: kumi_buffer
    type(c_ptr) :: data
    integer(c_size_t) :: length
  end type kumi_buffer

  ! As in kumi.h.
  interface
    function kumi_rank() result(rank) bind(c)
      import :: c_int
      integer(c_int) :: rank
    end function kumi_rank

    function kumi_size() result(ranks) bind(c)
      import :: c_int
      integer(c_int) :: ranks
    end function kumi_size

    function kumi_node() result(node) bind(c)
      import :: c_int
      integer(c_int) :: node
    end function kumi_node

    function kumi_job() result(job) bind(c)
      import :: c_int64_t
      integer(c_int64_t) :: job
    end function kumi_job

    function kumi_time() result(seconds) bind(c)
      import :: c_double
      real(c_double) :: seconds
    end function kumi_time

    function kumi_cluster_nodes() result(nodes) bind(c)
      import :: c_int
      integer(c_int) :: nodes
    end function kumi_cluster_nodes

    function kumi_node_load(node) result(load) bind(c)
      import :: c_double, c_int
      integer(c_int), value :: node
      real(c_double) :: load
    end function kumi_node_load

    function kumi_node_memory(node) result(share) bind(c)
      import :: c_double, c_int
      integer(c_int), value :: node
      real(c_double) :: share
    end function kumi_node_memory

    function kumi_node_network(node) result(bytes) bind(c)
      import :: c_double, c_int
      integer(c_int), value :: node
      real(c_double) :: bytes
    end function kumi_node_network

    function kumi_node_age(node) result(seconds) bind(c)
      import :: c_double, c_int
      integer(c_int), value :: node
      real(c_double) :: seconds
    end function kumi_node_age

    function kumi_rank_runs(rank) result(runs) bind(c)
      import :: c_int
      integer(c_int), value :: rank
      integer(c_int) :: runs
    end function kumi_rank_runs
  end interface

  interface
    pure function c_error_string(error) result(text) bind(c, name='kumi_error_string')
      import :: c_int, c_ptr
      integer(c_int), value :: error
      type(c_ptr) :: text
    end function c_error_string

    pure function c_error_detail() result(text) bind(c, name='kumi_error_detail')
      import :: c_ptr
      type(c_ptr) :: text
    end function c_error_detail

    function c_error_report(error, detail, length) result(code) bind(c, name='kumi_error_report')
      import :: c_char, c_int, c_size_t
      integer(c_int), value :: error
      character(kind=c_char), intent(in) :: detail(*)
      integer(c_size_t), value :: length
      integer(c_int) :: code
    end function c_error_report

    pure function c_version() result(text) bind(c, name='kumi_version')
      import :: c_ptr
      type(c_ptr) :: text
    end function c_version

    ! Of the C library.
    pure function c_strlen(text) result(length) bind(c, name='strlen')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
      integer(c_size_t) :: length
    end function c_strlen

    function c_init() result(code) bind(c, name='kumi_init')
      import :: c_int
      integer(c_int) :: code
    end function c_init

    function c_init_threads(level) result(code) bind(c, name='kumi_init_threads')
      import :: c_int
      integer(c_int), value :: level
      integer(c_int) :: code
    end function c_init_threads

    function c_finalize() result(code) bind(c, name='kumi_finalize')
      import :: c_int
      integer(c_int) :: code
    end function c_finalize

    function c_progress() result(code) bind(c, name='kumi_progress')
      import :: c_int
      integer(c_int) :: code
    end function c_progress

    function c_flush(to) result(code) bind(c, name='kumi_flush')
      import :: c_int
      integer(c_int), value :: to
      integer(c_int) :: code
    end function c_flush

    function c_fence(to) result(code) bind(c, name='kumi_fence')
      import :: c_int
      integer(c_int), value :: to
      integer(c_int) :: code
    end function c_fence
  end interface

  interface
    function c_send(to, tag, data, length) result(code) bind(c, name='kumi_message_send')
      import :: c_int, c_ptr, c_size_t
      integer(c_int), value :: to, tag
      type(c_ptr), value :: data
      integer(c_size_t), value :: length
      integer(c_int) :: code
    end function c_send

    function c_recv(from, tag, buffer, capacity, status) result(code) bind(c, name='kumi_message_recv')
      import :: c_int, c_ptr, c_size_t, kumi_status
      integer(c_int), value :: from, tag
      type(c_ptr), value :: buffer
      integer(c_size_t), value :: capacity
      type(kumi_status), intent(inout) :: status
      integer(c_int) :: code
    end function c_recv

    function c_sendrecv(to, send_tag, data, length, from, recv_tag, buffer, capacity, status) result(code) &
      bind(c, name='kumi_message_sendrecv')
      import :: c_int, c_ptr, c_size_t, kumi_status
      integer(c_int), value :: to, send_tag, from, recv_tag
      type(c_ptr), value :: data, buffer
      integer(c_size_t), value :: length, capacity
      type(kumi_status), intent(inout) :: status
      integer(c_int) :: code
    end function c_sendrecv

    function c_probe(from, tag, found, status) result(code) bind(c, name='kumi_message_probe')
      import :: c_int, kumi_status
      integer(c_int), value :: from, tag
      integer(c_int), intent(inout) :: found
      type(kumi_status), intent(inout) :: status
      integer(c_int) :: code
    end function c_probe
  end interface

  interface
    function c_window_create(bytes, window) result(code) bind(c, name='kumi_window_create')
      import :: c_int, c_ptr, c_size_t
      integer(c_size_t), value :: bytes
      type(c_ptr), intent(inout) :: window
      integer(c_int) :: code
    end function c_window_create

    function c_window_create_with(bytes, rights, window) result(code) bind(c, name='kumi_window_create_with')
      import :: c_int, c_ptr, c_size_t
      integer(c_size_t), value :: bytes
      integer(c_int), value :: rights
      type(c_ptr), intent(inout) :: window
      integer(c_int) :: code
    end function c_window_create_with

    function c_window_register(base, bytes, rights, window) result(code) bind(c, name='kumi_window_register')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: base
      integer(c_size_t), value :: bytes
      integer(c_int), value :: rights
      type(c_ptr), intent(inout) :: window
      integer(c_int) :: code
    end function c_window_register

    function c_window_free(window) result(code) bind(c, name='kumi_window_free')
      import :: c_int, c_ptr
      type(c_ptr), value :: window
      integer(c_int) :: code
    end function c_window_free

    function c_window_base(window) result(base) bind(c, name='kumi_window_base')
      import :: c_ptr
      type(c_ptr), value :: window
      type(c_ptr) :: base
    end function c_window_base

    function c_put(window, to, offset, data, length) result(code) bind(c, name='kumi_window_put')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, data
      integer(c_int), value :: to
      integer(c_size_t), value :: offset, length
      integer(c_int) :: code
    end function c_put

    function c_put_notify(window, to, offset, data, length, notify) result(code) &
      bind(c, name='kumi_window_put_notify')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, data
      integer(c_int), value :: to, notify
      integer(c_size_t), value :: offset, length
      integer(c_int) :: code
    end function c_put_notify

    function c_get(window, from, offset, length, buffer) result(code) bind(c, name='kumi_window_get')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, buffer
      integer(c_int), value :: from
      integer(c_size_t), value :: offset, length
      integer(c_int) :: code
    end function c_get

    function c_notified(window, notify, count) result(code) bind(c, name='kumi_window_notified')
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: window
      integer(c_int), value :: notify
      integer(c_int64_t), intent(inout) :: count
      integer(c_int) :: code
    end function c_notified

    function c_wait_notify(window, notify, at_least, count) result(code) bind(c, name='kumi_window_wait_notify')
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: window
      integer(c_int), value :: notify
      integer(c_int64_t), value :: at_least
      integer(c_int64_t), intent(inout) :: count
      integer(c_int) :: code
    end function c_wait_notify
  end interface

  interface
    function c_barrier() result(code) bind(c, name='kumi_barrier')
      import :: c_int
      integer(c_int) :: code
    end function c_barrier

    function c_broadcast(root, data, count, type) result(code) bind(c, name='kumi_broadcast')
      import :: c_int, c_ptr, c_size_t
      integer(c_int), value :: root, type
      type(c_ptr), value :: data
      integer(c_size_t), value :: count
      integer(c_int) :: code
    end function c_broadcast

    function c_reduce(root, send, recv, count, type, op) result(code) bind(c, name='kumi_reduce')
      import :: c_int, c_ptr, c_size_t
      integer(c_int), value :: root, type, op
      type(c_ptr), value :: send, recv
      integer(c_size_t), value :: count
      integer(c_int) :: code
    end function c_reduce

    function c_allreduce(send, recv, count, type, op) result(code) bind(c, name='kumi_allreduce')
      import :: c_int, c_ptr, c_size_t
      integer(c_int), value :: type, op
      type(c_ptr), value :: send, recv
      integer(c_size_t), value :: count
      integer(c_int) :: code
    end function c_allreduce

    function c_gather(root, send, recv, count, type) result(code) bind(c, name='kumi_gather')
      import :: c_int, c_ptr, c_size_t
      integer(c_int), value :: root, type
      type(c_ptr), value :: send, recv
      integer(c_size_t), value :: count
      integer(c_int) :: code
    end function c_gather

    function c_alltoall(send, recv, count_per_rank, type) result(code) bind(c, name='kumi_alltoall')
      import :: c_int, c_ptr, c_size_t
      integer(c_int), value :: type
      type(c_ptr), value :: send, recv
      integer(c_size_t), value :: count_per_rank
      integer(c_int) :: code
    end function c_alltoall

    function c_alltoallv(send, send_counts, recv, recv_counts, type) result(code) bind(c, name='kumi_alltoallv')
      import :: c_int, c_ptr, c_size_t
      integer(c_int), value :: type
      type(c_ptr), value :: send, recv
      integer(c_size_t), intent(in) :: send_counts(*), recv_counts(*)
      integer(c_int) :: code
    end function c_alltoallv
  end interface

  interface
    function c_completion_create(completion) result(code) bind(c, name='kumi_completion_create')
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: completion
      integer(c_int) :: code
    end function c_completion_create

    function c_completion_free(completion) result(code) bind(c, name='kumi_completion_free')
      import :: c_int, c_ptr
      type(c_ptr), value :: completion
      integer(c_int) :: code
    end function c_completion_free

    function c_completion_done(completion, count) result(code) bind(c, name='kumi_completion_done')
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: completion
      integer(c_int64_t), intent(inout) :: count
      integer(c_int) :: code
    end function c_completion_done

    function c_completion_wait(completion, at_least, count) result(code) bind(c, name='kumi_completion_wait')
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: completion
      integer(c_int64_t), value :: at_least
      integer(c_int64_t), intent(inout) :: count
      integer(c_int) :: code
    end function c_completion_wait

    function c_completion_wait_all(completion) result(code) bind(c, name='kumi_completion_wait_all')
      import :: c_int, c_ptr
      type(c_ptr), value :: completion
      integer(c_int) :: code
    end function c_completion_wait_all

    function c_put_with(window, to, offset, data, length, notify, completion) result(code) &
      bind(c, name='kumi_window_put_with')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, data, completion
      integer(c_int), value :: to, notify
      integer(c_size_t), value :: offset, length
      integer(c_int) :: code
    end function c_put_with

    function c_put_strided(window, to, offset, stride, block, count, data, notify, completion) result(code) &
      bind(c, name='kumi_window_put_strided')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, data, completion
      integer(c_int), value :: to, notify
      integer(c_size_t), value :: offset, stride, block, count
      integer(c_int) :: code
    end function c_put_strided

    function c_get_strided(window, from, offset, stride, block, count, buffer) result(code) &
      bind(c, name='kumi_window_get_strided')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, buffer
      integer(c_int), value :: from
      integer(c_size_t), value :: offset, stride, block, count
      integer(c_int) :: code
    end function c_get_strided

    function c_put_lists(window, to, pieces, count, buffers, buffer_count, notify, completion) result(code) &
      bind(c, name='kumi_window_put_lists')
      import :: c_int, c_ptr, c_size_t, kumi_buffer, kumi_piece
      type(c_ptr), value :: window, completion
      integer(c_int), value :: to, notify
      type(kumi_piece), intent(in) :: pieces(*)
      type(kumi_buffer), intent(in) :: buffers(*)
      integer(c_size_t), value :: count, buffer_count
      integer(c_int) :: code
    end function c_put_lists

    function c_get_lists(window, from, pieces, count, buffers, buffer_count) result(code) &
      bind(c, name='kumi_window_get_lists')
      import :: c_int, c_ptr, c_size_t, kumi_buffer, kumi_piece
      type(c_ptr), value :: window
      integer(c_int), value :: from
      type(kumi_piece), intent(in) :: pieces(*)
      type(kumi_buffer), intent(in) :: buffers(*)
      integer(c_size_t), value :: count, buffer_count
      integer(c_int) :: code
    end function c_get_lists

    function c_multicast(window, ranks, count, offset, data, length, notify) result(code) &
      bind(c, name='kumi_window_multicast')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, data
      integer(c_int), intent(in) :: ranks(*)
      integer(c_int), value :: notify
      integer(c_size_t), value :: count, offset, length
      integer(c_int) :: code
    end function c_multicast
  end interface

  interface
    function c_fifo_create(window, offset, capacity, notify, fifo) result(code) bind(c, name='kumi_fifo_create')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window
      type(c_ptr), intent(inout) :: fifo
      integer(c_int), value :: notify
      integer(c_size_t), value :: offset, capacity
      integer(c_int) :: code
    end function c_fifo_create

    function c_fifo_free(fifo) result(code) bind(c, name='kumi_fifo_free')
      import :: c_int, c_ptr
      type(c_ptr), value :: fifo
      integer(c_int) :: code
    end function c_fifo_free

    function c_fifo_max_record(bytes) result(code) bind(c, name='kumi_fifo_max_record')
      import :: c_int, c_size_t
      integer(c_size_t), intent(inout) :: bytes
      integer(c_int) :: code
    end function c_fifo_max_record

    function c_fifo_append(window, to, offset, data, length) result(code) bind(c, name='kumi_fifo_append')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, data
      integer(c_int), value :: to
      integer(c_size_t), value :: offset, length
      integer(c_int) :: code
    end function c_fifo_append

    function c_fifo_try_append(window, to, offset, data, length, appended) result(code) &
      bind(c, name='kumi_fifo_try_append')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, data
      integer(c_int), value :: to
      integer(c_size_t), value :: offset, length
      integer(c_int), intent(inout) :: appended
      integer(c_int) :: code
    end function c_fifo_try_append

    function c_fifo_multicast(window, ranks, count, offset, data, length) result(code) &
      bind(c, name='kumi_fifo_multicast')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, data
      integer(c_int), intent(in) :: ranks(*)
      integer(c_size_t), value :: count, offset, length
      integer(c_int) :: code
    end function c_fifo_multicast

    function c_fifo_try_multicast(window, ranks, count, offset, data, length, appended) result(code) &
      bind(c, name='kumi_fifo_try_multicast')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, data
      integer(c_int), intent(in) :: ranks(*)
      integer(c_size_t), value :: count, offset, length
      integer(c_int), intent(inout) :: appended(*)
      integer(c_int) :: code
    end function c_fifo_try_multicast

    function c_signal_send(window, to, offset, data, length) result(code) bind(c, name='kumi_signal_send')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, data
      integer(c_int), value :: to
      integer(c_size_t), value :: offset, length
      integer(c_int) :: code
    end function c_signal_send

    function c_signal_try_send(window, to, offset, data, length, sent) result(code) &
      bind(c, name='kumi_signal_try_send')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, data
      integer(c_int), value :: to
      integer(c_size_t), value :: offset, length
      integer(c_int), intent(inout) :: sent
      integer(c_int) :: code
    end function c_signal_try_send

    function c_signal_multicast(window, ranks, count, offset, data, length) result(code) &
      bind(c, name='kumi_signal_multicast')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, data
      integer(c_int), intent(in) :: ranks(*)
      integer(c_size_t), value :: count, offset, length
      integer(c_int) :: code
    end function c_signal_multicast

    function c_signal_try_multicast(window, ranks, count, offset, data, length, sent) result(code) &
      bind(c, name='kumi_signal_try_multicast')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, data
      integer(c_int), intent(in) :: ranks(*)
      integer(c_size_t), value :: count, offset, length
      integer(c_int), intent(inout) :: sent(*)
      integer(c_int) :: code
    end function c_signal_try_multicast

    function c_fifo_pop(fifo, buffer, capacity, length, source) result(code) bind(c, name='kumi_fifo_pop')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: fifo, buffer
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(inout) :: length
      integer(c_int), intent(inout) :: source
      integer(c_int) :: code
    end function c_fifo_pop

    function c_fifo_try_pop(fifo, buffer, capacity, found, length, source) result(code) &
      bind(c, name='kumi_fifo_try_pop')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: fifo, buffer
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(inout) :: length
      integer(c_int), intent(inout) :: found, source
      integer(c_int) :: code
    end function c_fifo_try_pop

    function c_signal_handle(window, offset, capacity, handler, argument) result(code) &
      bind(c, name='kumi_signal_handle')
      import :: c_funptr, c_int, c_ptr, c_size_t
      type(c_ptr), value :: window, argument
      type(c_funptr), value :: handler
      integer(c_size_t), value :: offset, capacity
      integer(c_int) :: code
    end function c_signal_handle

    function c_signal_remove(window, offset) result(code) bind(c, name='kumi_signal_remove')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: window
      integer(c_size_t), value :: offset
      integer(c_int) :: code
    end function c_signal_remove
  end interface
end module kumi_c
