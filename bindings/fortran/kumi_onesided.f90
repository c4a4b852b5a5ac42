! kumi_onesided: completions, strided and multicast puts, FIFOs and signals, as far as they do not depend on
! the type of data.  Not for programs, which use the module kumi.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi_onesided
  use, intrinsic :: iso_c_binding, only: c_associated, c_f_pointer, c_funloc, c_int, c_int64_t, c_int8_t, c_loc, &
    c_null_ptr, c_ptr, c_size_t
  use kumi_c
  use kumi_codes
  use kumi_base, only: finish, free_window, handle_of, kumi_window, scaled
  implicit none
  public
  private :: port, ports, run_handler, fits, blocks_wrong, forget

  ! A completion's handle.  Copies are the same completion.
  type :: kumi_completion
    private
    type(c_ptr) :: handle = c_null_ptr
  end type kumi_completion

  ! A FIFO's handle.  Copies are the same FIFO.
  type :: kumi_fifo
    private
    type(c_ptr) :: handle = c_null_ptr
  end type kumi_fifo

  ! Interface of a handler, called for each signal: `data` is the record, valid until it returns.
  abstract interface
    subroutine kumi_signal_handler(source, data)
      import :: c_int, c_int8_t
      integer(c_int), intent(in) :: source
      integer(c_int8_t), intent(in) :: data(:)
    end subroutine kumi_signal_handler
  end interface

  ! A signal port of this rank: its offset and its handler.
  type :: port
    procedure(kumi_signal_handler), pointer, nopass :: handler => null()
    type(c_ptr) :: window = c_null_ptr
    integer(c_int64_t) :: offset = 0
    type(port), pointer :: next => null()
  end type port
  ! All that have not been removed.
  type(port), pointer, save :: ports => null()

  interface kumi_completion_wait
    module procedure completion_wait_i4, completion_wait_i8
  end interface kumi_completion_wait

  interface kumi_fifo_create
    module procedure fifo_create_i4, fifo_create_i8
  end interface kumi_fifo_create

  interface kumi_signal_handle
    module procedure signal_handle_i4, signal_handle_i8
  end interface kumi_signal_handle

  interface kumi_signal_remove
    module procedure signal_remove_i4, signal_remove_i8
  end interface kumi_signal_remove

