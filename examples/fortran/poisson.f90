! Poisson's equation on a square by conjugate gradients.  Each rank has some columns of the grid; before
! it applies the operator it puts its outer columns into its neighbours' windows, which wait for the
! notification only.  The right-hand side is made from a known solution, and the program compares its
! result with that.
module poisson_grid
  use, intrinsic :: iso_c_binding, only: c_double
  use kumi
  implicit none
  private
  public :: grid, make, solve, largest_error

  integer, parameter :: FROM_LEFT = 0, FROM_RIGHT = 1

  ! This rank's part.  Arrays are (row, column); the operator is 4 u minus the four neighbours, and u is 0
  ! on the square's edge.
  type :: grid
    integer :: points = 0                                 ! inner points in each direction
    integer :: first = 0                                  ! columns before this rank's
    integer :: columns = 0                                ! columns of this rank
    integer :: exchanges = 0                              ! how often `direction` was exchanged
    type(kumi_window) :: window
    ! In the window: 0:points + 1, 0:columns + 1, the outer columns being the neighbours'.
    real(c_double), pointer, contiguous :: direction(:, :) => null()
    real(c_double), allocatable :: solution(:, :), residual(:, :), applied(:, :)
  end type grid

contains

  ! Columns before those of a rank.
  pure integer function columns_before(points, rank, ranks)
    integer, intent(in) :: points, rank, ranks

    columns_before = points * rank / ranks
  end function columns_before

  ! The solution to be found: 0 on the edge, rough inside.
  elemental function known(points, row, column) result(u)
    integer, intent(in) :: points, row, column
    real(c_double) :: u

    u = 0
    if (min(row, column) >= 1 .and. max(row, column) <= points) &
      u = sin(0.7_c_double * row) + cos(1.3_c_double * column + 0.1_c_double * row)
  end function known

  ! Collective.
  subroutine make(g, points)
    type(grid), intent(out) :: g
    integer, intent(in) :: points
    real(c_double), pointer, contiguous :: whole(:, :)
    integer :: row, column, c

    g%points = points
    g%first = columns_before(points, kumi_rank(), kumi_size())
    g%columns = columns_before(points, kumi_rank() + 1, kumi_size()) - g%first
    call kumi_window_allocate([points + 2, g%columns + 2], g%window, whole)
    g%direction(0:points + 1, 0:g%columns + 1) => whole
    allocate (g%solution(points, g%columns), g%residual(points, g%columns), g%applied(points, g%columns))
    do column = 1, g%columns
      c = g%first + column
      do row = 1, points
        g%residual(row, column) = 4 * known(points, row, c) - known(points, row - 1, c) - known(points, row + 1, c) &
                                  - known(points, row, c - 1) - known(points, row, c + 1)
      end do
    end do
    g%solution = 0
    g%direction(1:points, 1:g%columns) = g%residual
  end subroutine make

  ! Gives the outer columns of `direction` to the neighbours and waits for theirs.  A neighbour's next
  ! column cannot come too early: between two exchanges there is a sum over all ranks.
  subroutine exchange(g)
    type(grid), intent(inout) :: g
    integer :: left, right, theirs

    left = kumi_rank() - 1
    right = kumi_rank() + 1
    g%exchanges = g%exchanges + 1
    if (left >= 0) then
      theirs = g%first - columns_before(g%points, left, kumi_size())
      call kumi_window_put_notify(g%window, left, (g%points + 2) * (theirs + 1), g%direction(:, 1), FROM_RIGHT)
    end if
    if (right < kumi_size()) &
      call kumi_window_put_notify(g%window, right, 0, g%direction(:, g%columns), FROM_LEFT)
    if (left >= 0) call kumi_window_wait_notify(g%window, FROM_LEFT, g%exchanges)
    if (right < kumi_size()) call kumi_window_wait_notify(g%window, FROM_RIGHT, g%exchanges)
  end subroutine exchange

  ! applied = operator(direction)
  subroutine apply(g)
    type(grid), intent(inout) :: g
    integer :: row, column

    call exchange(g)
    associate (d => g%direction)
      do column = 1, g%columns
        do row = 1, g%points
          g%applied(row, column) = 4 * d(row, column) - d(row - 1, column) - d(row + 1, column) &
                                   - d(row, column - 1) - d(row, column + 1)
        end do
      end do
    end associate
  end subroutine apply

  ! The sum of the products of all ranks' elements.
  function inner(a, b) result(total)
    real(c_double), intent(in) :: a(:, :), b(:, :)
    real(c_double) :: total

    total = sum(a * b)
    call kumi_allreduce(total, KUMI_SUM)
  end function inner

  ! Conjugate gradients, until the residual is 1e-14 of what it was.
  subroutine solve(g, steps)
    type(grid), intent(inout) :: g
    integer, intent(out) :: steps
    real(c_double), parameter :: enough = 1e-14_c_double
    real(c_double) :: before, now, begin, step

    begin = inner(g%residual, g%residual)
    now = begin
    steps = 0
    do while (now > enough**2 * begin .and. steps < 20 * g%points)
      call apply(g)
      associate (d => g%direction(1:g%points, 1:g%columns))
        step = now / inner(d, g%applied)
        g%solution = g%solution + step * d
        g%residual = g%residual - step * g%applied
        before = now
        now = inner(g%residual, g%residual)
        d = g%residual + now / before * d
      end associate
      steps = steps + 1
    end do
  end subroutine solve

  ! Of all ranks.
  function largest_error(g) result(worst)
    type(grid), intent(in) :: g
    real(c_double) :: worst
    integer :: row, column

    worst = 0
    do column = 1, g%columns
      do row = 1, g%points
        worst = max(worst, abs(g%solution(row, column) - known(g%points, row, g%first + column)))
      end do
    end do
    call kumi_allreduce(worst, KUMI_MAX)
  end function largest_error
