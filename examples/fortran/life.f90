! Conway's game of life on a torus, checked against a run of it on one rank.
!
! Each rank has some rows of the field.  A row of an array lies scattered in memory, one element in each
! column.  So a rank writes its outer rows into its neighbours' border rows by strided puts, one each, and
! waits for the notifications only.  There are two fields, for even and for odd generations: a neighbour
! can be one generation ahead, not two, since for the second it needs a row from here.
module life_field
  use kumi
  implicit none
  private
  public :: field, make, step, born

  integer, parameter :: FROM_ABOVE = 0, FROM_BELOW = 1

  ! This rank's part.
  type :: field
    integer :: size = 0                                     ! rows and columns of the whole torus
    integer :: first = 0                                    ! rows before this rank's
    integer :: rows = 0                                     ! rows of this rank
    integer :: generation = 0
    type(kumi_window) :: window
    ! In the window: rows 1 and rows + 2 are the neighbours'; the last index is the generation's parity.
    integer, pointer, contiguous :: cells(:, :, :) => null()
  end type field

contains

  ! Rows before those of a rank.
  pure integer function rows_before(size, rank, ranks)
    integer, intent(in) :: size, rank, ranks

    rows_before = size * rank / ranks
  end function rows_before

  ! What is alive at first: about a third, and the same at each run.
  elemental integer function born(row, column)
    integer, intent(in) :: row, column

    born = merge(1, 0, mod(7 * row * row + 13 * column * column + 3 * row * column, 23) < 8)
  end function born

  ! Collective.
  subroutine make(f, size)
    type(field), intent(out) :: f
    integer, intent(in) :: size
    integer :: row, column

    f%size = size
    f%first = rows_before(size, kumi_rank(), kumi_size())
    f%rows = rows_before(size, kumi_rank() + 1, kumi_size()) - f%first
    call kumi_window_allocate([f%rows + 2, size, 2], f%window, f%cells)
    do column = 1, size
      do row = 1, f%rows
        f%cells(row + 1, column, 1) = born(f%first + row, column)
      end do
    end do
  end subroutine make

  ! Gives the outer rows to the neighbours and waits for theirs.  A rank that is its own neighbour does the
  ! same.
  subroutine exchange(f)
    type(field), intent(inout) :: f
    integer :: ranks, above, below, parity, turn, height

    ranks = kumi_size()
    above = mod(kumi_rank() + ranks - 1, ranks)
    below = mod(kumi_rank() + 1, ranks)
    parity = mod(f%generation, 2)
    turn = f%generation + 1
    ! To the last row of the one above, and to the first of the one below.
    height = rows_before(f%size, above + 1, ranks) - rows_before(f%size, above, ranks) + 2
    call kumi_window_put_strided(f%window, above, parity * height * f%size + height - 1, height, 1, f%size, &
                                 f%cells(2, :, parity + 1), notify=FROM_BELOW)
    height = rows_before(f%size, below + 1, ranks) - rows_before(f%size, below, ranks) + 2
    call kumi_window_put_strided(f%window, below, parity * height * f%size, height, 1, f%size, &
                                 f%cells(f%rows + 1, :, parity + 1), notify=FROM_ABOVE)
    call kumi_window_wait_notify(f%window, FROM_ABOVE, turn)
    call kumi_window_wait_notify(f%window, FROM_BELOW, turn)
  end subroutine exchange

  ! One generation.
  subroutine step(f)
    type(field), intent(inout) :: f
    integer :: row, column, left, right, near, now, then

    call exchange(f)
    now = mod(f%generation, 2) + 1
    then = 3 - now
    associate (c => f%cells)
      do column = 1, f%size
        left = modulo(column - 2, f%size) + 1
        right = modulo(column, f%size) + 1
        do row = 2, f%rows + 1
          near = sum(c(row - 1:row + 1, left, now)) + sum(c(row - 1:row + 1, right, now)) &
                 + c(row - 1, column, now) + c(row + 1, column, now)
          c(row, column, then) = merge(1, 0, near == 3 .or. (near == 2 .and. c(row, column, now) == 1))
        end do
      end do
    end associate
    f%generation = f%generation + 1
  end subroutine step
