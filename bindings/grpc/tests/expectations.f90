! What the tests of Fortran have in common.
module expectations
  use, intrinsic :: iso_c_binding, only: c_int
  use, intrinsic :: iso_fortran_env, only: error_unit
  use kumi_grpc
  implicit none
  private
  public :: expect, fails

contains

  subroutine expect(condition, what)
    logical, intent(in) :: condition
    character(len=*), intent(in) :: what

    if (condition) return
    write (error_unit, '(3a)') 'not so: ', what, '; '//grpc_last_error_text()
    error stop 1
  end subroutine expect

  ! That something failed with this code, and this in its text.
  subroutine fails(stat, code, text, what)
    integer(c_int), intent(in) :: stat, code
    character(len=*), intent(in) :: text, what

    call expect(stat == code, what)
    call expect(index(grpc_last_error_text(), text) > 0, what)
  end subroutine fails
end module expectations
