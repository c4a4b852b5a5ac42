! The module kumi_grpc: arguments of all kinds, sessions, errors.  The server is that of main, in C.
module unit
  use, intrinsic :: iso_c_binding, only: c_funloc, c_double, c_double_complex, c_float, c_int, c_int8_t, c_int16_t, c_int64_t
  use around, only: deadlines, prints, resources, traces
  use expectations, only: expect, fails
  use kumi_grpc
  use transactions, only: abandoned, chains, copies, failures_of_calls, refusals
  implicit none
  private
  public :: all_of_fortran

contains

  ! Small integers, which reals hold exactly.
  logical function same(a, b)
    real(c_double), intent(in) :: a(:, :), b(:, :)

    same = maxval(abs(a - b)) < 0.5_c_double
  end function same

  ! Arrays by columns, of which the routine wants rows.
  subroutine products()
    type(grpc_function_handle) :: dmmul
    type(grpc_arguments) :: arguments
    real(c_double), target :: a(3, 3), b(3, 3), c(3, 3), wide(6, 3), flat(9)
    real(c_float), target :: single(3, 3)
    integer(c_int) :: stat, session
    integer :: i

    a = reshape([(real(i, c_double), i=1, 9)], [3, 3])
    b = reshape([(real(i * i, c_double), i=1, 9)], [3, 3])
    call grpc_function_handle_default(dmmul, 'dmmul')
    call grpc_push_in(arguments, 3)
    call grpc_push_in(arguments, a)
    call grpc_push_in(arguments, b)
    call grpc_push(arguments, c)
    call grpc_call(dmmul, arguments)
    call expect(same(c, matmul(a, b)), 'a product')
    c = 0
    call grpc_call_async(dmmul, session, arguments)
    call grpc_wait(session)
    call expect(same(c, matmul(a, b)), 'a product of a session')
    call grpc_clear(arguments)
    ! A vector lies as the routine has it: by rows.
    call grpc_push_in(arguments, 3_c_int64_t)
    call grpc_push_in(arguments, a)
    call grpc_push_in(arguments, b)
    call grpc_push(arguments, flat)
    call grpc_call(dmmul, arguments)
    call expect(same(transpose(reshape(flat, [3, 3])), matmul(a, b)), 'a vector')
    call grpc_clear(arguments)
    call grpc_push_in(arguments, 3)
    call grpc_push_in(arguments, a)
    call grpc_push_in(arguments, single)
    call grpc_push(arguments, c)
    call grpc_call(dmmul, arguments, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, '`B`', 'another type')
    call grpc_clear(arguments)
    call grpc_push_in(arguments, 3)
    call grpc_push_in(arguments, a)
    call grpc_push_in(arguments, b)
    call grpc_push(arguments, wide(1:6:2, :))
    call grpc_call(dmmul, arguments, stat)
    call expect(stat == GRPC_INVALID_ARGUMENT_NP, 'an array in pieces')
    call grpc_call_async(dmmul, session, arguments, stat)
    call expect(stat == GRPC_INVALID_ARGUMENT_NP .and. session == GRPC_SESSIONID_VOID, 'the same of a session')
    call grpc_clear(arguments)
    call grpc_push_in(arguments, 3)
    call grpc_push_in(arguments, a)
    call grpc_push_in(arguments, a)
    call grpc_push_in(arguments, c)
    call grpc_call(dmmul, arguments, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, '`C` comes back', 'no result')
    call grpc_function_handle_destruct(dmmul)
    call grpc_call(dmmul, arguments, stat)
    call expect(stat == GRPC_INVALID_FUNCTION_HANDLE, 'a handle that was destructed')
  end subroutine products

  ! Values of expressions, and arrays in pieces, are copied.
  subroutine expressions()
    type(grpc_function_handle) :: dmmul
    type(grpc_arguments) :: arguments
    real(c_double), target :: a(3, 3), wide(6, 3), c(3, 3)
    real(c_double), target :: empty(0, 0)
    real(c_double), allocatable :: other(:, :)
    integer :: i

    a = reshape([(real(i, c_double), i=1, 9)], [3, 3])
    wide = 0
    wide(1:5:2, :) = 2 * a
    call grpc_function_handle_default(dmmul, 'dmmul')
    call grpc_push_in(arguments, 3)
    call grpc_push_in(arguments, matmul(a, a))
    call grpc_push_in(arguments, wide(1:5:2, :))
    call grpc_push(arguments, c)
    ! Here lay what the expressions gave.
    do i = 1, 8
      allocate (other(3, 3))
      other = -1
      wide = wide + maxval(other)
      deallocate (other)
    end do
    call grpc_call(dmmul, arguments)
    call expect(same(c, 2 * matmul(matmul(a, a), a)), 'a product of expressions')
    ! More arguments than there is room for at first.
    call grpc_clear(arguments)
    call grpc_push_in(arguments, 3)
    call grpc_push_in(arguments, matmul(a, a))
    do i = 1, 20
      call grpc_push_in(arguments, a + i)
    end do
    call grpc_clear(arguments)
    call grpc_push_in(arguments, 0)
    call grpc_push_in(arguments, a(1:0, 1:0))
    call grpc_push_in(arguments, empty)
    call grpc_push(arguments, empty)
    call grpc_call(dmmul, arguments)
  end subroutine expressions

  subroutine columns()
    type(grpc_function_handle) :: handle
    type(grpc_arguments) :: arguments
    real(c_double), target :: a(2, 3)
    integer :: i, j

    a = 0
    call grpc_function_handle_default(handle, 'columns')
    call grpc_push_in(arguments, size(a, 1))
    call grpc_push_in(arguments, size(a, 2))
    call grpc_push(arguments, a)
    call grpc_call(handle, arguments)
    do j = 1, 3
      do i = 1, 2
        call expect(nint(a(i, j)) == 100 * i + j, 'an array of Fortran')
      end do
    end do
  end subroutine columns

  subroutine kinds()
    type(grpc_function_handle) :: handle
    type(grpc_arguments) :: arguments
    integer(c_int8_t), target :: i1
    integer(c_int16_t), target :: i2
    integer(c_int), target :: i4
    integer(c_int64_t), target :: i8
    real(c_float), target :: r4
    real(c_double), target :: r8
    complex(c_double_complex), target :: z(2)
    integer :: i

    call grpc_function_handle_default(handle, 'spread')
    call grpc_push_in(arguments, 100)
    call grpc_push(arguments, i1)
    call grpc_push(arguments, i2)
    call grpc_push(arguments, i4)
    call grpc_push(arguments, i8)
    do i = 1, 4
      call grpc_push_default(arguments)
    end do
    call grpc_push(arguments, r4)
    call grpc_push(arguments, r8)
    call grpc_call(handle, arguments)
    call expect(i1 == 100 .and. i2 == 100 .and. i4 == 100 .and. i8 == 100, 'integers that come back')
    call expect(nint(r4) == 100 .and. nint(r8) == 100, 'reals that come back')
    call grpc_clear(arguments)
    call grpc_function_handle_default(handle, 'conjugate')
    z = [(1.0_c_double, 2.0_c_double), (3.0_c_double, -4.0_c_double)]
    call grpc_push_in(arguments, 2)
    call grpc_push(arguments, z)
    call grpc_call(handle, arguments)
    call expect(all(nint(aimag(z)) == [-2, 4]), 'complex numbers')
    call grpc_clear(arguments)
    call grpc_function_handle_default(handle, 'count')
    i4 = 41
    call grpc_push(arguments, i4)
    call grpc_push_default(arguments)
    call grpc_call(handle, arguments)
    call expect(i4 == 42, 'a number that is sent and comes back')
    call grpc_push_in(arguments, 1)
  end subroutine kinds

  subroutine texts()
    type(grpc_function_handle) :: handle
    type(grpc_arguments) :: arguments
    character(len=12), target :: answer
    character(len=3), target :: short
    integer(c_int) :: stat

    call grpc_function_handle_default(handle, 'shout')
    call grpc_push_in(arguments, 'hello   ')
    call grpc_push(arguments, answer)
    call grpc_call(handle, arguments)
    call expect(answer == 'hello!' .and. len_trim(answer) == 6, 'a text')
    call grpc_clear(arguments)
    call grpc_push(arguments, answer)
    call grpc_push(arguments, short)
    call grpc_call(handle, arguments, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, 'room for 3', 'too little room')
  end subroutine texts

  subroutine sessions()
    type(grpc_function_handle) :: nap
    type(grpc_arguments) :: arguments(4)
    integer(c_int) :: ids(4), session, stat, times
    integer(c_int), target :: slept(4)
    integer :: i

    call grpc_function_handle_default(nap, 'nap')
    do i = 1, 4
      call grpc_push_in(arguments(i), 5 + i)
      call grpc_push(arguments(i), slept(i))
      call grpc_call_async(nap, ids(i), arguments(i))
    end do
    times = 0
    do
      call grpc_wait_or(ids, session)
      if (session == GRPC_SESSIONID_VOID) exit
      times = times + 1
    end do
    call expect(times == 4 .and. all(slept == [6, 7, 8, 9]), 'four sessions')
    call grpc_clear(arguments(1))
    call grpc_push_in(arguments(1), 60000)
    call grpc_push(arguments(1), slept(1))
    call grpc_call(nap, arguments(1), stat, limit=50)
    call expect(stat == GRPC_TIMEOUT_NP, 'a limit of time')
    call grpc_call_async(nap, session, arguments(1))
    call grpc_probe(session, stat)
    call expect(stat == GRPC_NOT_COMPLETED, 'a session that is under way')
    call grpc_probe_or([session], ids(1), stat)
    call expect(stat == GRPC_NONE_COMPLETED .and. ids(1) == GRPC_SESSIONID_VOID, 'none is over')
    call grpc_cancel(session)
    call grpc_wait_any(ids(1), stat)
    call expect(ids(1) == session .and. stat == GRPC_SESSION_FAILED, 'a session that was cancelled')
    call expect(grpc_get_error(session) == GRPC_CANCELED_NP, 'its end')
    call grpc_get_failed_sessionid(ids(1))
    call expect(ids(1) == session, 'which failed')
    call grpc_call_async(nap, session, arguments(1))
    call grpc_cancel_all()
    call grpc_wait_all(stat)
    call expect(stat == GRPC_SESSION_FAILED, 'all were cancelled')
    call grpc_wait_and([GRPC_SESSIONID_VOID], stat)
    call expect(stat == GRPC_INVALID_SESSION_ID, 'no session')
  end subroutine sessions

  subroutine failures()
    type(grpc_function_handle) :: handle
    type(grpc_arguments) :: none
    integer(c_int) :: stat

    call grpc_function_handle_default(handle, 'dmul', stat)
    call fails(stat, GRPC_FUNCTION_NOT_FOUND, 'dmmul', 'no such routine')
    call grpc_function_handle_init(handle, '127.0.0.1:1', 'noop', stat)
    call expect(stat == GRPC_SERVER_NOT_FOUND, 'no such server')
    call grpc_function_handle_default(handle, 'crash')
    call grpc_call(handle, none, stat)
    call fails(stat, GRPC_SESSION_FAILED, 'crash', 'a crash')
    call expect(grpc_last_error() == GRPC_CRASHED_NP, 'its code')
    call expect(grpc_error_string(stat) == 'GRPC_SESSION_FAILED', 'the name of a code')
    call grpc_initialize(stat=stat)
    call expect(stat == GRPC_ALREADY_INITIALIZED, 'a second start')
  end subroutine failures

  subroutine square(x, y) bind(c)
    real(c_double), value :: x
    real(c_double), intent(out) :: y

    y = x * x
  end subroutine square

  subroutine given()
    type(grpc_function_handle) :: integrate, capitals
    type(grpc_arguments) :: arguments
    real(c_double), target :: total
    integer(c_int) :: stat

    call grpc_function_handle_default(integrate, 'integrate')
    call grpc_push_in(arguments, 4)
    call grpc_push_function(arguments, c_funloc(square))
    call grpc_push(arguments, total)
    call grpc_call(integrate, arguments)
    call expect(abs(total - 0.328125_c_double) < 1e-12_c_double, 'a function that the routine calls')
    call grpc_clear(arguments)
    call waits_serve_all()
    call grpc_function_handle_default(capitals, 'capitals')
    call grpc_push_in(arguments, '/not/there')
    call grpc_push_in(arguments, '/not/there')
    call grpc_push_in(arguments, '/not/there')
    call grpc_call(capitals, arguments, stat)
    call fails(stat, GRPC_SESSION_FAILED, '/not/there', 'a file')
    call expect(grpc_last_error() == GRPC_FILE_NP, 'its code')
  end subroutine given

  ! As many sessions as there are slots wait for a function; a wait for one behind them runs it.
  subroutine waits_serve_all()
    type(grpc_function_handle) :: integrate, count
    type(grpc_arguments) :: arguments(3)
    real(c_double), target :: total(2)
    integer(c_int), target :: number
    integer(c_int) :: sessions(2), behind
    integer :: i

    call grpc_function_handle_default(integrate, 'integrate')
    call grpc_function_handle_default(count, 'count')
    do i = 1, 2
      call grpc_push_in(arguments(i), 4)
      call grpc_push_function(arguments(i), c_funloc(square))
      call grpc_push(arguments(i), total(i))
      call grpc_call_async(integrate, sessions(i), arguments(i))
    end do
    number = 41
    call grpc_push(arguments(3), number)
    call grpc_push_default(arguments(3))
    call grpc_call_async(count, behind, arguments(3))
    call grpc_wait(behind)
    call expect(number == 42, 'a session behind others')
    call grpc_wait_and(sessions)
    call expect(all(abs(total - 0.328125_c_double) < 1e-12_c_double), 'their functions')
  end subroutine waits_serve_all

  subroutine more(sum, further) bind(c)
    integer(c_int64_t), value :: sum
    integer(c_int64_t), intent(out) :: further

    further = sum + 1
  end subroutine more

  ! What an object has added up.
  integer function total(object)
    type(grpc_object_handle), intent(in) :: object
    type(grpc_arguments) :: arguments
    integer(c_int64_t), target :: sum

    call grpc_push(arguments, sum)
    call grpc_invoke(object, 'total', arguments)
    total = int(sum)
  end function total

  subroutine objects()
    type(grpc_object_handle) :: one, two, wrong
    type(grpc_arguments) :: arguments, none
    integer(c_int64_t), target :: sum
    real(c_double), target :: a(2, 2), x(2), y(2)
    integer(c_int) :: stat, session

    a = reshape([1.0_c_double, 3.0_c_double, 2.0_c_double, 4.0_c_double], [2, 2])
    x = [10.0_c_double, 1.0_c_double]
    call grpc_object_handle_default(one, 'counter')
    call grpc_object_handle_default(two, 'counter  ')
    call grpc_push_in(arguments, 20)
    call grpc_invoke(one, 'add', arguments)
    call grpc_invoke_async(one, 'add', session, arguments)
    call grpc_wait(session)
    call expect(total(one) == 40, 'an object')
    call expect(total(two) == 0, 'another one')
    call grpc_clear(arguments)
    call grpc_push_function(arguments, c_funloc(more))
    call grpc_push(arguments, sum)
    call grpc_invoke(one, 'ask', arguments)
    call expect(sum == 81, 'a function that a method calls')
    call grpc_clear(arguments)
    call grpc_push_in(arguments, 2)
    call grpc_push_in(arguments, a)
    call grpc_invoke(one, 'keep', arguments)
    call grpc_clear(arguments)
    call grpc_push_in(arguments, 2)
    call grpc_push_in(arguments, x)
    call grpc_push(arguments, y)
    call grpc_invoke(one, 'times', arguments)
    call expect(all(nint(y) == [12, 34]), 'a matrix that an object keeps')
    call grpc_object_handle_default(wrong, 'conter', stat)
    call fails(stat, GRPC_FUNCTION_NOT_FOUND, 'counter', 'no such class')
    call grpc_object_handle_init(wrong, '127.0.0.1:1', 'counter', stat)
    call expect(stat == GRPC_SERVER_NOT_FOUND, 'no such server')
    call grpc_invoke(wrong, 'total', none, stat)
    call expect(stat == GRPC_INVALID_FUNCTION_HANDLE, 'no object')
    call grpc_invoke(one, 'totl', none, stat)
    call fails(stat, GRPC_FUNCTION_NOT_FOUND, 'counter.total', 'no such method')
    call grpc_invoke_async(one, 'total', session, none, stat)
    call expect(stat == GRPC_INVALID_ARGUMENT_NP .and. session == GRPC_SESSIONID_VOID, 'no argument')
    call grpc_object_handle_is_ready(one, stat)
    call expect(stat == GRPC_NO_ERROR, 'an object that is there')
    call grpc_invoke(one, 'crash', none, stat)
    call fails(stat, GRPC_SESSION_FAILED, 'crash', 'a crash of a method')
    call expect(grpc_last_error() == GRPC_CRASHED_NP, 'its code')
    call grpc_invoke(one, 'crash', none, stat)
    call fails(stat, GRPC_RPC_REFUSED, 'no more', 'an object that is no more')
    call expect(grpc_last_error() == GRPC_OBJECT_LOST_NP, 'its code')
    do while (stat /= GRPC_OBJECT_LOST_NP)
      call grpc_object_handle_is_ready(one, stat)
    end do
    call expect(total(two) == 0, 'the other one')
    call grpc_object_handle_destruct(one)
    call grpc_object_handle_destruct(two)
    call grpc_object_handle_destruct(two, stat)
    call expect(stat == GRPC_INVALID_FUNCTION_HANDLE, 'an object that was destructed')
  end subroutine objects

  subroutine all_of_fortran() bind(c)
    type(grpc_function_handle) :: handle
    integer(c_int) :: stat

    call grpc_initialize('/not/there', stat)
    call expect(stat == GRPC_CONFIGFILE_NOT_FOUND, 'no configuration')
    call grpc_function_handle_default(handle, 'noop', stat)
    call expect(stat == GRPC_NOT_INITIALIZED, 'no start')
    call grpc_initialize()
    call products()
    call expressions()
    call columns()
    call kinds()
    call texts()
    call sessions()
    call failures()
    call given()
    call objects()
    call deadlines()
    call traces()
    call prints()
    call resources()
    call chains()
    call copies()
    call refusals()
    call failures_of_calls()
    call abandoned()
    call grpc_finalize()
  end subroutine all_of_fortran
end module unit
