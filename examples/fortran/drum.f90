! The wave in a square drumhead whose edge is held fast, by explicit steps on a grid.
!
! Each rank has some columns.  It starts to put its outer columns into its neighbours' windows, computes the columns
! inside meanwhile, and then the outer ones, for which the neighbours' have come.  Three fields take turns: one has the
! step before, one the step now, one the next.  A neighbour can be one step ahead, not two, since for the second it
! needs a column from here.
!
! The beginning is one mode of the grid's Laplacian, which swings with a known frequency, so the end is known.
module drum_head
  use, intrinsic :: iso_c_binding, only: c_double, c_int64_t
  use kumi
  implicit none
  private
  public :: head, make, step, error_of

  real(c_double), parameter :: PI = 3.14159265358979323846_c_double
  ! Square of the wave's speed by time step and distance; stable up to 1/2.
  real(c_double), parameter :: RATIO = 0.4_c_double
  integer, parameter :: FROM_LEFT = 0, FROM_RIGHT = 1

  ! This rank's part.
  type :: head
    integer :: points = 0                                   ! inner points in each direction
    integer :: first = 0                                    ! columns before this rank's
    integer :: columns = 0                                  ! columns of this rank
    integer :: steps = 0                                    ! so far
    real(c_double) :: frequency = 0                         ! per step
    type(kumi_window) :: window
    ! In the window: columns 0 and columns + 1 are the neighbours'; the last index is that of the field.
    real(c_double), pointer, contiguous :: field(:, :, :) => null()
  end type head

contains

  ! Columns before those of a rank.
  pure integer function columns_before(points, rank, ranks)
    integer, intent(in) :: points, rank, ranks

    columns_before = points * rank / ranks
  end function columns_before

  ! The drumhead at a point after some steps.
  elemental real(c_double) function exact(h, row, column, steps)
    type(head), intent(in) :: h
    integer, intent(in) :: row, column, steps
    real(c_double) :: distance

    distance = PI / (h%points + 1)
    exact = sin(3 * distance * row) * sin(2 * distance * column) * cos(h%frequency * steps)
  end function exact

  ! The field of a step.
  pure integer function turn(steps)
    integer, intent(in) :: steps

    turn = modulo(steps, 3)
  end function turn

  ! Collective.
  subroutine make(h, points)
    type(head), intent(out) :: h
    integer, intent(in) :: points
    real(c_double), pointer, contiguous :: all(:, :, :)
    integer :: row, column, then

    h%points = points
    h%first = columns_before(points, kumi_rank(), kumi_size())
    h%columns = columns_before(points, kumi_rank() + 1, kumi_size()) - h%first
    h%frequency = 2 * asin(sqrt(RATIO * (sin(PI / (points + 1))**2 + sin(1.5_c_double * PI / (points + 1))**2)))
    call kumi_window_allocate([points + 2, h%columns + 2, 3], h%window, all)
    h%field(0:, 0:, 0:) => all
    do then = -1, 0
      do column = 0, h%columns + 1
        do row = 0, points + 1
          h%field(row, column, turn(then)) = exact(h, row, h%first + column, then)
        end do
      end do
    end do
  end subroutine make

  ! Starts a put of a column into a neighbour's window.
  subroutine give(h, to, column, place, notify, request)
    type(head), intent(in) :: h
    integer, intent(in) :: to, column, place, notify
    type(kumi_request), intent(inout) :: request
    integer :: columns
    integer(c_int64_t) :: offset

    columns = columns_before(h%points, to + 1, kumi_size()) - columns_before(h%points, to, kumi_size()) + 2
    ! The last column for a place behind the others.
    offset = int(turn(h%steps), c_int64_t) * columns + merge(columns - 1, 0, place > 0)
    call kumi_window_iput(h%window, to, offset * (h%points + 2), h%field(:, column, turn(h%steps)), request, &
                          notify=notify, sent=.true.)
  end subroutine give

  subroutine compute(h, column)
    type(head), intent(in) :: h
    integer, intent(in) :: column
    integer :: row

    associate (now => h%field(:, :, turn(h%steps)), before => h%field(:, column, turn(h%steps - 1)), &
               next => h%field(:, column, turn(h%steps + 1)))
      ! Lower bounds of an association are 1, so all indices are one higher.
      do row = 2, h%points + 1
        next(row) = 2 * now(row, column + 1) - before(row) &
                    + RATIO * (now(row, column) + now(row, column + 2) + now(row - 1, column + 1) &
                               + now(row + 1, column + 1) - 4 * now(row, column + 1))
      end do
    end associate
  end subroutine compute

  subroutine step(h)
    type(head), intent(inout) :: h
    type(kumi_request) :: gone(2)
    integer :: me, ranks, column

    me = kumi_rank()
    ranks = kumi_size()
    if (me > 0) call give(h, me - 1, 1, 1, FROM_RIGHT, gone(1))
    if (me < ranks - 1) call give(h, me + 1, h%columns, 0, FROM_LEFT, gone(2))
    do column = 2, h%columns - 1
      call compute(h, column)
    end do
    if (me > 0) call kumi_window_wait_notify(h%window, FROM_LEFT, h%steps + 1)
    if (h%columns > 1) call compute(h, 1)
    if (me < ranks - 1) call kumi_window_wait_notify(h%window, FROM_RIGHT, h%steps + 1)
    call compute(h, h%columns)
    call kumi_request_wait_all(gone)
    h%steps = h%steps + 1
  end subroutine step

  ! The largest difference from what is known, at this rank.
  real(c_double) function error_of(h)
    type(head), intent(in) :: h
    integer :: row, column

    error_of = 0
    do column = 1, h%columns
      do row = 1, h%points
        error_of = max(error_of, abs(h%field(row, column, turn(h%steps)) &
                                     - exact(h, row, h%first + column, h%steps)))
      end do
    end do
  end function error_of
