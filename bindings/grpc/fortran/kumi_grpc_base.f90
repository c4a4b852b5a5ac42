! kumi_grpc_base: types and C functions.  Programs use the module kumi_grpc instead.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi_grpc_base
  use, intrinsic :: iso_c_binding, only: c_associated, c_char, c_double, c_funptr, c_int, c_int8_t, c_int64_t, c_loc, c_null_char, &
    c_null_funptr, c_null_ptr, c_ptr, c_size_t
  use kumi_grpc_codes
  implicit none
  public
  private :: c_associated, c_char, c_double, c_funptr, c_int, c_int8_t, c_int64_t, c_loc, c_null_char, c_null_funptr, &
    c_null_ptr, c_ptr, c_size_t, nobody, item, added, raw, set_dims

  ! A routine at a server.  Copies are the same handle.
  type, bind(c) :: grpc_function_handle
    private
    integer(c_int64_t) :: number = 0
  end type grpc_function_handle

  ! An object of a class at a server.  Copies are the same object.
  type, bind(c) :: grpc_object_handle
    private
    integer(c_int64_t) :: number = 0
  end type grpc_object_handle

  ! A receiver of what routines print.  Copies are the same receiver.
  type :: grpc_output
    private
    type(c_ptr) :: address = c_null_ptr
  end type grpc_output

  ! At the address of no receiver.
  integer(c_int), target, save :: nobody = 0

  ! kumi_grpc_argument.
  type, bind(c) :: c_argument
    integer(c_int) :: what = KUMI_GRPC_DEFAULT
    integer(c_int) :: element = 0
    integer(c_int) :: writable = 0
    integer(c_int) :: order = 2
    type(c_ptr) :: address = c_null_ptr
    integer(c_int64_t) :: count = 0
    type(c_ptr) :: dims = c_null_ptr
    integer(c_int64_t) :: dimensions = 0
    type(c_funptr) :: take = c_null_funptr
    type(c_ptr) :: taker = c_null_ptr
    type(c_ptr) :: source = c_null_ptr
    integer(c_int64_t) :: source_bytes = 0
  end type c_argument

  ! grpc_session_attr_t_np.
  type, bind(c) :: c_attributes
    integer(c_int) :: timeout_ms = 0
    integer(c_int) :: priority = 0
    integer(c_int) :: threads = 0
    integer(c_int64_t) :: memory = 0
  end type c_attributes

  ! grpc_handle_attr_t_np.
  type, bind(c) :: c_handle_attributes
    type(c_ptr) :: server = c_null_ptr
    type(c_ptr) :: routine = c_null_ptr
    integer(c_int) :: timeout_ms = 0
    integer(c_int) :: order = 0
    integer(c_int) :: threads = 0
    integer(c_int64_t) :: memory = 0
  end type c_handle_attributes

  type :: item
    type(c_argument) :: argument
    integer(c_int64_t) :: dims(4) = 0
    ! The copied value.
    integer(c_int8_t), allocatable :: copy(:)
  end type item

  ! The arguments of a call, in their order.
  type :: grpc_arguments
    private
    type(item), allocatable :: items(:)
    integer :: used = 0
    ! The first array that is not contiguous; 0: none.
    integer :: scattered = 0
  end type grpc_arguments

  interface
    integer(c_int) function c_initialize(file) bind(c, name='grpc_initialize')
      import :: c_int, c_ptr
      type(c_ptr), value :: file
    end function c_initialize

    integer(c_int) function c_finalize() bind(c, name='grpc_finalize')
      import :: c_int
    end function c_finalize

    integer(c_int) function c_handle_default(handle, routine) bind(c, name='grpc_function_handle_default')
      import :: c_char, c_int, grpc_function_handle
      type(grpc_function_handle), intent(inout) :: handle
      character(kind=c_char), intent(in) :: routine(*)
    end function c_handle_default

    integer(c_int) function c_handle_init(handle, server, routine) bind(c, name='grpc_function_handle_init')
      import :: c_char, c_int, grpc_function_handle
      type(grpc_function_handle), intent(inout) :: handle
      character(kind=c_char), intent(in) :: server(*), routine(*)
    end function c_handle_init

    integer(c_int) function c_handle_destruct(handle) bind(c, name='grpc_function_handle_destruct')
      import :: c_int, grpc_function_handle
      type(grpc_function_handle), intent(inout) :: handle
    end function c_handle_destruct

    integer(c_int) function c_call(handle, arguments, count, is_session, session, attributes) &
      bind(c, name='kumi_grpc_call_arguments')
      import :: c_argument, c_attributes, c_int, c_size_t, grpc_function_handle
      type(grpc_function_handle), intent(in) :: handle
      type(c_argument), intent(in) :: arguments(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: is_session
      integer(c_int), intent(inout) :: session
      type(c_attributes), intent(in) :: attributes
    end function c_call

    integer(c_int) function c_object_with(handle, attributes) bind(c, name='grpc_object_handle_init_with_attr_np')
      import :: c_handle_attributes, c_int, grpc_object_handle
      type(grpc_object_handle), intent(inout) :: handle
      type(c_handle_attributes), intent(in) :: attributes
    end function c_object_with

    integer(c_int) function c_object_destruct(handle) bind(c, name='grpc_object_handle_destruct_np')
      import :: c_int, grpc_object_handle
      type(grpc_object_handle), intent(inout) :: handle
    end function c_object_destruct

    integer(c_int) function c_object_is_ready(handle) bind(c, name='grpc_object_handle_is_ready_np')
      import :: c_int, grpc_object_handle
      type(grpc_object_handle), intent(in) :: handle
    end function c_object_is_ready

    integer(c_int) function c_invoke(handle, method, arguments, count, is_session, session, attributes) &
      bind(c, name='kumi_grpc_invoke_arguments')
      import :: c_argument, c_attributes, c_char, c_int, c_size_t, grpc_object_handle
      type(grpc_object_handle), intent(in) :: handle
      character(kind=c_char), intent(in) :: method(*)
      type(c_argument), intent(in) :: arguments(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: is_session
      integer(c_int), intent(inout) :: session
      type(c_attributes), intent(in) :: attributes
    end function c_invoke

    integer(c_int) function c_transaction_call(transaction, number, handle, arguments, count, attributes) &
      bind(c, name='kumi_grpc_transaction_call_arguments')
      import :: c_argument, c_attributes, c_int, c_ptr, c_size_t, grpc_function_handle
      type(c_ptr), value :: transaction
      integer(c_int), intent(inout) :: number
      type(grpc_function_handle), intent(in) :: handle
      type(c_argument), intent(in) :: arguments(*)
      integer(c_size_t), value :: count
      type(c_attributes), intent(in) :: attributes
    end function c_transaction_call

    integer(c_int) function c_probe(session) bind(c, name='grpc_probe')
      import :: c_int
      integer(c_int), value :: session
    end function c_probe

    integer(c_int) function c_probe_or(sessions, count, session) bind(c, name='grpc_probe_or')
      import :: c_int, c_size_t
      integer(c_int), intent(in) :: sessions(*)
      integer(c_size_t), value :: count
      integer(c_int), intent(out) :: session
    end function c_probe_or

    integer(c_int) function c_cancel(session) bind(c, name='grpc_cancel')
      import :: c_int
      integer(c_int), value :: session
    end function c_cancel

    integer(c_int) function c_cancel_all() bind(c, name='grpc_cancel_all')
      import :: c_int
    end function c_cancel_all

    integer(c_int) function c_wait(session) bind(c, name='grpc_wait')
      import :: c_int
      integer(c_int), value :: session
    end function c_wait

    integer(c_int) function c_wait_and(sessions, count) bind(c, name='grpc_wait_and')
      import :: c_int, c_size_t
      integer(c_int), intent(in) :: sessions(*)
      integer(c_size_t), value :: count
    end function c_wait_and

    integer(c_int) function c_wait_or(sessions, count, session) bind(c, name='grpc_wait_or')
      import :: c_int, c_size_t
      integer(c_int), intent(in) :: sessions(*)
      integer(c_size_t), value :: count
      integer(c_int), intent(out) :: session
    end function c_wait_or

    integer(c_int) function c_wait_all() bind(c, name='grpc_wait_all')
      import :: c_int
    end function c_wait_all

    integer(c_int) function c_wait_any(session) bind(c, name='grpc_wait_any')
      import :: c_int
      integer(c_int), intent(out) :: session
    end function c_wait_any

    integer(c_int) function c_get_failed(session) bind(c, name='grpc_get_failed_sessionid')
      import :: c_int
      integer(c_int), intent(out) :: session
    end function c_get_failed

    ! Exact codes for a session.
    integer(c_int) function grpc_get_error(session) bind(c, name='grpc_get_error_np')
      import :: c_int
      integer(c_int), value :: session
    end function grpc_get_error

    ! The most exact code of this thread's last error.
    integer(c_int) function grpc_last_error() bind(c, name='grpc_last_error_get_np')
      import :: c_int
    end function grpc_last_error

    integer(c_int) function c_remaining(seconds) bind(c, name='grpc_remaining_np')
      import :: c_double, c_int
      real(c_double), intent(out) :: seconds
    end function c_remaining

    integer(c_int) function c_traceparent_set(text) bind(c, name='grpc_traceparent_set_np')
      import :: c_int, c_ptr
      type(c_ptr), value :: text
    end function c_traceparent_set

    integer(c_int) function c_traceparent_get(text, room) bind(c, name='grpc_traceparent_get_np')
      import :: c_char, c_int, c_size_t
      character(kind=c_char), intent(out) :: text(*)
      integer(c_size_t), value :: room
    end function c_traceparent_get

    integer(c_int) function c_output_create(address) bind(c, name='grpc_output_create_np')
      import :: c_int, c_ptr
      type(c_ptr), intent(out) :: address
    end function c_output_create

    integer(c_int) function c_output_destruct(address) bind(c, name='grpc_output_destruct_np')
      import :: c_int, c_ptr
      type(c_ptr), value :: address
    end function c_output_destruct

    integer(c_int) function c_output_take(address, bytes, length, is_cut) bind(c, name='grpc_output_take_np')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: address
      type(c_ptr), intent(out) :: bytes
      integer(c_size_t), intent(out) :: length
      integer(c_int), intent(out) :: is_cut
    end function c_output_take

    integer(c_int) function c_handle_output(handle, address) bind(c, name='grpc_function_handle_output_np')
      import :: c_int, c_ptr, grpc_function_handle
      type(grpc_function_handle), intent(in) :: handle
      type(c_ptr), value :: address
    end function c_handle_output

    integer(c_int) function c_object_output(handle, address) bind(c, name='grpc_object_handle_output_np')
      import :: c_int, c_ptr, grpc_object_handle
      type(grpc_object_handle), intent(in) :: handle
      type(c_ptr), value :: address
    end function c_object_output

    pure function c_error_string(code) bind(c, name='grpc_error_string') result(text)
      import :: c_int, c_ptr
      integer(c_int), value :: code
      type(c_ptr) :: text
    end function c_error_string

    pure function c_last_error_text() bind(c, name='grpc_last_error_text_np') result(text)
      import :: c_ptr
      type(c_ptr) :: text
    end function c_last_error_text

    pure function c_strlen(text) bind(c, name='strlen') result(length)
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
      integer(c_size_t) :: length
    end function c_strlen
  end interface

contains

  ! Where a receiver is; nowhere without one.
  type(c_ptr) function address_of(output)
    type(grpc_output), intent(in), optional :: output

    address_of = c_null_ptr
    if (.not. present(output)) return
    address_of = output%address
    ! One that was never made is not the same as none: the library refuses this address.
    if (.not. c_associated(output%address)) address_of = c_loc(nobody)
  end function address_of

  ! Sets where it is.
  subroutine set_address(output, address)
    type(grpc_output), intent(inout) :: output
    type(c_ptr), intent(in) :: address

    output%address = address
  end subroutine set_address

  ! The first array that is not contiguous; 0: none.
  integer function scattered(arguments)
    type(grpc_arguments), intent(in) :: arguments

    scattered = arguments%scattered
  end function scattered

  ! Makes room for one more argument, and returns its index.
  integer function added(arguments)
    type(grpc_arguments), intent(inout) :: arguments
    type(item), allocatable :: more(:)
    integer :: i

    if (.not. allocated(arguments%items)) allocate (arguments%items(8))
    if (arguments%used == size(arguments%items)) then
      allocate (more(2 * arguments%used))
      do i = 1, arguments%used
        more(i)%argument = arguments%items(i)%argument
        more(i)%dims = arguments%items(i)%dims
        ! Large copies stay where they are.
        call move_alloc(arguments%items(i)%copy, more(i)%copy)
      end do
      call move_alloc(more, arguments%items)
    end if
    arguments%used = arguments%used + 1
    added = arguments%used
    arguments%items(added) = item(c_argument())
  end function added

  ! Forgets all arguments, for another call.
  subroutine grpc_clear(arguments)
    type(grpc_arguments), intent(inout) :: arguments

    arguments%used = 0
    arguments%scattered = 0
  end subroutine grpc_clear

  ! The parameter's default; for a result: it is not wanted.
  subroutine grpc_push_default(arguments)
    type(grpc_arguments), intent(inout) :: arguments
    integer :: at

    at = added(arguments)
    arguments%items(at)%argument%what = KUMI_GRPC_DEFAULT
  end subroutine grpc_push_default

  subroutine add_number(arguments, element, address)
    type(grpc_arguments), intent(inout) :: arguments
    integer(c_int), intent(in) :: element
    type(c_ptr), intent(in) :: address
    integer :: at

    at = added(arguments)
    arguments%items(at)%argument = c_argument(KUMI_GRPC_NUMBER, element, 1, 2, address, 1_c_int64_t)
  end subroutine add_number

  subroutine add_value(arguments, element, bytes)
    type(grpc_arguments), intent(inout) :: arguments
    integer(c_int), intent(in) :: element
    integer(c_int8_t), intent(in) :: bytes(:)
    integer :: at

    at = added(arguments)
    arguments%items(at)%argument = c_argument(KUMI_GRPC_NUMBER, element, 0, 2, c_null_ptr, 1_c_int64_t)
    arguments%items(at)%copy = bytes
  end subroutine add_value

  subroutine add_array(arguments, element, address, dims, contiguous)
    type(grpc_arguments), intent(inout) :: arguments
    integer(c_int), intent(in) :: element
    logical, intent(in) :: contiguous
    type(c_ptr), intent(in) :: address
    integer(c_int64_t), intent(in) :: dims(:)
    integer :: at

    at = added(arguments)
    arguments%items(at)%argument = c_argument(KUMI_GRPC_ARRAY, element, 1, 2, address, product(dims))
    call set_dims(arguments%items(at), dims)
    if (.not. contiguous .and. arguments%scattered == 0) arguments%scattered = at
  end subroutine add_array

  ! Makes room for the copy of an array, and gives its address.
  subroutine add_array_copy(arguments, element, bytes, dims, place)
    type(grpc_arguments), intent(inout), target :: arguments
    integer(c_int), intent(in) :: element
    ! Of an element.
    integer, intent(in) :: bytes
    integer(c_int64_t), intent(in) :: dims(:)
    type(c_ptr), intent(out) :: place
    integer :: at

    at = added(arguments)
    arguments%items(at)%argument = c_argument(KUMI_GRPC_ARRAY_COPY, element, 0, 2, c_null_ptr, product(dims))
    call set_dims(arguments%items(at), dims)
    ! At least one byte: it has an address.
    allocate (arguments%items(at)%copy(max(1_c_int64_t, bytes * product(dims))))
    place = c_loc(arguments%items(at)%copy)
  end subroutine add_array_copy

  subroutine set_dims(one, dims)
    type(item), intent(inout) :: one
    integer(c_int64_t), intent(in) :: dims(:)

    ! A vector may stand for a matrix in the routine's memory order.
    if (size(dims) > 1) one%argument%dimensions = size(dims)
    one%dims(1:size(dims)) = dims
  end subroutine set_dims

  ! The variable of which the last argument is a copy: an element of so many bytes at each of two addresses, and what is between
  ! them. Of the value of an expression it is memory that no call writes to.
  subroutine set_source(arguments, first, last, bytes)
    type(grpc_arguments), intent(inout) :: arguments
    type(c_ptr), intent(in) :: first, last
    integer, intent(in) :: bytes
    integer(c_int64_t) :: one, other

    one = transfer(first, one)
    other = transfer(last, other)
    associate (argument => arguments%items(arguments%used)%argument)
      ! The elements of an array may lie in reverse order.
      argument%source = transfer(min(one, other), c_null_ptr)
      argument%source_bytes = abs(other - one) + bytes
    end associate
  end subroutine set_source

  ! A callback, from c_funloc: a subroutine with bind(c). Its scalars of mode `in` have the attribute value; it gets
  ! everything else by address.  A text is an array of character(kind=c_char) that ends with c_null_char.
  subroutine grpc_push_function(arguments, function)
    type(grpc_arguments), intent(inout) :: arguments
    type(c_funptr), value :: function
    integer :: at

    at = added(arguments)
    arguments%items(at)%argument = c_argument(KUMI_GRPC_FUNCTION, 0, 0, 2, transfer(function, c_null_ptr), 0_c_int64_t)
  end subroutine grpc_push_function

  ! An array that is no memory of the program.
  subroutine add_held(arguments, address)
    type(grpc_arguments), intent(inout) :: arguments
    type(c_ptr), intent(in) :: address
    integer :: at

    at = added(arguments)
    arguments%items(at)%argument = c_argument(KUMI_GRPC_HELD, 0, 1, 2, address, 0_c_int64_t)
  end subroutine add_held

  subroutine add_text(arguments, address, length)
    type(grpc_arguments), intent(inout) :: arguments
    type(c_ptr), intent(in) :: address
    integer(c_int64_t), intent(in) :: length
    integer :: at

    at = added(arguments)
    arguments%items(at)%argument = c_argument(KUMI_GRPC_BLANKS, 0, 1, 2, address, length)
  end subroutine add_text

  subroutine add_text_value(arguments, bytes, length)
    type(grpc_arguments), intent(inout) :: arguments
    integer(c_int8_t), intent(in) :: bytes(:)
    integer(c_int64_t), intent(in) :: length
    integer :: at

    at = added(arguments)
    arguments%items(at)%argument = c_argument(KUMI_GRPC_BLANKS, 0, 0, 2, c_null_ptr, length)
    arguments%items(at)%copy = bytes
  end subroutine add_text_value

  ! The arguments as C structures, valid as long as `arguments` are.
  function raw(arguments) result(list)
    type(grpc_arguments), intent(in), target :: arguments
    type(c_argument) :: list(arguments%used)
    integer :: i

    do i = 1, arguments%used
      list(i) = arguments%items(i)%argument
      if (list(i)%dimensions > 0) list(i)%dims = c_loc(arguments%items(i)%dims)
      if (allocated(arguments%items(i)%copy)) then
        if (size(arguments%items(i)%copy) > 0) list(i)%address = c_loc(arguments%items(i)%copy)
      end if
    end do
  end function raw

  ! Calls a routine: waits for the end, or begins a session.
  integer(c_int) function begin(handle, arguments, is_session, session, attributes)
    type(grpc_function_handle), intent(in) :: handle
    type(grpc_arguments), intent(in), target :: arguments
    integer(c_int), intent(in) :: is_session
    integer(c_int), intent(inout) :: session
    type(c_attributes), intent(in) :: attributes

    begin = c_call(handle, raw(arguments), int(arguments%used, c_size_t), is_session, session, attributes)
  end function begin

  ! The same for a method.
  integer(c_int) function begin_method(handle, method, arguments, is_session, session, attributes)
    type(grpc_object_handle), intent(in) :: handle
    character(len=*), intent(in) :: method
    type(grpc_arguments), intent(in), target :: arguments
    integer(c_int), intent(in) :: is_session
    integer(c_int), intent(inout) :: session
    type(c_attributes), intent(in) :: attributes

    begin_method = c_invoke(handle, trim(method)//c_null_char, raw(arguments), int(arguments%used, c_size_t), is_session, &
      session, attributes)
  end function begin_method

  ! The same for a call that a transaction records.
  integer(c_int) function record_call(transaction, number, handle, arguments, attributes)
    type(c_ptr), intent(in) :: transaction
    integer(c_int), intent(inout) :: number
    type(grpc_function_handle), intent(in) :: handle
    type(grpc_arguments), intent(in), target :: arguments
    type(c_attributes), intent(in) :: attributes

    record_call = c_transaction_call(transaction, number, handle, raw(arguments), int(arguments%used, c_size_t), attributes)
  end function record_call

  ! The attributes of a call: 0 for what is not given.
  type(c_attributes) function given(limit, threads, memory)
    integer(c_int), intent(in), optional :: limit, threads
    integer(c_int64_t), intent(in), optional :: memory

    given = c_attributes()
    if (present(limit)) given%timeout_ms = limit
    if (present(threads)) given%threads = threads
    if (present(memory)) given%memory = memory
  end function given

  ! Makes an object that asks for so many threads and bytes. Without a server: at the first that can.
  integer(c_int) function make_object(handle, class, server, threads, memory)
    type(grpc_object_handle), intent(inout) :: handle
    character(len=*), intent(in) :: class
    character(len=*), intent(in), optional :: server
    integer(c_int), intent(in), optional :: threads
    integer(c_int64_t), intent(in), optional :: memory
    character(kind=c_char), allocatable, target :: address(:), name(:)
    type(c_handle_attributes) :: attributes

    allocate (name, source=text_of_c(class))
    attributes%routine = c_loc(name)
    if (present(server)) then
      allocate (address, source=text_of_c(server))
      attributes%server = c_loc(address)
    end if
    if (present(threads)) attributes%threads = threads
    if (present(memory)) attributes%memory = memory
    make_object = c_object_with(handle, attributes)
  end function make_object

  ! A text without its blanks at the end, as C has it.
  function text_of_c(text) result(letters)
    character(len=*), intent(in) :: text
    character(kind=c_char) :: letters(len_trim(text) + 1)
    integer :: i

    do i = 1, len_trim(text)
      letters(i) = text(i:i)
    end do
    letters(len_trim(text) + 1) = c_null_char
  end function text_of_c
end module kumi_grpc_base
