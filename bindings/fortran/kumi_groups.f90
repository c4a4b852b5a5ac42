! kumi_groups: groups of ranks, and their collectives as far as they do not depend on the type of data.  Not for
! programs, which use the module kumi.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi_groups
  use, intrinsic :: iso_c_binding, only: c_associated, c_int, c_int64_t, c_intptr_t, c_null_ptr, c_ptr, c_size_t
  use kumi_codes
  use kumi_base, only: finish, kumi_op, number_of, suits
  implicit none
  public
  private :: made

  ! A group's handle.  Copies are the same group.
  type :: kumi_group
    private
    type(c_ptr) :: handle = c_null_ptr
  end type kumi_group

  interface kumi_group_split
    module procedure split_i4, split_i8
  end interface kumi_group_split

  ! The functions of kumi.h.
  interface
    function c_group_split(group, colour, key, made) result(code) bind(c, name='kumi_group_split')
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: group
      integer(c_int), value :: colour
      integer(c_int64_t), value :: key
      type(c_ptr), intent(inout) :: made
      integer(c_int) :: code
    end function c_group_split

    function c_group_subset(group, members, count, made) result(code) bind(c, name='kumi_group_subset')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group
      integer(c_int), intent(in) :: members(*)
      integer(c_size_t), value :: count
      type(c_ptr), intent(inout) :: made
      integer(c_int) :: code
    end function c_group_subset

    function c_group_duplicate(group, made) result(code) bind(c, name='kumi_group_duplicate')
      import :: c_int, c_ptr
      type(c_ptr), value :: group
      type(c_ptr), intent(inout) :: made
      integer(c_int) :: code
    end function c_group_duplicate

    function c_group_free(group) result(code) bind(c, name='kumi_group_free')
      import :: c_int, c_ptr
      type(c_ptr), value :: group
      integer(c_int) :: code
    end function c_group_free

    function c_group_member(group) result(number) bind(c, name='kumi_group_member')
      import :: c_int, c_ptr
      type(c_ptr), value :: group
      integer(c_int) :: number
    end function c_group_member

    function c_group_members(group) result(number) bind(c, name='kumi_group_members')
      import :: c_int, c_ptr
      type(c_ptr), value :: group
      integer(c_int) :: number
    end function c_group_members

    function c_group_rank(group, member) result(number) bind(c, name='kumi_group_rank')
      import :: c_int, c_ptr
      type(c_ptr), value :: group
      integer(c_int), value :: member
      integer(c_int) :: number
    end function c_group_rank

    function c_group_find(group, job_rank, member) result(code) bind(c, name='kumi_group_find')
      import :: c_int, c_ptr
      type(c_ptr), value :: group
      integer(c_int), value :: job_rank
      integer(c_int), intent(inout) :: member
      integer(c_int) :: code
    end function c_group_find

    function c_group_barrier(group) result(code) bind(c, name='kumi_group_barrier')
      import :: c_int, c_ptr
      type(c_ptr), value :: group
      integer(c_int) :: code
    end function c_group_barrier

    function c_group_broadcast(group, root, data, count, type) result(code) bind(c, name='kumi_group_broadcast')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, data
      integer(c_int), value :: root, type
      integer(c_size_t), value :: count
      integer(c_int) :: code
    end function c_group_broadcast

    function c_group_reduce(group, root, send, recv, count, type, op) result(code) bind(c, name='kumi_group_reduce')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: root, type, op
      integer(c_size_t), value :: count
      integer(c_int) :: code
    end function c_group_reduce

    function c_group_allreduce(group, send, recv, count, type, op) result(code) bind(c, name='kumi_group_allreduce')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: type, op
      integer(c_size_t), value :: count
      integer(c_int) :: code
    end function c_group_allreduce

    function c_group_scan(group, send, recv, count, type, op) result(code) bind(c, name='kumi_group_scan')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: type, op
      integer(c_size_t), value :: count
      integer(c_int) :: code
    end function c_group_scan

    function c_group_exclusive_scan(group, send, recv, count, type, op) result(code) &
      bind(c, name='kumi_group_exclusive_scan')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: type, op
      integer(c_size_t), value :: count
      integer(c_int) :: code
    end function c_group_exclusive_scan

    function c_group_gatherv(group, root, send, count, recv, counts, type) result(code) &
      bind(c, name='kumi_group_gatherv')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: root, type
      integer(c_size_t), value :: count
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_int) :: code
    end function c_group_gatherv

    function c_group_gather(group, root, send, recv, count, type) result(code) bind(c, name='kumi_group_gather')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: root, type
      integer(c_size_t), value :: count
      integer(c_int) :: code
    end function c_group_gather

    function c_group_scatterv(group, root, send, counts, recv, count, type) result(code) &
      bind(c, name='kumi_group_scatterv')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: root, type
      integer(c_size_t), value :: count
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_int) :: code
    end function c_group_scatterv

    function c_group_scatter(group, root, send, recv, count, type) result(code) bind(c, name='kumi_group_scatter')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: root, type
      integer(c_size_t), value :: count
      integer(c_int) :: code
    end function c_group_scatter

    function c_group_allgather(group, send, recv, count, type) result(code) bind(c, name='kumi_group_allgather')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: type
      integer(c_size_t), value :: count
      integer(c_int) :: code
    end function c_group_allgather

    function c_group_allgatherv(group, send, recv, counts, type) result(code) bind(c, name='kumi_group_allgatherv')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: type
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_int) :: code
    end function c_group_allgatherv

    function c_group_alltoall(group, send, recv, count_per_member, type) result(code) &
      bind(c, name='kumi_group_alltoall')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: type
      integer(c_size_t), value :: count_per_member
      integer(c_int) :: code
    end function c_group_alltoall

    function c_group_alltoallv(group, send, send_counts, recv, recv_counts, type) result(code) &
      bind(c, name='kumi_group_alltoallv')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: type
      integer(c_size_t), intent(in) :: send_counts(*), recv_counts(*)
      integer(c_int) :: code
    end function c_group_alltoallv

    function c_group_reduce_scatter(group, send, recv, count, type, op) result(code) &
      bind(c, name='kumi_group_reduce_scatter')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: type, op
      integer(c_size_t), value :: count
      integer(c_int) :: code
    end function c_group_reduce_scatter

    function c_group_reduce_scatterv(group, send, recv, counts, type, op) result(code) &
      bind(c, name='kumi_group_reduce_scatterv')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv
      integer(c_int), value :: type, op
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_int) :: code
    end function c_group_reduce_scatterv
  end interface

