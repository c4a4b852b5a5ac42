! Calls of routines on servers from Fortran 2008, over grpc.h; see there what the functions do.
!
!   use kumi_grpc
!   type(grpc_function_handle) :: dmmul
!   type(grpc_arguments) :: arguments
!
!   call grpc_initialize()
!   call grpc_function_handle_default(dmmul, 'dmmul')
!   call grpc_push_in(arguments, n)
!   call grpc_push_in(arguments, a)
!   call grpc_push_in(arguments, b)
!   call grpc_push(arguments, c)
!   call grpc_call(dmmul, arguments)
!
! Push one argument for each parameter, in the order of the description, but none for work arrays. Results need grpc_push;
! inputs may use either procedure.  grpc_push_in copies its argument, which may be any expression, also an array in pieces.
! grpc_push lends a variable, without a copy of large arrays: it needs the attribute target, and an array must lie in one
! piece. Do not touch it until the call is over.  The library compares types, sizes and
! shapes with the description before it sends anything. It converts arrays of several dimensions if the routine wants them by
! rows.  Texts are padded with blanks.
!
! An object of a class keeps its state at the server from call to call:
!
!   type(grpc_object_handle) :: counter
!
!   call grpc_object_handle_default(counter, 'counter')
!   call grpc_push_in(arguments, 3)
!   call grpc_invoke(counter, 'add', arguments)
!
! Procedures have `stat` as their last argument; without it the program ends when they fail.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi_grpc
  use, intrinsic :: iso_c_binding, only: c_char, c_double, c_int, c_int64_t, c_loc, c_null_char, c_null_ptr, c_ptr, c_size_t
  use kumi_grpc_base, only: address_of, begin, begin_method, c_cancel, c_cancel_all, c_finalize, c_get_failed, &
    c_handle_default, c_handle_destruct, c_handle_init, c_handle_output, c_initialize, c_object_destruct, c_object_is_ready, &
    c_object_output, c_output_create, c_output_destruct, c_output_take, c_probe, c_probe_or, c_remaining, c_traceparent_get, &
    c_traceparent_set, c_wait, c_wait_all, c_wait_and, c_wait_any, c_wait_or, given, grpc_arguments, grpc_clear, &
    grpc_function_handle, grpc_get_error, grpc_last_error, grpc_object_handle, grpc_output, grpc_push_default, &
    grpc_push_function, make_object, set_address, text_of_c
  use kumi_grpc_codes
  use kumi_grpc_errors, only: copy_text, done, grpc_error_string, grpc_last_error_text, in_pieces
  use kumi_grpc_push
  use kumi_grpc_transaction, only: grpc_intermediate, grpc_push_intermediate, grpc_transaction, grpc_transaction_abandon, &
    grpc_transaction_begin, grpc_transaction_call, grpc_transaction_destruct, grpc_transaction_end, &
    grpc_transaction_get_error, grpc_transaction_intermediate, grpc_transaction_priority
  implicit none
  public
  private :: address_of, begin, begin_method, c_cancel, c_cancel_all, c_char, c_double, c_finalize, c_get_failed, &
    c_handle_default, c_handle_destruct, c_handle_init, c_handle_output, c_initialize, c_int, c_int64_t, c_loc, c_null_char, &
    c_null_ptr, c_object_destruct, c_object_is_ready, c_object_output, c_output_create, c_output_destruct, c_output_take, &
    c_probe, c_probe_or, c_ptr, c_remaining, c_size_t, c_traceparent_get, c_traceparent_set, c_wait, c_wait_all, c_wait_and, &
    c_wait_any, c_wait_or, copy_text, done, given, in_pieces, make_object, set_address, text_of_c

