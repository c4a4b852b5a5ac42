! The part of the test for groups and their collectives.
module groups
  use, intrinsic :: iso_c_binding, only: c_double_complex, c_int, c_int64_t
  use kumi
  use unit
  implicit none
  private
  public :: split, collectives, wrong_groups

contains

  ! The element of a member at an index.
  elemental integer(c_int64_t) function element(member, i)
    integer, intent(in) :: member, i

    element = 100000_c_int64_t * (member + 1) + i
  end function element

  ! What the members before `end` have at an index together.
  elemental integer(c_int64_t) function total(end, i)
    integer, intent(in) :: end, i
    integer :: member

    total = sum([(element(member, i), member=0, end - 1)])
  end function total

  subroutine split()
    type(kumi_group) :: half, first, none, copy
    integer :: member, stat

    call kumi_group_split(kumi_job_group(), mod(me, 2), -me, half)
    call expect(kumi_group_exists(half), 'all have a colour')
    call expect(kumi_group_rank(half, kumi_group_members(half) - 1) == mod(me, 2), 'ordered by key')
    call kumi_group_find(half, me, member)
    call expect(member == kumi_group_member(half), 'its own number')
    call kumi_group_split(half, KUMI_NO_COLOUR, 0_c_int64_t, none)
    call expect(.not. kumi_group_exists(none), 'none without a colour')
    call kumi_group_subset(kumi_job_group(), [0], first)
    call expect(kumi_group_exists(first) .eqv. me == 0, 'only the first')
    call kumi_group_duplicate(half, copy)
    call kumi_group_barrier(copy)
    call kumi_group_free(copy)
    call kumi_group_barrier(copy, stat)
    call expect(stat == KUMI_ERR_GROUP, 'freed')
    call kumi_group_free(half)
  end subroutine split

  subroutine collectives()
    type(kumi_group) :: group
    integer(c_int64_t), allocatable :: mine(:), all_of(:), part(:), back(:)
    integer(c_int64_t) :: square(2, 2)
    complex(c_double_complex) :: z
    integer, allocatable :: counts(:)
    integer :: own, members, i, m, length

    call kumi_group_duplicate(kumi_job_group(), group)
    own = kumi_group_member(group)
    members = kumi_group_members(group)
    do length = 1, 5001, 5000
      mine = [(element(own, i), i=1, length)]
      all_of = [((element(m, i), i=1, length), m=0, members - 1)]
      call kumi_group_allreduce(group, mine, KUMI_SUM)
      call expect(all(mine == total(members, [(i, i=1, length)])), 'sum')
      mine = [(element(own, i), i=1, length)]
      call kumi_group_scan(group, mine, KUMI_SUM)
      call expect(all(mine == total(own + 1, [(i, i=1, length)])), 'scan')
      mine = [(element(own, i), i=1, length)]
      call kumi_group_exclusive_scan(group, mine, KUMI_SUM)
      call expect(all(mine == total(max(own, 1), [(i, i=1, length)])), 'exclusive scan')
      mine = [(element(own, i), i=1, length)]
      part = mine
      call kumi_group_broadcast(group, members - 1, part)
      call expect(all(part == [(element(members - 1, i), i=1, length)]), 'broadcast')
      back = 0 * all_of
      call kumi_group_allgather(group, mine, back)
      call expect(all(back == all_of), 'allgather')
      back = 0
      call kumi_group_gather(group, 0, mine, back)
      call expect(own /= 0 .or. all(back == all_of), 'gather')
      call kumi_group_scatter(group, 0, all_of, part)
      call expect(all(part == mine), 'scatter')
      call kumi_group_alltoall(group, all_of, back)
      call expect(all(back == [((element(own, i), i=1, length), m=1, members)]), 'all-to-all')
      call kumi_group_reduce_scatter(group, all_of, part, KUMI_SUM)
      call expect(all(part == members * mine), 'reduce-scatter')
      counts = [(length, m=1, members)]
      call kumi_group_allgatherv(group, mine, back, counts)
      call kumi_group_gatherv(group, 0, mine, back, counts)
      call expect(own /= 0 .or. all(back == all_of), 'gatherv')
      call kumi_group_scatterv(group, 0, all_of, counts, part)
      call kumi_group_alltoallv(group, all_of, counts, back, counts)
      call expect(all(part == mine) .and. back(1) == element(own, 1), 'of differing lengths')
      call kumi_group_reduce_scatterv(group, all_of, part, counts, KUMI_SUM)
      call expect(all(part == members * mine), 'reduce-scatterv')
    end do
    square = own + 1
    call kumi_group_reduce(group, 0, square, KUMI_SUM)
    call expect(own /= 0 .or. all(square == members * (members + 1) / 2), 'two dimensions')
    z = (1, 2)
    call kumi_group_allreduce(group, z, KUMI_SUM)
    call expect(abs(z - members * (1, 2)) < 1e-9, 'complex numbers')
    call kumi_group_free(group)
  end subroutine collectives

  subroutine wrong_groups()
    type(kumi_group) :: group, none
    integer(c_int64_t) :: two(2), five(5)
    complex(c_double_complex) :: z
    integer :: stat, member

    call kumi_group_barrier(none, stat)
    call expect(stat == KUMI_ERR_GROUP, 'no group')
    call expect(kumi_group_members(none) == KUMI_ERR_GROUP, 'none has members')
    call kumi_group_subset(kumi_job_group(), [0, 0], group, stat)
    call expect(stat == KUMI_ERR_GROUP .and. .not. kumi_group_exists(group), 'a member twice')
    call kumi_group_split(kumi_job_group(), -5, 0, group, stat)
    call expect(stat == KUMI_ERR_LENGTH, 'no colour')
    call kumi_group_find(kumi_job_group(), ranks, member, stat)
    call expect(stat == KUMI_ERR_RANK, 'no rank')
    call expect(kumi_group_rank(kumi_job_group(), ranks) == KUMI_ERR_RANK, 'no member')
    call kumi_group_free(none)
    group = kumi_job_group()
    call kumi_group_free(group, stat)
    call expect(stat == KUMI_ERR_GROUP, 'the job stays')
    z = 0
    two = 1
    five = 1
    call kumi_group_allgather(group, five, two, stat)
    call expect(stat == KUMI_ERR_LENGTH, 'too short')
    call kumi_group_allgatherv(group, two, five, [2, 3, 4], stat)
    call expect(stat == KUMI_ERR_LENGTH, 'wrong counts')
    call kumi_group_allreduce(group, z, KUMI_MAX, stat)
    call expect(stat == KUMI_ERR_OPERATION, 'complex numbers have no order')
  end subroutine wrong_groups
end module groups