end module drum_head

program drum
  use, intrinsic :: iso_c_binding, only: c_double
  use, intrinsic :: iso_fortran_env, only: error_unit, output_unit
  use kumi
  use drum_head
  implicit none
  type(head) :: mine
  integer :: points, steps, joined, rank, i
  real(c_double) :: begin, worst
  real(c_double), target, asynchronous :: seconds
  type(kumi_request) :: slowest
  logical :: help
  character(len=:), allocatable :: wrong

  call read_options()
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
  do i = 1, steps
    call step(mine)
  end do
  seconds = kumi_time() - begin
  ! The ranks agree on the time while they look at the result.
  call kumi_group_iallreduce(kumi_job_group(), seconds, KUMI_MAX, slowest)
  worst = error_of(mine)
  call kumi_request_wait(slowest)
  call kumi_allreduce(worst, KUMI_MAX)
  if (rank == 0) call report()
  call kumi_barrier()
  call kumi_window_free(mine%window)
  call kumi_finalize()
  if (worst >= 1e-9_c_double) stop 1

contains

  subroutine read_options()
    character(len=32) :: option, value
    integer :: at, code

    points = 128
    steps = 200
    help = .false.
    at = 1
    do while (at <= command_argument_count() .and. .not. help .and. .not. allocated(wrong))
      call get_command_argument(at, option)
      call get_command_argument(at + 1, value)
      if (option == '--help') then
        help = .true.
      else if (option == '--points') then
        read (value, *, iostat=code) points
        if (code /= 0 .or. points < 1 .or. points > 8192) wrong = '--points takes 1 to 8192'
      else if (option == '--steps') then
        read (value, *, iostat=code) steps
        if (code /= 0 .or. steps < 1 .or. steps > 1000000) wrong = '--steps takes 1 to 1000000'
      else
        wrong = 'unknown option'
      end if
      at = at + 2
    end do
  end subroutine read_options

  subroutine explain_and_stop()
    integer :: unit

    unit = merge(output_unit, error_unit, help)
    if (rank == 0) then
      if (.not. help) write (unit, '(2a)') 'drum: ', wrong
      write (unit, '(a)') 'drum: a wave in a drumhead; columns travel while others are computed', &
        'Usage: kumi run -n RANKS drum [--points N] [--steps N]', &
        '  --points N  inner grid points in each direction (default 128), at least RANKS', &
        '  --steps N   time steps (default 200)', &
        'Last line: RESULT name=drum ... verified=yes|no ...', &
        'Exit code: 0 verified, 1 not verified or failed, 64 usage.'
      flush (unit)
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
    if (worst < 1e-9_c_double) word = 'yes'
    write (time, '(f24.6)') seconds
    write (rate, '(f24.2)') real(points, c_double)**2 * steps / max(seconds, 1e-9_c_double) / 1e6_c_double
    write (output_unit, '(a, es8.2, a, i0, a)') 'largest error ', worst, ' after ', steps, ' steps'
    write (output_unit, '(7a, i0, a)') 'RESULT name=drum class=- verified=', trim(word), ' seconds=', &
      trim(adjustl(time)), ' mops=', trim(adjustl(rate)), ' ranks=', kumi_size(), ' repeat=1'
    flush (output_unit)
  end subroutine report
end program drum
