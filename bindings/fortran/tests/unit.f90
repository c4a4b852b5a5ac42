! A user's program against the module kumi, for any number of ranks: ends with 0 if all is as documented.
module unit
  use, intrinsic :: iso_c_binding, only: c_double, c_double_complex, c_float, c_float_complex, c_int16_t, &
    c_int32_t, c_int64_t, c_int8_t, c_size_t
  use, intrinsic :: iso_fortran_env, only: error_unit
  use kumi
  implicit none
  integer :: failures = 0, me = 0, ranks = 1, next = 0, last = 0

contains

  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what

    if (holds) return
    failures = failures + 1
    write (error_unit, '(a, i0, 4a)') 'rank ', me, ': ', what, ' / ', kumi_error_detail()
  end subroutine expect

  ! The call before failed, and in this way.
  subroutine expect_error(stat, code, what)
    integer, intent(in) :: stat, code
    character(len=*), intent(in) :: what

    call expect(stat == code, what)
    call expect(len(kumi_error_detail()) > 0, what)
  end subroutine expect_error

  subroutine outside()
    integer :: stat

    call expect(kumi_error_detail() == '', 'no failure yet')
    call expect(kumi_error_string(KUMI_OK) == 'success', 'string of success')
    call expect(index(kumi_error_string(1), 'unknown') > 0, 'string of an unknown number')
    call expect(index(kumi_version(), '.') > 1, 'version')
    call kumi_barrier(stat)
    call expect_error(stat, KUMI_ERR_NOT_INITIALISED, 'before the start')
    call kumi_init_threads(7, stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'no level of threads')
    call expect(kumi_rank() == KUMI_ERR_NOT_INITIALISED, 'no rank before the start')
    call expect(kumi_job() == 0, 'no job before the start')
    call expect(kumi_time() < 0, 'no time before the start')
    call kumi_init(stat)
    call expect_error(stat, KUMI_ERR_NOT_LAUNCHED, 'not launched')
    call expect(index(kumi_error_detail(), 'kumi run') > 0, 'how to launch')
  end subroutine outside

  subroutine identity()
    integer :: stat
    real(c_double) :: begin

    me = kumi_rank()
    ranks = kumi_size()
    next = mod(me + 1, ranks)
    last = mod(me + ranks - 1, ranks)
    call expect(me >= 0 .and. me < ranks, 'rank')
    call expect(kumi_node() >= 0, 'node')
    call expect(kumi_job() >= 0, 'job')
    begin = kumi_time()
    call expect(begin >= 0, 'time')
    call expect(kumi_time() >= begin, 'later')
    call kumi_init(stat)
    call expect_error(stat, KUMI_ERR_ALREADY_INITIALISED, 'twice')
    call disclosure()
  end subroutine identity

  ! What daemons disclose, if they do.
  subroutine disclosure()
    integer :: node, known
    real(c_double) :: end

    known = kumi_cluster_nodes()
    if (known /= 0) call expect(known > kumi_node(), 'nodes')
    do node = 0, known - 1
      if (kumi_node_age(node) < 0) cycle
      call expect(all([kumi_node_load(node), kumi_node_network(node)] >= 0), 'load of a node')
      call expect(abs(kumi_node_memory(node) - 0.5) <= 0.5, 'memory of a node')
    end do
    call expect(all([kumi_node_load(-1), kumi_node_memory(known), kumi_node_age(known)] < 0), 'no such node')
    ! The daemon may look late, and believe what it saw before: up to a minute.
    end = kumi_time() + 60
    do
      if (kumi_rank_runs(me) /= 0) exit
      if (kumi_time() >= end) exit
    end do
    call expect(kumi_rank_runs(me) == 1, 'this rank runs within a minute')
    call expect(kumi_rank_runs(ranks) == KUMI_ERR_RANK, 'no such rank')
  end subroutine disclosure

  ! Every kind goes round the ring, and one of them with every number of dimensions.
  subroutine messages()
    integer(c_int8_t) :: a(3)
    integer(c_int16_t) :: b(3)
    integer(c_int64_t) :: c(3)
    real(c_float) :: d(3)
    complex(c_float_complex) :: e(3)
    complex(c_double_complex) :: f(3), g(3)
    integer :: scalar, matrix(2, 3), cube(2, 3, 2), four(2, 1, 2, 3)
    character(len=12) :: text
    type(kumi_status) :: status

    a = int(me, c_int8_t)
    call kumi_message_sendrecv(next, 1, a + 1_c_int8_t, last, 1, a)
    b = int(me, c_int16_t)
    call kumi_message_sendrecv(next, 2, b + 1_c_int16_t, last, 2, b)
    c = me
    call kumi_message_sendrecv(next, 3, c + 1_c_int64_t, last, 3, c)
    d = real(me, c_float)
    call kumi_message_sendrecv(next, 4, d + 1.0_c_float, last, 4, d)
    call expect(all([int(a), int(b), int(c), int(d)] == last + 1), 'numbers')
    e = cmplx(me, -1, c_float_complex)
    call kumi_message_sendrecv(next, 5, 2 * e, last, 5, e, status)
    call expect(all(abs(e - cmplx(2 * last, -2, c_float_complex)) <= 0) .and. status%length == 24, 'complex')
    f = cmplx(me, 0.5, c_double_complex)
    call kumi_message_send(next, 6, f)
    call kumi_message_recv(KUMI_ANY_SOURCE, 6, g, status)
    call expect(all(abs(g - cmplx(last, 0.5, c_double_complex)) <= 0), 'double complex')
    call expect(status%source == last .and. status%tag == 6 .and. status%length == 48, 'status')

    matrix = reshape([1, 2, 3, 4, 5, 6], [2, 3]) + me
    call kumi_message_send(next, 7, matrix)
    call kumi_message_recv(last, 7, four(1, 1, 1:2, 1:3))
    call expect(all(four(1, 1, :, :) == reshape([1, 2, 3, 4, 5, 6], [2, 3]) + last), 'a section of four')
    cube = me
    call kumi_message_send(next, 8, cube)
    four = -1
    call kumi_message_recv(last, 8, four)
    call expect(all(four == last), 'three dimensions to four')
    call kumi_message_send(next, 9, me)
    call kumi_message_recv(last, 9, scalar)
    call expect(scalar == last, 'a scalar')
    ! Every second row: copied by the compiler.
    call kumi_message_send(next, 10, matrix(2, 1:3:2))
    call kumi_message_recv(last, 10, cube(1, 1:2, 1))
    call expect(all(cube(1, 1:2, 1) == [2, 6] + last), 'a section')
    text = 'from nobody'
    call kumi_message_send(next, 11, 'hello')
    call kumi_message_recv(last, 11, text, status)
    call expect(text(:status%length) == 'hello' .and. text(6:) == 'nobody', 'text')
    call kumi_message_send(next, 12, cube(:, :, 1:0))
    call kumi_message_recv(last, 12, cube(1:0, 1, 1))
  end subroutine messages

  subroutine probes()
    integer :: stat, values(2)
    logical :: found
    type(kumi_status) :: status

    call kumi_barrier()
    call kumi_message_probe(KUMI_ANY_SOURCE, KUMI_ANY_TAG, found)
    call expect(.not. found, 'nothing there')
    call kumi_barrier()
    call kumi_message_send(me, 1, [1, 2, 3])
    call kumi_message_probe(me, 1, found, status)
    call expect(found .and. status%length == 12, 'a message there')
    call kumi_message_recv(me, 1, values, status, stat)
    call expect_error(stat, KUMI_ERR_TRUNCATED, 'too long')
    call expect(status%length == 12, 'length of what was too long')
    call kumi_message_send(ranks, 0, 1, stat)
    call expect_error(stat, KUMI_ERR_RANK, 'rank')
    call kumi_message_send(me, -1, 1, stat)
    call expect_error(stat, KUMI_ERR_TAG, 'tag')
    call kumi_message_send(me, 2, 1, stat)
    call expect(stat == KUMI_OK, 'success')
    call kumi_message_recv(me, 2, values(1))
    call kumi_progress()
    call kumi_flush(next)
    call kumi_flush(KUMI_ALL)
    call kumi_flush(ranks, stat)
    call expect_error(stat, KUMI_ERR_RANK, 'flush')
    call kumi_fence(next)
    call kumi_fence(KUMI_ALL)
    call kumi_fence(ranks, stat)
    call expect_error(stat, KUMI_ERR_RANK, 'fence')
  end subroutine probes

  subroutine windows()
    type(kumi_window) :: window
    real(c_double), pointer :: array(:, :)
    real(c_double) :: got(2), one
    integer(c_int64_t) :: count
    integer :: stat

    call kumi_window_allocate([2, 3], window, array)
    call expect(all(shape(array) == [2, 3]), 'shape')
    call expect(all(abs(array) <= 0), 'zero at first')
    call kumi_barrier()
    call kumi_window_put_notify(window, next, 4, [me + 0.25_c_double, me + 0.5_c_double], 63)
    call kumi_window_wait_notify(window, 63, 1, count)
    call expect(count == 1, 'count')
    call kumi_window_notified(window, 0, count)
    call expect(count == 0, 'other counter')
    call kumi_window_wait_notify(window, 0, -5_c_int64_t)
    got = [last + 0.25_c_double, last + 0.5_c_double]
    call expect(all(abs(array(:, 3) - got) <= 0), 'put')
    call kumi_window_put(window, next, 1_c_int64_t, real(me, c_double))
    call kumi_flush(next)
    call kumi_window_get(window, next, 1, one)
    call expect(abs(one - me) <= 0, 'get')
    call kumi_window_get(window, next, 4_c_int64_t, got)
    call expect(abs(got(1) - me - 0.25_c_double) <= 0, 'get two')
    call kumi_window_get(window, next, 5, got, stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'get outside')
    call kumi_window_get(window, next, -1, one, stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'negative offset')
    call kumi_window_get(window, next, huge(1_c_int64_t), one, stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'large offset')
    call kumi_window_put_notify(window, next, 0, one, 64, stat)
    call expect_error(stat, KUMI_ERR_NOTIFY, 'notify')
    call kumi_window_put(window, ranks, 0, one, stat)
    call expect_error(stat, KUMI_ERR_RANK, 'rank of put')
    call kumi_barrier()
    call kumi_window_free(window)
    call kumi_window_put(window, next, 0, one, stat)
    call expect_error(stat, KUMI_ERR_WINDOW, 'freed')
    call kumi_window_allocate([huge(1), huge(1)], window, array, stat)
    call expect_error(stat, KUMI_ERR_MEMORY, 'more than memory holds')
    call expect(.not. associated(array), 'no array')
  end subroutine windows

  ! One window seen as several arrays; an atomic counter is exact.
  subroutine views()
    type(kumi_window) :: window
    integer(c_int64_t), pointer :: words(:)
    real(c_float), pointer :: reals(:, :, :)
    integer(c_int64_t) :: old, total
    integer :: i, stat

    call kumi_window_create(merge(64, 0, me == 0), window)
    call kumi_window_array(window, [merge(8, 0, me == 0)], words)
    call expect(size(words) == merge(8, 0, me == 0), 'words')
    if (me == 0) then
      call kumi_window_array(window, [2, 2, 2], reals)
      reals = 1
      call expect(words(1) /= 0, 'the same memory')
      reals = 0
    end if
    call kumi_window_array(window, [1, 2, 9], reals, stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'an array that is too large')
    call expect(.not. associated(reals), 'not associated')
    call kumi_barrier()
    total = 0
    do i = 1, 100
      call kumi_window_fetch_add(window, 0, 7, -1_c_int64_t, old)
      total = total + old
    end do
    call kumi_allreduce(total, KUMI_SUM)
    call expect(total == -50_c_int64_t * ranks * (100 * ranks - 1), 'atomic')
    call kumi_window_fetch_add(window, 0, 8_c_int64_t, 1_c_int64_t, stat=stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'atomic outside')
    call kumi_window_fetch_add(window, 0, -1, 1_c_int64_t, stat=stat)
    call expect_error(stat, KUMI_ERR_BOUNDS, 'atomic before')
    call kumi_barrier()
    call kumi_window_free(window)
  end subroutine views

  subroutine reductions()
    integer :: value, sums(3), stat, root
    real(c_double) :: x(2, 2), y(2, 2)
    complex(c_double_complex) :: z
    integer(c_int8_t) :: small

    root = ranks - 1
    value = me
    call kumi_allreduce(value, KUMI_MAX)
    call expect(value == root, 'max')
    call kumi_allreduce([me, 1, -me], sums, KUMI_SUM)
    call expect(all(sums == [ranks * root / 2, ranks, -ranks * root / 2]), 'sum')
    x = me + 1
    call kumi_allreduce(x, y, KUMI_MIN)
    call expect(all(abs(y - 1) <= 0), 'min')
    small = 2
    call kumi_allreduce(small, KUMI_PRODUCT)
    call expect(small == int(2**ranks, c_int8_t), 'product')
    value = ibset(0, me)
    call kumi_reduce(root, value, KUMI_BITOR)
    call expect(value == merge(2**ranks - 1, 2**me, me == root), 'reduce in place')
    sums = -1
    if (me == root) then
      call kumi_reduce(root, [1, 2, 3], sums, KUMI_SUM)
      call expect(all(sums == ranks * [1, 2, 3]), 'reduce')
    else
      call kumi_reduce(root, [1, 2, 3], sums(1:0), KUMI_SUM)
    end if
    z = cmplx(me, 1, c_double_complex)
    call kumi_allreduce(z, KUMI_SUM)
    call expect(abs(z - cmplx(ranks * root / 2, ranks, c_double_complex)) <= 0, 'complex sum')
    call kumi_allreduce(z, KUMI_PRODUCT, stat)
    call expect_error(stat, KUMI_ERR_OPERATION, 'complex product')
    call kumi_reduce(root, z, KUMI_MAX, stat)
    call expect_error(stat, KUMI_ERR_OPERATION, 'complex maximum')
    call kumi_allreduce(x, KUMI_BITAND, stat)
    call expect_error(stat, KUMI_ERR_OPERATION, 'bits of reals')
    call kumi_allreduce(sums, sums(1:2), KUMI_SUM, stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'sizes of a sum')
    call expect(kumi_error_detail() == 'send and recv have different sizes', 'the module''s own refusal')
  end subroutine reductions

  subroutine exchanges()
    integer :: root, i, stat, scalars(0:ranks - 1), columns(2, 0:ranks - 1), both(2 * ranks)
    integer :: counts(ranks), mine(ranks)
    complex(c_float_complex) :: given(ranks * (ranks + 1) / 2), taken(ranks * (me + 1))
    character(len=5) :: word

    root = ranks - 1
    word = merge('words', '     ', me == root)
    call kumi_broadcast(root, word)
    call expect(word == 'words', 'broadcast text')
    columns = me
    call kumi_broadcast(root, columns)
    call expect(all(columns == root), 'broadcast')
    call kumi_broadcast(ranks, columns, stat)
    call expect_error(stat, KUMI_ERR_RANK, 'broadcast from nobody')
    call kumi_gather(root, me, scalars)
    if (me == root) call expect(all(scalars == [(i, i=0, ranks - 1)]), 'gather scalars')
    call kumi_gather(root, [me, -me], columns)
    if (me == root) call expect(all(columns(2, :) == [(-i, i=0, ranks - 1)]), 'gather columns')
    call kumi_gather(root, [me, 7], both)
    if (me == root) call expect(both(2 * ranks - 1) == root .and. both(2) == 7, 'gather vectors')
    call kumi_gather(me, [me, 7], both(1:1), stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'gather into too little')
    columns = reshape([(100 * me + i, i=0, 2 * ranks - 1)], [2, ranks])
    call kumi_alltoall(columns + 0, columns)
    call expect(all(columns(2, :) == [(100 * i + 2 * me + 1, i=0, ranks - 1)]), 'alltoall')
    call kumi_alltoall(both, both(2:), stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'alltoall of two sizes')

    ! Rank r sends s + 1 numbers to rank s.
    counts = [(i, i=1, ranks)]
    mine = me + 1
    given = cmplx(me, 1, c_float_complex)
    call kumi_alltoallv(given, counts, taken, mine)
    call expect(all(nint(real(taken)) == [((i - 1) / (me + 1), i=1, size(taken))]), 'alltoallv')
    call expect(all(nint(aimag(taken)) == 1), 'alltoallv, second halves')
    mine(1) = -1
    call kumi_alltoallv(given, counts, taken, mine, stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'negative count')
    call kumi_alltoallv(given, counts, taken, mine(2:), stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'too few counts')
  end subroutine exchanges
end module unit
