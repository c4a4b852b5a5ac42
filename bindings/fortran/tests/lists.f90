! The part of the test for lists of pieces, records for many ranks and windows on the program's own memory.
module lists
  use, intrinsic :: iso_c_binding, only: c_double, c_float, c_int, c_int32_t, c_int64_t, c_int8_t
  use kumi
  use unit
  implicit none
  private
  public :: pieces, wrong_pieces, records, wrong_records, many_signals, own_memory, wrong_memory

  integer, parameter :: CAPACITY = 128, ROOM = KUMI_FIFO_OVERHEAD + CAPACITY
  ! What the handler has seen: signals in all, and those that were not as they should be.
  integer, volatile :: seen = 0, wrong = 0

contains

  ! Of every column of three elements for each rank, the last column first: as pieces of one and two.
  subroutine pieces()
    integer, parameter :: COLUMNS = 300
    type(kumi_window) :: window
    type(kumi_completion) :: done
    integer(c_int32_t), pointer :: cube(:, :, :)
    integer(c_int32_t) :: given(3, COLUMNS), taken(3, COLUMNS), one
    integer(c_int64_t) :: count
    integer :: offsets(2 * COLUMNS), lengths(2 * COLUMNS), rank, i

    call kumi_window_allocate([3, ranks, COLUMNS], window, cube)
    do i = 1, COLUMNS
      offsets(2 * i - 1:2 * i) = 3 * ((COLUMNS - i) * ranks + me) + [0, 1]
      lengths(2 * i - 1:2 * i) = [1, 2]
    end do
    given = reshape([(1000 * me + i, i=1, 3 * COLUMNS)], [3, COLUMNS])
    call kumi_completion_create(done)
    do rank = 0, ranks - 1
      call kumi_window_put_list(window, rank, offsets, lengths, given, notify=4, completion=done)
    end do
    call kumi_completion_wait_all(done)
    call kumi_completion_done(done, count)
    call expect(count == ranks, 'lists are in place')
    call kumi_completion_free(done)
    call kumi_window_wait_notify(window, 4, ranks)
    do rank = 0, ranks - 1
      call expect(all(cube(:, rank + 1, COLUMNS:1:-1) == given + 1000 * (rank - me)), 'columns of a rank')
    end do
    call kumi_barrier()
    do rank = 0, ranks - 1
      call kumi_window_get_list(window, rank, offsets, lengths, taken)
      call expect(all(taken == given), 'the columns again')
      taken = -1
      ! The first three elements, to places of their own.
      call kumi_window_get_lists(window, rank, offsets(:2), lengths(:2), taken, [7, 2, 0], [1, 1, 1])
      call expect(taken(2, 3) == given(1, 1) .and. taken(3, 1) == given(2, 1) .and. taken(1, 1) == given(3, 1), &
                  'pieces of the data')
      call expect(count_of(taken, -1) == 3 * COLUMNS - 3, 'no more than these')
    end do
    call kumi_barrier()
    call kumi_window_put_lists(window, me, [5_c_int64_t, 0_c_int64_t], [1_c_int64_t, 2_c_int64_t], [7, 8, 9], &
                               [2_c_int64_t, 0_c_int64_t], [1_c_int64_t, 2_c_int64_t])
    call kumi_window_get(window, me, 5, one)
    call expect(one == 9 .and. all(cube(:2, 1, 1) == [7, 8]), 'pieces to pieces')
    call kumi_window_put_list(window, me, [0, 1], [2, 2], [1, 2, 3, 4])
    call expect(all(cube(:, 1, 1) == [1, 3, 4]), 'the last remains')
    call kumi_window_put_list(window, me, [2], [1], 5, 63)
    call kumi_window_get_list(window, me, [2], [1], one)
    call expect(one == 5, 'a scalar')
    call kumi_window_put_list(window, me, offsets(:0), lengths(:0), given(:, :0), 63)
    call kumi_window_wait_notify(window, 63, 2)
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine pieces

  pure integer function count_of(array, value)
    integer(c_int32_t), intent(in) :: array(:, :), value

    count_of = count(array == value)
  end function count_of

  subroutine wrong_pieces()
    type(kumi_window) :: window
    type(kumi_completion) :: freed
    real(c_double), pointer :: values(:)
    real(c_double) :: four(4)
    integer :: stat

    four = [1, 2, 3, 4]
    call kumi_window_allocate([8], window, values)
    call kumi_window_put_list(window, me, [0, 6], [1, 3], four, stat=stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'a piece outside')
    call kumi_window_get_list(window, me, [-1], [4], four, stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'a piece before')
    call kumi_window_get_list(window, me, [huge(0_c_int64_t)], [4_c_int64_t], four, stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'a piece far outside')
    call kumi_window_put_list(window, me, [0, 4], [3, 2], four, stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'more elements than data')
    call kumi_window_get_list(window, me, [0], [3], four, stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'fewer elements than data')
    call kumi_window_put_list(window, me, [0, 0], [8, -4], four, stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'a negative length')
    call kumi_window_put_list(window, me, spread(0_c_int64_t, 1, 3), [huge(0_c_int64_t), huge(0_c_int64_t), &
                                                                      6_c_int64_t], four, stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'endless pieces')
    call kumi_window_put_list(window, me, [0, 4], [4], four, stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'fewer lengths than offsets')
    call kumi_window_put_lists(window, me, [0], [4], four, [0], [3], stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'data that is too short')
    call kumi_window_put_lists(window, me, [0], [2], four, [3], [2], stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'data beyond its end')
    call kumi_window_put_lists(window, me, [0], [2], four, [-1], [2], stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'data before its beginning')
    call kumi_window_get_lists(window, me, [0], [2], four, [0, 1], [2], stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'fewer lengths of data')
    call kumi_window_get_lists(window, me, [0], [4], four, [0, 1], [2, 2], stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'data that overlaps')
    call kumi_window_put_list(window, ranks, [0], [4], four, stat=stat)
    call expect_error(stat, KUMI_ERR_RANK, 'a list to nobody')
    call kumi_window_get_list(window, -1, [0], [4], four, stat)
    call expect_error(stat, KUMI_ERR_RANK, 'a list from nobody')
    call kumi_window_put_list(window, me, [0], [4], four, 64, stat=stat)
    call expect_error(stat, KUMI_ERR_NOTIFY, 'notify')
    call kumi_window_put_list(window, me, [0], [4], four, completion=freed, stat=stat)
    call expect_error(stat, KUMI_ERR_COMPLETION, 'no completion')
    call expect(all(abs(values) <= 0) .and. all(abs(four - [1, 2, 3, 4]) <= 0), 'untouched')
    call kumi_barrier()
    call kumi_window_free(window)
    call kumi_window_put_list(window, me, [0], [4], four, stat=stat)
    call expect_error(stat, KUMI_ERR_WINDOW, 'a list for no window')
  end subroutine wrong_pieces

  ! Every rank appends to all, each takes those of one rank in order.
  subroutine records()
    integer, parameter :: EACH = 20
    type(kumi_window) :: window
    type(kumi_fifo) :: fifo
    integer :: everybody(ranks), last_of(0:ranks - 1), record(2), i, length, source
    integer, allocatable :: rest(:)
    logical, allocatable :: done(:)
    logical :: found
    character(len=8) :: text

    everybody = [(i, i=0, ranks - 1)]
    call kumi_window_create(ROOM, window)
    call kumi_fifo_create(window, 0, CAPACITY, 3, fifo)
    call kumi_barrier()
    last_of = 0
    do i = 1, EACH
      rest = everybody
      do while (size(rest) > 0)
        allocate (done(size(rest)))
        call kumi_fifo_try_multicast(window, rest, 0, [me, i], done)
        rest = pack(rest, .not. done)
        deallocate (done)
        call kumi_fifo_try_pop(fifo, record, found, length, source)
        if (found) call take()
      end do
    end do
    do while (sum(last_of) < EACH * ranks)
      call kumi_fifo_pop(fifo, record, length, source)
      call take()
    end do
    call kumi_barrier()
    call kumi_fifo_multicast(window, [me, me], 0_c_int64_t, 'a text')
    call kumi_fifo_pop(fifo, text, length)
    call kumi_fifo_try_pop(fifo, record, found)
    call expect(text(1:length) == 'a text' .and. .not. found, 'once to each')
    call kumi_barrier()
    call kumi_window_free(window)

  contains

    subroutine take()
      last_of(source) = last_of(source) + 1
      call expect(length == 8 .and. all(record == [source, last_of(source)]), 'a record for all')
    end subroutine take
  end subroutine records

  subroutine wrong_records()
    type(kumi_window) :: window
    type(kumi_fifo) :: fifo
    integer :: record(2), nobody(0), stat
    logical :: done(2), found

    record = 0
    call kumi_window_create(ROOM, window)
    call kumi_fifo_create(window, 0, CAPACITY, 3, fifo)
    call kumi_barrier()
    found = .true.
    do while (found)
      call kumi_fifo_try_append(window, me, 0, record, found)
    end do
    call kumi_fifo_try_multicast(window, [me, me], 0, record, done)
    call expect(.not. any(done), 'full')
    call kumi_fifo_multicast(window, [me], 0, record, stat)
    call expect_error(stat, KUMI_ERR_FULL, 'full for many')
    call kumi_fifo_try_multicast(window, [me], 0, record, done, stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'more answers than ranks')
    call kumi_fifo_multicast(window, nobody, 0, record)
    call kumi_fifo_multicast(window, [me, ranks], 0, record, stat)
    call expect_error(stat, KUMI_ERR_RANK, 'a record for nobody')
    call kumi_fifo_multicast(window, [-1], 0, record, stat)
    call expect_error(stat, KUMI_ERR_RANK, 'a negative rank')
    call kumi_fifo_multicast(window, [me], 64, record, stat)
    call expect_error(stat, KUMI_ERR_FIFO, 'no FIFO')
    call kumi_signal_multicast(window, [me], 0, record, stat)
    call expect_error(stat, KUMI_ERR_FIFO, 'no port')
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine wrong_records

  subroutine count_it(source, data)
    integer(c_int), intent(in) :: source
    integer(c_int8_t), intent(in) :: data(:)

    if (size(data) /= 4) then
      wrong = wrong + 1
    else if (any(transfer(data, [1_c_int32_t]) /= [source])) then
      wrong = wrong + 1
    end if
    seen = seen + 1
  end subroutine count_it

  subroutine many_signals()
    type(kumi_window) :: window
    logical :: done(1)
    integer :: i, stat

    call kumi_window_create(ROOM, window)
    call kumi_signal_handle(window, 0, CAPACITY, count_it)
    call kumi_barrier()
    call kumi_signal_multicast(window, [(i, i=0, ranks - 1)], 0, me)
    do while (seen < ranks)
    end do
    call kumi_barrier()
    call kumi_signal_try_multicast(window, [me], 0_c_int64_t, me, done)
    call expect(done(1), 'there is room')
    do while (seen < ranks + 1)
    end do
    call kumi_signal_remove(window, 0)
    call expect(wrong == 0, 'what the handler of many gets')
    call kumi_signal_try_multicast(window, [me], 0, me, done, stat)
    call expect_error(stat, KUMI_ERR_FIFO, 'no port any more')
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine many_signals

  ! Operations on memory of every second rank's own.
  subroutine own_memory()
    type(kumi_window) :: window
    integer(c_int64_t), allocatable, target :: mine(:, :)
    integer(c_int64_t), pointer :: table(:, :)
    integer(c_int64_t) :: old, row(ranks)
    integer :: rank

    allocate (mine(4, ranks))
    mine = -1
    if (mod(me, 2) == 0) then
      call kumi_window_register(mine, KUMI_RIGHT_ALL, window)
      call kumi_window_array(window, [4, ranks], table)
      call expect(associated(table, mine), 'the same memory')
    else
      call kumi_window_create_with(32_c_int64_t * ranks, KUMI_RIGHT_ALL, window)
      call kumi_window_array(window, [4, ranks], table)
    end if
    table = 0
    call kumi_barrier()
    do rank = 0, ranks - 1
      call kumi_window_put_notify(window, rank, 4 * me, int(me, c_int64_t), 1)
      call kumi_window_put_list(window, rank, [4 * me + 2, 4 * me + 1], [1, 1], [2_c_int64_t, 1_c_int64_t])
    end do
    call kumi_window_wait_notify(window, 1, ranks)
    call kumi_window_fetch_add(window, next, 4 * me + 3, 3_c_int64_t, old)
    call expect(old == 0, 'nothing before')
    call kumi_flush(KUMI_ALL)
    call kumi_barrier()
    call kumi_window_get_strided(window, next, 0, 4, 1, ranks, row)
    call expect(all(row == [(rank, rank=0, ranks - 1)]), 'the first row there')
    call expect(all(table(1, :) == row) .and. all(table(2, :) == 1) .and. all(table(3, :) == 2), 'rows')
    call expect(sum(table(4, :)) == 3, 'an atomic operation')
    call kumi_barrier()
    call kumi_window_free(window)
    ! It stays as it was when the window ended.
    call expect(all(mine(2, :) == merge(1, -1, mod(me, 2) == 0)), 'memory stays')
    deallocate (mine)
  end subroutine own_memory

  subroutine wrong_memory()
    type(kumi_window) :: window
    real(c_float), target :: grid(4, 4)
    real(c_float), pointer :: part(:), nothing(:)
    real(c_float) :: value
    integer :: stat

    grid = 1
    nothing => null()
    part => grid(1, :)
    call kumi_window_register(part, KUMI_RIGHT_ALL, window, stat)
    call expect_error(stat, KUMI_ERR_MEMORY, 'memory with gaps')
    call expect(index(kumi_error_detail(), 'gaps') > 0, 'what is wrong with it')
    call kumi_window_register(nothing, KUMI_RIGHT_ALL, window, stat)
    call expect_error(stat, KUMI_ERR_MEMORY, 'no memory')
    call kumi_window_register(grid, 8, window, stat)
    call expect_error(stat, KUMI_ERR_RIGHT, 'no rights')
    call kumi_window_create_with(8, -1, window, stat)
    call expect_error(stat, KUMI_ERR_RIGHT, 'negative rights')
    part => grid(:, 2)
    call kumi_window_register(part, KUMI_RIGHT_READ, window)
    call kumi_window_get(window, me, 3, value)
    call expect(abs(value - 1) <= 0, 'a column')
    call kumi_window_put(window, me, 0, 2.0_c_float, stat)
    call expect_error(stat, KUMI_ERR_RIGHT, 'not to be written to')
    call kumi_window_get(window, me, 4, value, stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'beyond the column')
    call kumi_barrier()
    call kumi_window_free(window)
    part => grid(:0, 1)
    call kumi_window_register(part, KUMI_RIGHT_ALL, window)
    call kumi_window_get(window, me, 0, value, stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'nothing there')
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine wrong_memory
end module lists
