! Runs all parts of the test.
program main
  use unit
  use onesided
  use lists
  use requests
  use groups
  use started
  implicit none
  character(len=16) :: argument

  call get_command_argument(1, argument)
  if (argument == 'outside') then
    call outside()
  else
    call kumi_init()
    call identity()
    call messages()
    call probes()
    call windows()
    call views()
    call reductions()
    call exchanges()
    call atomics()
    call completions()
    call strided()
    call multicasts()
    call fifos()
    call signals()
    call failing_handlers()
    call pieces()
    call wrong_pieces()
    call records()
    call wrong_records()
    call many_signals()
    call own_memory()
    call wrong_memory()
    call puts_and_gets()
    call atomic_requests()
    call message_requests()
    call wrong_requests()
    call queues()
    call claims()
    call split()
    call collectives()
    call wrong_groups()
    call started_in_place()
    call started_blocks()
    call started_counts()
    call wrong_starts()
    call kumi_barrier()
    call kumi_finalize()
    if (failures == 0) write (*, '(a)') 'the module kumi holds'
  end if
  if (failures > 0) stop 1
end program main
