! kumi_lists: puts and gets of lists of pieces, as far as they do not depend on the type of data.  Not for
! programs, which use the module kumi.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi_lists
  use, intrinsic :: iso_c_binding, only: c_f_pointer, c_int, c_int64_t, c_int8_t, c_loc, c_null_ptr, c_ptr, c_size_t
  use kumi_c
  use kumi_codes
  use kumi_base, only: finish, handle_of, kumi_window, scaled
  use kumi_onesided, only: follows, kumi_completion
  implicit none
  private
  public :: put_list_units, get_list_units

contains

  ! Pieces of a window, and pieces of `elements` elements of `unit` bytes at `data`, as C takes them.  False,
  ! after reporting the error, if they are impossible.
  logical function in_bytes(name, offsets, lengths, unit, data, elements, data_offsets, data_lengths, pieces, &
                            buffers, stat)
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: offsets(:), lengths(:), data_offsets(:), data_lengths(:)
    integer, intent(in) :: unit
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: elements
    type(kumi_piece), allocatable, intent(out) :: pieces(:)
    type(kumi_buffer), allocatable, intent(out) :: buffers(:)
    integer(c_int), intent(out), optional :: stat
    integer(c_int8_t), pointer :: bytes(:)
    integer :: i

    in_bytes = size(offsets) == size(lengths) .and. size(data_offsets) == size(data_lengths)
    if (.not. in_bytes) then
      call finish(KUMI_ERR_LENGTH, name, stat, 'there must be as many lengths as offsets')
      return
    end if
    in_bytes = all(data_offsets >= 0 .and. data_offsets <= elements .and. data_lengths >= 0 .and. &
                   data_lengths <= elements - data_offsets)
    if (.not. in_bytes) then
      call finish(KUMI_ERR_LENGTH, name, stat, 'data has not the elements that data_offsets and data_lengths say')
      return
    end if
    allocate (pieces(size(offsets)), buffers(size(data_offsets)))
    do i = 1, size(offsets)
      pieces(i) = kumi_piece(scaled(offsets(i), unit), scaled(lengths(i), unit))
    end do
    nullify (bytes)
    if (elements > 0) call c_f_pointer(data, bytes, [elements * unit])
    do i = 1, size(data_offsets)
      buffers(i) = kumi_buffer(c_null_ptr, data_lengths(i) * unit)
      if (data_lengths(i) > 0) buffers(i)%data = c_loc(bytes(data_offsets(i) * unit + 1))
    end do
  end function in_bytes

  subroutine put_list_units(name, window, to, offsets, lengths, unit, data, elements, data_offsets, data_lengths, &
                            notify, completion, stat)
    character(len=*), intent(in) :: name
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: to
    integer(c_int64_t), intent(in) :: offsets(:), lengths(:), data_offsets(:), data_lengths(:)
    integer, intent(in) :: unit
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: elements
    integer(c_int), intent(in), optional :: notify
    type(kumi_completion), intent(in), optional :: completion
    integer(c_int), intent(out), optional :: stat
    type(kumi_piece), allocatable :: pieces(:)
    type(kumi_buffer), allocatable :: buffers(:)
    type(c_ptr) :: handle
    integer(c_int) :: counter

    if (.not. in_bytes(name, offsets, lengths, unit, data, elements, data_offsets, data_lengths, pieces, buffers, &
                       stat)) return
    if (.not. follows(notify, completion, counter, handle, name, stat)) return
    call finish(c_put_lists(handle_of(window), to, pieces, size(pieces, kind=c_size_t), buffers, &
                            size(buffers, kind=c_size_t), counter, handle), name, stat)
  end subroutine put_list_units

  subroutine get_list_units(name, window, from, offsets, lengths, unit, data, elements, data_offsets, data_lengths, &
                            stat)
    character(len=*), intent(in) :: name
    type(kumi_window), intent(in) :: window
    integer(c_int), intent(in) :: from
    integer(c_int64_t), intent(in) :: offsets(:), lengths(:), data_offsets(:), data_lengths(:)
    integer, intent(in) :: unit
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: elements
    integer(c_int), intent(out), optional :: stat
    type(kumi_piece), allocatable :: pieces(:)
    type(kumi_buffer), allocatable :: buffers(:)

    if (.not. in_bytes(name, offsets, lengths, unit, data, elements, data_offsets, data_lengths, pieces, buffers, &
                       stat)) return
    call finish(c_get_lists(handle_of(window), from, pieces, size(pieces, kind=c_size_t), buffers, &
                            size(buffers, kind=c_size_t)), name, stat)
  end subroutine get_list_units
end module kumi_lists
