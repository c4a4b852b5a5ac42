! A product of a matrix and a vector on a grid of ranks: each row and each column of the grid is a group.  A rank has
! a block of the matrix.  The vector's parts go down the columns, and the rows sum up what their blocks give.
program grid
  use, intrinsic :: iso_c_binding, only: c_double
  use kumi
  implicit none
  ! Rows and columns of a block.
  integer, parameter :: block = 50
  type(kumi_group) :: row, column
  integer :: me, ranks, height, width, top, left, i, j, number
  real(c_double) :: part(block), product(block), wanted, worst

  call kumi_init()
  me = kumi_rank()
  ranks = kumi_size()
  height = 1
  do number = 1, ranks
    if (number * number <= ranks .and. mod(ranks, number) == 0) height = number
  end do
  width = ranks / height
  call kumi_group_split(kumi_job_group(), me / width, 0, row)
  call kumi_group_split(kumi_job_group(), mod(me, width), 0, column)
  top = kumi_group_member(column) * block
  left = kumi_group_member(row) * block

  ! The first row of the grid has the vector, a part in each column.
  part = 0
  if (top == 0) part = [(sin(real(left + j, c_double)), j = 0, block - 1)]
  call kumi_group_broadcast(column, 0, part)
  do i = 0, block - 1
    product(i + 1) = sum([(element(top + i, left + j), j = 0, block - 1)] * part)
  end do
  call kumi_group_allreduce(row, product, KUMI_SUM)

  ! Each number of the matrix follows from its place: every rank checks.
  worst = 0
  do i = 0, block - 1
    wanted = sum([(element(top + i, j) * sin(real(j, c_double)), j = 0, width * block - 1)])
    worst = max(worst, abs(product(i + 1) - wanted))
  end do
  call kumi_allreduce(worst, KUMI_MAX)
  if (me == 0) then
    print '(3a, i0, a, i0)', 'RESULT name=grid verified=', trim(merge('yes', 'no ', worst < 1e-9_c_double)), &
      ' height=', height, ' width=', width
  end if
  call kumi_finalize()
  if (worst >= 1e-9_c_double) error stop 1

contains

  pure real(c_double) function element(i, j)
    integer, intent(in) :: i, j

    element = cos(1e-3_c_double * i * j)
  end function element
end program grid