contains

  ! ---- start, end, handles ------------------------------------------------------------------------

  subroutine grpc_initialize(file, stat)
    character(len=*), intent(in), optional :: file
    integer(c_int), intent(out), optional :: stat
    character(kind=c_char), target :: name(1024)
    integer :: i, length

    if (.not. present(file)) then
      call done(c_initialize(c_null_ptr), stat)
      return
    end if
    ! A longer name is cut, and then names no existing file.
    length = min(len_trim(file), size(name) - 1)
    do i = 1, length
      name(i) = file(i:i)
    end do
    name(length + 1) = c_null_char
    call done(c_initialize(c_loc(name)), stat)
  end subroutine grpc_initialize

  subroutine grpc_finalize(stat)
    integer(c_int), intent(out), optional :: stat

    call done(c_finalize(), stat)
  end subroutine grpc_finalize

  subroutine grpc_function_handle_default(handle, routine, stat)
    type(grpc_function_handle), intent(inout) :: handle
    character(len=*), intent(in) :: routine
    integer(c_int), intent(out), optional :: stat

    call done(c_handle_default(handle, trim(routine)//c_null_char), stat)
  end subroutine grpc_function_handle_default

  subroutine grpc_function_handle_init(handle, server, routine, stat)
    type(grpc_function_handle), intent(inout) :: handle
    character(len=*), intent(in) :: server, routine
    integer(c_int), intent(out), optional :: stat

    call done(c_handle_init(handle, trim(server)//c_null_char, trim(routine)//c_null_char), stat)
  end subroutine grpc_function_handle_init

  subroutine grpc_function_handle_destruct(handle, stat)
    type(grpc_function_handle), intent(inout) :: handle
    integer(c_int), intent(out), optional :: stat

    call done(c_handle_destruct(handle), stat)
  end subroutine grpc_function_handle_destruct

  ! Makes an object of a class at the first configured server that can make one; waits until it exists. It asks for so
  ! many threads and bytes of memory, which all calls on it have.
  subroutine grpc_object_handle_default(handle, class, stat, threads, memory)
    type(grpc_object_handle), intent(inout) :: handle
    character(len=*), intent(in) :: class
    integer(c_int), intent(out), optional :: stat
    integer(c_int), intent(in), optional :: threads
    integer(c_int64_t), intent(in), optional :: memory

    call done(make_object(handle, class, threads=threads, memory=memory), stat)
  end subroutine grpc_object_handle_default

  subroutine grpc_object_handle_init(handle, server, class, stat, threads, memory)
    type(grpc_object_handle), intent(inout) :: handle
    character(len=*), intent(in) :: server, class
    integer(c_int), intent(out), optional :: stat
    integer(c_int), intent(in), optional :: threads
    integer(c_int64_t), intent(in), optional :: memory

    call done(make_object(handle, class, server, threads, memory), stat)
  end subroutine grpc_object_handle_init

  subroutine grpc_object_handle_destruct(handle, stat)
    type(grpc_object_handle), intent(inout) :: handle
    integer(c_int), intent(out), optional :: stat

    call done(c_object_destruct(handle), stat)
  end subroutine grpc_object_handle_destruct

  ! stat: GRPC_NO_ERROR if the object exists, GRPC_OBJECT_LOST_NP if it does not.
  subroutine grpc_object_handle_is_ready(handle, stat)
    type(grpc_object_handle), intent(in) :: handle
    integer(c_int), intent(out) :: stat

    stat = c_object_is_ready(handle)
  end subroutine grpc_object_handle_is_ready

  ! ---- calls --------------------------------------------------------------------------------------

  ! Calls and waits, at most this many milliseconds; 0: no limit. The call asks for so many threads and bytes of memory;
  ! 0: as many as the server gives.
  subroutine grpc_call(handle, arguments, stat, limit, threads, memory)
    type(grpc_function_handle), intent(in) :: handle
    type(grpc_arguments), intent(in) :: arguments
    integer(c_int), intent(out), optional :: stat
    integer(c_int), intent(in), optional :: limit, threads
    integer(c_int64_t), intent(in), optional :: memory
    integer(c_int) :: session

    session = GRPC_SESSIONID_VOID
    if (in_pieces(arguments, stat)) return
    call done(begin(handle, arguments, 0_c_int, session, given(limit, threads, memory)), stat)
  end subroutine grpc_call

  ! Begins a session; returns when the arguments are sent.
  subroutine grpc_call_async(handle, session, arguments, stat, limit, threads, memory)
    type(grpc_function_handle), intent(in) :: handle
    integer(c_int), intent(out) :: session
    type(grpc_arguments), intent(in) :: arguments
    integer(c_int), intent(out), optional :: stat
    integer(c_int), intent(in), optional :: limit, threads
    integer(c_int64_t), intent(in), optional :: memory

    session = GRPC_SESSIONID_VOID
    if (in_pieces(arguments, stat)) return
    call done(begin(handle, arguments, 1_c_int, session, given(limit, threads, memory)), stat)
  end subroutine grpc_call_async

  ! Calls a method of an object and waits, at most this many milliseconds; 0: no limit.
  subroutine grpc_invoke(handle, method, arguments, stat, limit)
    type(grpc_object_handle), intent(in) :: handle
    character(len=*), intent(in) :: method
    type(grpc_arguments), intent(in) :: arguments
    integer(c_int), intent(out), optional :: stat
    integer(c_int), intent(in), optional :: limit
    integer(c_int) :: session

    session = GRPC_SESSIONID_VOID
    if (in_pieces(arguments, stat)) return
    call done(begin_method(handle, method, arguments, 0_c_int, session, given(limit)), stat)
  end subroutine grpc_invoke

  ! Begins a session; returns when the arguments are sent.
  subroutine grpc_invoke_async(handle, method, session, arguments, stat, limit)
    type(grpc_object_handle), intent(in) :: handle
    character(len=*), intent(in) :: method
    integer(c_int), intent(out) :: session
    type(grpc_arguments), intent(in) :: arguments
    integer(c_int), intent(out), optional :: stat
    integer(c_int), intent(in), optional :: limit

    session = GRPC_SESSIONID_VOID
    if (in_pieces(arguments, stat)) return
    call done(begin_method(handle, method, arguments, 1_c_int, session, given(limit)), stat)
  end subroutine grpc_invoke_async

  ! ---- the call around this one -------------------------------------------------------------------

  ! The seconds that are left of the call for which this thread runs a function, or this process a routine: 0 when they are
  ! over, infinity without a limit. Calls that are made there end within that time.
  subroutine grpc_remaining(seconds, stat)
    real(c_double), intent(out) :: seconds
    integer(c_int), intent(out), optional :: stat

    call done(c_remaining(seconds), stat)
  end subroutine grpc_remaining

  ! In which trace the calls are that this thread begins from now on: `traceparent` of W3C Trace Context. Without it: the
  ! TRACEPARENT with which the program was started.
  subroutine grpc_traceparent_set(traceparent, stat)
    character(len=*), intent(in), optional :: traceparent
    integer(c_int), intent(out), optional :: stat
    character(kind=c_char), allocatable, target :: text(:)

    if (present(traceparent)) then
      allocate (text, source=text_of_c(traceparent))
      call done(c_traceparent_set(c_loc(text)), stat)
    else
      call done(c_traceparent_set(c_null_ptr), stat)
    end if
  end subroutine grpc_traceparent_set

  ! What was set so for this thread; blanks: nothing.
  function grpc_traceparent_get() result(traceparent)
    character(len=55) :: traceparent
    character(kind=c_char) :: text(56)
    integer :: i

    call done(c_traceparent_get(text, size(text, kind=c_size_t)))
    traceparent = ''
    do i = 1, len(traceparent)
      if (text(i) == c_null_char) exit
      traceparent(i:i) = text(i)
    end do
  end function grpc_traceparent_get

  ! ---- what routines print ------------------------------------------------------------------------

  ! Makes a receiver. Calls with a handle that has it give it what their routine prints.
  subroutine grpc_output_create(output, stat)
    type(grpc_output), intent(inout) :: output
    integer(c_int), intent(out), optional :: stat
    type(c_ptr) :: address
    integer(c_int) :: code

    code = c_output_create(address)
    if (code == GRPC_NO_ERROR) call set_address(output, address)
    call done(code, stat)
  end subroutine grpc_output_create

  ! Calls with this handle that begin from now on give this receiver what they print. Without one: nobody gets it.
  subroutine grpc_function_handle_output(handle, output, stat)
    type(grpc_function_handle), intent(in) :: handle
    type(grpc_output), intent(in), optional :: output
    integer(c_int), intent(out), optional :: stat

    call done(c_handle_output(handle, address_of(output)), stat)
  end subroutine grpc_function_handle_output

  subroutine grpc_object_handle_output(handle, output, stat)
    type(grpc_object_handle), intent(in) :: handle
    type(grpc_output), intent(in), optional :: output
    integer(c_int), intent(out), optional :: stat

    call done(c_object_output(handle, address_of(output)), stat)
  end subroutine grpc_object_handle_output

  ! Takes what has come since the receiver was asked last, with its ends of lines (new_line('a')).
  ! is_cut: something is missing.
  subroutine grpc_output_take(output, text, stat, is_cut)
    type(grpc_output), intent(in) :: output
    character(len=:), allocatable, intent(out) :: text
    integer(c_int), intent(out), optional :: stat
    logical, intent(out), optional :: is_cut
    type(c_ptr) :: bytes
    integer(c_size_t) :: length
    integer(c_int) :: code, cut

    length = 0
    cut = 0
    code = c_output_take(address_of(output), bytes, length, cut)
    if (code == GRPC_NO_ERROR) then
      allocate (character(len=length) :: text)
      if (length > 0) call copy_text(bytes, text)
    end if
    if (present(is_cut)) is_cut = cut /= 0
    call done(code, stat)
  end subroutine grpc_output_take

  ! Frees a receiver. Nobody gets any more what calls print that have it.
  subroutine grpc_output_destruct(output, stat)
    type(grpc_output), intent(in) :: output
    integer(c_int), intent(out), optional :: stat

    call done(c_output_destruct(address_of(output)), stat)
  end subroutine grpc_output_destruct

  ! ---- sessions -----------------------------------------------------------------------------------

  ! stat: GRPC_NO_ERROR when it is over, otherwise GRPC_NOT_COMPLETED.
  subroutine grpc_probe(session, stat)
    integer(c_int), intent(in) :: session
    integer(c_int), intent(out) :: stat

    stat = c_probe(session)
  end subroutine grpc_probe

  subroutine grpc_probe_or(sessions, session, stat)
    integer(c_int), intent(in) :: sessions(:)
    integer(c_int), intent(out) :: session, stat

    stat = c_probe_or(sessions, size(sessions, kind=c_size_t), session)
  end subroutine grpc_probe_or

  subroutine grpc_cancel(session, stat)
    integer(c_int), intent(in) :: session
    integer(c_int), intent(out), optional :: stat

    call done(c_cancel(session), stat)
  end subroutine grpc_cancel

  subroutine grpc_cancel_all(stat)
    integer(c_int), intent(out), optional :: stat

    call done(c_cancel_all(), stat)
  end subroutine grpc_cancel_all

  subroutine grpc_wait(session, stat)
    integer(c_int), intent(in) :: session
    integer(c_int), intent(out), optional :: stat

    call done(c_wait(session), stat)
  end subroutine grpc_wait

  subroutine grpc_wait_and(sessions, stat)
    integer(c_int), intent(in) :: sessions(:)
    integer(c_int), intent(out), optional :: stat

    call done(c_wait_and(sessions, size(sessions, kind=c_size_t)), stat)
  end subroutine grpc_wait_and

  subroutine grpc_wait_or(sessions, session, stat)
    integer(c_int), intent(in) :: sessions(:)
    integer(c_int), intent(out) :: session
    integer(c_int), intent(out), optional :: stat

    call done(c_wait_or(sessions, size(sessions, kind=c_size_t), session), stat)
  end subroutine grpc_wait_or

  subroutine grpc_wait_all(stat)
    integer(c_int), intent(out), optional :: stat

    call done(c_wait_all(), stat)
  end subroutine grpc_wait_all

  subroutine grpc_wait_any(session, stat)
    integer(c_int), intent(out) :: session
    integer(c_int), intent(out), optional :: stat

    call done(c_wait_any(session), stat)
  end subroutine grpc_wait_any

  subroutine grpc_get_failed_sessionid(session, stat)
    integer(c_int), intent(out) :: session
    integer(c_int), intent(out), optional :: stat

    call done(c_get_failed(session), stat)
  end subroutine grpc_get_failed_sessionid
end module kumi_grpc
