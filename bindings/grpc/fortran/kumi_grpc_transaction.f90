! kumi_grpc_transaction: calls that are recorded and then run together.  Programs use the module kumi_grpc instead.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi_grpc_transaction
  use, intrinsic :: iso_c_binding, only: c_char, c_int, c_loc, c_null_ptr, c_ptr
  use kumi_grpc_base, only: add_held, given, grpc_arguments, grpc_function_handle, record_call, text_of_c
  use kumi_grpc_codes
  use kumi_grpc_errors, only: done, in_pieces
  implicit none
  public
  private :: c_char, c_int, c_loc, c_null_ptr, c_ptr

  ! Calls that are recorded, and run together.  Copies are the same transaction.
  type :: grpc_transaction
    private
    type(c_ptr) :: address = c_null_ptr
  end type grpc_transaction

  ! An array of a transaction that stays at the servers.
  type :: grpc_intermediate
    private
    type(c_ptr) :: address = c_null_ptr
  end type grpc_intermediate

  interface
    integer(c_int) function c_transaction_begin(transaction, servers) bind(c, name='grpc_transaction_begin_np')
      import :: c_int, c_ptr
      type(c_ptr), intent(out) :: transaction
      type(c_ptr), value :: servers
    end function c_transaction_begin

    integer(c_int) function c_transaction_priority(transaction, priority) bind(c, name='grpc_transaction_priority_np')
      import :: c_int, c_ptr
      type(c_ptr), value :: transaction
      integer(c_int), value :: priority
    end function c_transaction_priority

    integer(c_int) function c_transaction_intermediate(transaction, array) bind(c, name='grpc_transaction_intermediate_np')
      import :: c_int, c_ptr
      type(c_ptr), value :: transaction
      type(c_ptr), intent(out) :: array
    end function c_transaction_intermediate

    integer(c_int) function c_transaction_end(transaction) bind(c, name='grpc_transaction_end_np')
      import :: c_int, c_ptr
      type(c_ptr), value :: transaction
    end function c_transaction_end

    integer(c_int) function c_transaction_get_error(transaction, call) bind(c, name='grpc_transaction_get_error_np')
      import :: c_int, c_ptr
      type(c_ptr), value :: transaction
      integer(c_int), value :: call
    end function c_transaction_get_error

    integer(c_int) function c_transaction_abandon(transaction) bind(c, name='grpc_transaction_abandon_np')
      import :: c_int, c_ptr
      type(c_ptr), value :: transaction
    end function c_transaction_abandon

    integer(c_int) function c_transaction_destruct(transaction) bind(c, name='grpc_transaction_destruct_np')
      import :: c_int, c_ptr
      type(c_ptr), value :: transaction
    end function c_transaction_destruct
  end interface

contains

  ! Begins a transaction at these servers, addresses with commas between them, or at this metaserver. Without them: those of
  ! the configuration.
  subroutine grpc_transaction_begin(transaction, servers, stat)
    type(grpc_transaction), intent(inout) :: transaction
    character(len=*), intent(in), optional :: servers
    integer(c_int), intent(out), optional :: stat
    character(kind=c_char), allocatable, target :: text(:)
    type(c_ptr) :: named, address
    integer(c_int) :: code

    named = c_null_ptr
    if (present(servers)) then
      allocate (text, source=text_of_c(servers))
      named = c_loc(text)
    end if
    code = c_transaction_begin(address, named)
    if (code == GRPC_NO_ERROR) transaction%address = address
    call done(code, stat)
  end subroutine grpc_transaction_begin

  ! The priority of its calls at a metaserver: 0 to 9, 9 comes first.
  subroutine grpc_transaction_priority(transaction, priority, stat)
    type(grpc_transaction), intent(in) :: transaction
    integer(c_int), intent(in) :: priority
    integer(c_int), intent(out), optional :: stat

    call done(c_transaction_priority(transaction%address, priority), stat)
  end subroutine grpc_transaction_priority

  ! Makes an array that one call makes and later ones read. It stays at the servers, and goes with the transaction.
  subroutine grpc_transaction_intermediate(transaction, array, stat)
    type(grpc_transaction), intent(in) :: transaction
    type(grpc_intermediate), intent(inout) :: array
    integer(c_int), intent(out), optional :: stat
    type(c_ptr) :: address
    integer(c_int) :: code

    code = c_transaction_intermediate(transaction%address, address)
    if (code == GRPC_NO_ERROR) array%address = address
    call done(code, stat)
  end subroutine grpc_transaction_intermediate

  ! Such an array as an argument.
  subroutine grpc_push_intermediate(arguments, array)
    type(grpc_arguments), intent(inout) :: arguments
    type(grpc_intermediate), intent(in) :: array

    call add_held(arguments, array%address)
  end subroutine grpc_push_intermediate

  ! Records a call, of at most this many milliseconds. Variables that were pushed are lent until the transaction has ended;
  ! what was pushed with grpc_push_in is copied, and refused if an earlier call writes to that variable. number: 0, 1, and so on.
  subroutine grpc_transaction_call(transaction, handle, arguments, stat, number, limit)
    type(grpc_transaction), intent(in) :: transaction
    type(grpc_function_handle), intent(in) :: handle
    type(grpc_arguments), intent(in) :: arguments
    integer(c_int), intent(out), optional :: stat, number
    integer(c_int), intent(in), optional :: limit
    integer(c_int) :: recorded

    recorded = -1
    if (.not. in_pieces(arguments, stat)) then
      call done(record_call(transaction%address, recorded, handle, arguments, given(limit)), stat)
    end if
    if (present(number)) number = recorded
  end subroutine grpc_transaction_call

  ! Runs the calls and waits.
  subroutine grpc_transaction_end(transaction, stat)
    type(grpc_transaction), intent(in) :: transaction
    integer(c_int), intent(out), optional :: stat

    call done(c_transaction_end(transaction%address), stat)
  end subroutine grpc_transaction_end

  ! stat: what came of a call, as an exact code; GRPC_NOT_COMPLETED before the transaction has ended.
  subroutine grpc_transaction_get_error(transaction, number, stat)
    type(grpc_transaction), intent(in) :: transaction
    integer(c_int), intent(in) :: number
    integer(c_int), intent(out) :: stat

    stat = c_transaction_get_error(transaction%address, number)
  end subroutine grpc_transaction_get_error

  ! Gives it up: before its end nothing runs; while another thread is in the end, its calls are cancelled.
  subroutine grpc_transaction_abandon(transaction, stat)
    type(grpc_transaction), intent(in) :: transaction
    integer(c_int), intent(out), optional :: stat

    call done(c_transaction_abandon(transaction%address), stat)
  end subroutine grpc_transaction_abandon

  ! Frees it; abandons it before if it has not ended.
  subroutine grpc_transaction_destruct(transaction, stat)
    type(grpc_transaction), intent(in) :: transaction
    integer(c_int), intent(out), optional :: stat

    call done(c_transaction_destruct(transaction%address), stat)
  end subroutine grpc_transaction_destruct
end module kumi_grpc_transaction
