! What is around a call: its deadline, its trace, what it prints, and the threads and memory for which it asks.
module around
  use, intrinsic :: iso_c_binding, only: c_funloc, c_double, c_int, c_int64_t
  use expectations, only: expect, fails
  use kumi_grpc
  implicit none
  private
  public :: deadlines, prints, resources, traces

contains

  ! What is left of the call, in it and in a routine that it calls.
  subroutine looks(x, y) bind(c)
    real(c_double), value :: x
    real(c_double), intent(out) :: y
    type(grpc_function_handle) :: left
    type(grpc_arguments) :: arguments
    real(c_double), target :: routine
    real(c_double) :: own

    call grpc_remaining(own)
    call grpc_function_handle_default(left, 'left')
    call grpc_push(arguments, routine)
    call grpc_call(left, arguments)
    call grpc_function_handle_destruct(left)
    call expect(own > 1800 .and. own <= 3600, 'what a function has left of its call')
    call expect(routine > 1800 .and. routine <= own, 'what its routine has left')
    y = x
  end subroutine looks

  subroutine outlasts(x, y) bind(c)
    real(c_double), value :: x
    real(c_double), intent(out) :: y
    type(grpc_function_handle) :: noop
    type(grpc_arguments) :: none
    real(c_double) :: own
    integer(c_int) :: stat

    call grpc_function_handle_default(noop, 'noop')
    do
      call grpc_remaining(own)
      if (.not. own > 0) exit
    end do
    call grpc_call(noop, none, stat)
    call fails(stat, GRPC_TIMEOUT_NP, 'was not begun', 'a call when the time is over')
    call grpc_function_handle_destruct(noop)
    y = x
  end subroutine outlasts

  subroutine deadlines()
    type(grpc_function_handle) :: integrate
    type(grpc_arguments) :: arguments
    real(c_double), target :: total
    real(c_double) :: seconds
    integer(c_int) :: stat

    call grpc_remaining(seconds)
    call expect(seconds > huge(seconds), 'no limit')
    call grpc_function_handle_default(integrate, 'integrate')
    call grpc_push_in(arguments, 1)
    call grpc_push_function(arguments, c_funloc(looks))
    call grpc_push(arguments, total)
    call grpc_call(integrate, arguments, limit=3600000)
    call grpc_clear(arguments)
    call grpc_push_in(arguments, 1)
    call grpc_push_function(arguments, c_funloc(outlasts))
    call grpc_push(arguments, total)
    call grpc_call(integrate, arguments, stat, limit=200)
    call fails(stat, GRPC_TIMEOUT_NP, 'it waited for `f`', 'a function that outlasts its call')
    call grpc_remaining(seconds)
    call expect(seconds > huge(seconds), 'no limit again')
  end subroutine deadlines

  subroutine traces()
    character(len=*), parameter :: PARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
    type(grpc_function_handle) :: traced
    type(grpc_arguments) :: arguments
    character(len=79), target :: found
    integer(c_int) :: stat

    call grpc_function_handle_default(traced, 'traced')
    call grpc_push(arguments, found)
    call grpc_call(traced, arguments)
    call expect(found == '', 'no trace')
    call expect(grpc_traceparent_get() == '', 'nothing was set')
    call grpc_traceparent_set(PARENT//'  ')
    call expect(grpc_traceparent_get() == PARENT, 'the trace that was set')
    call grpc_call(traced, arguments)
    call expect(found(1:35) == PARENT(1:35) .and. found /= PARENT, 'a trace')
    call grpc_traceparent_set('00-1-2-3', stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, 'a traceparent is `00-`', 'no trace context')
    call expect(grpc_traceparent_get() == PARENT, 'the trace after an error')
    call grpc_traceparent_set()
    call grpc_call(traced, arguments)
    call expect(found == '', 'no trace any more')
    call expect(grpc_traceparent_get() == '', 'nothing is set any more')
  end subroutine traces

  ! What a routine and a method print comes to the receiver of their handle.
  subroutine prints()
    character(len=1), parameter :: LINE = new_line('a')
    type(grpc_function_handle) :: say
    type(grpc_object_handle) :: counter
    type(grpc_arguments) :: arguments
    type(grpc_output) :: output, other
    character(len=:), allocatable :: text
    integer(c_int) :: stat, session
    logical :: is_cut

    call grpc_function_handle_default(say, 'say')
    call grpc_output_take(output, text, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, 'no receiver', 'none was made')
    call grpc_output_create(output)
    call grpc_function_handle_output(say, output)
    call grpc_push_in(arguments, 3)
    call grpc_push_in(arguments, 0)
    call grpc_call(say, arguments)
    call grpc_output_take(output, text, is_cut=is_cut)
    call expect(text == '0000000'//LINE//'0000001'//LINE//'0000002'//LINE, 'what a routine prints')
    call expect(len(text) == 24 .and. .not. is_cut, 'all of it')
    call grpc_output_take(output, text)
    call expect(allocated(text) .and. len(text) == 0, 'nothing is given twice')
    call grpc_call_async(say, session, arguments)
    call grpc_wait(session)
    call grpc_output_take(output, text)
    call expect(len(text) == 24, 'what the routine of a session prints')
    call grpc_clear(arguments)
    call grpc_push_in(arguments, 2)
    call grpc_push_in(arguments, 1)
    call grpc_call(say, arguments, stat)
    call grpc_output_take(output, text)
    call expect(stat == GRPC_SESSION_FAILED .and. len(text) == 16, 'what a routine printed before it crashed')
    call grpc_clear(arguments)
    call grpc_push_in(arguments, 200000)
    call grpc_push_in(arguments, 0)
    call grpc_call(say, arguments)
    call grpc_output_take(output, text, is_cut=is_cut)
    call expect(is_cut .and. len(text) == 2**20, 'more than a server passes on')
    call grpc_object_handle_default(counter, 'counter')
    call grpc_object_handle_output(counter, output)
    call grpc_clear(arguments)
    call grpc_push_in(arguments, 'of a method')
    call grpc_invoke(counter, 'say', arguments)
    call grpc_output_take(output, text)
    call expect(text == 'of a method'//LINE, 'what a method prints')
    call grpc_object_handle_output(counter)
    call grpc_invoke(counter, 'say', arguments)
    call grpc_output_take(output, text)
    call expect(len(text) == 0, 'nobody gets what it prints')
    call grpc_object_handle_destruct(counter)
    call grpc_output_destruct(output)
    call grpc_output_destruct(output, stat)
    call expect(stat == GRPC_INVALID_ARGUMENT_NP, 'a receiver that was destructed')
    call grpc_function_handle_output(say, other, stat)
    call fails(stat, GRPC_INVALID_ARGUMENT_NP, 'no receiver', 'one that was never made')
  end subroutine prints

  ! What a server of two slots gives.
  subroutine resources()
    type(grpc_function_handle) :: handle
    type(grpc_object_handle) :: wide
    type(grpc_arguments) :: arguments
    integer(c_int), target :: count
    integer(c_int) :: stat, session

    call grpc_function_handle_default(handle, 'threads')
    call grpc_push(arguments, count)
    call grpc_call(handle, arguments, threads=2)
    call expect(count == 2, 'threads of a call')
    count = 0
    call grpc_call_async(handle, session, arguments, threads=2)
    call grpc_wait(session)
    call expect(count == 2, 'threads of a session')
    call grpc_call(handle, arguments)
    call expect(count == 1, 'threads of the server')
    call grpc_call(handle, arguments, stat, threads=3)
    call fails(stat, GRPC_RPC_REFUSED, '3 threads', 'more threads than there are')
    call expect(grpc_last_error() == GRPC_TOO_LARGE_NP, 'its code')
    call grpc_call(handle, arguments, stat, memory=2_c_int64_t**30)
    call fails(stat, GRPC_RPC_REFUSED, '1073741824 bytes', 'memory that nothing bounds')
    call grpc_call(handle, arguments, stat, threads=-1)
    call expect(stat == GRPC_INVALID_ARGUMENT_NP, 'less than no threads')
    call grpc_object_handle_default(wide, 'counter', threads=2)
    call grpc_invoke(wide, 'threads', arguments)
    call expect(count == 2, 'threads of an object')
    call grpc_object_handle_destruct(wide)
    call grpc_object_handle_default(wide, 'counter', stat, threads=3)
    call fails(stat, GRPC_RPC_REFUSED, '3 threads', 'more threads for an object than there are')
  end subroutine resources
end module around
