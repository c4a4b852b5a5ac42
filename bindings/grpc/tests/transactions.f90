! Transactions of the module kumi_grpc.
module transactions
  use, intrinsic :: iso_c_binding, only: c_double, c_funloc, c_int
  use expectations, only: expect, fails
  use kumi_grpc
  implicit none
  private
  public :: chains, copies, refusals, failures_of_calls, abandoned

contains

  subroutine product_of(arguments, a, b, c)
    type(grpc_arguments), intent(out) :: arguments
    real(c_double), intent(in) :: a(:, :), b(:, :)
    real(c_double), intent(inout), target :: c(:, :)

    call grpc_push_in(arguments, size(a, 1))
    call grpc_push_in(arguments, a)
    call grpc_push_in(arguments, b)
    call grpc_push(arguments, c)
  end subroutine product_of

  ! Arrays by columns go from call to call: those of the program, and one that stays at the servers.
  subroutine chains()
    type(grpc_function_handle) :: dmmul, shout
    type(grpc_arguments) :: first, second, third, fourth, text
    type(grpc_transaction) :: t
    type(grpc_intermediate) :: between
    real(c_double), target :: a(2, 2), b(2, 2), c(2, 2), d(2, 2), e(2, 2)
    character(len=12), target :: answer
    integer(c_int) :: number, stat

    a = reshape([1.0_c_double, 3.0_c_double, 2.0_c_double, 4.0_c_double], [2, 2])
    b = reshape([5.0_c_double, 7.0_c_double, 6.0_c_double, 8.0_c_double], [2, 2])
    c = 0
    answer = 'before'
    call grpc_function_handle_default(dmmul, 'dmmul')
    call grpc_function_handle_default(shout, 'shout')
    call grpc_transaction_begin(t)
    call product_of(first, a, b, c)
    call grpc_transaction_call(t, dmmul, first, number=number)
    call expect(number == 0, 'the number of the first call')
    call grpc_push_in(second, 2)
    call grpc_push(second, c)
    call grpc_push_in(second, a)
    call grpc_push(second, d)
    call grpc_transaction_call(t, dmmul, second, number=number)
    call grpc_transaction_intermediate(t, between)
    call grpc_push_in(third, 2)
    call grpc_push_in(third, a)
    call grpc_push_in(third, b)
    call grpc_push_intermediate(third, between)
    call grpc_transaction_call(t, dmmul, third)
    call grpc_push_in(fourth, 2)
    call grpc_push_intermediate(fourth, between)
    call grpc_push_in(fourth, a)
    call grpc_push(fourth, e)
    call grpc_transaction_call(t, dmmul, fourth)
    call grpc_push_in(text, 'hello')
    call grpc_push(text, answer)
    call grpc_transaction_call(t, shout, text)
    call grpc_transaction_get_error(t, number, stat)
    call expect(stat == GRPC_NOT_COMPLETED .and. nint(c(1, 1)) == 0 .and. answer == 'before', 'nothing runs before the end')
    call grpc_transaction_end(t)
    call expect(all(nint(c) == nint(matmul(a, b))), 'the first product')
    call expect(all(nint(d) == nint(matmul(matmul(a, b), a))), 'a product of a product')
    call expect(all(nint(e) == nint(d)), 'a product of one that stays')
    call expect(answer == 'hello!', 'a text')
    call grpc_transaction_get_error(t, number, stat)
    call expect(stat == GRPC_NO_ERROR .and. number == 1, 'what came of a call')
    call grpc_transaction_destruct(t)
  end subroutine chains

  ! What grpc_push_in copies is from before the transaction: it is not what an earlier call gives.
  subroutine copies()
    type(grpc_function_handle) :: dmmul, count, shout
    type(grpc_arguments) :: first, number_, text, array, row, twice, apart
    type(grpc_transaction) :: t
    real(c_double), target :: a(2, 2), c(2, 4), d(2, 2)
    integer(c_int), target :: number
    character(len=12), target :: answer, said
    integer(c_int) :: stat

    a = 1
    c = 1
    number = 2
    answer = 'before'
    call grpc_function_handle_default(dmmul, 'dmmul')
    call grpc_function_handle_default(count, 'count')
    call grpc_function_handle_default(shout, 'shout')
    call grpc_transaction_begin(t)
    call product_of(first, a, a, c(:, 1:2))
    call grpc_transaction_call(t, dmmul, first)
    call product_of(array, c(:, 2:3), a, d)
    call grpc_transaction_call(t, dmmul, array, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, '`A` is a copy', 'the copy of an array that an earlier call writes')
    call grpc_push_in(row, 1)
    call grpc_push_in(row, c(2:2, 1:4:3))
    call grpc_push_in(row, c(1, 3:3))
    call grpc_push(row, d(:, 1))
    call grpc_transaction_call(t, dmmul, row, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, '`A` is a copy', 'the same of an array in pieces')
    call grpc_push(number_, number)
    call grpc_push_in(number_, 2)
    call grpc_transaction_call(t, count, number_)
    call grpc_push_in(twice, number)
    call grpc_push_in(twice, a)
    call grpc_push_in(twice, a)
    call grpc_push(twice, d)
    call grpc_transaction_call(t, dmmul, twice, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, '`n` is what an earlier call', 'the copy of a number')
    call grpc_push_in(text, 'hello')
    call grpc_push(text, answer)
    call grpc_transaction_call(t, shout, text)
    call grpc_clear(text)
    call grpc_push_in(text, answer)
    call grpc_push(text, said)
    call grpc_transaction_call(t, shout, text, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, '`text` is what an earlier call', 'the copy of a text')
    ! Values of expressions, and parts that nobody writes, are as they were.
    call product_of(apart, c(:, 3:4), a + c(:, 1:2), d)
    call grpc_transaction_call(t, dmmul, apart)
    call grpc_transaction_end(t)
    call expect(number == 4 .and. answer == 'hello!' .and. all(nint(c(:, 1:2)) == 2), 'what the calls give')
    call expect(all(nint(d) == 4), 'a product of what nobody writes')
    call grpc_transaction_destruct(t)
  end subroutine copies

  subroutine square(x, y) bind(c, name='square_of_transactions')
    real(c_double), value :: x
    real(c_double), intent(out) :: y

    y = x * x
  end subroutine square

  subroutine refusals()
    type(grpc_function_handle) :: dmmul, integrate
    type(grpc_arguments) :: arguments, with_function, in_pieces
    type(grpc_transaction) :: t, never
    type(grpc_intermediate) :: none
    real(c_double), target :: a(2, 2), c(2, 2), wide(4, 2), total
    integer(c_int) :: number, stat

    a = 1
    call grpc_function_handle_default(dmmul, 'dmmul')
    call grpc_function_handle_default(integrate, 'integrate')
    call grpc_transaction_begin(t, '127.0.0.1:1', stat)
    call expect(stat == GRPC_SERVER_NOT_FOUND, 'no such server')
    call grpc_transaction_end(never, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, 'no transaction', 'one that was never begun')
    call expect(grpc_last_error() == GRPC_INVALID_TRANSACTION_NP, 'its code')
    call grpc_transaction_begin(t)
    call grpc_transaction_priority(t, 1, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, 'metaserver', 'a priority at a server')
    call grpc_push_in(with_function, 4)
    call grpc_push_function(with_function, c_funloc(square))
    call grpc_push(with_function, total)
    call grpc_transaction_call(t, integrate, with_function, stat, number)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, 'no functions', 'a function')
    call grpc_push_in(in_pieces, 2)
    call grpc_push_in(in_pieces, a)
    call grpc_push_in(in_pieces, a)
    call grpc_push(in_pieces, wide(1:4:2, :))
    call grpc_transaction_call(t, dmmul, in_pieces, stat, number)
    call expect(stat == GRPC_INVALID_ARGUMENT_NP .and. number == -1, 'an array in pieces')
    call grpc_push_in(arguments, 2)
    call grpc_push_in(arguments, a)
    call grpc_push_intermediate(arguments, none)
    call grpc_push(arguments, c)
    call grpc_transaction_call(t, dmmul, arguments, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, '`B`', 'an array that was never made')
    ! The wrong size is seen at the end, before anything runs.
    call grpc_clear(arguments)
    call grpc_push_in(arguments, 3)
    call grpc_push_in(arguments, a)
    call grpc_push_in(arguments, a)
    call grpc_push(arguments, c)
    call grpc_transaction_call(t, dmmul, arguments, number=number)
    call grpc_transaction_end(t, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, 'call 0 (`dmmul`): `A`', 'a wrong size')
    call grpc_transaction_get_error(t, number, stat)
    call expect(stat == GRPC_NOT_RUN_NP, 'a call that did not run')
    call grpc_transaction_call(t, dmmul, arguments, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, 'has ended', 'a call after the end')
    call grpc_transaction_destruct(t)
  end subroutine refusals

  subroutine failures_of_calls()
    type(grpc_function_handle) :: judge, nap, dmmul
    type(grpc_arguments) :: judged, late, behind, apart
    type(grpc_transaction) :: t
    type(grpc_intermediate) :: lost
    real(c_double), target :: a(1, 1), c(1, 1), d(1, 1)
    integer(c_int), target :: info, slept
    integer(c_int) :: stat

    a = 2
    d = 0
    call grpc_function_handle_default(judge, 'judge')
    call grpc_function_handle_default(nap, 'nap')
    call grpc_function_handle_default(dmmul, 'dmmul')
    call grpc_transaction_begin(t)
    call grpc_transaction_intermediate(t, lost)
    call grpc_push_in(judged, 3)
    call grpc_push_intermediate(judged, lost)
    call grpc_push(judged, info)
    call grpc_transaction_call(t, judge, judged)
    call grpc_push_in(late, 60000)
    call grpc_push(late, slept)
    call grpc_transaction_call(t, nap, late, limit=50)
    call grpc_push_in(behind, 1)
    call grpc_push_intermediate(behind, lost)
    call grpc_push_in(behind, a)
    call grpc_push(behind, d)
    call grpc_transaction_call(t, dmmul, behind)
    call product_of(apart, a, a, c)
    call grpc_transaction_call(t, dmmul, apart)
    call grpc_transaction_end(t, stat)
    call fails(stat, GRPC_SESSION_FAILED, '1 of 4 calls have run', 'some failed')
    call expect(grpc_last_error() == GRPC_STATUS_NP .and. info == 3, 'the first of them')
    call grpc_transaction_get_error(t, 0, stat)
    call fails(stat, GRPC_STATUS_NP, 'info is 3', 'a status')
    call grpc_transaction_get_error(t, 1, stat)
    call expect(stat == GRPC_TIMEOUT_NP, 'a limit of time')
    call grpc_transaction_get_error(t, 2, stat)
    call fails(stat, GRPC_NOT_RUN_NP, 'because of 0 (judge)', 'one behind a failure')
    call grpc_transaction_get_error(t, 3, stat)
    call expect(stat == GRPC_NO_ERROR .and. nint(c(1, 1)) == 4 .and. nint(d(1, 1)) == 0, 'one apart')
    call grpc_transaction_destruct(t)
  end subroutine failures_of_calls

  subroutine abandoned()
    type(grpc_function_handle) :: dmmul
    type(grpc_arguments) :: arguments
    type(grpc_transaction) :: t
    real(c_double), target :: a(1, 1), c(1, 1)
    integer(c_int) :: stat

    a = 2
    c = 0
    call grpc_function_handle_default(dmmul, 'dmmul')
    call grpc_transaction_begin(t)
    call product_of(arguments, a, a, c)
    call grpc_transaction_call(t, dmmul, arguments)
    call grpc_transaction_abandon(t)
    call grpc_transaction_get_error(t, 0, stat)
    call fails(stat, GRPC_CANCELED_NP, 'abandoned', 'a call of one that was abandoned')
    call grpc_transaction_end(t, stat)
    call expect(stat == GRPC_INVALID_ARGUMENT_NP .and. nint(c(1, 1)) == 0, 'nothing has run')
    call grpc_transaction_destruct(t)
    call grpc_transaction_destruct(t, stat)
    call expect(stat == GRPC_INVALID_ARGUMENT_NP, 'one that was destructed')
  end subroutine abandoned
end module transactions