contains

  ! ---- completions --------------------------------------------------------------------------------

  subroutine kumi_completion_create(completion, stat)
    type(kumi_completion), intent(inout) :: completion
    integer(c_int), intent(out), optional :: stat

    call finish(c_completion_create(completion%handle), 'kumi_completion_create', stat)
  end subroutine kumi_completion_create

  subroutine kumi_completion_free(completion, stat)
    type(kumi_completion), intent(inout) :: completion
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: code

    code = c_completion_free(completion%handle)
    if (code == KUMI_OK) completion = kumi_completion()
    call finish(code, 'kumi_completion_free', stat)
  end subroutine kumi_completion_free

  subroutine kumi_completion_done(completion, count, stat)
    type(kumi_completion), intent(in) :: completion
    integer(c_int64_t), intent(out) :: count
    integer(c_int), intent(out), optional :: stat

    count = 0
    call finish(c_completion_done(completion%handle, count), 'kumi_completion_done', stat)
  end subroutine kumi_completion_done

  subroutine completion_wait_i8(completion, at_least, count, stat)
    type(kumi_completion), intent(in) :: completion
    integer(c_int64_t), intent(in) :: at_least
    integer(c_int64_t), intent(out), optional :: count
    integer(c_int), intent(out), optional :: stat
    integer(c_int64_t) :: seen
    integer(c_int) :: code

    seen = 0
    ! C has no negative counts; every completion has reached them.
    code = c_completion_wait(completion%handle, max(at_least, 0_c_int64_t), seen)
    if (present(count)) count = seen
    call finish(code, 'kumi_completion_wait', stat)
  end subroutine completion_wait_i8

  subroutine completion_wait_i4(completion, at_least, count, stat)
    type(kumi_completion), intent(in) :: completion
    integer(c_int), intent(in) :: at_least
    integer(c_int64_t), intent(out), optional :: count
    integer(c_int), intent(out), optional :: stat

    call completion_wait_i8(completion, int(at_least, c_int64_t), count, stat)
  end subroutine completion_wait_i4

  subroutine kumi_completion_wait_all(completion, stat)
    type(kumi_completion), intent(in) :: completion
    integer(c_int), intent(out), optional :: stat

    call finish(c_completion_wait_all(completion%handle), 'kumi_completion_wait_all', stat)
  end subroutine kumi_completion_wait_all

  ! Counter and completion of a put, as C takes them: -1 and null where there is none.  False, after
  ! reporting the error, if a completion is given that does not exist.
  logical function follows(notify, completion, counter, handle, name, stat)
    integer(c_int), intent(in), optional :: notify
    type(kumi_completion), intent(in), optional :: completion
    integer(c_int), intent(out) :: counter
    type(c_ptr), intent(out) :: handle
    character(len=*), intent(in) :: name
    integer(c_int), intent(out), optional :: stat

    counter = KUMI_NO_NOTIFY
    if (present(notify)) counter = notify
    handle = c_null_ptr
    if (present(completion)) handle = completion%handle
    follows = c_associated(handle) .or. .not. present(completion)
    if (.not. follows) call finish(KUMI_ERR_COMPLETION, name, stat, 'the completion was not created, or was freed')
  end function follows

  ! ---- puts and gets ------------------------------------------------------------------------------

  subroutine put_with_bytes(window, to, offset, data, bytes, notify, completion, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: to
    integer(c_size_t), intent(in) :: offset, bytes
    type(c_ptr), intent(in) :: data
    integer(c_int), intent(in), optional :: notify
    type(kumi_completion), intent(in), optional :: completion
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_window_put_with'
    type(c_ptr) :: handle
    integer(c_int) :: counter

    if (.not. follows(notify, completion, counter, handle, name, stat)) return
    call finish(c_put_with(handle_of(window), to, offset, data, bytes, counter, handle), name, stat)
  end subroutine put_with_bytes

  ! Whether these blocks (offset, stride, block, count) have so many elements together.
  pure logical function fits(blocks, elements)
    integer(c_int64_t), intent(in) :: blocks(4)
    integer(c_size_t), intent(in) :: elements

    fits = all(blocks >= 0)
    if (.not. fits) return
    if (blocks(3) == 0 .or. blocks(4) == 0) then
      fits = elements == 0
    else
      fits = blocks(3) <= elements .and. mod(elements, blocks(3)) == 0 .and. elements / max(blocks(3), 1_c_int64_t) == &
             blocks(4)
    end if
  end function fits

  subroutine blocks_wrong(name, stat)
    character(len=*), intent(in) :: name
    integer(c_int), intent(out), optional :: stat

    call finish(KUMI_ERR_LENGTH, name, stat, 'data must have as many elements as the blocks have together')
  end subroutine blocks_wrong

  ! Of elements of `unit` bytes.
  subroutine put_strided_units(window, to, blocks, unit, data, elements, notify, completion, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: to
    integer(c_int64_t), intent(in) :: blocks(4)
    integer, intent(in) :: unit
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: elements
    integer(c_int), intent(in), optional :: notify
    type(kumi_completion), intent(in), optional :: completion
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_window_put_strided'
    type(c_ptr) :: handle
    integer(c_int) :: counter

    if (.not. fits(blocks, elements)) then
      call blocks_wrong(name, stat)
    else if (follows(notify, completion, counter, handle, name, stat)) then
      call finish(c_put_strided(handle_of(window), to, scaled(blocks(1), unit), scaled(blocks(2), unit), &
                                scaled(blocks(3), unit), blocks(4), data, counter, handle), name, stat)
    end if
  end subroutine put_strided_units

  subroutine get_strided_units(window, from, blocks, unit, data, elements, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: from
    integer(c_int64_t), intent(in) :: blocks(4)
    integer, intent(in) :: unit
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: elements
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_window_get_strided'

    if (.not. fits(blocks, elements)) then
      call blocks_wrong(name, stat)
    else
      call finish(c_get_strided(handle_of(window), from, scaled(blocks(1), unit), scaled(blocks(2), unit), &
                                scaled(blocks(3), unit), blocks(4), data), name, stat)
    end if
  end subroutine get_strided_units

  subroutine multicast_bytes(window, ranks, offset, data, bytes, notify, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: ranks(:)
    integer(c_size_t), intent(in) :: offset, bytes
    type(c_ptr), intent(in) :: data
    integer(c_int), intent(in), optional :: notify
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_window_multicast'
    type(c_ptr) :: none
    integer(c_int) :: counter

    if (.not. follows(notify, counter=counter, handle=none, name=name, stat=stat)) return
    call finish(c_multicast(handle_of(window), ranks, size(ranks, kind=c_size_t), offset, data, bytes, counter), &
                name, stat)
  end subroutine multicast_bytes

  ! ---- FIFOs --------------------------------------------------------------------------------------

  subroutine fifo_create_i8(window, offset, capacity, notify, fifo, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int64_t), intent(in) :: offset, capacity
    integer(c_int), intent(in) :: notify
    type(kumi_fifo), intent(inout) :: fifo
    integer(c_int), intent(out), optional :: stat

    call finish(c_fifo_create(handle_of(window), scaled(offset, 1), scaled(capacity, 1), notify, fifo%handle), &
                'kumi_fifo_create', stat)
  end subroutine fifo_create_i8

  subroutine fifo_create_i4(window, offset, capacity, notify, fifo, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: offset, capacity
    integer(c_int), intent(in) :: notify
    type(kumi_fifo), intent(inout) :: fifo
    integer(c_int), intent(out), optional :: stat

    call fifo_create_i8(window, int(offset, c_int64_t), int(capacity, c_int64_t), notify, fifo, stat)
  end subroutine fifo_create_i4

  subroutine kumi_fifo_free(fifo, stat)
    type(kumi_fifo), intent(inout) :: fifo
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: code

    code = c_fifo_free(fifo%handle)
    if (code == KUMI_OK) fifo = kumi_fifo()
    call finish(code, 'kumi_fifo_free', stat)
  end subroutine kumi_fifo_free

  subroutine kumi_fifo_max_record(bytes, stat)
    integer(c_int), intent(out) :: bytes
    integer(c_int), intent(out), optional :: stat
    integer(c_size_t) :: longest
    integer(c_int) :: code

    longest = 0
    code = c_fifo_max_record(longest)
    bytes = int(longest, c_int)
    call finish(code, 'kumi_fifo_max_record', stat)
  end subroutine kumi_fifo_max_record

  ! Appends a record to a FIFO, or `as_signal` to a port.  Waits for room unless `done` is there.
  subroutine record_bytes(as_signal, window, to, offset, data, bytes, done, stat)
    logical, intent(in) :: as_signal
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: to
    integer(c_int64_t), intent(in) :: offset
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: bytes
    logical, intent(out), optional :: done
    integer(c_int), intent(out), optional :: stat
    type(c_ptr) :: handle
    integer(c_size_t) :: place
    integer(c_int) :: code, taken

    handle = handle_of(window)
    place = scaled(offset, 1)
    if (.not. present(done)) then
      if (as_signal) then
        call finish(c_signal_send(handle, to, place, data, bytes), 'kumi_signal_send', stat)
      else
        call finish(c_fifo_append(handle, to, place, data, bytes), 'kumi_fifo_append', stat)
      end if
      return
    end if
    taken = 0
    if (as_signal) then
      code = c_signal_try_send(handle, to, place, data, bytes, taken)
    else
      code = c_fifo_try_append(handle, to, place, data, bytes, taken)
    end if
    done = taken /= 0
    call finish(code, merge('kumi_signal_try_send', 'kumi_fifo_try_append', as_signal), stat)
  end subroutine record_bytes

  ! The same for several ranks.
  subroutine records_bytes(as_signal, window, ranks, offset, data, bytes, done, stat)
    logical, intent(in) :: as_signal
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: ranks(:)
    integer(c_int64_t), intent(in) :: offset
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: bytes
    logical, intent(out), optional :: done(:)
    integer(c_int), intent(out), optional :: stat
    type(c_ptr) :: handle
    integer(c_size_t) :: count, place
    integer(c_int), allocatable :: taken(:)
    integer(c_int) :: code
    character(len=25) :: name

    handle = handle_of(window)
    count = size(ranks, kind=c_size_t)
    place = scaled(offset, 1)
    if (.not. present(done)) then
      if (as_signal) then
        call finish(c_signal_multicast(handle, ranks, count, place, data, bytes), 'kumi_signal_multicast', stat)
      else
        call finish(c_fifo_multicast(handle, ranks, count, place, data, bytes), 'kumi_fifo_multicast', stat)
      end if
      return
    end if
    name = merge('kumi_signal_try_multicast', 'kumi_fifo_try_multicast  ', as_signal)
    done = .false.
    if (size(done, kind=c_size_t) /= count) then
      call finish(KUMI_ERR_LENGTH, trim(name), stat, 'ranks and done have different sizes')
      return
    end if
    allocate (taken(count), source=0)
    if (as_signal) then
      code = c_signal_try_multicast(handle, ranks, count, place, data, bytes, taken)
    else
      code = c_fifo_try_multicast(handle, ranks, count, place, data, bytes, taken)
    end if
    done = taken /= 0
    call finish(code, trim(name), stat)
  end subroutine records_bytes

  ! Waits for a record unless `found` is there.
  subroutine pop_bytes(fifo, buffer, capacity, length, source, found, stat)
    type(kumi_fifo), intent(in) :: fifo
    type(c_ptr), intent(in) :: buffer
    integer(c_size_t), intent(in) :: capacity
    integer(c_int), intent(out), optional :: length, source
    logical, intent(out), optional :: found
    integer(c_int), intent(out), optional :: stat
    integer(c_size_t) :: bytes
    integer(c_int) :: code, is, from

    bytes = 0
    from = -1
    is = 0
    if (present(found)) then
      code = c_fifo_try_pop(fifo%handle, buffer, capacity, is, bytes, from)
      found = is /= 0
    else
      code = c_fifo_pop(fifo%handle, buffer, capacity, bytes, from)
    end if
    if (present(length)) length = int(bytes, c_int)
    if (present(source)) source = from
    if (present(found)) then
      call finish(code, 'kumi_fifo_try_pop', stat)
    else
      call finish(code, 'kumi_fifo_pop', stat)
    end if
  end subroutine pop_bytes

  ! ---- signals ------------------------------------------------------------------------------------

  ! The handler that C calls, in the threads of several ports at the same time: `argument` is the port.
  recursive subroutine run_handler(argument, source, data, length) bind(c, name='')
    type(c_ptr), value :: argument, data
    integer(c_int), value :: source
    integer(c_size_t), value :: length
    type(port), pointer :: here
    integer(c_int8_t), pointer :: bytes(:)

    call c_f_pointer(argument, here)
    call c_f_pointer(data, bytes, [length])
    call here%handler(source, bytes)
  end subroutine run_handler

  subroutine signal_handle_i8(window, offset, capacity, handler, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int64_t), intent(in) :: offset, capacity
    procedure(kumi_signal_handler) :: handler
    integer(c_int), intent(out), optional :: stat
    type(port), pointer :: new
    integer(c_int) :: code

    allocate (new)
    new%handler => handler
    new%window = handle_of(window)
    new%offset = offset
    code = c_signal_handle(new%window, scaled(offset, 1), scaled(capacity, 1), c_funloc(run_handler), c_loc(new))
    if (code == KUMI_OK) then
      new%next => ports
      ports => new
    else
      deallocate (new)
    end if
    call finish(code, 'kumi_signal_handle', stat)
  end subroutine signal_handle_i8

  subroutine signal_handle_i4(window, offset, capacity, handler, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: offset, capacity
    procedure(kumi_signal_handler) :: handler
    integer(c_int), intent(out), optional :: stat

    call signal_handle_i8(window, int(offset, c_int64_t), int(capacity, c_int64_t), handler, stat)
  end subroutine signal_handle_i4

  ! Removes the port at an offset of a window from the list, or all ports of the window.
  subroutine forget(window, offset)
    type(c_ptr), intent(in) :: window
    integer(c_int64_t), intent(in), optional :: offset
    type(port), pointer :: before, here, next
    logical :: goes

    before => null()
    next => ports
    do while (associated(next))
      here => next
      next => here%next
      goes = c_associated(here%window, window)
      if (present(offset)) goes = goes .and. here%offset == offset
      if (.not. goes) then
        before => here
        cycle
      end if
      if (associated(before)) then
        before%next => next
      else
        ports => next
      end if
      deallocate (here)
    end do
  end subroutine forget

  subroutine kumi_window_free(window, stat)
    type(kumi_window), intent(inout) :: window
    integer(c_int), intent(out), optional :: stat
    type(c_ptr) :: handle
    integer(c_int) :: code

    handle = handle_of(window)
    call free_window(window, code)
    ! Its ports have gone with it.
    if (code == KUMI_OK) call forget(handle)
    call finish(code, 'kumi_window_free', stat)
  end subroutine kumi_window_free

  subroutine signal_remove_i8(window, offset, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int64_t), intent(in) :: offset
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: code

    code = c_signal_remove(handle_of(window), scaled(offset, 1))
    if (code == KUMI_OK) call forget(handle_of(window), offset)
    call finish(code, 'kumi_signal_remove', stat)
  end subroutine signal_remove_i8

  subroutine signal_remove_i4(window, offset, stat)
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: offset
    integer(c_int), intent(out), optional :: stat

    call signal_remove_i8(window, int(offset, c_int64_t), stat)
  end subroutine signal_remove_i4
end module kumi_onesided
