! kumi_c: the functions of kumi.h as Fortran calls them.  Not for programs, which use the module kumi.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi_c
  use, intrinsic :: iso_c_binding, only: c_double, c_int, c_int64_t, c_ptr, c_size_t
  implicit none
  public

  ! kumi_status of kumi.h: what was received.
  type, bind(c) :: kumi_status
    integer(c_int) :: source = -1          ! rank that sent it
    integer(c_int) :: tag = -1             ! tag it was sent with
    integer(c_size_t) :: length = 0        ! its whole length in bytes
  end type kumi_status

  ! kumi_rank(), kumi_size(), kumi_node(), kumi_job(), kumi_time(): as in kumi.h.
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
  end interface

  interface
    function c_error_string(error) result(text) bind(c, name='kumi_error_string')
      import :: c_int, c_ptr
      integer(c_int), value :: error
      type(c_ptr) :: text
    end function c_error_string

    function c_error_detail() result(text) bind(c, name='kumi_error_detail')
      import :: c_ptr
      type(c_ptr) :: text
    end function c_error_detail

    function c_version() result(text) bind(c, name='kumi_version')
      import :: c_ptr
      type(c_ptr) :: text
    end function c_version

    ! Of the C library.
    function c_strlen(text) result(length) bind(c, name='strlen')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
      integer(c_size_t) :: length
    end function c_strlen

    function c_init() result(code) bind(c, name='kumi_init')
      import :: c_int
      integer(c_int) :: code
    end function c_init

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

    function c_fetch_add(window, to, offset, operand, old) result(code) bind(c, name='kumi_window_fetch_add')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: window
      integer(c_int), value :: to
      integer(c_size_t), value :: offset
      integer(c_int64_t), value :: operand
      integer(c_int64_t), intent(inout) :: old
      integer(c_int) :: code
    end function c_fetch_add

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
end module kumi_c
