! kumi_base: the parts of the module kumi that do not depend on the type of data, with one procedure per
! operation that the calls for all types end in.  Not for programs, which use the module kumi.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi_base
  use, intrinsic :: iso_c_binding, only: c_associated, c_char, c_f_pointer, c_int, c_int64_t, c_null_ptr, c_ptr, &
    c_size_t
  use, intrinsic :: iso_fortran_env, only: error_unit
  use kumi_c
  use kumi_codes
  implicit none
  public
  private :: copy_text, created

  ! Operations of reductions.  A type of their own, so that nothing else is taken for one.
  type :: kumi_op
    private
    integer(c_int) :: number = 0
  end type kumi_op
  type(kumi_op), parameter :: KUMI_SUM = kumi_op(OP_SUM), KUMI_PRODUCT = kumi_op(OP_PRODUCT), &
    KUMI_MIN = kumi_op(OP_MIN), KUMI_MAX = kumi_op(OP_MAX), KUMI_BITAND = kumi_op(OP_BITAND), &
    KUMI_BITOR = kumi_op(OP_BITOR), KUMI_BITXOR = kumi_op(OP_BITXOR)

  ! A window's handle.  Copies are the same window.
  type :: kumi_window
    private
    type(c_ptr) :: handle = c_null_ptr
    integer(c_size_t) :: bytes = 0
  end type kumi_window

  interface kumi_window_create
    module procedure create_i4, create_i8
  end interface kumi_window_create

  interface kumi_window_create_with
    module procedure create_with_i4, create_with_i8
  end interface kumi_window_create_with

  interface kumi_window_wait_notify
    module procedure wait_i4, wait_i8
  end interface kumi_window_wait_notify

