! kumi_grpc_errors: what becomes of codes.  Programs use the module kumi_grpc instead.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi_grpc_errors
  use, intrinsic :: iso_c_binding, only: c_char, c_f_pointer, c_int, c_ptr
  use, intrinsic :: iso_fortran_env, only: error_unit
  use kumi_grpc_base, only: c_error_string, c_last_error_text, c_strlen, grpc_arguments, scattered
  use kumi_grpc_codes
  implicit none
  private
  public :: copy_text, done, grpc_error_string, grpc_last_error_text, in_pieces

contains

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

  ! The name of a code.
  recursive function grpc_error_string(code) result(text)
    integer(c_int), intent(in) :: code
    character(len=c_strlen(c_error_string(code))) :: text

    call copy_text(c_error_string(code), text)
  end function grpc_error_string

  ! The exact code of this thread's last error.
  recursive function grpc_last_error_text() result(text)
    character(len=c_strlen(c_last_error_text())) :: text

    call copy_text(c_last_error_text(), text)
  end function grpc_last_error_text

  ! Returns a code, or ends the program.
  subroutine done(code, stat)
    integer(c_int), intent(in) :: code
    integer(c_int), intent(out), optional :: stat

    if (present(stat)) then
      stat = code
    else if (code /= GRPC_NO_ERROR) then
      write (error_unit, '(4a)') grpc_error_string(code), ': ', grpc_last_error_text()
      error stop 1
    end if
  end subroutine done

  ! Whether an array is not contiguous, which is reported as an error.
  logical function in_pieces(arguments, stat)
    type(grpc_arguments), intent(in) :: arguments
    integer(c_int), intent(out), optional :: stat

    in_pieces = scattered(arguments) > 0
    if (.not. in_pieces) return
    if (present(stat)) then
      stat = GRPC_INVALID_ARGUMENT_NP
    else
      write (error_unit, '(a, i0, a)') 'argument ', scattered(arguments), ' is an array that does not lie in one piece'
      error stop 1
    end if
  end function in_pieces
end module kumi_grpc_errors