end module poisson_grid

program poisson
  use, intrinsic :: iso_c_binding, only: c_double
  use, intrinsic :: iso_fortran_env, only: error_unit, output_unit
  use kumi
  use poisson_grid
  implicit none
  integer, parameter :: MOST_POINTS = 4096
  type(grid) :: mine
  integer :: points, steps, joined, rank
  real(c_double) :: begin, seconds, error
  logical :: help
  character(len=:), allocatable :: wrong

  call read_options(points, help, wrong)
  ! Outside a job this process is all there is, and may ask.
  joined = KUMI_OK
  if (help .or. allocated(wrong)) then
    call kumi_init(stat=joined)
  else
    call kumi_init()
  end if
  rank = 0
  if (joined == KUMI_OK) then
    rank = kumi_rank()
    if (points < kumi_size() .and. .not. allocated(wrong)) wrong = 'more ranks than columns'
  end if
  if (help .or. allocated(wrong)) call explain_and_stop()
  call make(mine, points)
  call kumi_barrier()
  begin = kumi_time()
  call solve(mine, steps)
  seconds = kumi_time() - begin
  call kumi_allreduce(seconds, KUMI_MAX)
  error = largest_error(mine)
  if (rank == 0) call report()
  call kumi_barrier()
  call kumi_window_free(mine%window)
  call kumi_finalize()
  if (.not. verified(error)) stop 1

contains

  pure logical function verified(error)
    real(c_double), intent(in) :: error

    verified = error < 1e-10_c_double
  end function verified

  subroutine read_options(points, help, wrong)
    integer, intent(out) :: points
    logical, intent(out) :: help
    character(len=:), allocatable, intent(out) :: wrong
    character(len=32) :: option, value
    integer :: at, code

    points = 64
    help = .false.
    at = 1
    do while (at <= command_argument_count() .and. .not. help .and. .not. allocated(wrong))
      call get_command_argument(at, option)
      call get_command_argument(at + 1, value)
      if (option == '--help') then
        help = .true.
      else if (option == '--points') then
        read (value, *, iostat=code) points
        if (code /= 0 .or. points < 1 .or. points > MOST_POINTS) wrong = '--points takes 1 to 4096'
      else
        wrong = 'unknown option'
      end if
      at = at + 2
    end do
  end subroutine read_options

  ! Ends a run that has nothing to compute; rank 0 says why.
  subroutine explain_and_stop()
    integer :: out

    out = error_unit
    if (help) out = output_unit
    if (rank == 0) then
      if (.not. help) write (out, '(2a)') 'poisson: ', wrong
      write (out, '(a)') 'poisson: Poisson''s equation by conjugate gradients, with put-with-notify', &
        'Usage: kumi run -n RANKS poisson [--points N]', &
        '  --points N  inner grid points in each direction (default 64), at least RANKS', &
        'Last line: RESULT name=poisson ... verified=yes|no ...', &
        'Exit code: 0 verified, 1 not verified or failed, 64 usage.'
      flush (out)
    end if
    if (joined == KUMI_OK) then
      call kumi_barrier()
      call kumi_finalize()
    end if
    if (help) stop
    stop 64
  end subroutine explain_and_stop

  subroutine report()
    character(len=24) :: time, rate
    character(len=3) :: word

    word = 'no'
    if (verified(error)) word = 'yes'
    write (time, '(f24.6)') seconds
    write (rate, '(f24.2)') real(points, c_double)**2 * steps / max(seconds, 1e-9_c_double) / 1e6_c_double
    write (output_unit, '(a, es9.2, a, i0, a)') 'largest error', error, ' after ', steps, ' steps'
    write (output_unit, '(7a, i0, a)') 'RESULT name=poisson class=- verified=', trim(word), ' seconds=', &
      trim(adjustl(time)), ' mops=', trim(adjustl(rate)), ' ranks=', kumi_size(), ' repeat=1'
    flush (output_unit)
  end subroutine report
end program poisson
