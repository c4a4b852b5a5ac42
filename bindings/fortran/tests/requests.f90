! The part of the test for requests, queues and claims.
module requests
  use, intrinsic :: iso_c_binding, only: c_double, c_int, c_int32_t, c_int64_t
  use kumi
  use unit
  implicit none
  private
  public :: puts_and_gets, atomic_requests, message_requests, wrong_requests, queues, claims

contains

  subroutine puts_and_gets()
    type(kumi_window) :: window
    type(kumi_request) :: put, get(2)
    type(kumi_result) :: result
    real(c_double), pointer :: values(:, :)
    real(c_double), target, asynchronous :: data(100, 20), back(100, 20), one
    integer :: i, stat

    call kumi_window_allocate([100, 21], window, values)
    data = reshape([(1000.0_c_double * me + i, i=1, 2000)], [100, 20])
    call kumi_window_iput(window, next, 100, data, put, notify=4)
    call expect(kumi_request_pending(put), 'a request')
    call kumi_request_wait(put, result)
    call expect(result%error == KUMI_OK .and. .not. kumi_request_pending(put), 'its end')
    call kumi_window_wait_notify(window, 4, 1)
    call expect(abs(values(1, 2) - (1000 * last + 1)) <= 0, 'the first')
    ! In place when it has ended: a get that follows sees it.
    call kumi_window_iget(window, next, 100_c_int64_t, back, get(1))
    call kumi_window_iget(window, next, 101, one, get(2))
    call kumi_request_wait_all(get)
    call expect(all(abs(back - data) <= 0), 'all back')
    call expect(abs(one - data(2, 1)) <= 0, 'one back')
    call kumi_request_wait(put, stat=stat)
    call expect_error(stat, KUMI_ERR_REQUEST, 'waited for twice')
    call kumi_window_iput(window, next, 0, data(:, 1), put, sent=.true.)
    call kumi_request_wait(put)
    call kumi_flush(next)
    call kumi_barrier()
    call expect(abs(values(100, 1) - (1000 * last + 100)) <= 0, 'a column')
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine puts_and_gets

  subroutine atomic_requests()
    type(kumi_window) :: window
    type(kumi_request) :: all(30)
    type(kumi_result) :: results(30)
    integer(c_int64_t), pointer :: words(:)
    integer :: i

    call kumi_window_allocate([2], window, words)
    do i = 1, 30
      call kumi_window_iatomic(window, 0, 1, KUMI_FETCH_ADD, 1_c_int64_t, all(i))
    end do
    call kumi_request_wait_all(all, results)
    call expect(all_rise(results%value), 'one after the other')
    call kumi_barrier()
    if (me == 0) then
      call expect(words(2) == 30 * ranks, 'all have added')
      call kumi_window_iatomic(window, 0, 0_c_int64_t, KUMI_SWAP, -5_c_int32_t, all(1))
      call kumi_request_wait(all(1), results(1))
      call expect(kumi_value_i4(results(1)) == 0, 'nothing was there')
      call kumi_window_iatomic(window, 0, 0, KUMI_COMPARE_SWAP, -5_c_int32_t, all(1), 7_c_int32_t)
      call kumi_request_wait(all(1), results(1))
      call expect(kumi_value_i4(results(1)) == -5 .and. words(1) == 7, 'compared')
    end if
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine atomic_requests

  logical function all_rise(numbers)
    integer(c_int64_t), intent(in) :: numbers(:)

    all_rise = all(numbers(2:) > numbers(:size(numbers) - 1))
  end function all_rise

  subroutine message_requests()
    type(kumi_request) :: receives(0:ranks - 1), sends(0:ranks - 1), eight(8)
    type(kumi_result) :: result, results(8)
    integer, target, asynchronous :: into(500, 0:ranks - 1), mine(500), numbers(8)
    integer :: i, index, ended, indices(8), left, stat
    logical :: done

    mine = me
    do i = 0, ranks - 1
      call kumi_message_irecv(i, 6, into(:, i), receives(i))
      call kumi_message_isend(i, 6, mine, sends(i))
    end do
    do i = 0, ranks - 1
      call kumi_request_wait_any(receives, index, result)
      call expect(result%source == index - 1 .and. result%length == 2000, 'one of them')
      call expect(all(into(:, index - 1) == result%source), 'its data')
    end do
    call kumi_request_wait_any(receives, index, stat=stat)
    call expect_error(stat, KUMI_ERR_REQUEST, 'none is left')
    call kumi_request_wait_all(sends)
    do i = 1, 8
      call kumi_message_irecv(me, i, numbers(i), eight(i))
    end do
    call kumi_request_test_all(eight, done, results)
    call expect(.not. done, 'nothing was sent')
    call kumi_request_test_some(eight, ended, indices)
    call expect(ended == 0, 'none of them')
    call kumi_request_test_any(eight, index)
    call expect(index == 0, 'not one')
    do i = 8, 1, -1
      call kumi_message_send(me, i, i * i)
    end do
    left = 8
    do while (left > 0)
      call kumi_request_wait_some(eight, ended, indices, results)
      do i = 1, ended
        call expect(results(i)%tag == indices(i), 'its tag')
      end do
      left = left - ended
    end do
    call expect(all(numbers == [(i * i, i=1, 8)]), 'some at a time')
    call kumi_barrier()
  end subroutine message_requests

  subroutine wrong_requests()
    type(kumi_window) :: window
    type(kumi_request) :: request, copy, list(2)
    type(kumi_result) :: result
    integer, pointer :: values(:), nothing(:)
    integer, target :: data(10), small(1)
    logical :: cancelled, done
    integer :: count, stat

    call kumi_window_allocate([10], window, values)
    data = 3
    call kumi_window_iput(window, me, 0, data(::2), request, stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'gaps')
    nullify (nothing)
    call kumi_window_iput(window, me, 0, nothing, request, stat=stat)
    call expect_error(stat, KUMI_ERR_NULL, 'nothing')
    call kumi_window_iput(window, ranks, 0, data, request, stat=stat)
    call expect_error(stat, KUMI_ERR_RANK, 'rank')
    call kumi_window_iput(window, me, 0, data, request, notify=64, stat=stat)
    call expect_error(stat, KUMI_ERR_NOTIFY, 'notify')
    call kumi_window_iatomic(window, me, 0, 9, 1_c_int64_t, request, stat=stat)
    call expect_error(stat, KUMI_ERR_OPERATION, 'operation')
    call expect(.not. kumi_request_pending(request), 'nothing was started')
    call kumi_message_irecv(me, 9, data, request)
    copy = request
    list = [request, copy]
    call kumi_request_wait_all(list, stat=stat)
    call expect_error(stat, KUMI_ERR_LISTED, 'twice in a list')
    call kumi_request_test(request, done)
    call expect(.not. done, 'no message')
    call kumi_request_cancel(request, cancelled)
    call expect(cancelled, 'cancelled')
    call kumi_request_wait(request, result)
    call expect(result%cancelled == 1, 'says so')
    call kumi_request_wait(copy, stat=stat)
    call expect_error(stat, KUMI_ERR_REQUEST, 'a copy')
    call kumi_message_irecv(me, 9, data, request)
    call kumi_request_release(request)
    call kumi_request_count(count)
    call expect(count == 0 .and. .not. kumi_request_pending(request), 'released')
    call kumi_message_send(me, 9, [1, 2])
    call kumi_message_irecv(me, 9, small, request)
    call kumi_request_wait(request, result, stat)
    call expect_error(stat, KUMI_ERR_TRUNCATED, 'too long')
    call expect(result%length == 8, 'its length')
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine wrong_requests

  subroutine queues()
    type(kumi_window) :: window
    type(kumi_completion) :: completion
    type(kumi_queue) :: queue
    type(kumi_request) :: request
    type(kumi_result) :: result
    integer, pointer :: values(:)
    integer, target, asynchronous :: data(4), back(4), numbers(2)
    integer(c_int64_t) :: words
    integer :: i, stat
    logical :: found

    call kumi_window_allocate([4], window, values)
    call kumi_completion_create(completion)
    call kumi_queue_create(queue)
    data = [1, 2, 3, 4]
    call kumi_window_iput(window, me, 0, data, request, completion=completion)
    call kumi_completion_wait(completion, 1)
    call kumi_window_iget(window, me, 0, back, request, queue=queue, word=1_c_int64_t)
    call kumi_message_irecv(me, 2, numbers, request, queue=queue, word=2_c_int64_t)
    call kumi_message_isend(me, 2, data(1:2), request, queue=queue, word=4_c_int64_t)
    words = 0
    do i = 1, 3
      call kumi_queue_wait(queue, result)
      words = ior(words, result%word)
    end do
    call expect(words == 7 .and. all(back == data) .and. all(numbers == [1, 2]), 'entries')
    call kumi_queue_poll(queue, found, result)
    call expect(.not. found, 'no more')
    call kumi_queue_wait(queue, result, stat)
    call expect_error(stat, KUMI_ERR_REQUEST, 'nothing to come')
    call kumi_message_send(me, 2, data)
    call kumi_message_irecv(me, 2, numbers, request, queue=queue, word=9_c_int64_t)
    call kumi_queue_wait(queue, result)
    call expect(result%word == 9 .and. result%error == KUMI_ERR_TRUNCATED, 'a failed one')
    call kumi_queue_free(queue)
    call kumi_message_isend(me, 2, data, request, queue=queue, stat=stat)
    call expect_error(stat, KUMI_ERR_QUEUE, 'freed')
    call kumi_completion_free(completion)
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine queues

  subroutine claims()
    type(kumi_claim) :: claim
    type(kumi_status) :: status
    integer :: data(4), back(4), stat
    logical :: found

    data = [1, 2, 3, 4]
    call kumi_message_send(me, 3, data)
    call kumi_message_await(KUMI_ANY_SOURCE, 3, status)
    call expect(status%length == 16, 'there')
    call kumi_message_claim(me, 3, found, claim, status)
    call expect(found .and. status%tag == 3, 'claimed')
    call kumi_message_probe(me, 3, found)
    call expect(.not. found, 'set aside')
    call kumi_claim_free(claim)
    call kumi_message_claim(me, 3, found, claim)
    back = 0
    call kumi_claim_recv(claim, back, status)
    call expect(all(back == data), 'received')
    call kumi_claim_recv(claim, back, stat=stat)
    call expect_error(stat, KUMI_ERR_CLAIM, 'received before')
    call kumi_message_claim(me, 3, found, claim)
    call expect(.not. found, 'none')
    call kumi_barrier()
  end subroutine claims
end module requests
