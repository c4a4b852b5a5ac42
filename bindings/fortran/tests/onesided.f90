! The part of the test for atomic operations, completions, strided and multicast puts, FIFOs and signals.
module onesided
  use, intrinsic :: iso_c_binding, only: c_double, c_int, c_int32_t, c_int64_t, c_int8_t
  use kumi
  use unit
  implicit none
  private
  public :: atomics, completions, strided, multicasts, fifos, signals, failing_handlers

  integer, parameter :: CAPACITY = 128, ROOM = KUMI_FIFO_OVERHEAD + CAPACITY
  ! What the handler has seen: signals in all, and those that were not as they should be.
  integer, volatile :: seen = 0, wrong = 0
  ! Handlers that fail: how often each has, as it should.
  integer, volatile :: failed(2) = 0

contains

  subroutine atomics()
    type(kumi_window) :: window
    integer(c_int64_t), pointer :: words(:)
    integer(c_int64_t) :: old
    integer(c_int32_t) :: before, was
    integer :: i, stat

    call kumi_window_allocate([2], window, words)
    call kumi_barrier()
    if (me == 0) then
      call kumi_window_swap(window, 0, 1, 12_c_int64_t, old)
      call expect(old == 0, 'swap')
      call kumi_window_fetch_and(window, 0, 1_c_int64_t, 10_c_int64_t, old)
      call expect(old == 12, 'and')
      call kumi_window_fetch_or(window, 0, 1, 3_c_int64_t, old)
      call expect(old == 8, 'or')
      call kumi_window_fetch_xor(window, 0, 1, -1_c_int64_t, old)
      call expect(old == 11, 'xor')
      call kumi_window_compare_swap(window, 0, 1, -12_c_int64_t, 5_c_int64_t, old)
      call expect(old == -12 .and. words(2) == 5, 'compare and swap')
      call kumi_window_compare_swap(window, 0, 1, 4_c_int64_t, 6_c_int64_t)
      call expect(words(2) == 5, 'compare and leave')
      words(2) = 0
    end if
    call kumi_barrier()
    ! Halves of the second word: the offset counts four bytes.
    do i = 1, 50
      call kumi_window_fetch_add(window, 0, 3, 1_c_int32_t)
      before = 0
      do
        call kumi_window_compare_swap(window, 0, 2, before, before + 1, was)
        if (was == before) exit
        before = was
      end do
    end do
    call kumi_barrier()
    call kumi_window_get(window, 0, 1, old)
    call expect(old == 50 * ranks * (2_c_int64_t**32 + 1), 'four bytes')
    call kumi_window_swap(window, 0, 4, 1_c_int32_t, stat=stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'atomic outside')
    call kumi_window_swap(window, ranks, 0, 1_c_int64_t, stat=stat)
    call expect_error(stat, KUMI_ERR_RANK, 'atomic at nobody''s')
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine atomics

  subroutine completions()
    type(kumi_window) :: window
    type(kumi_completion) :: done
    integer, pointer :: values(:)
    integer(c_int64_t) :: count
    integer :: rank, stat

    call kumi_window_allocate([ranks], window, values)
    call kumi_completion_create(done)
    do rank = 0, ranks - 1
      call kumi_window_put_with(window, rank, me, 10 * rank, notify=5, completion=done)
    end do
    call kumi_completion_wait(done, 1, count)
    call expect(count >= 1, 'one is in place')
    call kumi_completion_wait_all(done)
    call kumi_completion_done(done, count)
    call expect(count == ranks, 'all are in place')
    call kumi_completion_wait(done, -1_c_int64_t)
    call kumi_window_wait_notify(window, 5, ranks)
    call expect(all(values == 10 * me), 'their values')
    call kumi_window_put_with(window, me, 0_c_int64_t, -1)
    call expect(values(1) == -1, 'without anything to follow')
    call kumi_completion_wait(done, ranks + 1, stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'more than there are')
    call kumi_window_put_with(window, me, 0, 1, notify=64, stat=stat)
    call expect_error(stat, KUMI_ERR_NOTIFY, 'notify')
    call kumi_completion_free(done)
    call kumi_window_put_with(window, me, 0, 1, completion=done, stat=stat)
    call expect_error(stat, KUMI_ERR_COMPLETION, 'freed')
    call kumi_completion_done(done, count, stat)
    call expect_error(stat, KUMI_ERR_COMPLETION, 'count of a freed one')
    call expect(values(1) == -1, 'untouched')
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine completions

  ! Rows of a matrix of 40 columns, one for each rank.
  subroutine strided()
    type(kumi_window) :: window
    type(kumi_completion) :: done
    real(c_double), pointer :: matrix(:, :)
    real(c_double) :: row(40), other(40), columns(ranks, 20)
    integer :: i, rank, stat

    call kumi_window_allocate([ranks, 40], window, matrix)
    row = [(100 * me + i, i=1, 40)]
    do rank = 0, ranks - 1
      call kumi_window_put_strided(window, rank, me, ranks, 1, 40, row, notify=1)
    end do
    call kumi_window_wait_notify(window, 1, ranks)
    do rank = 0, ranks - 1
      call expect(all(abs(matrix(rank + 1, :) - [(100 * rank + i, i=1, 40)]) <= 0), 'a row')
    end do
    call kumi_completion_create(done)
    call kumi_window_put_strided(window, next, int(me, c_int64_t), int(ranks, c_int64_t), 1_c_int64_t, 40_c_int64_t, &
                                 row, completion=done)
    call kumi_completion_wait_all(done)
    call kumi_completion_free(done)
    call kumi_window_get_strided(window, next, me, ranks, 1, 40, other)
    call expect(all(abs(other - row) <= 0), 'the row again')
    call kumi_barrier()
    ! Every second column, whole.
    call kumi_window_get_strided(window, next, 0, 2 * ranks, ranks, 20, columns)
    call expect(all(abs(columns - matrix(:, 1::2)) <= 0), 'columns')
    call kumi_window_put_strided(window, next, 0, ranks, 1, 39, row, stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'fewer elements than data')
    call kumi_window_get_strided(window, next, 0, ranks, -1, -40, row, stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'negative blocks')
    call kumi_window_put_strided(window, next, 0, 1, 2, 20, row, stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'blocks that overlap')
    call kumi_window_get_strided(window, next, ranks, ranks, 1, 40, row, stat=stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'outside')
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine strided

  subroutine multicasts()
    type(kumi_window) :: window
    real(c_double), pointer :: values(:)
    integer :: i, stat

    call kumi_window_allocate([ranks], window, values)
    call kumi_window_multicast(window, [(i, i=0, ranks - 1)], me, me + 0.5_c_double, 9)
    call kumi_window_wait_notify(window, 9, ranks)
    call expect(all(abs(values - [(i + 0.5_c_double, i=0, ranks - 1)]) <= 0), 'multicast')
    call kumi_window_multicast(window, [me], 0_c_int64_t, values(1:0))
    call kumi_window_multicast(window, [ranks], 0, 1.0_c_double, stat=stat)
    call expect_error(stat, KUMI_ERR_RANK, 'multicast to nobody')
    call kumi_window_multicast(window, [0], ranks, 1.0_c_double, stat=stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'multicast outside')
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine multicasts

  ! More records than there is room for, from all ranks to rank 0.
  subroutine fifos()
    type(kumi_window) :: window
    type(kumi_fifo) :: fifo
    integer :: record(2), last_of(0:ranks - 1), i, length, source, most, stat
    logical :: found
    character(len=8) :: text

    call kumi_window_create(ROOM, window)
    call kumi_fifo_max_record(most)
    call expect(most >= 256, 'longest record')
    if (me == 0) then
      call kumi_fifo_create(window, 0, CAPACITY, 3, fifo)
      call kumi_fifo_try_pop(fifo, record, found)
      call expect(.not. found, 'nothing there')
      call kumi_barrier()
      last_of = 0
      do i = 1, 30 * (ranks - 1)
        call kumi_fifo_pop(fifo, record, length, source)
        last_of(source) = last_of(source) + 1
        call expect(length == 8 .and. all(record == [source, last_of(source)]), 'a record')
      end do
      call kumi_fifo_append(window, 0, 0_c_int64_t, 'a text')
      call kumi_fifo_pop(fifo, text(1:2), length, stat=stat)
      call expect_error(stat, KUMI_ERR_TRUNCATED, 'a long record')
      call expect(length == 6, 'how long')
      call kumi_fifo_try_pop(fifo, text, found, length, source)
      call expect(found .and. length == 6 .and. source == 0 .and. text(1:6) == 'a text', 'it stayed')
      found = .true.
      do while (found)
        call kumi_fifo_try_append(window, 0, 0, record, found)
      end do
      call kumi_fifo_append(window, 0, 0, record, stat)
      call expect_error(stat, KUMI_ERR_FULL, 'full')
      call kumi_fifo_create(window, 8, 64, 0, fifo, stat)
      call expect_error(stat, KUMI_ERR_FIFO, 'not aligned')
      call kumi_fifo_free(fifo)
      call kumi_fifo_pop(fifo, record, stat=stat)
      call expect_error(stat, KUMI_ERR_FIFO, 'freed')
      call kumi_fifo_append(window, 0, 0, record, stat)
      call expect_error(stat, KUMI_ERR_FIFO, 'no FIFO')
    else
      call kumi_barrier()
      do i = 1, 30
        call kumi_fifo_append(window, 0, 0, [me, i])
      end do
    end if
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine fifos

  subroutine count_it(source, data)
    integer(c_int), intent(in) :: source
    integer(c_int8_t), intent(in) :: data(:)

    if (size(data) /= 8) then
      wrong = wrong + 1
    else if (any(transfer(data, [1_c_int32_t]) /= [source, -1])) then
      wrong = wrong + 1
    end if
    seen = seen + 1
  end subroutine count_it

  subroutine signals()
    type(kumi_window) :: window
    integer :: rank, stat
    logical :: done

    call kumi_window_create(ROOM, window)
    call kumi_signal_handle(window, 0, CAPACITY, count_it)
    call kumi_barrier()
    do rank = 0, ranks - 1
      call kumi_signal_send(window, rank, 0, [me, -1])
    end do
    do while (seen < ranks)
    end do
    call kumi_signal_try_send(window, me, 0_c_int64_t, [me, -1], done)
    call expect(done, 'there is room')
    call kumi_barrier()
    ! Waits until the handler has returned.
    do while (seen < ranks + 1)
    end do
    call kumi_signal_remove(window, 0)
    call expect(wrong == 0, 'what the handler gets')
    call kumi_signal_send(window, me, 0, 1, stat)
    call expect_error(stat, KUMI_ERR_FIFO, 'no port')
    call kumi_signal_remove(window, 0_c_int64_t, stat)
    call expect_error(stat, KUMI_ERR_FIFO, 'removed twice')
    call kumi_signal_handle(window, 8_c_int64_t, 64_c_int64_t, count_it, stat)
    call expect_error(stat, KUMI_ERR_FIFO, 'not aligned')
    ! This one ends with the window.
    call kumi_signal_handle(window, 0, CAPACITY, count_it)
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine signals

  ! Fails, and looks whether the detail is that of its own failure.
  recursive subroutine fail(which)
    integer, intent(in) :: which
    integer :: stat

    call kumi_barrier(stat)
    if (stat /= KUMI_ERR_WRONG_THREAD) return
    if (index(kumi_error_detail(), 'another thread') > 0) failed(which) = failed(which) + 1
  end subroutine fail

  recursive subroutine fail_first(source, data)
    integer(c_int), intent(in) :: source
    integer(c_int8_t), intent(in) :: data(:)

    call fail(merge(1, 0, source >= 0 .and. size(data) >= 0))
  end subroutine fail_first

  recursive subroutine fail_second(source, data)
    integer(c_int), intent(in) :: source
    integer(c_int8_t), intent(in) :: data(:)

    call fail(merge(2, 0, source >= 0 .and. size(data) >= 0))
  end subroutine fail_second

  ! Failures of handlers, in their threads, and of the program do not get into each other's way.
  subroutine failing_handlers()
    integer, parameter :: TIMES = 300
    type(kumi_window) :: window
    integer :: sent(2), which, stat
    logical :: done

    call kumi_window_create(2 * ROOM, window)
    call kumi_signal_handle(window, 0, CAPACITY, fail_first)
    call kumi_signal_handle(window, ROOM, CAPACITY, fail_second)
    call kumi_flush(ranks + 1, stat)
    call expect_error(stat, KUMI_ERR_RANK, 'nobody')
    call kumi_signal_send(window, me, 0, 1)
    do while (failed(1) < 1)
    end do
    call expect(index(kumi_error_detail(), 'another thread') == 0, 'the detail is still the own')
    sent = [1, 0]
    do while (any(sent < TIMES))
      do which = 1, 2
        call kumi_signal_try_send(window, me, (which - 1) * ROOM, 1, done)
        if (done) sent(which) = sent(which) + 1
      end do
      call kumi_flush(ranks + 1, stat)
      call expect(index(kumi_error_detail(), 'does not exist') > 0, 'the own detail')
    end do
    do while (failed(1) < sent(1) .or. failed(2) < sent(2))
    end do
    call kumi_window_free(window)
  end subroutine failing_handlers
end module onesided