end module life_field

program life
  use, intrinsic :: iso_c_binding, only: c_double
  use, intrinsic :: iso_fortran_env, only: error_unit, output_unit
  use kumi
  use life_field
  implicit none
  integer, parameter :: LARGEST = 8192
  type(field) :: mine
  integer :: size, steps, alive, joined, rank, i
  real(c_double) :: begin, seconds
  logical :: help, same
  character(len=:), allocatable :: wrong

  call read_options(size, steps, help, wrong)
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
    if (size < kumi_size() .and. .not. allocated(wrong)) wrong = 'more ranks than rows'
  end if
  if (help .or. allocated(wrong)) call explain_and_stop()
  call make(mine, size)
  call kumi_barrier()
  begin = kumi_time()
  do i = 1, steps
    call step(mine)
  end do
  seconds = kumi_time() - begin
  call kumi_allreduce(seconds, KUMI_MAX)
  same = verified(mine, alive)
  if (rank == 0) call report()
  call kumi_barrier()
  call kumi_window_free(mine%window)
  call kumi_finalize()
  if (.not. same) stop 1

contains

  ! Each rank runs the whole torus by itself and compares its rows; `alive` are all cells that live.
  logical function verified(f, alive)
    type(field), intent(in) :: f
    integer, intent(out) :: alive
    integer, allocatable :: whole(:, :), near(:, :)
    integer :: row, column, i, differ

    allocate (near(f%size, f%size))
    whole = reshape([((born(row, column), row=1, f%size), column=1, f%size)], [f%size, f%size])
    do i = 1, f%generation
      near = cshift(whole, 1, 1) + cshift(whole, -1, 1)
      near = near + whole
      near = near + cshift(near, 1, 2) + cshift(near, -1, 2) - whole
      whole = merge(1, 0, near == 3 .or. (near == 2 .and. whole == 1))
    end do
    associate (rows => f%cells(2:f%rows + 1, :, mod(f%generation, 2) + 1))
      differ = count(rows /= whole(f%first + 1:f%first + f%rows, :))
      alive = sum(rows)
    end associate
    call kumi_allreduce(differ, KUMI_SUM)
    call kumi_allreduce(alive, KUMI_SUM)
    verified = differ == 0
  end function verified

  subroutine read_options(size, steps, help, wrong)
    integer, intent(out) :: size, steps
    logical, intent(out) :: help
    character(len=:), allocatable, intent(out) :: wrong
    character(len=32) :: option, value
    integer :: at, code

    size = 64
    steps = 100
    help = .false.
    at = 1
    do while (at <= command_argument_count() .and. .not. help .and. .not. allocated(wrong))
      call get_command_argument(at, option)
      call get_command_argument(at + 1, value)
      if (option == '--help') then
        help = .true.
      else if (option == '--size') then
        read (value, *, iostat=code) size
        if (code /= 0 .or. size < 1 .or. size > LARGEST) wrong = '--size takes 1 to 8192'
      else if (option == '--steps') then
        read (value, *, iostat=code) steps
        if (code /= 0 .or. steps < 0 .or. steps > 1000000) wrong = '--steps takes 0 to 1000000'
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
      if (.not. help) write (out, '(2a)') 'life: ', wrong
      write (out, '(a)') 'life: the game of life on a torus, with strided puts', &
        'Usage: kumi run -n RANKS life [--size N] [--steps N]', &
        '  --size N   rows and columns (default 64), at least RANKS', &
        '  --steps N  generations (default 100)', &
        'Last line: RESULT name=life ... verified=yes|no ...', &
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
    if (same) word = 'yes'
    write (time, '(f24.6)') seconds
    write (rate, '(f24.2)') real(size, c_double)**2 * steps / max(seconds, 1e-9_c_double) / 1e6_c_double
    write (output_unit, '(i0, a, i0, a)') alive, ' cells live after ', steps, ' generations'
    write (output_unit, '(7a, i0, a)') 'RESULT name=life class=- verified=', trim(word), ' seconds=', &
      trim(adjustl(time)), ' mops=', trim(adjustl(rate)), ' ranks=', kumi_size(), ' repeat=1'
    flush (output_unit)
  end subroutine report
end program life
