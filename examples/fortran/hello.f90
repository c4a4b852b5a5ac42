! The smallest program: every rank prints its number, in order.
program hello
  use, intrinsic :: iso_fortran_env, only: output_unit
  use kumi
  implicit none
  integer :: turn

  call kumi_init()
  turn = 0
  ! Rank r waits for a message of rank r - 1 before it prints.
  if (kumi_rank() > 0) call kumi_message_recv(kumi_rank() - 1, 0, turn)
  write (output_unit, '(4(a, i0))') 'hello from rank ', kumi_rank(), ' of ', kumi_size(), ' on node ', &
    kumi_node(), ', turn ', turn
  flush (output_unit)
  if (kumi_rank() + 1 < kumi_size()) call kumi_message_send(kumi_rank() + 1, 0, turn + 1)
  call kumi_finalize()
end program hello
