! kumi_started: collectives that are requests, as far as they do not depend on the type of data.  Not for programs, which
! use the module kumi.
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module kumi_started
  use, intrinsic :: iso_c_binding, only: c_int, c_int64_t, c_ptr, c_size_t
  use kumi_c_requests, only: kumi_report
  use kumi_codes
  use kumi_base, only: finish, kumi_op, number_of, suits
  use kumi_onesided, only: kumi_completion
  use kumi_groups
  use kumi_requests, only: begun, kumi_queue, kumi_request, told
  implicit none
  private
  public :: kumi_group_ibarrier, group_ibroadcast_units, group_ireduce_units, group_igather_units, &
    group_iscatter_units, group_iallgather_units, group_ialltoall_units, group_ireduce_scatter_units

  ! The functions of kumi_groups.h.
  interface
    function c_group_ibarrier(group, report, request) result(code) &
      bind(c, name='kumi_group_ibarrier')
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: group, report
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_ibarrier

    function c_group_ibroadcast(group, root, data, count, type, report, request) result(code) &
      bind(c, name='kumi_group_ibroadcast')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, data, report
      integer(c_int), value :: root, type
      integer(c_size_t), value :: count
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_ibroadcast

    function c_group_ireduce(group, root, send, recv, count, type, op, report, request) result(code) &
      bind(c, name='kumi_group_ireduce')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_int), value :: root, type, op
      integer(c_size_t), value :: count
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_ireduce

    function c_group_iallreduce(group, send, recv, count, type, op, report, request) result(code) &
      bind(c, name='kumi_group_iallreduce')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_size_t), value :: count
      integer(c_int), value :: type, op
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_iallreduce

    function c_group_iscan(group, send, recv, count, type, op, report, request) result(code) &
      bind(c, name='kumi_group_iscan')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_size_t), value :: count
      integer(c_int), value :: type, op
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_iscan

    function c_group_iexclusive_scan(group, send, recv, count, type, op, report, request) result(code) &
      bind(c, name='kumi_group_iexclusive_scan')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_size_t), value :: count
      integer(c_int), value :: type, op
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_iexclusive_scan

    function c_group_igather(group, root, send, recv, count, type, report, request) result(code) &
      bind(c, name='kumi_group_igather')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_int), value :: root, type
      integer(c_size_t), value :: count
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_igather

    function c_group_igatherv(group, root, send, count, recv, counts, type, report, request) result(code) &
      bind(c, name='kumi_group_igatherv')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_int), value :: root, type
      integer(c_size_t), value :: count
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_igatherv

    function c_group_iscatter(group, root, send, recv, count, type, report, request) result(code) &
      bind(c, name='kumi_group_iscatter')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_int), value :: root, type
      integer(c_size_t), value :: count
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_iscatter

    function c_group_iscatterv(group, root, send, counts, recv, count, type, report, request) result(code) &
      bind(c, name='kumi_group_iscatterv')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_int), value :: root, type
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_size_t), value :: count
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_iscatterv

    function c_group_iallgather(group, send, recv, count, type, report, request) result(code) &
      bind(c, name='kumi_group_iallgather')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_size_t), value :: count
      integer(c_int), value :: type
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_iallgather

    function c_group_iallgatherv(group, send, recv, counts, type, report, request) result(code) &
      bind(c, name='kumi_group_iallgatherv')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_int), value :: type
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_iallgatherv

    function c_group_ialltoall(group, send, recv, count_per_member, type, report, request) result(code) &
      bind(c, name='kumi_group_ialltoall')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_size_t), value :: count_per_member
      integer(c_int), value :: type
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_ialltoall

    function c_group_ialltoallv(group, send, send_counts, recv, recv_counts, type, report, request) result(code) &
      bind(c, name='kumi_group_ialltoallv')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_size_t), intent(in) :: send_counts(*), recv_counts(*)
      integer(c_int), value :: type
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_ialltoallv

    function c_group_ireduce_scatter(group, send, recv, count, type, op, report, request) result(code) &
      bind(c, name='kumi_group_ireduce_scatter')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_size_t), value :: count
      integer(c_int), value :: type, op
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_ireduce_scatter

    function c_group_ireduce_scatterv(group, send, recv, counts, type, op, report, request) result(code) &
      bind(c, name='kumi_group_ireduce_scatterv')
      import :: c_int, c_int64_t, c_ptr, c_size_t
      type(c_ptr), value :: group, send, recv, report
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_int), value :: type, op
      integer(c_int64_t), intent(inout) :: request
      integer(c_int) :: code
    end function c_group_ireduce_scatterv
  end interface

