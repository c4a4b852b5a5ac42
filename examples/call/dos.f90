! Density of states of a chain of atoms with one level each, whose energies are random (tight binding).
! How many levels of a chain lie below an energy is counted by the signs of a Sturm sequence; chains are added
! until enough levels lie in the window around the energy. Where levels are rare that takes many times longer
! than where they are dense, and nobody knows before where that is.

subroutine dos(count, energy, atoms, disorder, window, wanted, most, density, chains)
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
  integer, intent(in) :: count, atoms, wanted, most
  real(real64), intent(in) :: energy(count), disorder, window
  real(real64), intent(out) :: density(count)
  integer, intent(out) :: chains(count)
  integer(int64) :: found
  integer :: i, chain

  do i = 1, count
    found = 0
    do chain = 1, most
      found = found + below(energy(i) + window, chain) - below(energy(i) - window, chain)
      if (found >= wanted) exit
    end do
    chains(i) = min(chain, most)
    density(i) = real(found, real64) / (2 * window * real(atoms, real64) * chains(i))
  end do

contains

  !> Levels of a chain below an energy.
  function below(at, chain) result(levels)
    real(real64), intent(in) :: at
    integer, intent(in) :: chain
    integer(int64) :: levels, state
    real(real64) :: ratio
    integer :: atom

    state = 20011_int64 * chain
    levels = 0
    ratio = 1e300_real64
    do atom = 1, atoms
      state = mod(state * 16807_int64, 2147483647_int64)
      ratio = disorder * (real(state, real64) / 2147483647 - 0.5_real64) - at - 1 / ratio
      if (abs(ratio) < 1e-300_real64) ratio = -1e-300_real64
      if (ratio < 0) levels = levels + 1
    end do
  end function below

end subroutine dos
