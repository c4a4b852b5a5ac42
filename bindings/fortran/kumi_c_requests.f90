! kumi_c_requests: the functions of kumi_requests.h as Fortran calls them.  Not for programs, which use the module
! kumi.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi_c_requests
  use, intrinsic :: iso_c_binding, only: c_int, c_int64_t, c_null_ptr, c_ptr, c_size_t
  use kumi_c, only: kumi_status
  implicit none
  public

  ! kumi_result of kumi_requests.h: how a request has ended.
  type, bind(c) :: kumi_result
    integer(c_int) :: error = 0            ! KUMI_OK, or why it failed
    integer(c_int) :: cancelled = 0        ! 1 if it was stopped
    integer(c_int) :: source = -1          ! rank that sent the message
    integer(c_int) :: tag = -1             ! its tag
    integer(c_size_t) :: length = 0        ! its length in bytes
    integer(c_int64_t) :: value = 0        ! what was there before an atomic operation
    integer(c_int64_t) :: word = 0         ! the word of a queue's entry
  end type kumi_result

  ! kumi_report of kumi_requests.h.
  type, bind(c) :: kumi_report
    type(c_ptr) :: completion = c_null_ptr
    type(c_ptr) :: queue = c_null_ptr
    integer(c_int64_t) :: word = 0
  end type kumi_report

  interface
    function c_iput(window, to, offset, data, length, notify, put_end, report, request) result(code) &
      bind(c, name='kumi_window_iput')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: window, data, report
      integer(c_int), value :: to, notify, put_end
      integer(c_size_t), value :: offset, length
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_iput

    function c_iget(window, from, offset, length, buffer, report, request) result(code) bind(c, name='kumi_window_iget')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: window, buffer, report
      integer(c_int), value :: from
      integer(c_size_t), value :: offset, length
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_iget

    function c_iatomic(window, to, offset, operation, operand, value, report, request) result(code) &
      bind(c, name='kumi_window_iatomic')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: window, report
      integer(c_int), value :: to, operation
      integer(c_size_t), value :: offset
      integer(c_int64_t), value :: operand, value
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_iatomic

    function c_iatomic_u32(window, to, offset, operation, operand, value, report, request) result(code) &
      bind(c, name='kumi_window_iatomic_u32')
      use, intrinsic :: iso_c_binding, only: c_int32_t
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: window, report
      integer(c_int), value :: to, operation
      integer(c_size_t), value :: offset
      integer(c_int32_t), value :: operand, value
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_iatomic_u32

    function c_isend(to, tag, data, length, report, request) result(code) bind(c, name='kumi_message_isend')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int), value :: to, tag
      type(c_ptr), value :: data, report
      integer(c_size_t), value :: length
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_isend

    function c_irecv(from, tag, buffer, capacity, report, request) result(code) bind(c, name='kumi_message_irecv')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int), value :: from, tag
      type(c_ptr), value :: buffer, report
      integer(c_size_t), value :: capacity
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_irecv
  end interface

  interface
    function c_request_test(request, done, result) result(code) bind(c, name='kumi_request_test')
      import :: c_int, c_int64_t, kumi_result
      integer(c_int64_t), intent(inout) :: request
      integer(c_int), intent(inout) :: done
      type(kumi_result), intent(inout) :: result
      integer(c_int) :: code
    end function c_request_test

    function c_request_wait(request, result) result(code) bind(c, name='kumi_request_wait')
      import :: c_int, c_int64_t, kumi_result
      integer(c_int64_t), intent(inout) :: request
      type(kumi_result), intent(inout) :: result
      integer(c_int) :: code
    end function c_request_wait

    function c_request_wait_all(requests, count, results) result(code) bind(c, name='kumi_request_wait_all')
      import :: c_int, c_int64_t, c_size_t, kumi_result
      integer(c_int64_t), intent(inout) :: requests(*)
      integer(c_size_t), value :: count
      type(kumi_result), intent(inout) :: results(*)
      integer(c_int) :: code
    end function c_request_wait_all

    function c_request_wait_any(requests, count, index, result) result(code) bind(c, name='kumi_request_wait_any')
      import :: c_int, c_int64_t, c_size_t, kumi_result
      integer(c_int64_t), intent(inout) :: requests(*)
      integer(c_size_t), value :: count
      integer(c_size_t), intent(inout) :: index
      type(kumi_result), intent(inout) :: result
      integer(c_int) :: code
    end function c_request_wait_any

    function c_request_wait_some(requests, count, ended, indices, results) result(code) &
      bind(c, name='kumi_request_wait_some')
      import :: c_int, c_int64_t, c_size_t, kumi_result
      integer(c_int64_t), intent(inout) :: requests(*)
      integer(c_size_t), value :: count
      integer(c_size_t), intent(inout) :: ended
      integer(c_size_t), intent(inout) :: indices(*)
      type(kumi_result), intent(inout) :: results(*)
      integer(c_int) :: code
    end function c_request_wait_some

    function c_request_test_all(requests, count, done, results) result(code) bind(c, name='kumi_request_test_all')
      import :: c_int, c_int64_t, c_size_t, kumi_result
      integer(c_int64_t), intent(inout) :: requests(*)
      integer(c_size_t), value :: count
      integer(c_int), intent(inout) :: done
      type(kumi_result), intent(inout) :: results(*)
      integer(c_int) :: code
    end function c_request_test_all

    function c_request_test_any(requests, count, done, index, result) result(code) bind(c, name='kumi_request_test_any')
      import :: c_int, c_int64_t, c_size_t, kumi_result
      integer(c_int64_t), intent(inout) :: requests(*)
      integer(c_size_t), value :: count
      integer(c_int), intent(inout) :: done
      integer(c_size_t), intent(inout) :: index
      type(kumi_result), intent(inout) :: result
      integer(c_int) :: code
    end function c_request_test_any

    function c_request_test_some(requests, count, ended, indices, results) result(code) &
      bind(c, name='kumi_request_test_some')
      import :: c_int, c_int64_t, c_size_t, kumi_result
      integer(c_int64_t), intent(inout) :: requests(*)
      integer(c_size_t), value :: count
      integer(c_size_t), intent(inout) :: ended
      integer(c_size_t), intent(inout) :: indices(*)
      type(kumi_result), intent(inout) :: results(*)
      integer(c_int) :: code
    end function c_request_test_some

    function c_request_cancel(request, cancelled) result(code) bind(c, name='kumi_request_cancel')
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: request
      integer(c_int), intent(inout) :: cancelled
      integer(c_int) :: code
    end function c_request_cancel

    function c_request_release(request) result(code) bind(c, name='kumi_request_release')
      import :: c_int, c_int64_t
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_request_release

    function c_request_count(count) result(code) bind(c, name='kumi_request_count')
      import :: c_int, c_size_t
      integer(c_size_t), intent(inout) :: count
      integer(c_int) :: code
    end function c_request_count
  end interface

  interface
    function c_queue_create(queue) result(code) bind(c, name='kumi_queue_create')
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: queue
      integer(c_int) :: code
    end function c_queue_create

    function c_queue_free(queue) result(code) bind(c, name='kumi_queue_free')
      import :: c_int, c_ptr
      type(c_ptr), value :: queue
      integer(c_int) :: code
    end function c_queue_free

    function c_queue_poll(queue, found, result) result(code) bind(c, name='kumi_queue_poll')
      import :: c_int, c_ptr, kumi_result
      type(c_ptr), value :: queue
      integer(c_int), intent(inout) :: found
      type(kumi_result), intent(inout) :: result
      integer(c_int) :: code
    end function c_queue_poll

    function c_queue_wait(queue, result) result(code) bind(c, name='kumi_queue_wait')
      import :: c_int, c_ptr, kumi_result
      type(c_ptr), value :: queue
      type(kumi_result), intent(inout) :: result
      integer(c_int) :: code
    end function c_queue_wait

    function c_await(from, tag, status) result(code) bind(c, name='kumi_message_await')
      import :: c_int, kumi_status
      integer(c_int), value :: from, tag
      type(kumi_status), intent(inout) :: status
      integer(c_int) :: code
    end function c_await

    function c_claim(from, tag, found, claim, status) result(code) bind(c, name='kumi_message_claim')
      import :: c_int, c_ptr, kumi_status
      integer(c_int), value :: from, tag
      integer(c_int), intent(inout) :: found
      type(c_ptr), intent(inout) :: claim
      type(kumi_status), intent(inout) :: status
      integer(c_int) :: code
    end function c_claim

    function c_claim_recv(claim, buffer, capacity, status) result(code) bind(c, name='kumi_claim_recv')
      import :: c_int, c_ptr, c_size_t, kumi_status
      type(c_ptr), value :: claim, buffer
      integer(c_size_t), value :: capacity
      type(kumi_status), intent(inout) :: status
      integer(c_int) :: code
    end function c_claim_recv

    function c_claim_free(claim) result(code) bind(c, name='kumi_claim_free')
      import :: c_int, c_ptr
      type(c_ptr), value :: claim
      integer(c_int) :: code
    end function c_claim_free
  end interface
end module kumi_c_requests