contains

  ! ---- errors -------------------------------------------------------------------------------------

  ! Results of functions that are called in several threads are not `character(len=:), allocatable`:
  ! gfortran has one variable for the length at each place of a call, for all threads.

  recursive subroutine copy_text(pointer, text)
    type(c_ptr), intent(in) :: pointer
    character(len=*), intent(out) :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: i

    call c_f_pointer(pointer, letters, [len(text)])
    do i = 1, len(text)
      text(i:i) = letters(i)
    end do
  end subroutine copy_text

  recursive function kumi_error_string(error) result(text)
    integer(c_int), intent(in) :: error
    character(len=c_strlen(c_error_string(error))) :: text

    call copy_text(c_error_string(error), text)
  end function kumi_error_string

  recursive function kumi_error_detail() result(text)
    character(len=c_strlen(c_error_detail())) :: text

    call copy_text(c_error_detail(), text)
  end function kumi_error_detail

  function kumi_version() result(text)
    character(len=c_strlen(c_version())) :: text

    call copy_text(c_version(), text)
  end function kumi_version

  ! The end of every call: `code` goes to `stat`, or ends the program if it is an error and there is no
  ! `stat`.  `what` is the detail of an error that this module found by itself.  C keeps one for each
  ! thread: signal handlers fail in their own threads.
  recursive subroutine finish(code, name, stat, what)
    integer(c_int), intent(in) :: code
    character(len=*), intent(in) :: name
    integer(c_int), intent(out), optional :: stat
    character(len=*), intent(in), optional :: what

    integer(c_int) :: same

    if (present(stat)) stat = code
    if (code >= KUMI_OK) return
    if (present(what)) same = c_error_report(code, what, len(what, c_size_t))
    if (present(stat)) return
    write (error_unit, '(3a)') name, ': ', kumi_error_detail()
    flush (error_unit)
    error stop 1
  end subroutine finish

  ! ---- start, end, and the whole job --------------------------------------------------------------

  subroutine kumi_init(stat)
    integer(c_int), intent(out), optional :: stat

    call finish(c_init(), 'kumi_init', stat)
  end subroutine kumi_init

  subroutine kumi_init_threads(level, stat)
    integer(c_int), intent(in) :: level
    integer(c_int), intent(out), optional :: stat

    call finish(c_init_threads(level), 'kumi_init_threads', stat)
  end subroutine kumi_init_threads

  subroutine kumi_finalize(stat)
    integer(c_int), intent(out), optional :: stat

    call finish(c_finalize(), 'kumi_finalize', stat)
  end subroutine kumi_finalize

  subroutine kumi_progress(stat)
    integer(c_int), intent(out), optional :: stat

    call finish(c_progress(), 'kumi_progress', stat)
  end subroutine kumi_progress

  subroutine kumi_flush(to, stat)
    integer(c_int), intent(in) :: to
    integer(c_int), intent(out), optional :: stat

    call finish(c_flush(to), 'kumi_flush', stat)
  end subroutine kumi_flush

  subroutine kumi_fence(to, stat)
    integer(c_int), intent(in) :: to
    integer(c_int), intent(out), optional :: stat

    call finish(c_fence(to), 'kumi_fence', stat)
  end subroutine kumi_fence

  subroutine kumi_barrier(stat)
    integer(c_int), intent(out), optional :: stat

    call finish(c_barrier(), 'kumi_barrier', stat)
  end subroutine kumi_barrier

  ! ---- messages -----------------------------------------------------------------------------------

  subroutine kumi_message_probe(from, tag, found, status, stat)
    integer(c_int), intent(in) :: from, tag
    logical, intent(out) :: found
    type(kumi_status), intent(out), optional :: status
    integer(c_int), intent(out), optional :: stat
    type(kumi_status) :: seen
    integer(c_int) :: code, is

    is = 0
    code = c_probe(from, tag, is, seen)
    found = is /= 0
    if (present(status)) status = seen
    call finish(code, 'kumi_message_probe', stat)
  end subroutine kumi_message_probe

  subroutine send_bytes(to, tag, data, bytes, stat)
    integer(c_int), intent(in) :: to, tag
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: bytes
    integer(c_int), intent(out), optional :: stat

    call finish(c_send(to, tag, data, bytes), 'kumi_message_send', stat)
  end subroutine send_bytes

  subroutine recv_bytes(from, tag, buffer, capacity, status, stat)
    integer(c_int), intent(in) :: from, tag
    type(c_ptr), intent(in) :: buffer
    integer(c_size_t), intent(in) :: capacity
    type(kumi_status), intent(out), optional :: status
    integer(c_int), intent(out), optional :: stat
    type(kumi_status) :: told
    integer(c_int) :: code

    code = c_recv(from, tag, buffer, capacity, told)
    if (present(status)) status = told
    call finish(code, 'kumi_message_recv', stat)
  end subroutine recv_bytes

  subroutine sendrecv_bytes(to, send_tag, data, bytes, from, recv_tag, buffer, capacity, status, stat)
    integer(c_int), intent(in) :: to, send_tag, from, recv_tag
    type(c_ptr), intent(in) :: data, buffer
    integer(c_size_t), intent(in) :: bytes, capacity
    type(kumi_status), intent(out), optional :: status
    integer(c_int), intent(out), optional :: stat
    type(kumi_status) :: told
    integer(c_int) :: code

    code = c_sendrecv(to, send_tag, data, bytes, from, recv_tag, buffer, capacity, told)
    if (present(status)) status = told
    call finish(code, 'kumi_message_sendrecv', stat)
  end subroutine sendrecv_bytes

  ! ---- windows ------------------------------------------------------------------------------------

  ! Elements of `unit` bytes as bytes.  A number that is negative or beyond all memory becomes one that the
  ! library refuses, at all ranks alike.
  pure function scaled(elements, unit) result(bytes)
    integer(c_int64_t), intent(in) :: elements
    integer, intent(in) :: unit
    integer(c_size_t) :: bytes

    bytes = -1
    if (elements >= 0 .and. elements <= huge(elements) / unit) bytes = elements * unit
  end function scaled

  subroutine create_i8(bytes, window, stat)
    integer(c_int64_t), intent(in) :: bytes
    type(kumi_window), intent(inout) :: window
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: code

    code = c_window_create(scaled(bytes, 1), window%handle)
    call created(code, bytes, 'kumi_window_create', window, stat)
  end subroutine create_i8

  subroutine create_i4(bytes, window, stat)
    integer(c_int), intent(in) :: bytes
    type(kumi_window), intent(inout) :: window
    integer(c_int), intent(out), optional :: stat

    call create_i8(int(bytes, c_int64_t), window, stat)
  end subroutine create_i4

  subroutine create_with_i8(bytes, rights, window, stat)
    integer(c_int64_t), intent(in) :: bytes
    integer(c_int), intent(in) :: rights
    type(kumi_window), intent(inout) :: window
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: code

    code = c_window_create_with(scaled(bytes, 1), rights, window%handle)
    call created(code, bytes, 'kumi_window_create_with', window, stat)
  end subroutine create_with_i8

  subroutine create_with_i4(bytes, rights, window, stat)
    integer(c_int), intent(in) :: bytes, rights
    type(kumi_window), intent(inout) :: window
    integer(c_int), intent(out), optional :: stat

    call create_with_i8(int(bytes, c_int64_t), rights, window, stat)
  end subroutine create_with_i4

  ! On the `bytes` bytes at `base`.  A negative number is an array that cannot be a window: all ranks get the
  ! error.
  subroutine register_bytes(base, bytes, rights, window, stat)
    type(c_ptr), intent(in) :: base
    integer(c_size_t), intent(in) :: bytes
    integer(c_int), intent(in) :: rights
    type(kumi_window), intent(inout) :: window
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: code

    code = c_window_register(base, bytes, rights, window%handle)
    if (bytes < 0 .and. code == KUMI_ERR_MEMORY) then
      call finish(code, 'kumi_window_register', stat, 'the array is a pointer to nothing, or a section with gaps')
    else
      call created(code, bytes, 'kumi_window_register', window, stat)
    end if
  end subroutine register_bytes

  ! A window of `bytes` bytes has been made if `code` says so.
  subroutine created(code, bytes, name, window, stat)
    integer(c_int), intent(in) :: code
    integer(c_int64_t), intent(in) :: bytes
    character(len=*), intent(in) :: name
    type(kumi_window), intent(inout) :: window
    integer(c_int), intent(out), optional :: stat

    if (code == KUMI_OK) window%bytes = bytes
    call finish(code, name, stat)
  end subroutine created

  subroutine free_window(window, code)
    type(kumi_window), intent(inout) :: window
    integer(c_int), intent(out) :: code

    code = c_window_free(window%handle)
    if (code == KUMI_OK) window = kumi_window()
  end subroutine free_window

  ! The handle for C functions.
  function handle_of(window) result(handle)
    type(kumi_window), intent(in) :: window
    type(c_ptr) :: handle

    handle = window%handle
  end function handle_of

  ! The bytes of an array with these extents; negative ones count as 0.
  pure function bytes_of(extents, unit) result(bytes)
    integer, intent(in) :: extents(:), unit
    integer(c_int64_t) :: bytes
    integer :: i

    bytes = unit
    do i = 1, size(extents)
      bytes = scaled(bytes, max(extents(i), 1))
    end do
    if (any(extents <= 0)) bytes = 0
  end function bytes_of

  ! Where an array of `bytes` bytes can be associated with the own piece, or null.
  subroutine piece(window, bytes, base, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int64_t), intent(in) :: bytes
    type(c_ptr), intent(out) :: base
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: rank

    base = c_window_base(window%handle)
    if (.not. c_associated(base)) then
      rank = kumi_rank()
      call finish(merge(KUMI_ERR_WINDOW, rank, rank >= 0), 'kumi_window_array', stat)
    else if (bytes < 0 .or. bytes > window%bytes) then
      base = c_null_ptr
      call finish(KUMI_ERR_BOUNDS, 'kumi_window_array', stat, 'the array is larger than this rank''s piece of the window')
    else
      call finish(KUMI_OK, 'kumi_window_array', stat)
    end if
  end subroutine piece

  subroutine put_bytes(window, to, offset, data, bytes, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: to
    integer(c_size_t), intent(in) :: offset, bytes
    type(c_ptr), intent(in) :: data
    integer(c_int), intent(out), optional :: stat

    call finish(c_put(window%handle, to, offset, data, bytes), 'kumi_window_put', stat)
  end subroutine put_bytes

  subroutine put_notify_bytes(window, to, offset, data, bytes, notify, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: to, notify
    integer(c_size_t), intent(in) :: offset, bytes
    type(c_ptr), intent(in) :: data
    integer(c_int), intent(out), optional :: stat

    call finish(c_put_notify(window%handle, to, offset, data, bytes, notify), 'kumi_window_put_notify', stat)
  end subroutine put_notify_bytes

  subroutine get_bytes(window, from, offset, buffer, bytes, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: from
    integer(c_size_t), intent(in) :: offset, bytes
    type(c_ptr), intent(in) :: buffer
    integer(c_int), intent(out), optional :: stat

    call finish(c_get(window%handle, from, offset, bytes, buffer), 'kumi_window_get', stat)
  end subroutine get_bytes

  subroutine kumi_window_notified(window, notify, count, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: notify
    integer(c_int64_t), intent(out) :: count
    integer(c_int), intent(out), optional :: stat

    count = 0
    call finish(c_notified(window%handle, notify, count), 'kumi_window_notified', stat)
  end subroutine kumi_window_notified

  subroutine wait_i8(window, notify, at_least, count, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: notify
    integer(c_int64_t), intent(in) :: at_least
    integer(c_int64_t), intent(out), optional :: count
    integer(c_int), intent(out), optional :: stat
    integer(c_int64_t) :: seen
    integer(c_int) :: code

    seen = 0
    ! C has no negative counts; every counter has reached them.
    code = c_wait_notify(window%handle, notify, max(at_least, 0_c_int64_t), seen)
    if (present(count)) count = seen
    call finish(code, 'kumi_window_wait_notify', stat)
  end subroutine wait_i8

  subroutine wait_i4(window, notify, at_least, count, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: notify, at_least
    integer(c_int64_t), intent(out), optional :: count
    integer(c_int), intent(out), optional :: stat

    call wait_i8(window, notify, int(at_least, c_int64_t), count, stat)
  end subroutine wait_i4

  ! ---- collective operations: `units` numbers of kumi_type `kind` make one element ----------------

  subroutine broadcast_units(root, data, count, kind, units, stat)
    integer(c_int), intent(in) :: root, kind, units
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: count
    integer(c_int), intent(out), optional :: stat

    call finish(c_broadcast(root, data, count * units, kind), 'kumi_broadcast', stat)
  end subroutine broadcast_units

  ! Complex numbers can only be summed: a sum is that of their parts.
  pure logical function suits(op, units)
    type(kumi_op), intent(in) :: op
    integer(c_int), intent(in) :: units

    suits = units == 1 .or. op%number == KUMI_SUM%number
  end function suits

  ! The number that C knows it by.
  pure integer(c_int) function number_of(op)
    type(kumi_op), intent(in) :: op

    number_of = op%number
  end function number_of

  subroutine reduce_units(root, send, count, recv, recv_count, kind, units, op, stat)
    integer(c_int), intent(in) :: root, kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    type(kumi_op), intent(in) :: op
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: rank

    rank = kumi_rank()
    if (.not. suits(op, units)) then
      call finish(KUMI_ERR_OPERATION, 'kumi_reduce', stat, 'complex numbers can only be summed up')
    else if (rank >= 0 .and. rank == root .and. recv_count /= count) then
      call finish(KUMI_ERR_LENGTH, 'kumi_reduce', stat, 'send and recv have different sizes')
    else
      call finish(c_reduce(root, send, recv, count * units, kind, op%number), 'kumi_reduce', stat)
    end if
  end subroutine reduce_units

  subroutine allreduce_units(send, count, recv, recv_count, kind, units, op, stat)
    integer(c_int), intent(in) :: kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    type(kumi_op), intent(in) :: op
    integer(c_int), intent(out), optional :: stat

    if (.not. suits(op, units)) then
      call finish(KUMI_ERR_OPERATION, 'kumi_allreduce', stat, 'complex numbers can only be summed up')
    else if (recv_count /= count) then
      call finish(KUMI_ERR_LENGTH, 'kumi_allreduce', stat, 'send and recv have different sizes')
    else
      call finish(c_allreduce(send, recv, count * units, kind, op%number), 'kumi_allreduce', stat)
    end if
  end subroutine allreduce_units

  subroutine gather_units(root, send, count, recv, recv_count, kind, units, stat)
    integer(c_int), intent(in) :: root, kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: rank, ranks

    rank = kumi_rank()
    ranks = kumi_size()
    if (rank >= 0 .and. rank == root .and. recv_count /= count * ranks) then
      call finish(KUMI_ERR_LENGTH, 'kumi_gather', stat, 'recv must have room for the elements of all ranks, no more')
    else
      call finish(c_gather(root, send, recv, count * units, kind), 'kumi_gather', stat)
    end if
  end subroutine gather_units

  subroutine alltoall_units(send, count, recv, recv_count, kind, units, stat)
    integer(c_int), intent(in) :: kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: ranks

    ranks = kumi_size()
    if (ranks < 0) then
      call finish(ranks, 'kumi_alltoall', stat)
    else if (recv_count /= count .or. mod(count, int(ranks, c_size_t)) /= 0) then
      call finish(KUMI_ERR_LENGTH, 'kumi_alltoall', stat, 'send and recv both need one block for every rank')
    else
      call finish(c_alltoall(send, recv, count / ranks * units, kind), 'kumi_alltoall', stat)
    end if
  end subroutine alltoall_units

  subroutine alltoallv_units(send, count, send_counts, recv, recv_count, recv_counts, kind, units, stat)
    integer(c_int), intent(in) :: kind, units, send_counts(:), recv_counts(:)
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: ranks

    ranks = kumi_size()
    if (ranks < 0) then
      call finish(ranks, 'kumi_alltoallv', stat)
    else if (.not. (fits(send_counts, count) .and. fits(recv_counts, recv_count))) then
      call finish(KUMI_ERR_LENGTH, 'kumi_alltoallv', stat, &
                  'there must be one count for every rank, and they must add up to the array''s size')
    else
      call finish(c_alltoallv(send, int(send_counts, c_size_t) * units, recv, int(recv_counts, c_size_t) * units, &
                              kind), 'kumi_alltoallv', stat)
    end if

  contains

    logical function fits(counts, whole)
      integer(c_int), intent(in) :: counts(:)
      integer(c_size_t), intent(in) :: whole

      fits = size(counts) == ranks .and. all(counts >= 0) .and. sum(int(counts, c_size_t)) == whole
    end function fits
  end subroutine alltoallv_units
end module kumi_base
