! kumi_requests: requests, queues and claims, as far as they do not depend on the type of data.  Not for programs,
! which use the module kumi.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi_requests
  use, intrinsic :: iso_c_binding, only: c_int, c_int32_t, c_int64_t, c_loc, c_null_ptr, c_ptr, c_size_t
  use kumi_c, only: kumi_status
  use kumi_c_requests
  use kumi_codes
  use kumi_base, only: finish, handle_of, kumi_window, scaled
  use kumi_onesided, only: follows, kumi_completion
  implicit none
  public
  private :: iatomic, handles_of, keep, some

  ! A request that was started, or none.  Copies are the same request.
  type :: kumi_request
    private
    integer(c_int64_t) :: handle = 0
  end type kumi_request

  ! A queue's handle.  Copies are the same queue.
  type :: kumi_queue
    private
    type(c_ptr) :: handle = c_null_ptr
  end type kumi_queue

  ! The handle of a claimed message.  Copies are the same claim.
  type :: kumi_claim
    private
    type(c_ptr) :: handle = c_null_ptr
  end type kumi_claim

  interface kumi_window_iatomic
    module procedure iatomic32_i64, iatomic64_i64, iatomic32_i32, iatomic64_i32
  end interface kumi_window_iatomic

contains

  ! Whether there is a request whose end was not told.
  pure logical function kumi_request_pending(request)
    type(kumi_request), intent(in) :: request

    kumi_request_pending = request%handle /= 0
  end function kumi_request_pending

  ! ---- starts -------------------------------------------------------------------------------------

  ! Where the end of a request is told, as C takes it: null for its handle.  False, after reporting the error, if a
  ! completion or a queue is given that does not exist.
  logical function told(completion, queue, word, report, address, name, stat)
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    type(kumi_report), intent(inout), target :: report
    type(c_ptr), intent(out) :: address
    character(len=*), intent(in) :: name
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: counter

    address = c_null_ptr
    told = follows(completion=completion, counter=counter, handle=report%completion, name=name, stat=stat)
    if (.not. told) return
    if (present(queue)) report%queue = queue%handle
    if (present(word)) report%word = word
    if (present(completion) .or. present(queue)) address = c_loc(report)
  end function told

  ! A start has returned: the request has this handle, unless it has failed.
  subroutine begun(code, handle, request, name, stat)
    integer(c_int), intent(in) :: code
    integer(c_int64_t), intent(in) :: handle
    type(kumi_request), intent(inout) :: request
    character(len=*), intent(in) :: name
    integer(c_int), intent(out), optional :: stat

    if (code == KUMI_OK) request%handle = handle
    call finish(code, name, stat)
  end subroutine begun

  ! What is sent or received is a target or pointer: an array that was copied for the call would be gone afterwards.
  logical function suitable(gapless, there, name, stat)
    logical, intent(in) :: gapless, there
    character(len=*), intent(in) :: name
    integer(c_int), intent(out), optional :: stat

    suitable = gapless .and. there
    if (.not. there) then
      call finish(KUMI_ERR_NULL, name, stat, 'data is a pointer to nothing')
    else if (.not. gapless) then
      call finish(KUMI_ERR_LENGTH, name, stat, 'data is a section with gaps: a request needs an array without')
    end if
  end function suitable

  subroutine iput_bytes(window, to, offset, data, bytes, request, notify, sent, completion, queue, word, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: to
    integer(c_size_t), intent(in) :: offset, bytes
    type(c_ptr), intent(in) :: data
    type(kumi_request), intent(inout) :: request
    integer(c_int), intent(in), optional :: notify
    logical, intent(in), optional :: sent
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_window_iput'
    type(kumi_report), target :: report
    type(c_ptr) :: address
    integer(c_int) :: counter, put_end

    if (.not. told(completion, queue, word, report, address, name, stat)) return
    counter = KUMI_NO_NOTIFY
    if (present(notify)) counter = notify
    put_end = KUMI_PUT_PLACED
    if (present(sent)) put_end = merge(KUMI_PUT_SENT, KUMI_PUT_PLACED, sent)
    call finish(c_iput(handle_of(window), to, offset, data, bytes, counter, put_end, address, request%handle), name, &
                stat)
  end subroutine iput_bytes

  subroutine iget_bytes(window, from, offset, data, bytes, request, completion, queue, word, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: from
    integer(c_size_t), intent(in) :: offset, bytes
    type(c_ptr), intent(in) :: data
    type(kumi_request), intent(inout) :: request
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_window_iget'
    type(kumi_report), target :: report
    type(c_ptr) :: address

    if (.not. told(completion, queue, word, report, address, name, stat)) return
    call finish(c_iget(handle_of(window), from, offset, bytes, data, address, request%handle), name, stat)
  end subroutine iget_bytes

  subroutine isend_bytes(to, tag, data, bytes, request, completion, queue, word, stat)
    integer(c_int), intent(in) :: to, tag
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: bytes
    type(kumi_request), intent(inout) :: request
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_message_isend'
    type(kumi_report), target :: report
    type(c_ptr) :: address

    if (.not. told(completion, queue, word, report, address, name, stat)) return
    call finish(c_isend(to, tag, data, bytes, address, request%handle), name, stat)
  end subroutine isend_bytes

  subroutine irecv_bytes(from, tag, data, bytes, request, completion, queue, word, stat)
    integer(c_int), intent(in) :: from, tag
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: bytes
    type(kumi_request), intent(inout) :: request
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_message_irecv'
    type(kumi_report), target :: report
    type(c_ptr) :: address

    if (.not. told(completion, queue, word, report, address, name, stat)) return
    call finish(c_irecv(from, tag, data, bytes, address, request%handle), name, stat)
  end subroutine irecv_bytes

  ! On 8 bytes, or on 4 if `short`.
  subroutine iatomic(short, window, to, offset, operation, operand, request, value, completion, queue, word, stat)
    logical, intent(in) :: short
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: to, operation
    integer(c_int64_t), intent(in) :: offset, operand
    type(kumi_request), intent(inout) :: request
    integer(c_int64_t), intent(in) :: value
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_window_iatomic'
    type(kumi_report), target :: report
    type(c_ptr) :: address
    integer(c_int) :: code

    if (.not. told(completion, queue, word, report, address, name, stat)) return
    if (short) then
      code = c_iatomic_u32(handle_of(window), to, scaled(offset, 4), operation, int(operand, c_int32_t), &
                           int(value, c_int32_t), address, request%handle)
    else
      code = c_iatomic(handle_of(window), to, scaled(offset, 8), operation, operand, value, address, request%handle)
    end if
    call finish(code, name, stat)
  end subroutine iatomic

  subroutine iatomic64_i64(window, to, offset, operation, operand, request, value, completion, queue, word, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: to, operation
    integer(c_int64_t), intent(in) :: offset, operand
    type(kumi_request), intent(inout) :: request
    integer(c_int64_t), intent(in), optional :: value
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    integer(c_int64_t) :: second

    second = 0
    if (present(value)) second = value
    call iatomic(.false., window, to, offset, operation, operand, request, second, completion, queue, word, stat)
  end subroutine iatomic64_i64

  subroutine iatomic32_i64(window, to, offset, operation, operand, request, value, completion, queue, word, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: to, operation
    integer(c_int32_t), intent(in) :: offset
    integer(c_int64_t), intent(in) :: operand
    type(kumi_request), intent(inout) :: request
    integer(c_int64_t), intent(in), optional :: value
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat

    call iatomic64_i64(window, to, int(offset, c_int64_t), operation, operand, request, value, completion, queue, &
                       word, stat)
  end subroutine iatomic32_i64

  subroutine iatomic64_i32(window, to, offset, operation, operand, request, value, completion, queue, word, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: to, operation
    integer(c_int64_t), intent(in) :: offset
    integer(c_int32_t), intent(in) :: operand
    type(kumi_request), intent(inout) :: request
    integer(c_int32_t), intent(in), optional :: value
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    integer(c_int64_t) :: second

    second = 0
    if (present(value)) second = value
    call iatomic(.true., window, to, offset, operation, int(operand, c_int64_t), request, second, completion, queue, &
                 word, stat)
  end subroutine iatomic64_i32

  subroutine iatomic32_i32(window, to, offset, operation, operand, request, value, completion, queue, word, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: to, operation
    integer(c_int32_t), intent(in) :: offset, operand
    type(kumi_request), intent(inout) :: request
    integer(c_int32_t), intent(in), optional :: value
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat

    call iatomic64_i32(window, to, int(offset, c_int64_t), operation, operand, request, value, completion, queue, &
                       word, stat)
  end subroutine iatomic32_i32

  ! The value before an operation on four bytes.
  pure function kumi_value_i4(result) result(value)
    type(kumi_result), intent(in) :: result
    integer(c_int32_t) :: value
    integer(c_int64_t), parameter :: modulus = 2_c_int64_t**32

    value = int(result%value - merge(modulus, 0_c_int64_t, result%value >= modulus / 2), c_int32_t)
  end function kumi_value_i4

  ! ---- ends ---------------------------------------------------------------------------------------

  subroutine kumi_request_wait(request, result, stat)
    type(kumi_request), intent(inout) :: request
    type(kumi_result), intent(out), optional :: result
    integer(c_int), intent(out), optional :: stat
    type(kumi_result) :: seen
    integer(c_int) :: code

    code = c_request_wait(request%handle, seen)
    if (present(result)) result = seen
    call finish(code, 'kumi_request_wait', stat)
  end subroutine kumi_request_wait

  subroutine kumi_request_test(request, done, result, stat)
    type(kumi_request), intent(inout) :: request
    logical, intent(out) :: done
    type(kumi_result), intent(out), optional :: result
    integer(c_int), intent(out), optional :: stat
    type(kumi_result) :: seen
    integer(c_int) :: code, is

    is = 0
    code = c_request_test(request%handle, is, seen)
    done = is /= 0
    if (present(result)) result = seen
    call finish(code, 'kumi_request_test', stat)
  end subroutine kumi_request_test

  pure function handles_of(requests) result(handles)
    type(kumi_request), intent(in) :: requests(:)
    integer(c_int64_t) :: handles(size(requests))

    handles = requests%handle
  end function handles_of

  subroutine keep(handles, requests)
    integer(c_int64_t), intent(in) :: handles(:)
    type(kumi_request), intent(inout) :: requests(:)

    requests%handle = handles
  end subroutine keep

  ! Waits for all; only looks if `done` is there.
  subroutine all_requests(requests, results, done, stat)
    type(kumi_request), intent(inout) :: requests(:)
    type(kumi_result), intent(inout), optional :: results(:)
    logical, intent(out), optional :: done
    integer(c_int), intent(out), optional :: stat
    integer(c_int64_t) :: handles(size(requests))
    type(kumi_result) :: seen(size(requests))
    integer(c_size_t) :: count
    integer(c_int) :: code, is
    character(len=*), parameter :: name = 'kumi_request_wait_all'

    if (present(results)) then
      if (size(results) /= size(requests)) then
        call finish(KUMI_ERR_LENGTH, name, stat, 'requests and results have different sizes')
        return
      end if
    end if
    handles = handles_of(requests)
    count = size(requests, kind=c_size_t)
    is = 0
    if (present(done)) then
      code = c_request_test_all(handles, count, is, seen)
      done = is /= 0
    else
      code = c_request_wait_all(handles, count, seen)
    end if
    call keep(handles, requests)
    if (present(results)) results = seen
    call finish(code, name, stat)
  end subroutine all_requests

  subroutine kumi_request_wait_all(requests, results, stat)
    type(kumi_request), intent(inout) :: requests(:)
    type(kumi_result), intent(inout), optional :: results(:)
    integer(c_int), intent(out), optional :: stat

    call all_requests(requests, results, stat=stat)
  end subroutine kumi_request_wait_all

  subroutine kumi_request_test_all(requests, done, results, stat)
    type(kumi_request), intent(inout) :: requests(:)
    logical, intent(out) :: done
    type(kumi_result), intent(inout), optional :: results(:)
    integer(c_int), intent(out), optional :: stat

    call all_requests(requests, results, done, stat)
  end subroutine kumi_request_test_all

  ! `index` counts from 1; 0 if none has ended.
  subroutine kumi_request_wait_any(requests, index, result, stat)
    type(kumi_request), intent(inout) :: requests(:)
    integer(c_int), intent(out) :: index
    type(kumi_result), intent(out), optional :: result
    integer(c_int), intent(out), optional :: stat
    integer(c_int64_t) :: handles(size(requests))
    type(kumi_result) :: seen
    integer(c_size_t) :: place
    integer(c_int) :: code

    place = -1
    handles = handles_of(requests)
    code = c_request_wait_any(handles, size(requests, kind=c_size_t), place, seen)
    call keep(handles, requests)
    index = int(place, c_int) + 1
    if (present(result)) result = seen
    call finish(code, 'kumi_request_wait_any', stat)
  end subroutine kumi_request_wait_any

  subroutine kumi_request_test_any(requests, index, result, stat)
    type(kumi_request), intent(inout) :: requests(:)
    integer(c_int), intent(out) :: index
    type(kumi_result), intent(out), optional :: result
    integer(c_int), intent(out), optional :: stat
    integer(c_int64_t) :: handles(size(requests))
    type(kumi_result) :: seen
    integer(c_size_t) :: place
    integer(c_int) :: code, is

    place = -1
    is = 0
    handles = handles_of(requests)
    code = c_request_test_any(handles, size(requests, kind=c_size_t), is, place, seen)
    call keep(handles, requests)
    index = int(place, c_int) + 1
    if (present(result)) result = seen
    call finish(code, 'kumi_request_test_any', stat)
  end subroutine kumi_request_test_any

  ! Waits for some, or only looks.  `indices` count from 1.
  subroutine some(wait, requests, ended, indices, results, stat)
    logical, intent(in) :: wait
    type(kumi_request), intent(inout) :: requests(:)
    integer(c_int), intent(out) :: ended
    integer(c_int), intent(inout) :: indices(:)
    type(kumi_result), intent(inout), optional :: results(:)
    integer(c_int), intent(out), optional :: stat
    integer(c_int64_t) :: handles(size(requests))
    type(kumi_result) :: seen(size(requests))
    integer(c_size_t) :: count, number, places(size(requests))
    integer(c_int) :: code
    character(len=*), parameter :: name = 'kumi_request_wait_some'
    logical :: room

    ended = 0
    room = size(indices) >= size(requests)
    if (present(results)) room = room .and. size(results) >= size(requests)
    if (.not. room) then
      call finish(KUMI_ERR_LENGTH, name, stat, 'indices and results need room for all requests')
      return
    end if
    handles = handles_of(requests)
    count = size(requests, kind=c_size_t)
    number = 0
    if (wait) then
      code = c_request_wait_some(handles, count, number, places, seen)
    else
      code = c_request_test_some(handles, count, number, places, seen)
    end if
    call keep(handles, requests)
    ended = int(number, c_int)
    indices(:ended) = int(places(:ended), c_int) + 1
    if (present(results)) results(:ended) = seen(:ended)
    call finish(code, name, stat)
  end subroutine some

  subroutine kumi_request_wait_some(requests, ended, indices, results, stat)
    type(kumi_request), intent(inout) :: requests(:)
    integer(c_int), intent(out) :: ended
    integer(c_int), intent(inout) :: indices(:)
    type(kumi_result), intent(inout), optional :: results(:)
    integer(c_int), intent(out), optional :: stat

    call some(.true., requests, ended, indices, results, stat)
  end subroutine kumi_request_wait_some

  subroutine kumi_request_test_some(requests, ended, indices, results, stat)
    type(kumi_request), intent(inout) :: requests(:)
    integer(c_int), intent(out) :: ended
    integer(c_int), intent(inout) :: indices(:)
    type(kumi_result), intent(inout), optional :: results(:)
    integer(c_int), intent(out), optional :: stat

    call some(.false., requests, ended, indices, results, stat)
  end subroutine kumi_request_test_some

  subroutine kumi_request_cancel(request, cancelled, stat)
    type(kumi_request), intent(in) :: request
    logical, intent(out), optional :: cancelled
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: code, is

    is = 0
    code = c_request_cancel(request%handle, is)
    if (present(cancelled)) cancelled = is /= 0
    call finish(code, 'kumi_request_cancel', stat)
  end subroutine kumi_request_cancel

  subroutine kumi_request_release(request, stat)
    type(kumi_request), intent(inout) :: request
    integer(c_int), intent(out), optional :: stat

    call finish(c_request_release(request%handle), 'kumi_request_release', stat)
  end subroutine kumi_request_release

  subroutine kumi_request_count(count, stat)
    integer(c_int), intent(out) :: count
    integer(c_int), intent(out), optional :: stat
    integer(c_size_t) :: number
    integer(c_int) :: code

    number = 0
    code = c_request_count(number)
    count = int(number, c_int)
    call finish(code, 'kumi_request_count', stat)
  end subroutine kumi_request_count

  ! ---- queues -------------------------------------------------------------------------------------

  subroutine kumi_queue_create(queue, stat)
    type(kumi_queue), intent(inout) :: queue
    integer(c_int), intent(out), optional :: stat

    call finish(c_queue_create(queue%handle), 'kumi_queue_create', stat)
  end subroutine kumi_queue_create

  subroutine kumi_queue_free(queue, stat)
    type(kumi_queue), intent(inout) :: queue
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: code

    code = c_queue_free(queue%handle)
    if (code == KUMI_OK) queue = kumi_queue()
    call finish(code, 'kumi_queue_free', stat)
  end subroutine kumi_queue_free

  ! A failed request is an entry with result%error, and no error of these.
  subroutine kumi_queue_poll(queue, found, result, stat)
    type(kumi_queue), intent(in) :: queue
    logical, intent(out) :: found
    type(kumi_result), intent(out) :: result
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: code, is

    is = 0
    code = c_queue_poll(queue%handle, is, result)
    found = is /= 0
    if (found) code = KUMI_OK
    call finish(code, 'kumi_queue_poll', stat)
  end subroutine kumi_queue_poll

  subroutine kumi_queue_wait(queue, result, stat)
    type(kumi_queue), intent(in) :: queue
    type(kumi_result), intent(out) :: result
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: code

    code = c_queue_wait(queue%handle, result)
    if (result%error /= KUMI_OK) code = KUMI_OK
    call finish(code, 'kumi_queue_wait', stat)
  end subroutine kumi_queue_wait

  ! ---- claims -------------------------------------------------------------------------------------

  subroutine kumi_message_await(from, tag, status, stat)
    integer(c_int), intent(in) :: from, tag
    type(kumi_status), intent(out), optional :: status
    integer(c_int), intent(out), optional :: stat
    type(kumi_status) :: seen
    integer(c_int) :: code

    code = c_await(from, tag, seen)
    if (present(status)) status = seen
    call finish(code, 'kumi_message_await', stat)
  end subroutine kumi_message_await

  subroutine kumi_message_claim(from, tag, found, claim, status, stat)
    integer(c_int), intent(in) :: from, tag
    logical, intent(out) :: found
    type(kumi_claim), intent(inout) :: claim
    type(kumi_status), intent(out), optional :: status
    integer(c_int), intent(out), optional :: stat
    type(kumi_status) :: seen
    integer(c_int) :: code, is

    is = 0
    code = c_claim(from, tag, is, claim%handle, seen)
    found = is /= 0
    if (present(status)) status = seen
    call finish(code, 'kumi_message_claim', stat)
  end subroutine kumi_message_claim

  subroutine claim_bytes(claim, buffer, capacity, status, stat)
    type(kumi_claim), intent(inout) :: claim
    type(c_ptr), intent(in) :: buffer
    integer(c_size_t), intent(in) :: capacity
    type(kumi_status), intent(out), optional :: status
    integer(c_int), intent(out), optional :: stat
    type(kumi_status) :: told
    integer(c_int) :: code

    code = c_claim_recv(claim%handle, buffer, capacity, told)
    if (code == KUMI_OK .or. code == KUMI_ERR_TRUNCATED) claim = kumi_claim()
    if (present(status)) status = told
    call finish(code, 'kumi_claim_recv', stat)
  end subroutine claim_bytes

  subroutine kumi_claim_free(claim, stat)
    type(kumi_claim), intent(inout) :: claim
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: code

    code = c_claim_free(claim%handle)
    if (code == KUMI_OK) claim = kumi_claim()
    call finish(code, 'kumi_claim_free', stat)
  end subroutine kumi_claim_free
end module kumi_requests
