! The part of the test for collectives that are requests.
module started
  use, intrinsic :: iso_c_binding, only: c_double, c_double_complex, c_int, c_int64_t
  use kumi
  use unit
  implicit none
  private
  public :: started_in_place, started_blocks, started_counts, wrong_starts

contains

  ! The element of a member at an index.
  elemental integer(c_int64_t) function element(member, i)
    integer, intent(in) :: member, i

    element = 100000_c_int64_t * (member + 1) + i
  end function element

  subroutine started_in_place()
    type(kumi_group) :: group
    type(kumi_request) :: six(6), barrier
    type(kumi_queue) :: queue
    type(kumi_result) :: result
    integer(c_int64_t), allocatable, target, asynchronous :: sums(:), roots(:), scans(:), before(:)
    integer(c_int64_t), allocatable :: mine(:), wanted(:)
    real(c_double), target, asynchronous :: square(2, 3)
    complex(c_double_complex), target, asynchronous :: z
    integer :: i, length, stat

    call kumi_group_split(kumi_job_group(), 0, -me, group)
    do length = 1, 9001, 9000
      mine = [(element(kumi_group_member(group), i), i=1, length)]
      sums = mine
      roots = mine
      scans = mine
      before = mine
      square = me
      z = (1, 2)
      call kumi_group_iallreduce(group, sums, KUMI_SUM, six(1))
      call kumi_group_ireduce(group, 0, roots, KUMI_MAX, six(2))
      call kumi_group_iscan(group, scans, KUMI_SUM, six(3))
      call kumi_group_iexclusive_scan(group, before, KUMI_SUM, six(4))
      call kumi_group_ibroadcast(group, ranks - 1, square, six(5))
      call kumi_group_iallreduce(group, z, KUMI_SUM, six(6))
      call kumi_group_ibarrier(group, barrier)
      call kumi_request_wait(barrier)
      call kumi_request_wait_all(six)
      wanted = mine
      call kumi_group_allreduce(group, wanted, KUMI_SUM)
      call expect(all_same(sums, wanted), 'sums')
      wanted = mine
      call kumi_group_reduce(group, 0, wanted, KUMI_MAX)
      call expect(all_same(roots, wanted), 'at the root')
      wanted = mine
      call kumi_group_scan(group, wanted, KUMI_SUM)
      call expect(all_same(scans, wanted), 'up to a member')
      wanted = mine
      call kumi_group_exclusive_scan(group, wanted, KUMI_SUM)
      call expect(all_same(before, wanted), 'before a member')
      ! Its last member is the first rank.
      call expect(maxval(abs(square)) <= 0, 'of the last member')
      call expect(abs(z - ranks * (1, 2)) <= 0, 'complex numbers')
    end do
    call kumi_request_wait(barrier, stat=stat)
    call expect_error(stat, KUMI_ERR_REQUEST, 'waited for twice')
    call kumi_queue_create(queue)
    call kumi_group_iallreduce(group, z, KUMI_SUM, barrier, queue=queue, word=3_c_int64_t)
    call kumi_queue_wait(queue, result)
    call expect(result%word == 3 .and. result%error == KUMI_OK, 'told by a queue')
    call expect(abs(z - ranks**2 * (1, 2)) <= 0, 'once more')
    call kumi_queue_free(queue)
    call kumi_group_free(group)
  end subroutine started_in_place

  logical function all_same(found, wanted)
    integer(c_int64_t), intent(in) :: found(:), wanted(:)

    all_same = all(found == wanted)
  end function all_same

  subroutine started_blocks()
    type(kumi_group) :: group
    type(kumi_request) :: five(5)
    integer(c_int64_t), allocatable, target, asynchronous :: mine(:), whole(:), gathered(:), everywhere(:), exchanged(:), &
      dealt(:), part(:)
    integer(c_int64_t), allocatable :: wanted(:)
    integer :: i, length, last

    group = kumi_job_group()
    last = ranks - 1
    do length = 1, 5001, 5000
      mine = [(element(me, i), i=1, length)]
      whole = [(element(me, i), i=1, length * ranks)]
      allocate (gathered(length * ranks), everywhere(length * ranks), exchanged(length * ranks), dealt(length), &
                part(length), source=0_c_int64_t)
      call kumi_group_igather(group, last, mine, gathered, five(1))
      call kumi_group_iscatter(group, last, whole, dealt, five(2))
      call kumi_group_iallgather(group, mine, everywhere, five(3))
      call kumi_group_ialltoall(group, whole, exchanged, five(4))
      call kumi_group_ireduce_scatter(group, whole, part, KUMI_SUM, five(5))
      call kumi_request_wait_all(five)
      allocate (wanted(length * ranks), source=0_c_int64_t)
      call kumi_group_allgather(group, mine, wanted)
      call expect(all_same(everywhere, wanted), 'at all')
      call expect(all_same(gathered, merge(wanted, 0_c_int64_t, me == last)), 'at the last')
      call kumi_group_alltoall(group, whole, wanted)
      call expect(all_same(exchanged, wanted), 'exchanged')
      call expect(all_same(dealt, [(element(last, me * length + i), i=1, length)]), 'dealt out')
      call kumi_group_reduce_scatter(group, whole, wanted(:length), KUMI_SUM)
      call expect(all_same(part, wanted(:length)), 'a part of the sum')
      deallocate (gathered, everywhere, exchanged, dealt, part, wanted)
    end do
  end subroutine started_blocks

  subroutine started_counts()
    type(kumi_group) :: group
    type(kumi_request) :: five(5)
    integer(c_int), allocatable, target, asynchronous :: mine(:), whole(:), gathered(:), everywhere(:), exchanged(:), &
      dealt(:), part(:)
    integer(c_int), allocatable :: wanted(:)
    integer(c_int) :: counts(ranks)
    integer :: own, i

    group = kumi_job_group()
    counts = [(3 + i, i=0, ranks - 1)]
    own = counts(me + 1)
    mine = [(100 * me + i, i=1, own)]
    whole = [(100 * me + i, i=1, sum(counts))]
    allocate (gathered(sum(counts)), everywhere(sum(counts)), exchanged(own * ranks), dealt(own), part(own), source=0)
    call kumi_group_igatherv(group, 0, mine, gathered, counts, five(1))
    call kumi_group_iscatterv(group, 0, whole, counts, dealt, five(2))
    call kumi_group_iallgatherv(group, mine, everywhere, counts, five(3))
    call kumi_group_ialltoallv(group, whole, counts, exchanged, spread(own, 1, ranks), five(4))
    call kumi_group_ireduce_scatterv(group, whole, part, counts, KUMI_MIN, five(5))
    call kumi_request_wait_all(five)
    allocate (wanted(sum(counts)), source=0)
    call kumi_group_allgatherv(group, mine, wanted, counts)
    call expect(all(everywhere == wanted), 'different lengths')
    call expect(all(gathered == merge(wanted, 0, me == 0)), 'at the root')
    call expect(all(dealt == [(sum(counts(:me)) + i, i=1, own)]), 'dealt out')
    call expect(all(part == dealt), 'the least')
    deallocate (wanted)
    allocate (wanted(own * ranks), source=0)
    call kumi_group_alltoallv(group, whole, counts, wanted, spread(own, 1, ranks))
    call expect(all(exchanged == wanted), 'exchanged')
  end subroutine started_counts

  ! What is wrong in itself, and of two members one that calls something else.
  subroutine wrong_starts()
    type(kumi_group) :: group, pair, other
    type(kumi_request) :: request
    integer, target, asynchronous :: data(4), into(4 * ranks), short(1)
    complex(c_double_complex), target :: z
    integer, pointer :: nothing(:)
    integer :: stat

    group = kumi_job_group()
    data = 1
    z = 1
    nullify (nothing)
    call kumi_group_ibroadcast(group, ranks, data, request, stat=stat)
    call expect_error(stat, KUMI_ERR_RANK, 'no such member')
    call kumi_group_ibroadcast(group, 0, nothing, request, stat=stat)
    call expect_error(stat, KUMI_ERR_NULL, 'nothing')
    call kumi_group_iallreduce(group, data(::2), KUMI_SUM, request, stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'gaps')
    call kumi_group_iallreduce(group, z, KUMI_MAX, request, stat=stat)
    call expect_error(stat, KUMI_ERR_OPERATION, 'complex numbers')
    call kumi_group_iallgather(group, data, into(2:), request, stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'too short')
    call kumi_group_iallgatherv(group, data, into, [4], request, stat=stat)
    if (ranks > 1) call expect_error(stat, KUMI_ERR_LENGTH, 'a count for every member')
    if (ranks == 1) call kumi_request_wait(request)
    call kumi_group_ialltoallv(group, into, spread(3, 1, ranks), into, spread(4, 1, ranks), request, stat=stat)
    call expect_error(stat, KUMI_ERR_LENGTH, 'counts that do not add up')
    call kumi_group_ibarrier(pair, request, stat=stat)
    call expect_error(stat, KUMI_ERR_GROUP, 'no group')
    call expect(.not. kumi_request_pending(request), 'nothing was started')
    call kumi_group_split(group, merge(0, KUMI_NO_COLOUR, me < 2), 0, pair)
    if (ranks > 1 .and. me < 2) then
      call kumi_group_duplicate(pair, other)
      if (me == 0) then
        call kumi_group_ibroadcast(pair, 0, data, request)
        call kumi_request_wait(request)
        call kumi_group_ibroadcast(other, 0, data, request)
        call kumi_request_wait(request)
      else
        call kumi_group_ibarrier(pair, request)
        call kumi_request_wait(request, stat=stat)
        call expect_error(stat, KUMI_ERR_DISAGREE, 'another call')
        call kumi_group_ibroadcast(other, 0, short, request)
        call kumi_request_wait(request, stat=stat)
        call expect_error(stat, KUMI_ERR_LENGTH, 'another length')
      end if
      call expect(.not. kumi_request_pending(request), 'it has ended')
    end if
    call kumi_barrier()
  end subroutine wrong_starts
end module started