contains

  subroutine kumi_group_ibarrier(group, request, completion, queue, word, stat)
    type(kumi_group), intent(in) :: group
    type(kumi_request), intent(inout) :: request
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_group_ibarrier'
    integer(c_int) :: code
    type(kumi_report), target :: report
    type(c_ptr) :: address
    integer(c_int64_t) :: handle

    if (.not. told(completion, queue, word, report, address, name, stat)) return
    handle = 0
    code = c_group_ibarrier(group_handle(group), address, handle)
    call begun(code, handle, request, name, stat)
  end subroutine kumi_group_ibarrier

  subroutine group_ibroadcast_units(group, root, data, count, kind, units, request, completion, queue, word, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: root, kind, units
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: count
    type(kumi_request), intent(inout) :: request
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_group_ibroadcast'
    integer(c_int) :: code
    type(kumi_report), target :: report
    type(c_ptr) :: address
    integer(c_int64_t) :: handle

    if (.not. told(completion, queue, word, report, address, name, stat)) return
    handle = 0
    code = c_group_ibroadcast(group_handle(group), root, data, count * units, kind, address, handle)
    call begun(code, handle, request, name, stat)
  end subroutine group_ibroadcast_units

  ! In place; `how` is reduce, allreduce, scan or exclusive_scan.
  subroutine group_ireduce_units(how, group, root, data, count, kind, units, op, &
                                 request, completion, queue, word, stat)
    character(len=*), intent(in) :: how
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: root, kind, units
    type(c_ptr), intent(in) :: data
    integer(c_size_t), intent(in) :: count
    type(kumi_op), intent(in) :: op
    type(kumi_request), intent(inout) :: request
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    type(c_ptr) :: in
    integer(c_size_t) :: all
    integer(c_int) :: code, number
    type(kumi_report), target :: report
    type(c_ptr) :: address
    integer(c_int64_t) :: handle

    if (.not. told(completion, queue, word, report, address, 'kumi_group_i'//how, stat)) return
    if (.not. suits(op, units)) then
      call finish(KUMI_ERR_OPERATION, 'kumi_group_i'//how, stat, 'complex numbers can only be summed up')
      return
    end if
    handle = 0
    in = group_handle(group)
    number = number_of(op)
    all = count * units
    select case (how)
    case ('reduce')
      code = c_group_ireduce(in, root, data, data, all, kind, number, address, handle)
    case ('scan')
      code = c_group_iscan(in, data, data, all, kind, number, address, handle)
    case ('exclusive_scan')
      code = c_group_iexclusive_scan(in, data, data, all, kind, number, address, handle)
    case default
      code = c_group_iallreduce(in, data, data, all, kind, number, address, handle)
    end select
    call begun(code, handle, request, 'kumi_group_i'//how, stat)
  end subroutine group_ireduce_units

  ! With `counts` it is igatherv, and so are those that follow.
  subroutine group_igather_units(group, root, send, count, recv, recv_count, counts, kind, units, &
                                 request, completion, queue, word, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: root, kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    integer(c_int), intent(in), optional :: counts(:)
    type(kumi_request), intent(inout) :: request
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_group_igather'
    integer(c_int) :: code
    type(kumi_report), target :: report
    type(c_ptr) :: address
    integer(c_int64_t) :: handle

    if (present(counts)) then
      if (.not. are_whole(group, root, counts, recv_count, name//'v', stat)) return
      if (.not. told(completion, queue, word, report, address, name//'v', stat)) return
      handle = 0
      code = c_group_igatherv(group_handle(group), root, send, count * units, recv, int(counts, c_size_t) * units, kind, &
                              address, handle)
      call begun(code, handle, request, name//'v', stat)
    else
      if (.not. is_whole(group, root, recv_count, count, name, stat)) return
      if (.not. told(completion, queue, word, report, address, name, stat)) return
      handle = 0
      code = c_group_igather(group_handle(group), root, send, recv, count * units, kind, address, handle)
      call begun(code, handle, request, name, stat)
    end if
  end subroutine group_igather_units

  subroutine group_iscatter_units(group, root, send, send_count, counts, recv, count, kind, units, &
                                  request, completion, queue, word, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: root, kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, send_count
    integer(c_int), intent(in), optional :: counts(:)
    type(kumi_request), intent(inout) :: request
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_group_iscatter'
    integer(c_int) :: code
    type(kumi_report), target :: report
    type(c_ptr) :: address
    integer(c_int64_t) :: handle

    if (present(counts)) then
      if (.not. are_whole(group, root, counts, send_count, name//'v', stat)) return
      if (.not. told(completion, queue, word, report, address, name//'v', stat)) return
      handle = 0
      code = c_group_iscatterv(group_handle(group), root, send, int(counts, c_size_t) * units, recv, count * units, kind, &
                               address, handle)
      call begun(code, handle, request, name//'v', stat)
    else
      if (.not. is_whole(group, root, send_count, count, name, stat)) return
      if (.not. told(completion, queue, word, report, address, name, stat)) return
      handle = 0
      code = c_group_iscatter(group_handle(group), root, send, recv, count * units, kind, address, handle)
      call begun(code, handle, request, name, stat)
    end if
  end subroutine group_iscatter_units

  subroutine group_iallgather_units(group, send, count, recv, recv_count, counts, kind, units, &
                                    request, completion, queue, word, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    integer(c_int), intent(in), optional :: counts(:)
    type(kumi_request), intent(inout) :: request
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_group_iallgather'
    integer(c_int) :: code
    type(kumi_report), target :: report
    type(c_ptr) :: address
    integer(c_int64_t) :: handle

    if (present(counts)) then
      if (.not. are_whole(group, counts=counts, count=recv_count, name=name//'v', stat=stat)) return
      if (counts(kumi_group_member(group) + 1) /= count) then
        call finish(KUMI_ERR_LENGTH, name//'v', stat, 'the own count is not the size of send')
        return
      end if
      if (.not. told(completion, queue, word, report, address, name//'v', stat)) return
      handle = 0
      code = c_group_iallgatherv(group_handle(group), send, recv, int(counts, c_size_t) * units, kind, address, handle)
      call begun(code, handle, request, name//'v', stat)
    else
      if (.not. is_whole(group, count=recv_count, block=count, name=name, stat=stat)) return
      if (.not. told(completion, queue, word, report, address, name, stat)) return
      handle = 0
      code = c_group_iallgather(group_handle(group), send, recv, count * units, kind, address, handle)
      call begun(code, handle, request, name, stat)
    end if
  end subroutine group_iallgather_units

  subroutine group_ialltoall_units(group, send, count, recv, recv_count, send_counts, recv_counts, kind, units, &
                                   request, completion, queue, word, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    integer(c_int), intent(in), optional :: send_counts(:), recv_counts(:)
    type(kumi_request), intent(inout) :: request
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_group_ialltoall'
    integer(c_size_t) :: block
    integer(c_int) :: code
    type(kumi_report), target :: report
    type(c_ptr) :: address
    integer(c_int64_t) :: handle

    if (present(send_counts) .and. present(recv_counts)) then
      if (.not. are_whole(group, counts=send_counts, count=count, name=name//'v', stat=stat)) return
      if (.not. are_whole(group, counts=recv_counts, count=recv_count, name=name//'v', stat=stat)) return
      if (.not. told(completion, queue, word, report, address, name//'v', stat)) return
      handle = 0
      code = c_group_ialltoallv(group_handle(group), send, int(send_counts, c_size_t) * units, recv, &
                                int(recv_counts, c_size_t) * units, kind, address, handle)
      call begun(code, handle, request, name//'v', stat)
    else
      block = count / max(kumi_group_members(group), 1)
      if (.not. is_whole(group, count=count, block=block, name=name, stat=stat)) return
      if (.not. is_whole(group, count=recv_count, block=block, name=name, stat=stat)) return
      if (.not. told(completion, queue, word, report, address, name, stat)) return
      handle = 0
      code = c_group_ialltoall(group_handle(group), send, recv, block * units, kind, address, handle)
      call begun(code, handle, request, name, stat)
    end if
  end subroutine group_ialltoall_units

  subroutine group_ireduce_scatter_units(group, send, count, recv, recv_count, op, counts, kind, units, &
                                         request, completion, queue, word, stat)
    type(kumi_group), intent(in) :: group
    integer(c_int), intent(in) :: kind, units
    type(c_ptr), intent(in) :: send, recv
    integer(c_size_t), intent(in) :: count, recv_count
    type(kumi_op), intent(in) :: op
    integer(c_int), intent(in), optional :: counts(:)
    type(kumi_request), intent(inout) :: request
    type(kumi_completion), intent(in), optional :: completion
    type(kumi_queue), intent(in), optional :: queue
    integer(c_int64_t), intent(in), optional :: word
    integer(c_int), intent(out), optional :: stat
    character(len=*), parameter :: name = 'kumi_group_ireduce_scatter'
    integer(c_int) :: code
    type(kumi_report), target :: report
    type(c_ptr) :: address
    integer(c_int64_t) :: handle

    if (.not. suits(op, units)) then
      call finish(KUMI_ERR_OPERATION, name, stat, 'complex numbers can only be summed up')
      return
    end if
    if (present(counts)) then
      if (.not. are_whole(group, counts=counts, count=count, name=name//'v', stat=stat)) return
      if (counts(kumi_group_member(group) + 1) /= recv_count) then
        call finish(KUMI_ERR_LENGTH, name//'v', stat, 'the own count is not the size of recv')
        return
      end if
      if (.not. told(completion, queue, word, report, address, name//'v', stat)) return
      handle = 0
      code = c_group_ireduce_scatterv(group_handle(group), send, recv, int(counts, c_size_t) * units, kind, &
                                      number_of(op), address, handle)
      call begun(code, handle, request, name//'v', stat)
    else
      if (.not. is_whole(group, count=count, block=recv_count, name=name, stat=stat)) return
      if (.not. told(completion, queue, word, report, address, name, stat)) return
      handle = 0
      code = c_group_ireduce_scatter(group_handle(group), send, recv, recv_count * units, kind, number_of(op), address, &
                                     handle)
      call begun(code, handle, request, name, stat)
    end if
  end subroutine group_ireduce_scatter_units
end module kumi_started