contains

  ! ---- groups -------------------------------------------------------------------------------------

  ! The group of all ranks.
  function kumi_job_group() result(group)
    type(kumi_group) :: group

    group%handle = transfer(1_c_intptr_t, group%handle)
  end function kumi_job_group

  ! Whether this rank is in a group: others get none of kumi_group_split and kumi_group_subset.
  logical function kumi_group_exists(group)
    type(kumi_group), intent(in) :: group

    kumi_group_exists = c_associated(group%handle)
  end function kumi_group_exists

  subroutine made(code, handle, group, name, stat)
    integer(c_int), intent(in) :: code
    type(c_ptr), intent(in) :: handle
    type(kumi_group), intent(inout) :: group
    character(len=*), intent(in) :: name
    integer(c_int), intent(out), optional :: stat

    if (code == KUMI_OK) group%handle = handle
    call finish(code, name, stat)
  end subroutine made

  subroutine split_i8(group, colour, key, new, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: colour
    integer(c_int64_t), intent(in) :: key
    type(kumi_group), intent(inout) :: new
    integer(c_int), intent(out), optional :: stat
    type(c_ptr) :: handle

    handle = c_null_ptr
    call made(c_group_split(group%handle, colour, key, handle), handle, new, 'kumi_group_split', stat)
  end subroutine split_i8

  subroutine split_i4(group, colour, key, new, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: colour, key
    type(kumi_group), intent(inout) :: new
    integer(c_int), intent(out), optional :: stat

    call split_i8(group, colour, int(key, c_int64_t), new, stat)
  end subroutine split_i4

  subroutine kumi_group_subset(group, members, new, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: members(:)
    type(kumi_group), intent(inout) :: new
    integer(c_int), intent(out), optional :: stat
    type(c_ptr) :: handle

    handle = c_null_ptr
    call made(c_group_subset(group%handle, members, size(members, kind=c_size_t), handle), handle, new, &
              'kumi_group_subset', stat)
  end subroutine kumi_group_subset

  subroutine kumi_group_duplicate(group, new, stat)
    type(kumi_group), intent(in) :: group
    type(kumi_group), intent(inout) :: new
    integer(c_int), intent(out), optional :: stat
    type(c_ptr) :: handle

    handle = c_null_ptr
    call made(c_group_duplicate(group%handle, handle), handle, new, 'kumi_group_duplicate', stat)
  end subroutine kumi_group_duplicate

  subroutine kumi_group_free(group, stat)
    type(kumi_group), intent(inout) :: group
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: code

    code = c_group_free(group%handle)
    if (code == KUMI_OK) group = kumi_group()
    call finish(code, 'kumi_group_free', stat)
  end subroutine kumi_group_free

  integer(c_int) function kumi_group_member(group)
    type(kumi_group), intent(in) :: group

    kumi_group_member = c_group_member(group%handle)
  end function kumi_group_member

  integer(c_int) function kumi_group_members(group)
    type(kumi_group), intent(in) :: group

    kumi_group_members = c_group_members(group%handle)
  end function kumi_group_members

  integer(c_int) function kumi_group_rank(group, member)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: member

    kumi_group_rank = c_group_rank(group%handle, member)
  end function kumi_group_rank

  subroutine kumi_group_find(group, job_rank, member, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: job_rank
    integer(c_int), intent(out) :: member
    integer(c_int), intent(out), optional :: stat

    member = -1
    call finish(c_group_find(group%handle, job_rank, member), 'kumi_group_find', stat)
  end subroutine kumi_group_find

  subroutine kumi_group_barrier(group, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(out), optional :: stat

    call finish(c_group_barrier(group%handle), 'kumi_group_barrier', stat)
  end subroutine kumi_group_barrier

  ! ---- collectives of elements of `units` numbers each ----------------------------------------------

  pure type(c_ptr) function group_handle(group)
    type(kumi_group), intent(in) :: group

    group_handle = group%handle
  end function group_handle

  subroutine group_broadcast_units(group, root, data, count, kind, units, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: root, kind, units
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: count
    integer(c_int), intent(out), optional :: stat

    call finish(c_group_broadcast(group_handle(group), root, data, count * units, kind), 'kumi_group_broadcast', stat)
  end subroutine group_broadcast_units

  ! `how`: 'reduce', 'allreduce', 'scan' or 'exclusive_scan', in place.
  subroutine group_reduce_units(how, group, root, data, count, kind, units, op, stat)
    character(len=*), intent(in) :: how
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: root, kind, units
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: count
    type(kumi_op), intent(in) :: op
    integer(c_int), intent(out), optional :: stat
    type(c_ptr) :: handle
    integer(c_size_t) :: all
    integer(c_int) :: code, number

    if (.not. suits(op, units)) then
      call finish(KUMI_ERR_OPERATION, 'kumi_group_'//how, stat, 'complex numbers can only be summed up')
      return
    end if
    handle = group_handle(group)
    number = number_of(op)
    all = count * units
    select case (how)
    case ('reduce')
      code = c_group_reduce(handle, root, data, data, all, kind, number)
    case ('scan')
      code = c_group_scan(handle, data, data, all, kind, number)
    case ('exclusive_scan')
      code = c_group_exclusive_scan(handle, data, data, all, kind, number)
    case default
      code = c_group_allreduce(handle, data, data, all, kind, number)
    end select
    call finish(code, 'kumi_group_'//how, stat)
  end subroutine group_reduce_units

  ! Whether an array is one block of each member, at the root if there is one; else the error has been reported.
  logical function is_whole(group, root, count, block, name, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in), optional :: root
    integer(c_size_t), intent(in) :: count, block
    character(len=*), intent(in) :: name
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: members

    is_whole = .true.
    members = kumi_group_members(group)
    if (present(root)) then
      if (kumi_group_member(group) /= root) return
    end if
    if (members < 0) then
      call finish(members, name, stat)
      is_whole = .false.
    else if (count /= block * members) then
      call finish(KUMI_ERR_LENGTH, name, stat, 'one array must have the elements of all members, no more')
      is_whole = .false.
    end if
  end function is_whole

  ! Whether counts are those of an array, one for each member, at the root if there is one; else as above.
  logical function are_whole(group, root, counts, count, name, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in), optional :: root
    integer(c_int), intent(in) :: counts(:)
    integer(c_size_t), intent(in) :: count
    character(len=*), intent(in) :: name
    integer(c_int), intent(out), optional :: stat
    integer(c_int) :: members

    are_whole = .true.
    members = kumi_group_members(group)
    if (present(root)) then
      if (kumi_group_member(group) /= root) return
    end if
    if (members < 0) then
      call finish(members, name, stat)
      are_whole = .false.
    else if (size(counts) /= members .or. any(counts < 0) .or. sum(int(counts, c_size_t)) /= count) then
      call finish(KUMI_ERR_LENGTH, name, stat, &
                  'there must be one count for every member, and they must add up to the array''s size')
      are_whole = .false.
    end if
  end function are_whole

  subroutine group_gather_units(group, root, send, count, recv, recv_count, counts, kind, units, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: root, kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    integer(c_int), intent(in), optional :: counts(:)
    integer(c_int), intent(out), optional :: stat
    type(c_ptr) :: handle

    handle = group_handle(group)
    if (present(counts)) then
      if (.not. are_whole(group, root, counts, recv_count, 'kumi_group_gatherv', stat)) return
      call finish(c_group_gatherv(handle, root, send, count * units, recv, int(counts, c_size_t) * units, kind), &
                  'kumi_group_gatherv', stat)
    else
      if (.not. is_whole(group, root, recv_count, count, 'kumi_group_gather', stat)) return
      call finish(c_group_gather(handle, root, send, recv, count * units, kind), 'kumi_group_gather', stat)
    end if
  end subroutine group_gather_units

  subroutine group_scatter_units(group, root, send, send_count, counts, recv, count, kind, units, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: root, kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, send_count
    integer(c_int), intent(in), optional :: counts(:)
    integer(c_int), intent(out), optional :: stat
    type(c_ptr) :: handle

    handle = group_handle(group)
    if (present(counts)) then
      if (.not. are_whole(group, root, counts, send_count, 'kumi_group_scatterv', stat)) return
      call finish(c_group_scatterv(handle, root, send, int(counts, c_size_t) * units, recv, count * units, kind), &
                  'kumi_group_scatterv', stat)
    else
      if (.not. is_whole(group, root, send_count, count, 'kumi_group_scatter', stat)) return
      call finish(c_group_scatter(handle, root, send, recv, count * units, kind), 'kumi_group_scatter', stat)
    end if
  end subroutine group_scatter_units

  subroutine group_allgather_units(group, send, count, recv, recv_count, counts, kind, units, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    integer(c_int), intent(in), optional :: counts(:)
    integer(c_int), intent(out), optional :: stat
    type(c_ptr) :: handle

    handle = group_handle(group)
    if (present(counts)) then
      if (.not. are_whole(group, counts=counts, count=recv_count, name='kumi_group_allgatherv', stat=stat)) return
      if (counts(kumi_group_member(group) + 1) /= count) then
        call finish(KUMI_ERR_LENGTH, 'kumi_group_allgatherv', stat, 'the own count is not the size of send')
        return
      end if
      call finish(c_group_allgatherv(handle, send, recv, int(counts, c_size_t) * units, kind), &
                  'kumi_group_allgatherv', stat)
    else
      if (.not. is_whole(group, count=recv_count, block=count, name='kumi_group_allgather', stat=stat)) return
      call finish(c_group_allgather(handle, send, recv, count * units, kind), 'kumi_group_allgather', stat)
    end if
  end subroutine group_allgather_units

  subroutine group_alltoall_units(group, send, count, recv, recv_count, kind, units, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    integer(c_int), intent(out), optional :: stat
    integer(c_size_t) :: block

    block = count / max(kumi_group_members(group), 1)
    if (.not. is_whole(group, count=count, block=block, name='kumi_group_alltoall', stat=stat)) return
    if (.not. is_whole(group, count=recv_count, block=block, name='kumi_group_alltoall', stat=stat)) return
    call finish(c_group_alltoall(group_handle(group), send, recv, block * units, kind), 'kumi_group_alltoall', stat)
  end subroutine group_alltoall_units

  subroutine group_alltoallv_units(group, send, count, send_counts, recv, recv_count, recv_counts, kind, units, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: kind, units, send_counts(:), recv_counts(:)
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_group_alltoallv'

    if (.not. are_whole(group, counts=send_counts, count=count, name=name, stat=stat)) return
    if (.not. are_whole(group, counts=recv_counts, count=recv_count, name=name, stat=stat)) return
    call finish(c_group_alltoallv(group_handle(group), send, int(send_counts, c_size_t) * units, recv, &
                                  int(recv_counts, c_size_t) * units, kind), name, stat)
  end subroutine group_alltoallv_units

  subroutine group_reduce_scatter_units(group, send, count, recv, recv_count, op, counts, kind, units, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    type(kumi_op), intent(in) :: op
    integer(c_int), intent(in), optional :: counts(:)
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_group_reduce_scatter'
    type(c_ptr) :: handle

    handle = group_handle(group)
    if (.not. suits(op, units)) then
      call finish(KUMI_ERR_OPERATION, name, stat, 'complex numbers can only be summed up')
    else if (present(counts)) then
      if (.not. are_whole(group, counts=counts, count=count, name=name//'v', stat=stat)) return
      if (counts(kumi_group_member(group) + 1) /= recv_count) then
        call finish(KUMI_ERR_LENGTH, name//'v', stat, 'the own count is not the size of recv')
        return
      end if
      call finish(c_group_reduce_scatterv(handle, send, recv, int(counts, c_size_t) * units, kind, number_of(op)), &
                  name//'v', stat)
    else
      if (.not. is_whole(group, count=count, block=recv_count, name=name, stat=stat)) return
      call finish(c_group_reduce_scatter(handle, send, recv, recv_count * units, kind, number_of(op)), name, stat)
    end if
  end subroutine group_reduce_scatter_units
end module kumi_groups
